package checks

import (
	"fmt"
	"math"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

var pciePayload = Check{
	ID: "pcie-payload", Title: "no device sends larger PCIe packets than the path to its peer takes", Area: AreaPCIe,
	Severity: SeverityError, Rung: RungPath,
	Why: "Behind a switch, a NIC's write reaches the GPU as it was sent. A port or device whose Max_Payload_Size is smaller drops it as malformed, which is a fatal error. A payload size of 128 bytes costs a tenth of the bandwidth.",
	Fix: append([]string{"Boot with pci=pcie_bus_safe, which gives every device of a tree the largest size that all of them take"}, bootWith("pci=pcie_bus_safe")...),
	Refs: []string{
		"https://docs.kernel.org/admin-guide/kernel-parameters.html",
		"https://docs.kernel.org/driver-api/pci/p2pdma.html",
	},
	Subjects: EachPair,
	Eval:     evalPayload,
}

func evalPayload(c *Case) {
	if c.Platform.Virt == Guest {
		c.NotApplicable("a guest sees emulated registers: the host sets packet sizes")
		return
	}
	addr := c.Subject.GPU.Addr
	end, ok := needPathEnd(c)
	if !ok || !c.placed(addr, end) {
		return
	}
	common := c.Graph.Common(addr, end)
	if common == nil {
		// Between root ports the root complex may cut packets to size.
		c.NotApplicable("GPU and NIC share no switch: the root complex cuts packets to size")
		return
	}
	gpu, nic := c.physical(addr), c.physical(end)
	path := append([]*pci.Function{gpu, nic, common}, c.Graph.Bridges(addr, end)...)
	var smallest *pci.Function
	least, most := 0, math.MaxInt // bytes in force, and what all of the path support; 0: not known of all
	for _, f := range path {
		size, _ := Need(c, "Max_Payload_Size of "+f.Address.String(), f.Config.MPSBytes, f.Dir)
		if size == 0 {
			c.NotApplicable("%s is not a PCI Express device", f.Address)
			return
		}
		if smallest == nil || size < least {
			smallest, least = f, size
		}
		most = min(most, f.Config.MPSSupportedBytes.Or(0))
	}
	for _, sender := range []*pci.Function{nic, gpu} {
		if size := sender.Config.MPSBytes.V; size > least {
			c.Fail("%s sends packets of up to %d bytes, and %s on the path takes %d", sender.Address, size, smallest.Address, least)
			fixPayload(c)
			return
		}
	}
	const small = 128
	if least == small {
		for _, f := range path {
			mustSee(c, "largest payload of "+f.Address.String(), f.Config.MPSSupportedBytes, f.Dir)
		}
	}
	if least == small && most > small {
		c.Lower(SeverityWarning)
		c.Warn("packets carry %d bytes where all of the path take %d: about a tenth of the bandwidth is lost", least, most)
		fixPayload(c)
		return
	}
	c.Pass("%d bytes", least)
}

// fixPayload: pcie_bus_perf is the option that makes sizes differ on purpose.
func fixPayload(c *Case) {
	if line, _ := See(c, "kernel command line", c.Machine.Host.CommandLine); strings.Contains(line, "pcie_bus_perf") {
		c.Fix("Replace pci=pcie_bus_perf by pci=pcie_bus_safe on the kernel command line: it lets sizes differ, and forbids peer-to-peer")
	}
	c.Fix(bootWith("pci=pcie_bus_safe")...)
	c.Fix("Or set the Max Payload Size in the BIOS to Auto",
		fmt.Sprintf("See: sudo lspci -vv -s %s | grep MaxPayload", c.Subject.GPU.Addr))
}

// physical is the function that owns the link: a VF's physical function, where
// it is in sight.
func (n *Node) physical(a pci.Address) *pci.Function {
	f := n.Graph.Function(a)
	if f == nil {
		return &pci.Function{Address: a}
	}
	if pf, ok := f.PhysFn.Get(); ok && n.Graph.Function(pf) != nil {
		return n.Graph.Function(pf)
	}
	return f
}
