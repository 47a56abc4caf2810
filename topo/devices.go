package topo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

func (g *Graph) gpuDevices() []Device {
	out := make([]Device, 0, len(g.m.GPU.GPUs))
	for i := range g.m.GPU.GPUs {
		x := &g.m.GPU.GPUs[i]
		d := Device{ID: fmt.Sprintf("GPU%d", x.Index), Kind: KindGPU, Addr: &x.Addr, Name: x.Name, GPU: x}
		d.NUMA = g.kernelNUMA(x.Addr)
		if d.Name == "" {
			d.Name = g.pciName(x.Addr)
		}
		out = append(out, d)
	}
	slices.SortStableFunc(out, func(a, b Device) int { return rdma.CompareNames(a.ID, b.ID) })
	return out
}

// nicDevices lists RDMA devices, then PCI network functions that have none.
func (g *Graph) nicDevices() []Device {
	var nics []Device
	taken := map[pci.Address]bool{}
	for i := range g.m.RDMA.Devices {
		r := &g.m.RDMA.Devices[i]
		d := Device{ID: r.Name, Kind: KindNIC, RDMA: r}
		if a, ok := r.PCI.Get(); ok {
			taken[a] = true
			d.Addr, d.NUMA, d.Name = &a, g.kernelNUMA(a), g.pciName(a)
		}
		if a, ok := r.DataDirect.Get(); ok {
			taken[a] = true
		}
		if n, ok := r.NUMANode.Get(); ok && d.NUMA == nil {
			d.NUMA = &n
		}
		if m, ok := r.Model.Get(); ok && m.Name != "" {
			d.Name = m.Name
		}
		nics = append(nics, d)
	}
	slices.SortStableFunc(nics, func(a, b Device) int { return rdma.CompareNames(a.ID, b.ID) })
	g.setRoles(nics)

	plain := g.plainNICs(taken)
	slices.SortStableFunc(plain, func(a, b Device) int { return rdma.CompareNames(a.ID, b.ID) })
	return append(nics, plain...)
}

// plainNICs are the network functions without an RDMA device, named by their
// first netdev, else by address. Left out are virtual functions that nothing
// on this node uses, and the second legs of bonds that RDMA devices stand on.
func (g *Graph) plainNICs(taken map[pci.Address]bool) []Device {
	netdev := map[pci.Address]string{}
	for i := range g.m.RDMA.NetDevs {
		n := &g.m.RDMA.NetDevs[i]
		a, ok := n.PCI.Get()
		if !ok {
			continue
		}
		if g.secondLeg(n, a) {
			taken[a] = true
		}
		if old := netdev[a]; old == "" || rdma.CompareNames(n.Name, old) < 0 {
			netdev[a] = n.Name
		}
	}
	var out []Device
	for i := range g.m.PCI {
		f := &g.m.PCI[i]
		name := netdev[f.Address]
		_, vf := f.PhysFn.Get()
		if taken[f.Address] || name == "" && (vf || f.Class.Or(0).Base() != pci.ClassNetwork) {
			continue
		}
		if name == "" {
			name = f.Address.String()
		}
		out = append(out, Device{
			ID: name, Kind: KindNIC, Addr: &f.Address, NUMA: g.kernelNUMA(f.Address),
			Name: g.pciName(f.Address), Role: RoleManagement,
		})
	}
	return out
}

// secondLeg tells whether a netdev is another port of a card whose RDMA device
// spans a bond: mlx5_bond_0 stands on the first function alone, and the second
// one is no NIC of its own then.
func (g *Graph) secondLeg(n *rdma.NetDev, at pci.Address) bool {
	master, ok := n.Master.Get()
	if !ok {
		return false
	}
	for i := range g.m.RDMA.Devices {
		r := &g.m.RDMA.Devices[i]
		if a, ok := r.PCI.Get(); !ok || !sameCard(a, at) {
			continue
		}
		for _, p := range r.Ports {
			under := p.NetDev.Or("")
			if under == master || under != "" && g.netdevMaster(under) == master {
				return true
			}
		}
	}
	return false
}

func (g *Graph) netdevMaster(name string) string {
	for i := range g.m.RDMA.NetDevs {
		if n := &g.m.RDMA.NetDevs[i]; n.Name == name {
			return n.Master.Or("")
		}
	}
	return ""
}

// sameCard tells whether two addresses are functions of one device.
func sameCard(a, b pci.Address) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// setRoles tells compute NICs from others. A NIC's speed is what its model can
// do, shared by the ports of a card, so that a compute NIC with a bad cable stays
// one; only where the NIC table does not know the model is it an active port's rate. At half the node's
// best or below, a NIC is for something else, and so is one that is bonded where
// others are not. What cannot be told is compute: a role must not hide a fault.
func (g *Graph) setRoles(nics []Device) {
	best, unbonded := 0.0, false
	for i := range nics {
		if r := nics[i].RDMA; !r.Software {
			best = max(best, g.nicGbps(r))
			unbonded = unbonded || !g.bonded(r)
		}
	}
	for i := range nics {
		r := nics[i].RDMA
		speed := g.nicGbps(r)
		nics[i].Role = RoleCompute
		switch {
		case r.Software:
			nics[i].Role = RoleOther
		case speed > 0 && speed <= best/2:
			nics[i].Role = RoleOther
		case unbonded && g.bonded(r):
			nics[i].Role = RoleOther
		}
	}
}

// nicGbps is a NIC's speed in 10^9 bit/s; 0 where it cannot be told.
func (g *Graph) nicGbps(r *rdma.Device) float64 {
	if m, ok := r.Model.Get(); ok && m.MaxGbps > 0 {
		return m.MaxGbps / float64(g.portsOfCard(r))
	}
	best := 0.0
	for _, p := range r.Ports {
		// A port that is down shows its lowest rate, which says nothing.
		if rate, ok := p.Rate.Get(); ok && p.State.Or("") == "ACTIVE" {
			best = max(best, rate.BitsPerSec/1e9)
		}
	}
	return best
}

// portsOfCard counts the physical functions with an RDMA device on a NIC's card.
func (g *Graph) portsOfCard(r *rdma.Device) int {
	own, ok := r.PCI.Get()
	if !ok || !g.physicalNIC(own) {
		return 1
	}
	n := 0
	for i := range g.m.RDMA.Devices {
		if a, ok := g.m.RDMA.Devices[i].PCI.Get(); ok && sameCard(own, a) && g.physicalNIC(a) {
			n++
		}
	}
	return n
}

func (g *Graph) physicalNIC(a pci.Address) bool {
	f := g.fn[a]
	if f == nil {
		return false
	}
	_, vf := f.PhysFn.Get()
	return !vf
}

func (g *Graph) bonded(r *rdma.Device) bool {
	if strings.Contains(r.Name, "_bond_") {
		return true
	}
	for i := range g.m.RDMA.NetDevs {
		n := &g.m.RDMA.NetDevs[i]
		if _, ok := n.BondMode.Get(); ok && slices.ContainsFunc(r.Ports, func(p rdma.Port) bool {
			return p.NetDev.Or("") == n.Name
		}) {
			return true
		}
	}
	return false
}

// kernelNUMA is the node that the kernel gives a function; nil for none.
func (g *Graph) kernelNUMA(a pci.Address) *int {
	f := g.fn[a]
	if f == nil {
		return nil
	}
	n, ok := f.NUMANode.Get()
	if !ok {
		return nil
	}
	return &n
}

func (g *Graph) pciName(a pci.Address) string {
	f := g.fn[a]
	if f == nil {
		return ""
	}
	return strings.TrimSpace(f.VendorName + " " + f.DeviceName)
}
