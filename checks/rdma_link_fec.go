package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var rdmaLinkFEC = Check{
	ID: "rdma-link-fec", Title: "the link corrects its bit errors, and leaves none", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn:                  []string{"rdma-port-state"},
	Why:                        "Links with 50 Gb/s and more a lane always have bit errors; forward error correction (FEC) mends them. A block that it cannot mend is a lost packet, long before the link goes down.",
	Fix:                        []string{"Clean or change cable and transceiver; set the same FEC at both ends: sudo ethtool --set-fec INTERFACE encoding rs"},
	Refs:                       []string{"https://docs.kernel.org/networking/ethtool-netlink.html", "https://man7.org/linux/man-pages/man8/ethtool.8.html"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		leg := c.Subject.Leg
		if !linkCase(c) {
			return
		}
		active, ok := Need(c, "FEC", leg.FEC.Active, leg.NetDir)
		if !ok {
			c.NotApplicable("no FEC is in use here")
			return
		}
		if active == "None" {
			mustSee(c, "speed", leg.Link.SpeedMbps, leg.NetDir)
			mustSee(c, "lanes", leg.Link.Lanes, leg.NetDir)
		}
		speed, okSpeed := leg.Link.SpeedMbps.Get()
		lanes, okLanes := leg.Link.Lanes.Get()
		const pam4Mbps = 50_000 // a lane; IEEE 802.3cd and later have RS-FEC in all of their modes
		if active == "None" && okSpeed && okLanes && lanes > 0 && speed/lanes >= pam4Mbps {
			c.Want("RS, with %d Gb/s a lane", speed/lanes/1000)
			c.Warn("no FEC on a link with %d Gb/s a lane", speed/lanes/1000)
			c.Fix(fmt.Sprintf("Set it at both ends: sudo ethtool --set-fec %s encoding rs", leg.NetDev))
			return
		}
		if s := leg.FEC.Uncorrectable.State; s == fact.Absent || s == fact.Unsupported {
			c.Pass("%s; lost blocks are not counted", active)
			return
		}
		if lost, _ := Need(c, "blocks that could not be corrected", leg.FEC.Uncorrectable, leg.NetDir); lost > 0 {
			c.Want("0, or not growing")
			c.Info("%s; %d blocks could not be corrected since the driver was loaded: see whether they grow during a job (gdrcheck rdma counters --watch 1s), and change cable or transceiver if they do", active, lost)
			return
		}
		c.Pass("%s, all blocks corrected", active)
	},
}
