package checks

import (
	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaTransport = Check{
	ID: "rdma-transport", Title: "the NIC speaks InfiniBand or RoCE", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	Why: "NCCL, NVSHMEM and DeepEP speak InfiniBand and RoCE. iWARP and AWS EFA carry RDMA too, but with rules of their own: EFA through libfabric, iWARP through rdma_cm, and each with less software that can use GPU memory.",
	Fix: []string{"Intel E810: sudo devlink dev param set pci/ADDRESS name enable_iwarp value false cmode runtime && sudo devlink dev param set pci/ADDRESS name enable_roce value true cmode runtime", "No command makes EFA or another iWARP NIC speak RoCE: use libfabric for EFA"},
	Refs: []string{
		"https://docs.kernel.org/networking/devlink/devlink-params.html",
		"https://github.com/aws/aws-ofi-nccl",
	},
	Subjects: EachRDMA,
	Eval: func(c *Case) {
		nic := c.Subject.NIC
		if nic.Software {
			c.NotApplicable("software RDMA")
			return
		}
		t, ok := Need(c, "transport", nic.Transport)
		c.Want("InfiniBand or RoCE")
		switch {
		case !ok:
			c.Unknown("cannot tell: no port says what it is")
		case t == rdma.InfiniBand || t == rdma.RoCE:
			c.Pass("%s", t)
		case t == rdma.EFA:
			c.Info("EFA: reached through libfabric, which NCCL takes through the aws-ofi-nccl plugin")
		case t == rdma.IWARP && c.matters(nic):
			c.Warn("iWARP: NCCL and NVSHMEM do not use it")
			if driver := nic.Driver.Or(""); driver == "ice" || driver == "irdma" || driver == "i40e" {
				c.Fix("Switch it to RoCE: sudo devlink dev param set pci/"+c.firmwareName()+" name enable_iwarp value false cmode runtime && sudo devlink dev param set pci/"+c.firmwareName()+" name enable_roce value true cmode runtime",
					"Where the driver lacks the parameters: options irdma roce_ena=1 in /etc/modprobe.d/irdma.conf (older: ice's aux), then load irdma anew")
			} else {
				c.Fix("Use a NIC that speaks RoCE or InfiniBand for GPUs; programs that connect through rdma_cm can use this one")
			}
		default:
			c.Info("%s", orElse(string(t), "another transport"))
		}
	},
}
