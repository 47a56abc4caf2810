package checks

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// The checks roce-* follow the traffic of a port: the mark that programs give
// it, the priority that the NIC makes of that, whether that priority is
// lossless, its buffer, and who slows down when a switch marks it.

// EachLeg has every way out of every RDMA port as a subject: one for most, one
// for each interface of a bond. A port of which no settings were collected has
// one, whose facts are not collected.
func EachLeg(n *Node) []Subject {
	var out []Subject
	for _, s := range EachPort(n) {
		legs := n.Machine.QoS.Of(s.NIC.Name, s.Port.Number)
		if len(legs) == 0 {
			legs = []*qos.Port{{Device: s.NIC.Name, Number: s.Port.Number, NetDev: s.Port.NetDev.Or("")}}
		}
		for _, leg := range legs {
			s := s
			s.Leg = byCEE(leg)
			if len(legs) > 1 {
				s.ID += " " + orElse(leg.NetDev, "?")
			}
			out = append(out, s)
		}
	}
	return out
}

// byCEE gives a port whose DCBX is CEE alone, the form before IEEE 802.1Qaz, the
// flow control of that form. Drivers answer IEEE_GET without PFC then
// (net/dcb/dcbnl.c leaves out what ieee_getpfc refuses).
func byCEE(leg *qos.Port) *qos.Port {
	if mode := leg.DCB.DCBX.V; !mode.CEE || mode.IEEE {
		return leg
	}
	pfc := func(on qos.Priorities) (qos.PFC, error) { return qos.PFC{Enabled: on}, nil }
	l := *leg
	l.DCB.PFC, l.DCB.PeerPFC = fact.Map(leg.DCB.CEEPFC, pfc), fact.Map(leg.DCB.CEEPeerPFC, pfc)
	return &l
}

// linkCase begins a check of a port's link or NIC, whatever goes over it: false
// where there is none. A NIC that no GPU needs counts for little.
func linkCase(c *Case) bool {
	if c.Subject.NIC.Software {
		c.NotApplicable("software RDMA")
		return false
	}
	if !c.matters(c.Subject.NIC) {
		c.Lower(SeverityInfo)
	}
	return true
}

// roceCase begins a check of RoCE traffic: it gives the verdict where there is
// none (false), and lowers the severity where the network is only assumed to be
// of the profile, where the NIC is not one for GPUs, and in a guest, whose host
// decides.
func roceCase(c *Case) bool {
	nic := c.Subject.NIC
	transport, _ := Need(c, "transport", nic.Transport)
	switch {
	case nic.Software:
		c.NotApplicable("software RDMA: its interface's own settings hold")
		return false
	case transport == rdma.InfiniBand:
		c.NotApplicable("InfiniBand has flow control by credits")
		return false
	case transport == rdma.EFA:
		c.NotApplicable("EFA repairs losses itself (SRD)")
		return false
	case transport == rdma.IWARP:
		c.NotApplicable("iWARP stands on TCP, which repairs losses")
		return false
	case transport != rdma.RoCE:
		c.NotApplicable("not RoCE")
		return false
	}
	if state, ok := c.Subject.Port.State.Get(); ok && state != "ACTIVE" && !c.matters(nic) {
		c.NotApplicable("the port is %s and no GPU's", state)
		return false
	}
	switch {
	case c.Network.Assumed && !c.matters(nic):
		c.Lower(SeverityInfo)
	case c.Network.Assumed || !c.matters(nic) || isVF(nic, c.Subject.Leg):
		c.Lower(SeverityWarning)
	}
	return true
}

// isVF says whether the leg is a virtual function: as the host's PCI tree shows
// it, or in a guest as the NIC's model does.
func isVF(nic *rdma.Device, leg *qos.Port) bool { return leg.IsVF || nic.Model.V.IsVF }

// needQoS is Need for a leg's settings, whose sources are relative to its
// interface's directory. What a VF cannot tell its host can.
func needQoS[T any](c *Case, name string, v fact.Value[T]) (T, bool) {
	leg := c.Subject.Leg
	if v.State == fact.Absent && (leg.NetDev == "" || v.Errno == syscall.ENODEV) {
		c.Row(name, "absent", cmp.Or(v.Source, "the GID table"))
		c.Unknown("cannot tell: the port's network interface%s is not in this network namespace", strings.TrimRight(" "+leg.NetDev, " "))
		c.Fix("Run it in the network namespace of the interface: on the host itself, or in a container with docker run --net=host")
		panic(stop{})
	}
	if v.State == fact.Unsupported && isVF(c.Subject.NIC, leg) {
		See(c, name, v, leg.NetDir)
		c.Unknown("cannot tell: a VF has no such settings of its own, its physical function on the host has")
		c.Fix("On the host: sudo gdrcheck rdma qos")
		panic(stop{})
	}
	return Need(c, name, v, leg.NetDir)
}

// amiss is Fail where the site says what its network is, else Warn: then the
// setting may be meant so.
func (c *Case) amiss(format string, args ...any) {
	if !c.Network.Assumed {
		c.Fail(format, args...)
		return
	}
	c.Warn(format, args...)
	c.Unsure("it is taken for a %s network; if it is another, say so: --network lossy, or in a policy", c.Network.Name)
}

// networkPriority is the priority that the network has for RoCE, with what says
// so: its own, or where its DSCP leads on this NIC. Empty: nobody named one.
func (c *Case) networkPriority() (qos.Priorities, string) {
	switch n := c.Network; {
	case n.Priority != nil:
		return 1 << *n.Priority, "the network's"
	case n.DSCP != nil:
		if p, ok := c.Subject.Leg.PathOf(*n.DSCP << 2).Priority.Get(); ok {
			return 1 << p, fmt.Sprintf("where the network's DSCP %d leads", *n.DSCP)
		}
	}
	return 0, ""
}

// rocePriorities are the priorities that RoCE traffic is meant to go by: the
// network's, else those that somebody's mark leads to. Empty: nobody chose one.
func (c *Case) rocePriorities() qos.Priorities {
	if p, _ := c.networkPriority(); p != 0 {
		return p
	}
	var found qos.Priorities
	for _, m := range c.Machine.QoS.Marks(c.Subject.Leg) {
		tos, ok := m.ToS.Get()
		if p, seen := c.Subject.Leg.PathOf(tos).Priority.Get(); ok && m.Chosen && seen {
			found |= 1 << p
		}
	}
	return found
}

// pathRows shows how the marks of each program fare.
func (c *Case) pathRows() {
	leg := c.Subject.Leg
	for _, m := range c.Machine.QoS.Marks(leg) {
		tos, ok := m.ToS.Get()
		if !ok {
			c.Row(string(m.Program), strings.ReplaceAll(m.ToS.State.String(), "_", " "), m.From)
			continue
		}
		c.Row(string(m.Program), fmt.Sprintf("ToS %d → %s", tos, leg.PathOf(tos)), m.From)
	}
}
