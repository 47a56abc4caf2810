package topo

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/pci"
)

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

// CommonLink is the lowest link toward the host that the paths of all these NICs
// go through: the port above it, and the payload that it carries in bytes a
// second; 0: that is not known. ok is false where they have none in common.
func (g *Graph) CommonLink(nics []string) (port pci.Address, bytesPerSec float64, ok bool) {
	var common []linkUp
	for i, nic := range nics {
		links := g.linksUp(nic)
		if i == 0 {
			common = links
			continue
		}
		common = slices.DeleteFunc(common, func(l linkUp) bool {
			return !slices.ContainsFunc(links, func(other linkUp) bool { return other.port == l.port })
		})
	}
	if len(common) == 0 {
		return pci.Address{}, 0, false
	}
	return common[0].port, common[0].bytesPerSec, true
}

// linkUp is a link on a path to the host, named by the port at its upper end:
// all functions below that share it.
type linkUp struct {
	port        pci.Address
	bytesPerSec float64
}

// linksUp are the links from a NIC to the host, the NIC's own first.
func (g *Graph) linksUp(nic string) []linkUp {
	d := g.byID[nic]
	if d == nil || d.Addr == nil || g.fn[*d.Addr] == nil {
		return nil
	}
	f := g.fn[*d.Addr]
	path := append([]*pci.Function{f}, g.Upstream(f.Address)...)
	mps, _ := g.pathMPS(path, nil)
	var out []linkUp
	for _, f := range path {
		link, has, why := g.upwardLink(f)
		if f.Parent == nil || !has && why == "" {
			continue
		}
		out = append(out, linkUp{*f.Parent, pci.UsableBytesPerSec(link.SpeedGTPerSec, link.Width, mps)})
	}
	return out
}
