package checks

import (
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var nicNeighbour = Check{
	ID: "nic-neighbour", Title: "each NIC is cabled to the switch that it should be", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-device-present"},
	Why:       "In a rail-optimised network the first NIC of every node hangs on the first switch, and so on. Two cables exchanged, and traffic that should stay within a rail crosses the spine: slower, and only in some jobs.",
	Fix:       []string{"Plug the cable into the right switch, or write the right neighbour into the policy"},
	Refs:      []string{policyRef, "https://lldpd.github.io/usage.html"},
	Subjects:  EachLeg,
	Eval: func(c *Case) {
		leg := c.Subject.Leg
		want := ""
		if c.Policy != nil && c.Policy.Network != nil {
			want = c.Policy.Network.Neighbours[c.Subject.NIC.Name]
		}
		if want == "" {
			c.NotApplicable("no policy names this NIC's neighbour")
			return
		}
		system, ok := Need(c, "switch, by LLDP", leg.Neighbour.System, leg.NetDir)
		c.Want("%s", want)
		if !ok {
			c.Unknown("cannot tell: nobody was heard over LLDP on %s", orElse(leg.NetDev, "its interface"))
			c.Fix("Have lldpd running, and LLDP on the switch's port: sudo apt install lldpd; sudo lldpcli show neighbors")
			return
		}
		have := system
		if port, state := See(c, "its port", leg.Neighbour.Port, leg.NetDir); state == fact.Known {
			have += " " + port
		}
		if strings.Contains(have, want) {
			c.Pass("%s", have)
			return
		}
		c.Fail("cabled to %s, expected %s", have, want)
		for device, theirs := range c.Policy.Network.Neighbours {
			if device != c.Subject.NIC.Name && strings.Contains(have, theirs) {
				c.Fix("That is the neighbour of " + device + ": the two cables may be exchanged")
			}
		}
		c.Fix("Plug the cable of "+orElse(leg.NetDev, c.Subject.NIC.Name)+" into "+want+", or write "+system+" into the policy", "See: sudo lldpcli show neighbors ports "+orElse(leg.NetDev, "INTERFACE"))
	},
}
