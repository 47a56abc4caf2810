package rdma

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

const dataDirectID pci.ID = 0x2100 // 15b3:2100, drivers/infiniband/hw/mlx5/data_direct.c

// wantDataDirect lists the Data Direct functions and asks for the VPD of these
// and of the mlx5 NICs: the field V3 pairs them. Reading VPD is slow, so it is
// done on machines that have such functions only.
func (c *collector) wantDataDirect(scans []*scan) []pci.Address {
	var found []pci.Address
	for a, f := range c.functions {
		if f.Vendor.V == mellanox && f.Device.V == dataDirectID {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, pci.Address.Compare)
	for _, a := range found {
		c.served.want(c.functions[a].Dir, "vpd")
	}
	for _, s := range scans {
		if f := c.mlx5Function(&s.Device); f != nil {
			c.served.want(f.Dir, "vpd")
		}
	}
	return found
}

// mlx5Function returns the PCI function of a device of NVIDIA's, or nil.
func (c *collector) mlx5Function(d *Device) *pci.Function {
	a, ok := d.PCI.Get()
	if !ok || d.Software {
		return nil
	}
	if f := c.functions[a]; f != nil && f.Vendor.V == mellanox && f.PhysFn.State != fact.Known {
		return f
	}
	return nil
}

// pairDataDirect gives each NIC its Data Direct function. Devices that can have
// none keep the zero value.
func (c *collector) pairDataDirect(devices []Device, functions []pci.Address) {
	byUUID := map[string]pci.Address{}
	unreadable := fact.Value[string]{State: fact.Known}
	for _, a := range functions {
		v := fact.Map(c.served.data(c.functions[a].Dir, "vpd"), vpdV3)
		if v.State == fact.Known {
			byUUID[v.V] = a
		} else {
			unreadable = v
		}
	}
	for i := range devices {
		d := &devices[i]
		f := c.mlx5Function(d)
		if f == nil || len(functions) == 0 && !d.Model.V.DataDirect {
			continue
		}
		if len(functions) == 0 {
			d.DataDirect = fact.Missing[pci.Address](fact.Absent, "", "no Data Direct function (15b3:2100) on this machine")
			continue
		}
		own := fact.Map(c.served.data(f.Dir, "vpd"), vpdV3)
		own.Source = "device/vpd"
		a, ok := byUUID[own.V]
		switch {
		case own.State != fact.Known:
			d.DataDirect = fact.As(own, pci.Address{})
		case ok:
			d.DataDirect = fact.Of(a, own.Source)
		case unreadable.State != fact.Known:
			d.DataDirect = fact.As(unreadable, pci.Address{})
		default:
			d.DataDirect = fact.Missing[pci.Address](fact.Absent, own.Source, "no Data Direct function has this NIC's V3 field")
		}
	}
}
