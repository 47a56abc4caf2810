package checks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// fastest is the highest speed among link modes, whose names begin with it in
// Mb/s: "400000baseCR4/Full" (net/ethtool/common.c).
func fastest(modes fact.Value[[]qos.Mode]) fact.Value[float64] {
	return fact.Map(modes, func(list []qos.Mode) (bitsPerSec float64, err error) {
		err = errors.New("no link mode is among them")
		for _, m := range list {
			mbps, _, _ := strings.Cut(string(m), "base")
			if n, fault := strconv.ParseFloat(mbps, 64); fault == nil {
				bitsPerSec, err = max(bitsPerSec, n*1e6), nil
			}
		}
		return bitsPerSec, err
	})
}

// ethernetLegs are the port's ways out that ethtool knows: InfiniBand has no
// link modes.
func (c *Case) ethernetLegs() []*qos.Port {
	if c.Subject.Port.LinkLayer.Or("") != "Ethernet" {
		return nil
	}
	if legs := c.Machine.QoS.Of(c.Subject.NIC.Name, c.Subject.Port.Number); legs != nil {
		return legs
	}
	return []*qos.Port{{}} // whose facts are not collected
}

// slowLink is the first leg of the port whose link is below the fastest mode that
// its own end can do, with that mode's speed; nil: none is. told says whether the
// modes and speeds of all legs are known.
func (c *Case) slowLink(bitsPerSec float64) (leg *qos.Port, best float64, told bool) {
	legs := c.ethernetLegs()
	told = legs != nil
	for _, l := range legs {
		own, ok := fastest(l.Link.Modes).Get()
		told = told && ok && (len(legs) == 1 || l.Link.SpeedMbps.State == fact.Known)
		if leg == nil && linkSpeed(l, bitsPerSec) < own {
			leg, best = l, own
		}
	}
	return leg, best, told
}

// linkSpeed is what ethtool says, else the port's rate.
func linkSpeed(l *qos.Port, bitsPerSec float64) float64 {
	if mbps, ok := l.Link.SpeedMbps.Get(); ok {
		return float64(mbps) * 1e6
	}
	return bitsPerSec
}

// judgeSlowLink says which end keeps an Ethernet link below the fastest mode of
// the port: its own setting, the other end's offer, or what lies between them.
func (c *Case) judgeSlowLink(leg *qos.Port, rate, best float64) {
	speed := linkSpeed(leg, rate)
	dev := orElse(leg.NetDev, "INTERFACE")
	c.Row("speed of "+dev, gbps(speed), c.source(orElse(leg.Link.SpeedMbps.Source, "ethtool:LINKMODES_GET"), leg.NetDir))
	c.Want("%s, its fastest mode", gbps(best))
	peer := fastest(leg.Link.PeerModes)
	text := fmt.Sprintf("%s, while %s can do %s", gbps(speed), dev, gbps(best))
	cable := []string{
		fmt.Sprintf("See what cable and module are made for: sudo ethtool -m %s", dev),
		"Compare cable, module and the switch port's setting with those of a port at full rate",
	}
	var fix []string
	unsure := ""
	switch auto, ok := leg.Link.Autoneg.Get(); {
	case ok && !auto:
		See(c, "autonegotiation", leg.Link.Autoneg, leg.NetDir)
		text += ": autonegotiation is off, and its speed is set by hand"
		fix = []string{fmt.Sprintf("Negotiate, with all modes offered: sudo ethtool -s %s autoneg on; or set the speed at both ends: sudo ethtool -s %s speed %.0f autoneg off", dev, dev, best/1e6)}
	case peer.State == fact.Known && peer.V < best:
		c.Row("fastest mode of the other end", gbps(peer.V), peer.Source)
		c.Want("%s", gbps(best))
		text += fmt.Sprintf(": the other end offers no more than %s", gbps(peer.V))
		fix = append([]string{fmt.Sprintf("Set the switch's port to %s, or use one that has it; then negotiate again: sudo ethtool -r %s", gbps(best), dev)}, cable...)
	case peer.State == fact.Known:
		c.Row("fastest mode of the other end", gbps(peer.V), peer.Source)
		text += ", and so can the other end: this end offers less, or cable and module carry no more"
		fix = append([]string{fmt.Sprintf("Offer all modes: sudo ethtool -s %s autoneg on", dev)}, cable...)
	default:
		text += ": which end keeps it lower is not told"
		unsure = "the other end's modes were not seen: the switch's port may be meant to be slower"
		fix = append([]string{
			fmt.Sprintf("Offer all modes and negotiate again: sudo ethtool -s %s autoneg on && sudo ethtool -r %s", dev, dev),
			"Look at the speed that the switch's port is set to"}, cable...)
	}
	if c.siblingsAgree(c.Subject.NIC, c.Subject.Port, rate) {
		// All ports of one model at one rate: a fabric of that rate.
		c.Info("%s; all others of its model here run at this rate, too", text)
		return
	}
	c.Warn("%s", text)
	c.Fix(fix...)
	if unsure != "" {
		c.Unsure("%s", unsure)
	}
}
