package checks

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var rocePFC = Check{
	ID: "roce-pfc", Title: "flow control (PFC) is on for RoCE's priority and no other", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-port-state"},
	Why:       "Without PFC on its priority RoCE loses packets as soon as two senders meet at one port, and goes back N for each: bandwidth collapses to a fraction. On too many priorities the NIC's buffers get too small and everything is paused.",
	Fix:       []string{"Switch PFC on for RoCE's priority alone, as on the switches: sudo mlnx_qos -i INTERFACE --pfc 0,0,0,1,0,0,0,0"},
	Refs: []string{refRoCEGuide, "https://man7.org/linux/man-pages/man8/dcb-pfc.8.html",
		"https://github.com/NVIDIA/nccl/issues/378", "https://github.com/openucx/ucx/issues/6000"},
	Subjects: EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		leg := c.Subject.Leg
		pfc, ok := needQoS(c, "PFC", leg.DCB.PFC)
		if !ok {
			c.Unknown("cannot tell: the NIC shows no PFC settings")
			return
		}
		if !c.Network.Lossless {
			c.judgeLossyPFC(pfc.Enabled)
			return
		}
		if n := c.Network; n.DSCP != nil && n.Priority == nil {
			mustSee(c, "priority of the network's DSCP", leg.PathOf(*n.DSCP<<2).Priority)
		}
		want, why := c.networkPriority()
		switch missing := want &^ pfc.Enabled; {
		case pfc.Enabled == 0:
			c.Want("on for RoCE's priority")
			c.pathRows()
			c.amiss("PFC is off for all priorities: RoCE is lossy here")
			c.Fix(c.qosFix(leg, "pfc", first(c.rocePriorities(), c.siblingPriority()))...)
		case missing != 0:
			c.Want("on for %s (%s)", want, why)
			c.pathRows()
			c.amiss("PFC is on for priority %s, but RoCE goes by %s (%s)", pfc.Enabled, missing, why)
			c.Fix(c.qosFix(leg, "pfc", first(missing, -1))...)
		case pfc.Enabled.Count() > c.Network.MaxLossless:
			c.Want("on for %d", c.Network.MaxLossless)
			c.Warn("PFC is on for %d priorities (%s): they share the buffers, and what is not RoCE pauses along", pfc.Enabled.Count(), pfc.Enabled)
			c.Fix(c.qosFix(leg, "pfc", first(c.rocePriorities()&pfc.Enabled, first(pfc.Enabled, -1)))...)
		default:
			c.judgePeer(pfc.Enabled)
		}
	},
}

func (c *Case) judgeLossyPFC(on qos.Priorities) {
	if on == 0 {
		c.Pass("off, as on a %s network", c.Network.Name)
		return
	}
	c.Info("on for priority %s, although the network is %s: it acts only if the switch sends or obeys pauses, too", on, c.Network.Name)
}

// judgePeer compares what the switch said over DCBX, where it said something.
// Where marks lead elsewhere it is not for this check to say that all is well.
func (c *Case) judgePeer(on qos.Priorities) {
	if roce := c.rocePriorities(); roce != 0 && roce&on == 0 && c.Subject.Leg.DCB.Trust.V != qos.TrustPCP {
		c.pathRows()
		c.Info("on for priority %s alone, but programs' marks lead to %s: roce-tos says what to change", on, roce)
		return
	}
	peer, ok := mustSee(c, "PFC of the switch, by DCBX", c.Subject.Leg.DCB.PeerPFC)
	if !ok || peer.Enabled&on == on {
		c.Pass("on for priority %s alone", on)
		return
	}
	needQoS(c, "PFC of the switch, by DCBX", c.Subject.Leg.DCB.PeerPFC)
	c.Want("on for %s", on)
	c.amiss("PFC is on for priority %s here and for %s on the switch: what the one asks the other does not do", on, peer.Enabled)
	c.Fix("Set the switch's port to the same priority, or this NIC to the switch's:")
	c.Fix(c.qosFix(c.Subject.Leg, "pfc", first(peer.Enabled, first(on, -1)))...)
}

// siblingPriority is the priority that is lossless on most NICs of the model
// and role; below 0: on none.
func (c *Case) siblingPriority() int {
	var seen [qos.PriorityCount]int
	for _, s := range c.siblings() {
		for _, n := range s.Leg.DCB.PFC.V.Enabled.List() {
			seen[n]++
		}
	}
	best := slices.IndexFunc(seen[:], func(n int) bool { return n == slices.Max(seen[:]) })
	if seen[best] == 0 {
		return -1
	}
	return best
}

// first is the lowest priority of a set, or def where it is empty.
func first(set qos.Priorities, def int) int {
	return append(set.List(), def)[0]
}
