package topo

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Class returns the class of the path between two devices, as nvidia-smi
// topo -m defines it; ClassUnknown where it cannot be told or an ID is unknown.
func (g *Graph) Class(a, b string) Class {
	da, db := g.byID[a], g.byID[b]
	switch {
	case da == nil || db == nil:
		return ClassUnknown
	case da == db:
		return ClassSelf
	}
	if da.Kind == KindGPU && db.Kind == KindGPU {
		if n := nvLinks(da.GPU, db.GPU); n > 0 {
			return Class(fmt.Sprintf("NV%d", n))
		}
	}
	return g.pathClass(g.locality(da), g.locality(db))
}

// pathClass is the class that tree and NUMA give a pair of functions.
func (g *Graph) pathClass(a, b *pci.Function) Class {
	switch {
	case a == nil || b == nil:
		return ClassUnknown
	case a == b || sameCard(a.Address, b.Address):
		return ClassPIX
	}
	common, sideA, sideB := g.join(a.Address, b.Address)
	if common != nil {
		return g.switchClass(common, sideA, sideB)
	}
	if !g.Placed(a.Address) || !g.Placed(b.Address) {
		return ClassUnknown
	}
	if g.hostBridge(a) == g.hostBridge(b) {
		return ClassPHB
	}
	na, okA := g.numa(a)
	nb, okB := g.numa(b)
	switch {
	case !okA || !okB:
		return ClassUnknown
	case na == nb:
		return ClassNODE
	}
	return ClassSYS
}

// switchClass tells one bridge or switch from several. A switch is an upstream
// port with downstream ports below it: three bridges to the kernel, one switch to
// the user and to nvidia-smi. So below an upstream port one bridge on either
// side belongs to the same switch; below any other port none does.
func (g *Graph) switchClass(common *pci.Function, sideA, sideB []*pci.Function) Class {
	within := 0
	if g.portType(common) == pci.PortUpstream {
		within = 1
	}
	if len(sideA) <= within && len(sideB) <= within {
		return ClassPIX
	}
	return ClassPXB
}

// portType is what a bridge says it is or, where its capability cannot be read
// without root, what its place says: switches alternate upstream and downstream
// ports below a root port.
func (g *Graph) portType(f *pci.Function) pci.PortType {
	if t, ok := f.Config.PortType.Get(); ok {
		return t
	}
	switch depth := len(g.Upstream(f.Address)); {
	case depth == 0:
		return pci.PortRoot
	case depth%2 == 1:
		return pci.PortUpstream
	}
	return pci.PortDownstream
}

// nvLinks counts the active NVLinks between two GPUs, as nvidia-smi does for
// NV#: those that end at the peer or, where none does, those into NVSwitches, of
// which both sides need one each.
func nvLinks(a, b *gpu.GPU) int {
	directA, switchA, okA := countLinks(a, b.Addr)
	directB, switchB, okB := countLinks(b, a.Addr)
	switch {
	case !okA && !okB:
		return 0
	case !okA:
		return directB
	case !okB:
		return directA
	}
	if n := min(directA, directB); n > 0 {
		return n
	}
	return min(switchA, switchB)
}

func countLinks(x *gpu.GPU, peer pci.Address) (direct, toSwitch int, ok bool) {
	nv, ok := x.NVML.Get()
	if !ok {
		return 0, 0, false
	}
	links, ok := nv.NVLinks.Get()
	for _, l := range links {
		switch {
		case !l.Active:
		case l.RemoteType == "switch":
			toSwitch++
		case l.Remote == peer:
			direct++
		}
	}
	return direct, toSwitch, ok
}

// Rank orders classes, best first: X, NV#, PIX, PXB, PHB, NODE, SYS, unknown.
func (c Class) Rank() int {
	if strings.HasPrefix(string(c), "NV") {
		return 1
	}
	for i, k := range []Class{ClassSelf, "", ClassPIX, ClassPXB, ClassPHB, ClassNODE, ClassSYS} {
		if c == k && k != "" {
			return i
		}
	}
	return 7
}
