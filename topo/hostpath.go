package topo

import "github.com/gdrcheck/gdrcheck/pci"

// HostPath is the path from a NIC to the memory of the host: what its links up
// to the host bridge carry. Only the NIC's ID and the ceiling of the Pair are set.
func (g *Graph) HostPath(nic string) (Pair, bool) {
	d := g.byID[nic]
	if d == nil {
		return Pair{}, false
	}
	p := Pair{NIC: nic, Path: ClassPHB}
	var f *pci.Function
	if d.Addr != nil { // not its Data Direct interface, which is for memory of GPUs
		f = g.fn[*d.Addr]
	}
	if f == nil {
		p.CeilingReason = "no PCI function known for " + nic
		return p, true
	}
	g.setCeiling(&p, append([]*pci.Function{f}, g.Upstream(f.Address)...), nil)
	return p, true
}
