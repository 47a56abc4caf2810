package checks

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var numaBalancing = Check{
	ID: "numa-balancing", Title: "the kernel does not move pages between memory nodes by itself", Area: AreaHost, Severity: SeverityWarning,
	Why: "Automatic NUMA balancing unmaps pages to see who uses them. On a GPU node that interrupts the threads that feed GPUs and NICs, and collectives were seen to take half as long again.",
	Fix: []string{"Switch it off: sudo sysctl kernel.numa_balancing=0"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing",
		"https://github.com/ROCm/rccl/issues/1562",
		"https://docs.nvidia.com/dccpu/grace-perf-tuning-guide/os-settings.html",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		if len(c.Machine.GPU.GPUs) == 0 {
			c.none("a matter of GPU nodes")
			return
		}
		if nodes, known := c.Machine.Host.NUMA.Get(); known && withCPUs(nodes) < 2 {
			c.NotApplicable("one memory node: nothing to balance")
			return
		}
		n, ok := Need(c, "kernel.numa_balancing", c.Machine.Host.NUMABalancing)
		c.Want("0")
		switch {
		case !ok:
			c.NotApplicable("this kernel has none, or does not show it here")
		case n == 0:
			c.Pass("off")
		case c.Machine.Host.NUMA.State != fact.Known:
			Need(c, "memory nodes", fact.As(c.Machine.Host.NUMA, ""))
			c.Unknown("cannot tell: the kernel shows no memory nodes")
		default:
			c.Warn("automatic NUMA balancing is on (%d)", n)
			c.Fix("sudo sysctl kernel.numa_balancing=0",
				"To keep it: echo kernel.numa_balancing=0 | sudo tee /etc/sysctl.d/90-gdr.conf")
		}
	},
}

func withCPUs(nodes []host.NUMANode) int {
	n := 0
	for _, x := range nodes {
		if x.CPUs != "" {
			n++
		}
	}
	return n
}
