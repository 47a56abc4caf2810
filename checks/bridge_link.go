package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

var bridgeLink = Check{
	ID: "bridge-link", Title: "links between switches and root ports run in full", Area: AreaPCIe, Severity: SeverityError, Rung: RungLink,
	Why: "The slowest link of a path sets what GPU and NIC can exchange. A switch whose own uplink lost lanes or speed throttles everything below it, while every endpoint looks healthy.",
	Fix: []string{"See what the link has, and what both ends can: sudo lspci -vv -s ADDRESS | grep -E 'LnkCap:|LnkSta:'", "No command mends it: reseat the riser, the switch board or its cable; update the switch's firmware"},
	Refs: []string{
		"https://docs.kernel.org/PCI/index.html",
	},
	Subjects: eachUplink,
	Eval:     evalBridgeLink,
}

// eachUplink has the upstream ports of switches on the paths that matter. The
// links of downstream and root ports are those of the function below them: an
// endpoint's is judged there, a switch's here.
func eachUplink(n *Node) []Subject {
	var out []Subject
	for _, s := range EachPathBridge(n) {
		if n.Graph.BridgeKind(s.Function.Address) == "upstream port" {
			out = append(out, s)
		}
	}
	return out
}

func evalBridgeLink(c *Case) {
	if c.Platform.Virt == Guest {
		c.NotApplicable("a guest's bridges are emulated; their links are not real")
		return
	}
	cost := "it throttles every device below it"
	if c.isTurningPoint() {
		// Peer traffic turns below this link; only traffic to the host uses it.
		c.Lower(SeverityWarning)
		cost = "it throttles what goes to the host, not what GPU and NIC exchange below it"
	}
	now, best, ok := needLink(c)
	if !ok {
		return
	}
	c.Want("%s", showLink(best.speed, best.width))
	if now.Width < best.width {
		c.citeWidth()
	}
	addr := c.Subject.Function.Address
	port := ""
	if c.Subject.Function.Parent != nil {
		port = " to " + c.Subject.Function.Parent.String()
	}
	fix := []string{
		fmt.Sprintf("Confirm: sudo lspci -vv -s %s | grep -E 'LnkCap:|LnkSta:'", addr),
		"Reseat the riser, the switch board or its cable; check the slot's bifurcation and PCIe generation in the BIOS",
	}
	switch {
	case now.Width == 0 || now.SpeedGTPerSec == 0:
		c.Fail("the switch's uplink%s is down", port)
	case now.Width < best.width:
		c.Fail("the switch's uplink%s runs on %d of %d lanes: %s", port, now.Width, best.width, cost)
	case now.SpeedGTPerSec < best.speed:
		c.Warn("the switch's uplink%s runs at Gen%d, not Gen%d: %s", port,
			generation(now.SpeedGTPerSec), generation(best.speed), cost)
	default:
		c.Pass("%s", showLink(now.SpeedGTPerSec, now.Width))
		return
	}
	c.Fix(fix...)
}

// isTurningPoint says whether every path through the bridge turns at it, so
// that its uplink carries no peer traffic.
func (c *Case) isTurningPoint() bool {
	self := c.Subject.Function
	for _, p := range c.preferred() {
		g, _ := c.Graph.Device(p.GPU)
		nic, _ := c.Graph.Device(p.NIC)
		end, ok := c.pathEnd(nic.RDMA)
		if !ok || !onPath(p, self.Address) {
			continue
		}
		if common := c.Graph.Common(*g.Addr, end); common == nil || common.Address != self.Address {
			return false
		}
	}
	return true
}

func onPath(p topo.Pair, a pci.Address) bool {
	for _, h := range p.Hops {
		if h.Addr != nil && *h.Addr == a {
			return true
		}
	}
	return false
}
