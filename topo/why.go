package topo

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// Meaning says what a class means, in nvidia-smi's sense.
func (c Class) Meaning() string {
	switch {
	case strings.HasPrefix(string(c), "NV"):
		return "a bonded set of NVLinks, as many as the number says"
	case c == ClassSelf:
		return "the device itself"
	case c == ClassPIX:
		return "at most a single PCIe bridge or switch"
	case c == ClassPXB:
		return "several PCIe bridges or switches, no host bridge"
	case c == ClassPHB:
		return "a PCIe host bridge (typically the CPU)"
	case c == ClassNODE:
		return "several PCIe host bridges within a NUMA node"
	case c == ClassSYS:
		return "the interconnect between NUMA nodes"
	}
	return "cannot be told: no bridge in common, and the kernel gives a side no NUMA node"
}

// Why says in a sentence what gives the path between two devices its class.
func (g *Graph) Why(from, to string) string {
	a, b := g.byID[from], g.byID[to]
	if a == nil || b == nil {
		return "no such device"
	}
	c := g.Class(from, to)
	x, y := g.locality(a), g.locality(b)
	switch {
	case c == ClassSelf:
		return "it is one device"
	case strings.HasPrefix(string(c), "NV"):
		return fmt.Sprintf("%s active NVLinks join them", strings.TrimPrefix(string(c), "NV"))
	case x == nil || y == nil:
		lost := from
		if x != nil {
			lost = to
		}
		return "no PCI function is known for " + lost
	case sameCard(x.Address, y.Address):
		return "both are functions of one device"
	}
	common, sideA, sideB := g.join(x.Address, y.Address)
	if common != nil {
		kind := g.bridgeKind(common)
		if c == ClassPIX && g.portType(common) == pci.PortUpstream {
			return fmt.Sprintf("both stand below one switch, whose upstream port is %s", common.Address)
		}
		if c == ClassPIX {
			return fmt.Sprintf("both stand directly below the %s %s", kind, common.Address)
		}
		return fmt.Sprintf("the lowest bridge above both is the %s %s, with %s below it on the one side and %s on the other",
			kind, common.Address, bridgeCount(len(sideA)), bridgeCount(len(sideB)))
	}
	ha, hb := g.hostBridge(x), g.hostBridge(y)
	if ha == hb {
		return fmt.Sprintf("no bridge is above both; both stand below the host bridge %s", ha)
	}
	na, okA := g.numa(x)
	nb, okB := g.numa(y)
	node := func(n int, ok bool) string {
		if !ok {
			return "no NUMA node known"
		}
		return fmt.Sprintf("NUMA node %d", n)
	}
	if okA && okB && na == nb {
		return fmt.Sprintf("they stand below two host bridges, %s and %s, of NUMA node %d", ha, hb, na)
	}
	return fmt.Sprintf("they stand below two host bridges, %s (%s) and %s (%s)", ha, node(na, okA), hb, node(nb, okB))
}

func bridgeCount(n int) string {
	switch n {
	case 0:
		return "none"
	case 1:
		return "one bridge"
	}
	return fmt.Sprintf("%d bridges", n)
}
