package checks

import (
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

const (
	refRoCEGuide = "https://docs.nvidia.com/networking/display/mlnxofedv24103250lts/Quality+of+Service+(QoS)"
	refDCB       = "https://man7.org/linux/man-pages/man8/dcb.8.html"
)

var roceTrust = Check{
	ID: "roce-trust", Title: "the NIC takes a packet's priority from its DSCP", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A NIC that trusts the VLAN tag (pcp) gives all untagged packets one priority, whatever DSCP they carry: RoCE goes by the lossy one, and PFC and ECN for its own never act.",
	Fix:       []string{"Set trust to DSCP: sudo mlnx_qos -i INTERFACE --trust dscp"},
	Refs:      []string{refRoCEGuide, refDCB, "https://github.com/Mellanox/mlnx-tools"},
	Subjects:  EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		if c.Network.Trust == "" {
			c.NotApplicable("a %s network does not ask for it", c.Network.Name)
			return
		}
		leg := c.Subject.Leg
		trust, ok := needQoS(c, "trust", leg.DCB.Trust)
		c.Want("%s", c.Network.Trust)
		vlan := c.vlan()
		switch {
		case !ok:
			c.Unknown("cannot tell: the NIC shows no trust")
		case strings.HasPrefix(string(trust), string(c.Network.Trust)):
			c.Pass("%s", trust)
		case trust == qos.TrustPCP && vlan != "":
			c.Row("address on", vlan, "the GID table")
			c.Info("%s, and its address is on the VLAN %s: its egress map decides (ip -d link show %s)", trust, vlan, vlan)
		default:
			c.pathRows()
			c.amiss("trust is %s: untagged packets go by priority %d, whatever their DSCP", trust, leg.PathOf(0).Priority.V)
			c.Fix(c.qosFix(leg, "trust", -1)...)
		}
	},
}

// vlan is the interface of the port's address where that is another than the
// port's own or its bond: a VLAN on it. Empty: none.
func (c *Case) vlan() string {
	g := c.Subject.Port.RoutableGID()
	if g == nil {
		return ""
	}
	switch dev, leg := g.NetDev.Or(""), c.Subject.Leg; dev {
	case leg.NetDev, leg.LAG.Bond.Or(""), c.Subject.Port.NetDev.Or(""):
		return ""
	default:
		return dev
	}
}
