package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var peermemVisible = Check{
	ID: "peermem-visible", Title: "libraries can see the peer memory client", Area: AreaDriver, Severity: SeverityWarning,
	Why: "Older NCCL, RCCL and UCX releases look for the client only at /sys/kernel/mm/memory_peers, which newer RDMA cores on kernels 6.4 and newer no longer have. They then say \"GDR disabled\" though nvidia-peermem works.",
	Fix: []string{"Load it anew: sudo rmmod nvidia_peermem && sudo modprobe nvidia-peermem", "Or use NCCL 2.14 or newer, which also looks at /sys/module/nvidia_peermem, or DMA-BUF"},
	Refs: []string{
		"https://github.com/ROCm/rccl/issues/1328",
		"https://github.com/NVIDIA/nccl/issues/1939",
		"https://github.com/NVIDIA/nccl/issues/1537",
	},
	Subjects: eachNVIDIANode,
	Eval: func(c *Case) {
		mod, loaded := Need(c, "peer memory module", c.module("nvidia_peermem", "nv_peer_mem"))
		if !loaded {
			c.NotApplicable("no peer memory module is loaded")
			return
		}
		clients, there := Need(c, "peer memory clients", c.Machine.Host.MemoryPeers)
		c.Want("nv_mem")
		switch {
		case there && slices.ContainsFunc(clients, func(s string) bool { return strings.HasPrefix(s, "nv_mem") }):
			c.Pass("%s, and its client is shown", mod.Name)
		case there:
			c.Warn("%s is loaded, but its client is not among those registered (%s)", mod.Name, orElse(strings.Join(clients, ", "), "none"))
			c.Fix("Load it anew and see what the kernel says: sudo rmmod "+mod.Name+" && sudo modprobe "+mod.Name+"; dmesg | tail -20",
				"If it stays away, reinstall the GPU driver after DOCA-OFED")
		case c.dmabufAll() == yes:
			c.Info("%s is loaded, but /sys/kernel/mm/memory_peers is not there: libraries that look only there do without it; DMA-BUF works", mod.Name)
		default:
			c.Warn("%s is loaded, but /sys/kernel/mm/memory_peers is not there: libraries that look only there say \"GDR disabled\"", mod.Name)
			c.Unsure("each library decides: NCCL_DEBUG=INFO shows \"GDRDMA\" where it is used")
			c.Fix("Use NCCL 2.14 or newer, which also looks at /sys/module/nvidia_peermem/version",
				"Or give it DMA-BUF: open GPU kernel modules 515 or newer")
		}
	},
}

// holdersOf are the modules that use one, of those that are loaded.
func (n *Node) holdersOf(name string) fact.Value[[]string] {
	m := n.module(name)
	return fact.As(m, slices.Clone(m.V.Holders))
}
