package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var perfPriority = Check{
	ID: "perf-priority", Title: "the traffic took one priority from end to end", Area: AreaPerf, Severity: SeverityWarning,
	Why: "What a NIC's settings promise, its counters prove: the priority that bytes were counted on is the one whose flow and congestion control acts on them.",
	Fix: []string{
		"Compare both nodes' settings: sudo gdrcheck rdma qos",
		"See whether a switch on the way writes other marks (DSCP or VLAN priority) into the packets",
	},
	Refs: []string{
		"https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html",
		refRoCEGuide,
	},
	Subjects: results(func(r *perftest.Result) bool { return r.Plan.Measure == perftest.Bandwidth && transferred(r) }),
	Eval: func(c *Case) {
		r := c.Subject.Result
		if r.Failure != nil {
			c.NotApplicable("the test did not come to its end")
			return
		}
		if r.Simulated {
			c.Info("simulated: the counters are no machine's")
			return
		}
		sent, okSent := busiest(r.Counters[perftest.Initiator].Priorities, true)
		received, okReceived := busiest(r.Counters[perftest.Responder].Priorities, false)
		if r.Plan.Operation == perftest.Read { // data goes the other way
			sent, okSent = busiest(r.Counters[perftest.Responder].Priorities, true)
			received, okReceived = busiest(r.Counters[perftest.Initiator].Priorities, false)
		}
		if !okSent && !okReceived {
			c.NotApplicable("neither network interface counts by priority")
			return
		}
		exercised := exercise(r)
		switch {
		case okSent && sent.bytes == 0 || okReceived && received.bytes == 0:
			c.Info("not exercised: the traffic did not reach the counters by priority, as a loopback within a NIC never does")
		case okSent && okReceived && sent.priority != received.priority:
			c.Row("sent", sent.String(), "counters of the interface that sent")
			c.Row("received", received.String(), "counters of the interface that received")
			c.Want("priority %d", sent.priority)
			c.Warn("sent on priority %d and received on %d: the two NICs map differently, or a switch marks anew", sent.priority, received.priority)
		case okSent:
			c.Row("sent", sent.String(), "counters of the interface that sent")
			c.Pass("priority %d; %s", sent.priority, exercised)
		default:
			c.Row("received", received.String(), "counters of the interface that received")
			c.Pass("priority %d; %s", received.priority, exercised)
		}
	},
}

// share is the priority that carried most, with its bytes.
type share struct {
	priority int
	bytes    uint64
}

func (s share) String() string {
	return fmt.Sprintf("%s on priority %d", showBytes(s.bytes), s.priority)
}

func busiest(list []perftest.PriorityBytes, sent bool) (best share, counted bool) {
	if len(list) == 0 {
		return best, false
	}
	var all []share
	for _, p := range list {
		n := p.Received
		if sent {
			n = p.Sent
		}
		all = append(all, share{p.Priority, n})
	}
	return slices.MaxFunc(all, func(a, b share) int { return cmp.Compare(a.bytes, b.bytes) }), true
}

// exercise says whether flow and congestion control acted. Two nodes alone
// rarely make them: that takes two senders to one port.
func exercise(r *perftest.Result) string {
	acted := func(sign qos.Sign) bool {
		return slices.ContainsFunc(bothSides, func(side perftest.Side) bool {
			return slices.ContainsFunc(r.Counters[side].Moved, func(d perftest.CounterDelta) bool { return d.Sign == sign })
		})
	}
	var words []string
	for _, x := range []struct {
		sign qos.Sign
		name string
	}{{qos.SignPause, "flow control (pauses)"}, {qos.SignCongestion, "congestion control (ECN, CNP)"}} {
		if acted(x.sign) {
			words = append(words, x.name+" acted")
		} else {
			words = append(words, x.name+" not exercised")
		}
	}
	return strings.Join(words, ", ")
}
