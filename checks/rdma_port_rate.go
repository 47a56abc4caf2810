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
	Fix:       []string{"Compare cable, transceiver and switch port with those of a port at full rate: ethtool INTERFACE; sudo mlxlink -d ADDRESS -m"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://docs.kernel.org/networking/ethtool-netlink.html",
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
	if state, known := mustSee(c, "state", p.State); known && state != "ACTIVE" {
		c.NotApplicable("the port is %s: its rate says nothing", state)
		return
	}
	mustSee(c, "link layer", p.LinkLayer)
	rate, ok := Need(c, "rate", p.Rate)
	if !ok {
		c.Unknown("cannot tell: the kernel shows no rate for this port")
		return
	}
	leg, most, told := c.slowLink(rate.BitsPerSec)
	switch best, of := fastestSibling(c, nic, p); {
	case leg != nil:
		c.judgeSlowLink(leg, rate.BitsPerSec, most)
	case rate.BitsPerSec < best*c.Thresholds.PortRateMinShare:
		c.Want("%s", gbps(best))
		c.Warn("%s, while %s of the same model runs at %s", gbps(rate.BitsPerSec), of, gbps(best))
		c.Fix(fixRate(c)...)
	case told:
		c.Pass("%s, the fastest of its link modes", rate.Text)
	case c.bond(p.NetDev.V) != nil: // the port's rate is not each leg's
		for _, l := range c.ethernetLegs() {
			Need(c, "link modes of "+orElse(l.NetDev, "the bond's legs"), l.Link.Modes, l.NetDir)
			Need(c, "speed of "+orElse(l.NetDev, "the bond's legs"), l.Link.SpeedMbps, l.NetDir)
		}
		c.Unknown("cannot tell: a leg of the bond shows no link modes or no speed")
	default:
		judgeByModel(c, rate)
	}
}

// judgeByModel holds a rate against the most that a card of the model can do,
// for where the port does not say it itself: sysfs has no maximum.
func judgeByModel(c *Case, rate rdma.Rate) {
	p, nic := c.Subject.Port, c.Subject.NIC
	model := nic.Model.V
	if model.MaxGbps == 0 {
		for _, leg := range c.ethernetLegs() {
			Need(c, "link modes", leg.Link.Modes, leg.NetDir)
		}
		Need(c, "model", nic.Model)
		c.Info("%s; nothing says what this port can do at most", rate.Text)
		return
	}
	ports, sure := portsOfCard(c, nic)
	best := model.MaxGbps * 1e9 / float64(ports)
	switch {
	case rate.BitsPerSec >= model.MaxGbps*1e9*c.Thresholds.PortRateMinShare:
		c.Pass("%s", rate.Text)
		return
	case !sure:
		c.Unknown("cannot tell: %s, while a %s can do %s, and whether all of it is this port's was not seen", gbps(rate.BitsPerSec), model.Name, gbps(model.MaxGbps*1e9))
		return
	case rate.BitsPerSec >= best*c.Thresholds.PortRateMinShare:
		c.Pass("%s", rate.Text)
		return
	}
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
}

// fastestSibling is the highest rate among active ports of the same model.
func fastestSibling(c *Case, nic *rdma.Device, port *rdma.Port) (bitsPerSec float64, of string) {
	for i := range c.Machine.RDMA.Devices {
		d := &c.Machine.RDMA.Devices[i]
		theirs, _ := portsOfCard(c, d)
		ours, _ := portsOfCard(c, nic)
		if !sameModel(d, nic) || theirs != ours {
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
// and of the card's other functions. VFs repeat their PF's port; sure says
// whether all functions told what they are.
func portsOfCard(c *Case, nic *rdma.Device) (n int, sure bool) {
	n, sure = len(nic.Ports), true
	at, ok := nic.PCI.Get()
	for i := range c.Machine.RDMA.Devices {
		d := &c.Machine.RDMA.Devices[i]
		a, known := d.PCI.Get()
		if d == nic || !ok || !known || a.Domain != at.Domain || a.Bus != at.Bus || a.Device != at.Device {
			continue
		}
		f := c.Graph.Function(a)
		sure = sure && f != nil && (f.PhysFn.State == fact.Known || f.PhysFn.State == fact.Absent)
		if f == nil || f.PhysFn.State != fact.Known {
			n += len(d.Ports)
		}
	}
	return max(n, 1), sure
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
