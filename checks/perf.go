package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// eachResult has the measurements of some kinds as subjects.
func eachResult(measures ...perftest.Measure) func(*Node) []Subject {
	return results(func(r *perftest.Result) bool { return slices.Contains(measures, r.Plan.Measure) })
}

// failedTCP ends the check of a measurement over TCP that failed: that says nothing
// of RDMA, but what was asked for is not known.
func failedTCP(c *Case) {
	r := c.Subject.Result
	if r.Plan.Route != perftest.RouteTCP || r.Failure == nil {
		return
	}
	c.Row("error", r.Failure.Error(), string(r.Faulty))
	c.Unknown("cannot tell what TCP carries: it failed at the %s: %s", r.Faulty, r.Failure.Error())
	if r.Failure.Check != "" {
		c.Fix(r.Failure.Check)
	}
	c.Fix("See whether a firewall stands between the two addresses; or leave TCP out: --route direct,staged")
	panic(stop{})
}

// eachMeasurement has all of them, copies within a node too.
var eachMeasurement = eachResult(perftest.Bandwidth, perftest.Latency)

// eachTransfer has all measurements that a port took part in.
var eachTransfer = results(transferred)

func transferred(r *perftest.Result) bool {
	return r.Plan.Route != perftest.RouteCopy && (r.Plan.Route != perftest.RouteTCP || r.Failure == nil && r.Initiator.Device != "")
}

// eachAlone has the direct measurements of one kind that ran with no other at the
// same time: those that did may have had to share what they need, and what goes
// through host memory has no threshold of its own.
func eachAlone(m perftest.Measure) func(*Node) []Subject {
	return results(func(r *perftest.Result) bool { return r.Plan.Measure == m && direct(r) && r.Together == 0 })
}

func direct(r *perftest.Result) bool {
	return r.Plan.Route == perftest.RouteDirect || r.Plan.Route == ""
}

func results(want func(*perftest.Result) bool) func(*Node) []Subject {
	return func(n *Node) []Subject {
		var out []Subject
		times := map[string]int{}
		for _, r := range n.Results {
			if !want(r) {
				continue
			}
			s := resultSubject(r)
			if times[s.ID]++; times[s.ID] > 1 {
				s.ID = fmt.Sprintf("%s (%d)", s.ID, times[s.ID])
			}
			out = append(out, s)
		}
		return out
	}
}

func resultSubject(r *perftest.Result) Subject {
	ports := resultPorts(r)
	words := []string{string(r.Plan.Operation), string(r.Plan.Measure)}
	switch {
	case r.Plan.Route == perftest.RouteCopy && r.CopiedOut():
		words = []string{"copy", string(r.Plan.Measure), "to pinned host memory"}
	case r.Plan.Route == perftest.RouteCopy:
		words = []string{"copy", string(r.Plan.Measure), "from pinned host memory"}
	case !direct(r):
		words = append(words, string(r.Plan.Route))
	}
	words = append(words, ports...)
	if r.Reverse {
		words = append(words, "from the other node")
	}
	if r.Reference {
		words = append(words, "in host memory")
	}
	if r.Together > 0 {
		words = append(words, "with all others")
	}
	id := strings.Join(words, " ")
	return Subject{ID: id, Parts: append(ports, id), Result: r}
}

// resultPorts are both ends, the initiator first; one that is both is named once.
func resultPorts(r *perftest.Result) []string {
	var ports []string
	for _, e := range []*perftest.Endpoint{&r.Initiator, &r.Responder} {
		if e.Device != "" {
			ports = append(ports, fmt.Sprintf("%s/%d", e.Device, e.Port))
		}
	}
	if r.Rail != "" { // known even where it could not be opened
		ports = []string{r.Rail, cmp.Or(r.Peer, r.Rail)}
		if r.Reverse {
			ports = []string{r.Peer, r.Rail}
		}
	}
	return slices.Compact(ports)
}

var bothSides = []perftest.Side{perftest.Initiator, perftest.Responder}

// measured ends the check where there is no measure to judge: the test failed,
// or nothing of it can be held against a threshold.
func measured(c *Case) *perftest.Result {
	r := c.Subject.Result
	if failed(c, r, "ended with an error") {
		panic(stop{})
	}
	for _, side := range bothSides {
		if r.Limits[side].Software {
			c.Info("software RDMA at the %s: its speed is its CPU's", side)
			panic(stop{})
		}
	}
	if r.Simulated {
		c.Info("simulated: the figures say nothing about a machine")
		panic(stop{})
	}
	return r
}

// failed says that a test did not come to its end; how is what became of it.
func failed(c *Case, r *perftest.Result, how string) bool {
	f := r.Failure
	if f == nil {
		return false
	}
	if how != notSetUp && !r.SetUp() { // where perf-setup was not to be judged
		c.NotApplicable("nothing was measured")
		return true
	}
	c.Row("error", f.Error(), string(r.Faulty))
	c.Fail("the test %s at the %s: %s", how, r.Faulty, f.Error())
	if f.Check != "" {
		c.Fix(f.Check)
	}
	return true
}

// scoped adds what a figure does not cover.
func scoped(r *perftest.Result, text string) string {
	if r.Scope == "" {
		return text
	}
	return text + "; " + r.Scope
}

// ceiling is the most that both ends allow, with what sets it. Where one limit
// is not known, reason says so: the true ceiling may be lower.
func ceiling(r *perftest.Result) (bytesPerSec float64, by, reason string) {
	take := func(v float64, what string) {
		if v > 0 && (bytesPerSec == 0 || v < bytesPerSec) {
			bytesPerSec, by = v, what
		}
	}
	for _, side := range bothSides {
		l := r.Limits[side]
		take(l.PortBytesPerSec, fmt.Sprintf("the port of the %s", side))
		take(l.PCIeBytesPerSec, fmt.Sprintf("PCIe at the %s, %s", side, l.LimitedBy))
		switch {
		case l.PortBytesPerSec == 0:
			reason = fmt.Sprintf("the rate of the %s's port is not known", side)
		case l.PCIeBytesPerSec == 0:
			reason = cmp.Or(reason, fmt.Sprintf("the PCIe path at the %s is not known: %s", side, cmp.Or(l.PCIeReason, "no reason told")))
		}
	}
	return bytesPerSec, by, reason
}

// rate is a measured rate in Gb/s, in four digits.
func rate(bytesPerSec float64) string {
	const most, digits = 10_000, 4
	v := bytesPerSec * 8 / 1e9
	if v >= most {
		return fmt.Sprintf("%.0f Gb/s", v)
	}
	return strconv.FormatFloat(v, 'g', digits, 64) + " Gb/s"
}
