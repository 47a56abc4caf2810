package checks

import (
	"slices"
	"strings"
)

var nicAffinity = Check{
	ID: "nic-affinity", Title: "there is a NIC nearest to each GPU that no other needs", Area: AreaPCIe, Severity: SeverityInfo,
	DependsOn: []string{"gpu-present", "rdma-device-present"},
	Why:       "A NIC that several GPUs have nearest is shared by them; one that no GPU has nearest stays idle unless a job asks for it.",
	Fix:       []string{"See the pairs, and give jobs their NICs accordingly: gdrcheck topo"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
	},
	Subjects: eachHardwareNIC,
	Eval: func(c *Case) {
		gpus := c.Graph.GPUsOf(c.Subject.ID)
		c.Row("GPUs that have it nearest", orElse(strings.Join(gpus, ", "), "none"), "topo:PCI tree and NUMA nodes")
		switch {
		case len(c.Machine.GPU.GPUs) == 0:
			c.NotApplicable("this node has no GPU")
		case slices.Contains(c.Graph.Idle(), c.Subject.ID):
			c.Info("idle: no GPU has it nearest")
		case len(gpus) == 0:
			c.NotApplicable("not a NIC for compute")
		case len(gpus) > len(nearest(c, gpus)):
			c.Info("shared by %s", strings.Join(gpus, ", "))
		default:
			c.Pass("nearest to %s", strings.Join(gpus, ", "))
		}
	},
}

// nearest are the NICs that any of some GPUs has nearest.
func nearest(c *Case, gpus []string) []string {
	var out []string
	for _, g := range gpus {
		out = append(out, c.Graph.Affinity()[g]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
