package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var rdmaLinkFlaps = Check{
	ID: "rdma-link-flaps", Title: "the link does not go down again and again", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn:                  []string{"rdma-device-present"},
	Why:                        "Each time a link goes down, all connections over it break (error 12) unless it is back within their timeout; jobs end for it, and nobody sees it afterwards, since the port is up.",
	Fix:                        []string{"See what the module says: sudo ethtool -m INTERFACE", "No command mends a cable: reseat or change it and its transceiver, then look at the other end"},
	Refs:                       []string{"https://docs.kernel.org/networking/ethtool-netlink.html", "https://github.com/NVIDIA/nccl/issues/905"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		leg := c.Subject.Leg
		if !linkCase(c) {
			return
		}
		downs, ok := c.linkDowns()
		if !ok {
			c.NotApplicable("nothing counts how often the link went down")
			return
		}
		if downs == 0 {
			c.Pass("never since the driver was loaded")
			return
		}
		up, ok := Need(c, "uptime in seconds", c.Machine.Host.UptimeSec)
		const day = 24 * 3600
		days := max(up/day, 1) // what happened within a day counts as a day's
		perDay := float64(downs) / days
		c.Row("link lost", fmt.Sprintf("%.1f times a day", perDay), "derived")
		c.Want("%.1f or less", c.Thresholds.LinkDownsPerDayMax)
		switch {
		case !ok:
			c.Unknown("cannot tell: lost %d times, over an unknown time", downs)
		case perDay > c.Thresholds.LinkDownsPerDayMax:
			c.Warn("the link went down %d times in %.0f days", downs, days)
			c.Unsure("restarts of the driver, the switch or the other end count, too")
			dev := orElse(leg.NetDev, "INTERFACE")
			c.Fix(fmt.Sprintf("See what the module says: sudo ethtool -m %s; and on ConnectX: sudo mlxlink -d %s -m -c", dev, c.firmwareName()),
				fmt.Sprintf("See when it happened: sudo dmesg -T | grep -i %s", dev),
				"Reseat or change cable and transceiver, then look at the other end")
		default:
			c.Pass("lost %d times in %.0f days", downs, days)
		}
	},
}

// linkDowns is how often the link went down: the driver's own count, else half
// of the interface's changes of carrier, of which each loss makes two.
func (c *Case) linkDowns() (uint64, bool) {
	leg := c.Subject.Leg
	if n, state := See(c, "times that the link went down", leg.Link.Downs, leg.NetDir); state == fact.Known {
		return n, true
	}
	dev := c.netDev(leg.NetDev)
	if dev == nil {
		return 0, false
	}
	n, ok := Need(c, "carrier changes of "+dev.Name, dev.CarrierChanges, "/sys/class/net/"+dev.Name)
	const changesAtStart = 2
	return (max(n, changesAtStart) - changesAtStart) / 2, ok
}
