package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaPortRate = Check{
	ID: "rdma-port-rate", Title: "the RDMA port runs at its full rate", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A port that negotiated a lower rate or fewer lanes than its siblings slows every collective down to itself.",
	Fix:       []string{"Compare cable, transceiver and switch port with those of a port at full rate"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://github.com/NVIDIA/nccl/issues/1277",
	},
	Subjects: EachPort,
	Eval:     evalPortRate,
}

func evalPortRate(c *Case) {
	p, nic := c.Subject.Port, c.Subject.NIC
	switch {
	case nic.Software:
		c.NotApplicable("software RDMA: its rate is its network's")
		return
	case nic.Transport.Or("") == rdma.EFA:
		c.NotApplicable("EFA's driver reports a fixed rate that says nothing about the instance")
		return
	}
	if state, known := p.State.Get(); known && state != "ACTIVE" {
		c.NotApplicable("the port is %s: its rate says nothing", state)
		return
	}
	rate, ok := Need(c, "rate", p.Rate)
	if !ok {
		c.Unknown("cannot tell: the kernel shows no rate for this port")
		return
	}
	if best, of := fastestSibling(c, nic, p); rate.BitsPerSec < best*c.Thresholds.PortRateMinShare {
		c.Want("%s", gbps(best))
		c.Warn("%s, while %s of the same model runs at %s", gbps(rate.BitsPerSec), of, gbps(best))
		c.Fix(fixRate(c)...)
		return
	}
	model, known := nic.Model.Get()
	ports := portsOfCard(c, nic)
	best := model.MaxGbps * 1e9 / float64(ports)
	if known && rate.BitsPerSec < best*c.Thresholds.PortRateMinShare {
		c.Want("%s", gbps(best))
		share := ""
		if ports > 1 {
			share = fmt.Sprintf(" for each of %d ports", ports)
		}
		text := fmt.Sprintf("%s, while a %s can do %s%s", gbps(rate.BitsPerSec), model.Name, gbps(best), share)
		if c.siblingsAgree(nic, p, rate.BitsPerSec) {
			// All ports of one model at one rate: boards or a fabric of that rate.
			c.Info("%s; so do all others of its model here", text)
			return
		}
		c.Warn("%s", text)
		c.Unsure("cards of one model are sold at several rates: see this one's own name with sudo mlxfwmanager or lspci -vv")
		c.Fix(fixRate(c)...)
		return
	}
	c.Pass("%s", rate.Text)
}

// fastestSibling is the highest rate among active ports of the same model.
func fastestSibling(c *Case, nic *rdma.Device, port *rdma.Port) (bitsPerSec float64, of string) {
	for i := range c.Machine.RDMA.Devices {
		d := &c.Machine.RDMA.Devices[i]
		if !sameModel(d, nic) || portsOfCard(c, d) != portsOfCard(c, nic) {
			continue
		}
		for j := range d.Ports {
			q := &d.Ports[j]
			if q != port && q.State.Or("") == "ACTIVE" && q.Rate.V.BitsPerSec > bitsPerSec {
				bitsPerSec, of = q.Rate.V.BitsPerSec, fmt.Sprintf("%s/%d", d.Name, q.Number)
			}
		}
	}
	return bitsPerSec, of
}

// siblingsAgree says whether other cards of the model are active, all at this rate.
func (c *Case) siblingsAgree(nic *rdma.Device, port *rdma.Port, bitsPerSec float64) bool {
	others := 0
	for i := range c.Machine.RDMA.Devices {
		d := &c.Machine.RDMA.Devices[i]
		if !sameModel(d, nic) {
			continue
		}
		for j := range d.Ports {
			q := &d.Ports[j]
			if q == port || q.State.Or("") != "ACTIVE" {
				continue
			}
			if q.Rate.V.BitsPerSec != bitsPerSec {
				return false
			}
			others++
		}
	}
	return others > 0
}

// portsOfCard counts the ports that share one card's rate: those of the device
// and of the card's other functions. VFs repeat their PF's port.
func portsOfCard(c *Case, nic *rdma.Device) int {
	n := len(nic.Ports)
	at, ok := nic.PCI.Get()
	for i := range c.Machine.RDMA.Devices {
		d := &c.Machine.RDMA.Devices[i]
		a, known := d.PCI.Get()
		if d == nic || !ok || !known || a.Domain != at.Domain || a.Bus != at.Bus || a.Device != at.Device {
			continue
		}
		if f := c.Graph.Function(a); f == nil || f.PhysFn.State != fact.Known {
			n += len(d.Ports)
		}
	}
	return max(n, 1)
}

// sameModel compares what names a board most exactly: PSID, else PCI id.
func sameModel(a, b *rdma.Device) bool {
	for _, f := range []func(*rdma.Device) fact.Value[string]{
		func(d *rdma.Device) fact.Value[string] { return d.BoardID },
		func(d *rdma.Device) fact.Value[string] { return d.HCAType },
	} {
		x, okX := f(a).Get()
		y, okY := f(b).Get()
		if okX && okY && x != "" {
			return x == y
		}
	}
	return false
}

func gbps(bitsPerSec float64) string { return trimFloat(bitsPerSec/1e9) + " Gb/s" }

func fixRate(c *Case) []string {
	nic, port := c.Subject.NIC.Name, c.Subject.Port.Number
	if dev, ok := c.Subject.Port.NetDev.Get(); ok && c.Subject.Port.LinkLayer.Or("") == "Ethernet" {
		return []string{
			fmt.Sprintf("See what both ends advertise: ethtool %s", dev),
			fmt.Sprintf("For cable and module of a ConnectX: sudo mlxlink -d %s -p %d -m", c.firmwareName(), port),
			"Compare the cable, the transceiver and the switch port's setting with those of a port at full rate",
		}
	}
	return []string{
		fmt.Sprintf("See lanes and module: sudo mlxlink -d %s -p %d -m; ibportstate -C %s -P %d -D 0 %d", c.firmwareName(), port, nic, port, port),
		"Compare the cable, the transceiver and the switch port's setting with those of a port at full rate",
	}
}
