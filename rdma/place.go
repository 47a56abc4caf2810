package rdma

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// nearestPCI returns the last component of a sysfs path that is a PCI address:
// the function that an auxiliary device, a virtio device or a netdev hangs on.
func nearestPCI(p string) (pci.Address, bool) {
	parts := strings.Split(p, "/")
	for _, part := range slices.Backward(parts) {
		if strings.Count(part, ":") != 2 {
			continue
		}
		if a, err := pci.ParseAddress(part); err == nil {
			return a, true
		}
	}
	return pci.Address{}, false
}

// place finds a device's driver, its PCI function and whether it is software.
func (c *collector) place(d *Device) {
	classLink, _ := c.src.Readlink(d.Dir)
	virtual := strings.Contains(classLink, "/virtual/")
	d.NodeDesc = nonEmpty(fact.Text(c.src, d.Dir, "node_desc"))
	parent := fact.Text(c.src, d.Dir, "parent") // rdma_rxe alone has it
	siw := d.NodeDesc.V == "Software iWARP stack" || virtual && strings.HasPrefix(d.NodeType.V, "4:")

	d.Software = virtual || siw || parent.State == fact.Known
	d.Driver = fact.LinkBase(c.src, d.Dir, "device/driver")
	switch {
	case parent.State == fact.Known:
		d.Driver = fact.Of("rdma_rxe", "parent")
	case siw:
		d.Driver = fact.Of("siw", "node_desc")
	}

	netdev := ""
	switch {
	case parent.State == fact.Known:
		netdev = parent.V
	case d.Software:
		netdev = fact.Text(c.src, d.Dir, "ports/1/gid_attrs/ndevs/0").V
	}
	if netdev != "" {
		d.PCI = c.netPCI(netdev)
		return
	}
	d.PCI = c.hardwarePCI(d, classLink)
	if d.Software && d.PCI.State == fact.Absent {
		d.PCI.Reason = "a software device whose network interface is not known"
	}
}

// hardwarePCI resolves the device link, which names a PCI function or an
// auxiliary device below one (mlx5_core.sf.4).
func (c *collector) hardwarePCI(d *Device, classLink string) fact.Value[pci.Address] {
	const name = "device"
	target, err := c.src.Readlink(d.Dir + "/" + name)
	if a, ok := nearestPCI(path.Base(target)); ok {
		return fact.Of(a, name)
	}
	if a, ok := nearestPCI(classLink); ok {
		return fact.Of(a, d.Dir)
	}
	if err != nil {
		return fact.FromError[pci.Address](err, name)
	}
	aux := "/sys/bus/auxiliary/devices/" + path.Base(target)
	link, _ := c.src.Readlink(aux)
	if a, ok := nearestPCI(link); ok {
		return fact.Of(a, aux)
	}
	if a, ok := nearestPCI(target); ok {
		return fact.Of(a, name)
	}
	return fact.Missing[pci.Address](fact.Absent, name, fmt.Sprintf("%s is not below a PCI function", target))
}
