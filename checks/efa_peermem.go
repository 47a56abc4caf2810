package checks

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var efaPeermem = Check{
	ID: "efa-peermem", Title: "libraries that look for efa_nv_peermem find it", Area: AreaDriver, Severity: SeverityInfo,
	Why: "EFA registers GPU memory by DMA-BUF and needs no module for it. Some libraries (UCX) take the absence of efa_nv_peermem for that of GPUDirect RDMA all the same.",
	Fix: []string{"Load AWS's module, or use libraries that ask for DMA-BUF: sudo modprobe efa_nv_peermem"},
	Refs: []string{
		"https://github.com/openucx/ucx/issues/10966",
		"https://github.com/amzn/amzn-drivers",
	},
	Subjects: func(n *Node) []Subject {
		return slices.DeleteFunc(eachHardwareNIC(n), func(s Subject) bool { return s.NIC.Transport.Or("") != rdma.EFA })
	},
	Eval: func(c *Case) {
		// gdr-way judges the way itself: here, missing is no fault.
		if _, state := See(c, "efa_nv_peermem", c.module("efa_nv_peermem")); state == fact.Known {
			c.Pass("loaded")
			return
		} else if state != fact.Absent {
			c.Unknown("cannot tell: the list of modules could not be seen")
			return
		}
		c.Info("efa_nv_peermem is not loaded: DMA-BUF does without, but UCX then sees no GPUDirect RDMA; load it: sudo modprobe efa_nv_peermem")
	},
}
