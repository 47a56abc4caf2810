package checks

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

var p2pHostBridge = Check{
	ID: "p2p-host-bridge", Title: "the kernel lets AMD GPUs and NICs talk through the root complex", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"kernel-dmabuf"},
	Why:       "amdgpu exports a dma-buf only to devices that the kernel's P2PDMA knows to reach it: below one switch, or through a root complex on its list (AMD Zen, some of Intel's). NVIDIA's driver does not ask that list.",
	Fix:       []string{"See what stands below one switch: gdrcheck topo -o tree", "No command moves a card: put GPU and NIC below one PCIe switch, or use amdgpu's peer memory client"},
	Refs: []string{
		"https://github.com/torvalds/linux/blob/master/drivers/pci/p2pdma.c",
		"https://docs.kernel.org/driver-api/pci/p2pdma.html",
	},
	UnknownIs: SeverityWarning, // gdr-way decides
	Subjects:  eachAMDPair,
	Eval:      evalP2PHostBridge,
}

// intelHostBridges are those of the kernel's list (pci_p2pdma_whitelist, 6.12).
// True: only for devices below the same host bridge.
var intelHostBridges = map[pci.ID]bool{
	0x3c00: true, 0x3c01: true, 0x2f00: true, 0x2f01: true, // Sandy Bridge, Haswell
	0x2030: false, 0x2031: false, 0x2032: false, 0x2033: false, 0x2020: false, // Skylake
	0x09a2: false, // Ice Lake and newer
}

// eachAMDPair has the pairs of AMD's GPUs: NVIDIA's driver does not ask the list.
func eachAMDPair(n *Node) []Subject {
	return slices.DeleteFunc(EachPair(n), func(s Subject) bool { return s.GPU.Vendor != gpu.VendorAMD })
}

func evalP2PHostBridge(c *Case) {
	pair := c.Subject.Pair
	switch {
	case pair.Path.Rank() <= topo.ClassPXB.Rank():
		c.Pass("GPU and NIC share a switch (%s)", pair.Path)
		return
	case slices.Contains(c.Machine.Host.MemoryPeers.V, "amdkfd"):
		c.NotApplicable("amdgpu's peer memory client does not ask the kernel's list")
		return
	}
	mustSee(c, "PCI function of the NIC", c.Subject.NIC.PCI)
	gpuAt, nicAt := c.Subject.GPU.Addr, c.Subject.NIC.PCI.V
	if !c.placed(gpuAt, nicAt) {
		return
	}
	vendor, _ := Need(c, "CPU vendor", c.Machine.Host.CPU.Vendor)
	if vendor == "AuthenticAMD" {
		const zen = 0x17
		family, _ := Need(c, "CPU family", c.Machine.Host.CPU.Family)
		c.Want("%d or newer", zen)
		if family >= zen {
			c.Pass("AMD Zen: on the kernel's list")
			return
		}
	}
	bridge := hostBridgeOf(c, gpuAt)
	if vendor == "GenuineIntel" && bridge != nil {
		id, _ := Need(c, "host bridge", bridge.Device, bridge.Dir)
		same := c.Graph.Function(gpuAt).HostBridge == c.Graph.Function(nicAt).HostBridge
		if onlySame, listed := intelHostBridges[id]; listed && (same || !onlySame) {
			c.Pass("the host bridge is on the kernel's list")
			return
		}
	}
	c.Row("path", string(pair.Path), "topo")
	c.Want("PIX or PXB, or a root complex on the kernel's list")
	fail := c.Fail
	if vendor == "GenuineIntel" && bridge == nil {
		fail = c.Warn
		c.Unsure("the host bridge is not among the functions seen; a registration of GPU memory tells")
	}
	fail("GPU and NIC meet in a root complex that is not on the kernel's P2PDMA list: DMA-BUF is refused")
	c.Fix("Move "+c.Subject.NIC.Name+" below the switch of "+c.Subject.Pair.GPU+", or take a NIC that is there: gdrcheck topo",
		"Or use the peer memory client: DOCA-OFED with amdgpu-dkms on a kernel older than 6.3")
}

// hostBridgeOf is the function that stands for a host bridge: device 0 of its
// root bus.
func hostBridgeOf(c *Case, a pci.Address) *pci.Function {
	f := c.Graph.Function(a)
	for i := range c.Machine.PCI {
		b := &c.Machine.PCI[i]
		class, ok := b.Class.Get()
		if ok && b.HostBridge == f.HostBridge && b.Parent == nil && b.Address.Device == 0 && b.Address.Function == 0 &&
			class.Sub() == pci.ClassHostBridge && b.Device.State != fact.NotCollected {
			return b
		}
	}
	return nil
}
