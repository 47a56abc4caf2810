package qos

import (
	"context"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

const netDir = "/sys/class/net/"

// Collect reads the settings of the RDMA ports of r. Nothing here fails as a
// whole: what could not be read says so in its value.
func Collect(ctx context.Context, src fact.Source, r *rdma.Facts, functions []pci.Function) Facts {
	f := Facts{Ports: ports(src, r, functions)}
	netdevs := f.netDevs()
	dcb := askAll[DCB](ctx, src, fact.AskDCB, netdevs)
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.NetDev == "" {
			Fill(&p.DCB, fact.Missing[DCB](fact.Absent, "", "the port has no network interface"))
			continue
		}
		p.DCB = dcb[p.NetDev]
	}
	return f
}

// ports lists the ways out of each RDMA port.
func ports(src fact.Source, r *rdma.Facts, functions []pci.Function) []Port {
	netdevs := make(map[string]*rdma.NetDev, len(r.NetDevs))
	for i := range r.NetDevs {
		netdevs[r.NetDevs[i].Name] = &r.NetDevs[i]
	}
	vf := map[pci.Address]bool{}
	for i := range functions {
		_, vf[functions[i].Address] = functions[i].PhysFn.Get()
	}
	var out []Port
	for i := range r.Devices {
		d := &r.Devices[i]
		for _, rp := range d.Ports {
			p := Port{Device: d.Name, Number: rp.Number, PCI: d.PCI, NetDriver: d.Driver}
			p.IsVF = vf[p.PCI.V]
			name, ok := rp.NetDev.Get()
			if !ok {
				out = append(out, p)
				continue
			}
			legs := []string{name}
			if n := netdevs[name]; n != nil && len(n.Slaves) > 0 {
				legs = n.Slaves
			}
			for _, leg := range legs {
				p.NetDev, p.NetDir = leg, netDir+leg
				p.NetDriver = fact.LinkBase(src, p.NetDir, "device/driver")
				if n := netdevs[leg]; n != nil {
					p.PCI = n.PCI
				}
				p.IsVF = p.PCI.State == fact.Known && vf[p.PCI.V]
				out = append(out, p)
			}
		}
	}
	return out
}

// netDevs are the network interfaces of all ports, each once, in order.
func (f *Facts) netDevs() []string {
	var out []string
	seen := map[string]bool{"": true}
	for i := range f.Ports {
		if n := f.Ports[i].NetDev; !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}
