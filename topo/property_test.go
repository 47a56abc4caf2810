package topo_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// forest makes a random machine: root buses on NUMA nodes, root ports, switches
// to some depth, GPUs and NICs as leaves.
type forest struct {
	r        *rand.Rand
	m        *topo.Machine
	bus      uint8
	readable bool // port types can be read
}

func newForest(seed uint64, readable bool) *topo.Machine {
	f := &forest{r: rand.New(rand.NewPCG(seed, 1)), m: &topo.Machine{}, readable: readable}
	for root := range 1 + f.r.IntN(3) {
		f.bus++
		rootBus, numa := f.bus, root%2
		for dev := range 1 + f.r.IntN(3) {
			port := f.add(rootBus, uint8(dev), nil, rootBus, numa, pci.PortRoot)
			f.below(port, rootBus, numa, 1+f.r.IntN(4))
		}
	}
	return topotest.NUMANodes(f.m, 2)
}

func (f *forest) below(port pci.Address, rootBus uint8, numa, depth int) {
	f.bus++
	if depth == 0 || f.r.IntN(3) == 0 {
		f.leaf(f.bus, &port, rootBus, numa)
		return
	}
	up := f.add(f.bus, 0, &port, rootBus, numa, pci.PortUpstream)
	f.bus++
	bus := f.bus
	for dev := range 1 + f.r.IntN(3) {
		f.below(f.add(bus, uint8(dev), &up, rootBus, numa, pci.PortDownstream), rootBus, numa, depth-1)
	}
}

func (f *forest) add(bus, dev uint8, parent *pci.Address, rootBus uint8, numa int, t pci.PortType) pci.Address {
	fn := pci.Function{Address: pci.Address{Bus: bus, Device: dev}, Parent: parent,
		HostBridge: fmt.Sprintf("pci0000:%02x", rootBus), NUMANode: fact.Of(numa, "numa_node"), Class: fact.Of(pci.Class(0x060400), "class")}
	if f.readable {
		fn.Config.PortType = fact.Of(t, "config")
	}
	f.m.PCI = append(f.m.PCI, fn)
	return fn.Address
}

func (f *forest) leaf(bus uint8, parent *pci.Address, rootBus uint8, numa int) {
	a := f.add(bus, 0, parent, rootBus, numa, pci.PortEndpoint)
	f.m.PCI[len(f.m.PCI)-1].Class = fact.Of(pci.Class(0x030200), "class")
	if f.r.IntN(2) == 0 {
		f.m.GPU.GPUs = append(f.m.GPU.GPUs, gpu.GPU{Index: len(f.m.GPU.GPUs), Addr: a})
		return
	}
	f.m.RDMA.Devices = append(f.m.RDMA.Devices, rdma.Device{Name: fmt.Sprintf("mlx5_%d", len(f.m.RDMA.Devices)), PCI: fact.Of(a, "device")})
}

// insertSwitch puts a switch between a function and its parent.
func insertSwitch(m *topo.Machine, at int) {
	above := m.PCI[at].Parent
	up, down := m.PCI[at], m.PCI[at]
	up.Address, down.Address = pci.Address{Bus: 0xf0}, pci.Address{Bus: 0xf1}
	up.Class, down.Class = fact.Of(pci.Class(0x060400), "class"), fact.Of(pci.Class(0x060400), "class")
	if _, ok := m.PCI[at].Config.PortType.Get(); ok {
		up.Config.PortType, down.Config.PortType = fact.Of(pci.PortUpstream, ""), fact.Of(pci.PortDownstream, "")
	}
	up.Parent, down.Parent, m.PCI[at].Parent = above, &up.Address, &down.Address
	m.PCI = append(m.PCI, up, down)
}

func TestProperties(t *testing.T) {
	for seed := range uint64(150) {
		readable := seed%2 == 0
		m := newForest(seed, readable)
		g := topo.New(m)
		before := map[[2]string]topo.Class{}
		for _, a := range g.Devices() {
			for _, b := range g.Devices() {
				c := g.Class(a.ID, b.ID)
				before[[2]string{a.ID, b.ID}] = c
				if back := g.Class(b.ID, a.ID); c != back || c == "" || c == topo.ClassUnknown {
					t.Fatalf("seed %d: %s to %s is %q, back %q", seed, a.ID, b.ID, c, back)
				}
			}
		}
		if want := len(g.GPUs()) * len(g.NICs()); len(g.Pairs()) != want {
			t.Fatalf("seed %d: %d pairs, want %d", seed, len(g.Pairs()), want)
		}
		at := rand.New(rand.NewPCG(seed, 2)).IntN(len(m.PCI))
		if m.PCI[at].Parent == nil {
			continue
		}
		insertSwitch(m, at)
		g = topo.New(m)
		for pair, old := range before {
			if c := g.Class(pair[0], pair[1]); c.Rank() < old.Rank() {
				t.Errorf("seed %d: a switch above %s turned %s to %s from %s into %s",
					seed, m.PCI[at].Address, pair[0], pair[1], old, c)
			}
		}
	}
}
