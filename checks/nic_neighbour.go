package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var nicNeighbour = Check{
	ID: "nic-neighbour", Title: "each NIC is cabled to the switch that it should be", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-device-present"},
	Why:       "In a rail-optimised network the first NIC of every node hangs on the first switch, and so on. Two cables exchanged, and traffic that should stay within a rail crosses the spine: slower, and only in some jobs. On InfiniBand it is asked with --neighbour only: where an M_Key protects reading, the subnet manager logs each question as a violation.",
	Fix:       []string{"See what each is cabled to: sudo lldpcli show neighbors", "No command moves a cable: plug it into the right switch, or write the right neighbour into the policy"},
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
		infiniBand := c.Subject.NIC.Transport.V == rdma.InfiniBand
		if s := leg.Neighbour.System.State; infiniBand && (s == fact.NotCollected || s == fact.Denied) {
			See(c, "neighbour", leg.Neighbour.System, leg.NetDir)
			c.Want("%s", want)
			c.Unknown("cannot tell: what an InfiniBand port is cabled to is asked on demand and by root only")
			c.Fix("sudo gdrcheck check --neighbour --only " + c.check.ID + " (with the same policy)")
			return
		}
		system, ok := Need(c, "neighbour", leg.Neighbour.System, leg.NetDir)
		c.Want("%s", want)
		switch {
		case !ok && infiniBand:
			c.Unknown("cannot tell: %s", leg.Neighbour.System.Reason)
			return
		case !ok:
			c.Unknown("cannot tell: nobody was heard over LLDP on %s", orElse(leg.NetDev, "its interface"))
			c.Fix("Have lldpd running, and LLDP on the switch's port: sudo apt install lldpd; sudo lldpcli show neighbors")
			return
		}
		have := system
		if port, state := See(c, "its port", leg.Neighbour.Port, leg.NetDir); state == fact.Known {
			have += " " + port
		}
		if hasPart(have, want) {
			c.Pass("%s", have)
			return
		}
		c.Fail("cabled to %s, expected %s", have, want)
		for _, device := range slices.Sorted(maps.Keys(c.Policy.Network.Neighbours)) {
			if device != c.Subject.NIC.Name && hasPart(have, c.Policy.Network.Neighbours[device]) {
				c.Fix("That is the neighbour of " + device + ": the two cables may be exchanged")
			}
		}
		see := "See: sudo lldpcli show neighbors ports " + orElse(leg.NetDev, "INTERFACE")
		if infiniBand {
			see = fmt.Sprintf("See: sudo smpquery -C %s -P %d -D nodedesc 0,%d", leg.Device, leg.Number, leg.Number)
		}
		c.Fix("Plug the cable of "+orElse(leg.NetDev, c.Subject.NIC.Name)+" into "+want+", or write "+system+" into the policy", see)
	},
}

// hasPart says whether what a neighbour calls itself has the part in it: "leaf1
// Ethernet1" is in "leaf1 Ethernet1" and not in "leaf1 Ethernet12".
func hasPart(have, part string) bool {
	for rest := have; ; rest = rest[1:] {
		i := strings.Index(rest, part)
		if i < 0 || part == "" {
			return false
		}
		rest = rest[i:]
		before, after := have[:len(have)-len(rest)], rest[len(part):]
		inNumber := digitAt(part, 0) && digitAt(before, len(before)-1) || digitAt(part, len(part)-1) && digitAt(after, 0)
		if !inNumber {
			return true
		}
	}
}

func digitAt(s string, i int) bool { return i >= 0 && i < len(s) && s[i] >= '0' && s[i] <= '9' }
