package checks

import "github.com/gdrcheck/gdrcheck/rdma"

var rdmaTrafficClass = Check{
	ID: "rdma-traffic-class", Title: "no traffic class is set that a part of the queue pairs ignores", Area: AreaRDMA, Severity: SeverityInfo,
	DependsOn: []string{"rdma-port-state"},
	Why:       "The port's own traffic class (tc/N/traffic_class, which NVIDIA's driver has) overrides that of programs, but not on queue pairs that a program makes through DevX, as IBGDA and NCCL's GIN do: those go into the lossy class and retry until they fail, while NCCL's usual ones work.",
	Fix:       []string{"Give the same traffic class to the program: NCCL_IB_TC=N UCX_IB_TRAFFIC_CLASS=N"},
	Refs: []string{
		"https://github.com/NVIDIA/nccl/issues/2383",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-tc",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		transport, _ := Need(c, "transport", c.Subject.NIC.Transport)
		if transport != rdma.RoCE || c.Subject.NIC.Software {
			c.NotApplicable("a matter of RoCE NICs")
			return
		}
		tc, ok := Need(c, "traffic class", c.Subject.Port.TrafficClass)
		if !ok {
			c.Pass("none set")
			return
		}
		const dscpShift = 2
		c.Info("%d (DSCP %d) for all but DevX queue pairs: where IBGDA or GIN is used, set NVSHMEM_IB_TRAFFIC_CLASS=%d, NCCL_IB_TC=%d and NCCL_GIN_IB_TC=%d", tc, tc>>dscpShift, tc, tc, tc)
	},
}
