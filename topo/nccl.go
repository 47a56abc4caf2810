package topo

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// ncclUnknown is NCCL's class where it cannot be told.
const ncclUnknown = "unknown"

// ncclClass is the path type that NCCL gives a GPU and a NIC (src/graph/paths.cc):
// PIX through one PCI node, PXB through several, PHB through one CPU node, SYS
// through two, P2C where a coherent GPU reaches the NIC's CPU over C2C.
func (g *Graph) ncclClass(gpu, nic *Device) string {
	a, b := g.locality(gpu), g.locality(nic)
	if a == nil || b == nil {
		return ncclUnknown
	}
	up, down := g.ncclSwitches(a), g.ncclSwitches(b)
	for i, f := range up {
		j := slices.Index(down, f)
		switch {
		case j < 0:
			continue
		case i+j == 0:
			return "PIX"
		}
		return "PXB"
	}
	cpuA, okA := g.ncclCPU(a, up)
	cpuB, okB := g.ncclCPU(b, down)
	switch {
	case !okA || !okB:
		return ncclUnknown
	case cpuA != cpuB:
		return "SYS"
	case Coherent(gpu.GPU):
		return "P2C"
	}
	return "PHB"
}

// ncclSwitches returns the PCI nodes that NCCL's search sees above a function,
// the nearest first.
func (g *Graph) ncclSwitches(f *pci.Function) []*pci.Function { return flattenBroadcom(g.ncclNodes(f)) }

// ncclNodes returns the PCI elements that NCCL's topology file has above a
// function, the nearest first. NCCL goes up two levels at a time, which makes one node of a
// switch's downstream and upstream port and leaves root ports out
// (src/graph/xml.cc, ncclTopoGetXmlFromSys).
func (g *Graph) ncclNodes(f *pci.Function) []*pci.Function {
	// It reads addresses of four-digit domains only: below a VMD it sees a root.
	if f.Address.Domain > 0xffff {
		return nil
	}
	var nodes []*pci.Function
	up := g.Upstream(f.Address)
	for i := 1; i < len(up); i += 2 {
		nodes = append(nodes, up[i])
	}
	return nodes
}

// flattenBroadcom takes out the second level of Broadcom's Gen4 and Gen5
// switches, which show two levels of what is one switch in silicon
// (src/graph/topo.cc, ncclTopoFlattenBcmSwitches).
func flattenBroadcom(nodes []*pci.Function) []*pci.Function {
	out := slices.Clone(nodes)
	for i := len(out) - 1; i > 0; i-- {
		gen := broadcomGen(out[i], 0)
		if gen != 0 && broadcomGen(out[i-1], 1) == gen {
			out = slices.Delete(out, i-1, i)
			i--
		}
	}
	return out
}

// broadcomGen is the generation of a Broadcom switch in base mode, 0 for any
// other bridge. On Gen5 the subsystem device's top digit is the level.
func broadcomGen(f *pci.Function, level pci.ID) int {
	const broadcom = 0x1000
	if f.Vendor.Or(0) != broadcom || f.SubsystemVendor.Or(0) != broadcom {
		return 0
	}
	switch dev, sub := f.Device.Or(0), f.SubsystemDevice.Or(0)&0xf000; {
	case dev == 0xc010 && sub == 0xa000:
		return 4
	case dev == 0xc030 && sub == level<<12:
		return 5
	}
	return 0
}

// ncclCPU is the NUMA number of NCCL's CPU node, the kernel's word as it is: two
// functions with -1 share a CPU node there.
func (g *Graph) ncclCPU(f *pci.Function, nodes []*pci.Function) (int, bool) {
	if len(nodes) > 0 {
		f = nodes[len(nodes)-1]
	}
	n, ok := f.NUMANode.Get()
	if f.NUMANode.State == fact.Absent {
		return -1, true
	}
	return n, ok
}
