package topo

import (
	"fmt"
	"slices"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Graph answers questions about the paths of one Machine. It keeps pointers
// into the Machine, which must not change while the Graph is used. A Graph may
// be used by several goroutines at once.
type Graph struct {
	m       *Machine
	fn      map[pci.Address]*pci.Function
	devices []Device
	byID    map[string]*Device
	// oneNode is true where the kernel has a single NUMA node: functions it
	// gives no node (-1) can then only be near that one.
	oneNode bool
	pairs   func() []Pair
}

// New builds the graph of a Machine.
func New(m *Machine) *Graph {
	g := &Graph{m: m, fn: make(map[pci.Address]*pci.Function, len(m.PCI)), byID: map[string]*Device{}}
	for i := range m.PCI {
		f := &m.PCI[i]
		if _, dup := g.fn[f.Address]; !dup {
			g.fn[f.Address] = f
		}
	}
	if nodes, ok := m.Host.NUMA.Get(); ok {
		withCPUs := 0
		for _, n := range nodes {
			if n.CPUs != "" {
				withCPUs++
			}
		}
		g.oneNode = withCPUs == 1
	}
	g.devices = append(g.gpuDevices(), g.nicDevices()...)
	for i := range g.devices {
		if _, dup := g.byID[g.devices[i].ID]; !dup {
			g.byID[g.devices[i].ID] = &g.devices[i]
		}
	}
	g.pairs = sync.OnceValue(g.buildPairs)
	return g
}

// Machine returns the machine that the graph is of.
func (g *Graph) Machine() *Machine { return g.m }

// Devices returns the GPUs, then the NICs: first those with an RDMA device,
// then the others, each group in natural order (mlx5_2 before mlx5_10).
func (g *Graph) Devices() []Device { return g.devices }

// GPUs returns the GPUs among the devices.
func (g *Graph) GPUs() []Device { return g.kind(KindGPU) }

// NICs returns the NICs among the devices.
func (g *Graph) NICs() []Device { return g.kind(KindNIC) }

func (g *Graph) kind(k Kind) []Device {
	var out []Device
	for _, d := range g.devices {
		if d.Kind == k {
			out = append(out, d)
		}
	}
	return out
}

// Device returns the device of that ID: "GPU0", "mlx5_0", "eno1", "0000:3b:00.0".
func (g *Graph) Device(id string) (Device, bool) {
	d, ok := g.byID[id]
	if !ok {
		return Device{}, false
	}
	return *d, true
}

// Function returns the PCI function at an address; nil where there is none.
func (g *Graph) Function(a pci.Address) *pci.Function { return g.fn[a] }

// Upstream returns the bridges above a function, the nearest first and the
// root port last. It is empty for a function on a root bus, as in a flat guest.
func (g *Graph) Upstream(a pci.Address) []*pci.Function {
	f := g.fn[a]
	if f == nil {
		return nil
	}
	var chain []*pci.Function
	for f.Parent != nil {
		up := g.fn[*f.Parent]
		// A recording made by hand may hold a loop; the kernel's tree does not.
		if up == nil || up.Address == a || slices.Contains(chain, up) {
			break
		}
		chain = append(chain, up)
		f = up
	}
	return chain
}

// Common returns the lowest bridge above both functions; nil where the path
// crosses a host bridge, or an address is not known.
func (g *Graph) Common(a, b pci.Address) *pci.Function {
	common, _, _ := g.join(a, b)
	return common
}

// Bridges returns the bridges on the path from a to b that lie strictly below
// their common bridge, in the order of the path. Those are where ACS redirection
// decides whether peer traffic turns at the common bridge or goes up to the root
// complex (drivers/pci/p2pdma.c, calc_map_type_and_dist). Where there is no
// common bridge, all bridges up to both root ports are returned. Common returns
// the common one.
func (g *Graph) Bridges(a, b pci.Address) []*pci.Function {
	_, below, above := g.join(a, b)
	slices.Reverse(above)
	return append(below, above...)
}

// join returns the lowest common bridge and, per side, the bridges strictly
// below it, the nearest to the endpoint first.
func (g *Graph) join(a, b pci.Address) (common *pci.Function, sideA, sideB []*pci.Function) {
	sideA, sideB = g.Upstream(a), g.Upstream(b)
	for i, f := range sideA {
		if j := slices.Index(sideB, f); j >= 0 {
			return f, sideA[:i:i], sideB[:j:j]
		}
	}
	return nil, sideA, sideB
}

// Placed says whether it is known where in the tree a function stands: not in
// trees whose links were copied as directories, in which every function would
// look like one on a root bus.
func (g *Graph) Placed(a pci.Address) bool {
	f := g.fn[a]
	return f != nil && (f.HostBridge != "" || f.Parent != nil)
}

// hostBridge names the root bus above a function: "pci0000:20". The kernel
// makes one for each host bridge, and one for each VMD domain.
func (g *Graph) hostBridge(f *pci.Function) string {
	if f.HostBridge != "" {
		return f.HostBridge
	}
	if up := g.Upstream(f.Address); len(up) > 0 {
		f = up[len(up)-1]
	}
	return fmt.Sprintf("pci%04x:%02x", f.Address.Domain, f.Address.Bus)
}

// numa returns the NUMA node of a function, where one can be told.
func (g *Graph) numa(f *pci.Function) (int, bool) {
	if n, ok := f.NUMANode.Get(); ok {
		return n, true
	}
	if f.NUMANode.State == fact.Absent && g.oneNode {
		for _, n := range g.m.Host.NUMA.V {
			if n.CPUs != "" {
				return n.ID, true
			}
		}
	}
	return 0, false
}

// locality returns the function whose place in the tree decides the device's
// paths: that of the Data Direct interface where a NIC has one, since its DMA
// to GPU memory goes through it.
func (g *Graph) locality(d *Device) *pci.Function {
	if d.RDMA != nil {
		if a, ok := d.RDMA.DataDirect.Get(); ok {
			if f := g.fn[a]; f != nil {
				return f
			}
		}
	}
	if d.Addr == nil {
		return nil
	}
	return g.fn[*d.Addr]
}

// Coherent tells whether a GPU shares a coherent address space with its CPU
// over NVLink-C2C (Grace): the driver gives its memory a NUMA node, or address
// translation is ATS.
func Coherent(x *gpu.GPU) bool {
	if x == nil {
		return false
	}
	nv, ok := x.NVML.Get()
	if !ok {
		return false
	}
	_, node := nv.NUMANode.Get()
	return node || nv.AddressingMode.Or("") == "ATS"
}

// HostBridge names the root bus above a function, "pci0000:20"; empty for an
// address that is not known.
func (g *Graph) HostBridge(a pci.Address) string {
	if f := g.fn[a]; f != nil {
		return g.hostBridge(f)
	}
	return ""
}

// NUMA returns a function's NUMA node, where one can be told: the kernel's word
// or, where it gives none on a machine with a single node, that one.
func (g *Graph) NUMA(a pci.Address) (int, bool) {
	if f := g.fn[a]; f != nil {
		return g.numa(f)
	}
	return 0, false
}

// BridgeKind names a bridge: "root port", "upstream port", "downstream port" or
// "bridge"; empty for what is none.
func (g *Graph) BridgeKind(a pci.Address) string {
	if f := g.fn[a]; f != nil && isBridge(f) {
		return g.bridgeKind(f)
	}
	return ""
}

// UpwardLink returns the link between a function and its parent. has is false
// where there is none; why says what kept it from being read.
func (g *Graph) UpwardLink(a pci.Address) (link pci.Link, has bool, why string) {
	if f := g.fn[a]; f != nil {
		return g.upwardLink(f)
	}
	return pci.Link{}, false, "no such function"
}
