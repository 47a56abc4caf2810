package checks

import (
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaOtherNICs = Check{
	ID: "rdma-other-nics", Title: "jobs find the NICs for GPUs and no others", Area: AreaRDMA, Severity: SeverityInfo,
	DependsOn: []string{"rdma-device-present"},
	Why:       "NCCL, UCX and MPI take every active RDMA port that they find, also those of storage or management NICs. One at 25 Gb/s among several at 400 slows the whole, or leads into another network.",
	Fix:       []string{"Name the NICs for GPUs to the program"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
		"https://github.com/NVIDIA/nccl/issues/1277",
		"https://github.com/NVIDIA/nccl/issues/1412",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		var compute []*rdma.Device
		var others []string
		for _, s := range EachRDMA(c.Node) {
			if c.matters(s.NIC) {
				compute = append(compute, s.NIC)
				continue
			}
			for _, p := range s.NIC.Ports {
				state, _ := Need(c, "state of "+s.ID, p.State, s.NIC.Dir)
				if state != "ACTIVE" {
					continue
				}
				text := s.ID
				if r, ok := p.Rate.Get(); ok {
					text += " (" + gbps(r.BitsPerSec) + ")"
				}
				others = append(others, text)
			}
		}
		switch {
		case len(compute) == 0:
			c.NotApplicable("no NIC here is a GPU's")
		case others == nil:
			c.Pass("every active NIC is a GPU's")
		default:
			c.Info("also active: %s; name those for GPUs: NCCL_IB_HCA==%s", strings.Join(others, ", "), nicNames(compute))
		}
	},
}
