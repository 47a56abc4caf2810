package topo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/pci"
)

// Pairs returns every GPU with every NIC that has an RDMA device, in the order
// of Devices.
func (g *Graph) Pairs() []Pair { return g.pairs() }

// Pair returns one of Pairs.
func (g *Graph) Pair(gpu, nic string) (Pair, bool) {
	for _, p := range g.pairs() {
		if p.GPU == gpu && p.NIC == nic {
			return p, true
		}
	}
	return Pair{}, false
}

// Affinity returns for each GPU the compute NICs with the best path: by class,
// then by what the path carries at its best, so that a link that an idle GPU
// lowered does not change the answer. The list is empty where the node has no
// NIC for compute.
func (g *Graph) Affinity() map[string][]string {
	out := map[string][]string{}
	for _, d := range g.GPUs() {
		out[d.ID] = []string{}
	}
	for _, p := range g.pairs() {
		if p.Preferred {
			out[p.GPU] = append(out[p.GPU], p.NIC)
		}
	}
	return out
}

// GPUsOf returns the GPUs that a NIC is the best, or among the best, for.
func (g *Graph) GPUsOf(nic string) []string {
	var out []string
	for _, p := range g.pairs() {
		if p.NIC == nic && p.Preferred {
			out = append(out, p.GPU)
		}
	}
	return out
}

// Shared returns the compute NICs that are best for more than one GPU.
func (g *Graph) Shared() []string {
	return g.computeNICs(func(gpus int) bool { return gpus > 1 })
}

// Idle returns the compute NICs that are best for no GPU.
func (g *Graph) Idle() []string {
	return g.computeNICs(func(gpus int) bool { return gpus == 0 })
}

func (g *Graph) computeNICs(keep func(gpus int) bool) []string {
	var out []string
	for _, d := range g.NICs() {
		if d.Role == RoleCompute && keep(len(g.GPUsOf(d.ID))) {
			out = append(out, d.ID)
		}
	}
	return out
}

func (g *Graph) buildPairs() []Pair {
	pairs := []Pair{}
	for i := range g.devices {
		x := &g.devices[i]
		if x.Kind != KindGPU {
			continue
		}
		first := len(pairs)
		for j := range g.devices {
			if n := &g.devices[j]; n.RDMA != nil {
				pairs = append(pairs, g.buildPair(x, n))
			}
		}
		g.markPreferred(pairs[first:])
	}
	return pairs
}

// markPreferred marks one GPU's best NICs.
func (g *Graph) markPreferred(pairs []Pair) {
	compare := func(a, b *Pair) int {
		return cmp.Or(cmp.Compare(a.Path.Rank(), b.Path.Rank()), cmp.Compare(b.BestBytesPerSec, a.BestBytesPerSec))
	}
	var best *Pair
	for i := range pairs {
		p := &pairs[i]
		if g.byID[p.NIC].Role == RoleCompute && (best == nil || compare(p, best) < 0) {
			best = p
		}
	}
	for i := range pairs {
		p := &pairs[i]
		p.Preferred = best != nil && g.byID[p.NIC].Role == RoleCompute && compare(p, best) == 0
	}
}

func (g *Graph) buildPair(x, n *Device) Pair {
	p := Pair{GPU: x.ID, NIC: n.ID, Path: g.Class(x.ID, n.ID), NCCL: g.ncclClass(x, n), Hops: []Hop{}}
	a, b := g.locality(x), g.locality(n)
	if a == nil || b == nil {
		p.CeilingReason = "no PCI function known for " + n.ID
		if a == nil {
			p.CeilingReason = "no PCI function known for " + x.ID
		}
		return p
	}
	common, sideA, sideB := g.join(a.Address, b.Address)
	slices.Reverse(sideB)
	// The links below the common bridge are the path's; its own goes elsewhere.
	below := slices.Concat([]*pci.Function{a}, sideA, sideB, []*pci.Function{b})
	g.setCeiling(&p, below, common)

	p.Hops = append(p.Hops, g.deviceHop(x, a))
	for _, f := range sideA {
		p.Hops = append(p.Hops, g.bridgeHop(f))
	}
	switch {
	case common != nil:
		p.Hops = append(p.Hops, g.bridgeHop(common))
	case !sameCard(a.Address, b.Address):
		p.Hops = append(p.Hops, g.rootHops(a, b)...)
	}
	for _, f := range sideB {
		p.Hops = append(p.Hops, g.bridgeHop(f))
	}
	p.Hops = append(p.Hops, g.deviceHop(n, b))
	return p
}

// Path is the path between any two devices, hop by hop from the first to the
// second, as a Pair with their IDs. Preferred is set for a GPU and a NIC only.
func (g *Graph) Path(from, to string) (Pair, bool) {
	a, b := g.byID[from], g.byID[to]
	if a == nil || b == nil {
		return Pair{}, false
	}
	p := g.buildPair(a, b)
	if pair, ok := g.Pair(from, to); ok {
		p.Preferred = pair.Preferred
	} else if pair, ok := g.Pair(to, from); ok {
		p.Preferred, p.NCCL = pair.Preferred, pair.NCCL
	}
	return p, true
}

// rootHops are the host bridges, and between NUMA nodes those too.
func (g *Graph) rootHops(a, b *pci.Function) []Hop {
	ha, hb := g.hostBridge(a), g.hostBridge(b)
	hops := []Hop{{ID: ha, Kind: "host bridge"}}
	if ha == hb {
		return hops
	}
	na, okA := g.numa(a)
	nb, okB := g.numa(b)
	if okA {
		hops = append(hops, Hop{ID: fmt.Sprintf("node%d", na), Kind: "numa node"})
	}
	if okB && (!okA || na != nb) {
		hops = append(hops, Hop{ID: fmt.Sprintf("node%d", nb), Kind: "numa node"})
	}
	return append(hops, Hop{ID: hb, Kind: "host bridge"})
}

func (g *Graph) deviceHop(d *Device, f *pci.Function) Hop {
	h := Hop{ID: f.Address.String(), Kind: string(d.Kind), Addr: &f.Address, Name: d.ID}
	if d.Addr != nil && *d.Addr != f.Address {
		h.Name += " (Data Direct)"
	}
	if link, ok, _ := g.upwardLink(f); ok {
		h.Link = &link
	}
	return h
}

func (g *Graph) bridgeHop(f *pci.Function) Hop {
	h := Hop{ID: f.Address.String(), Kind: g.bridgeKind(f), Addr: &f.Address, Name: g.pciName(f.Address)}
	if link, ok, _ := g.upwardLink(f); ok {
		h.Link = &link
	}
	if acs, ok := f.Config.ACS.Get(); ok {
		h.ACSCtl = &acs.Ctl
	}
	return h
}

func (g *Graph) bridgeKind(f *pci.Function) string {
	switch g.portType(f) {
	case pci.PortRoot:
		return "root port"
	case pci.PortUpstream:
		return "upstream port"
	case pci.PortDownstream:
		return "downstream port"
	default:
		return "bridge"
	}
}
