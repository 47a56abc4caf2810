package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// eachResult has the measurements of some kinds as subjects. That a TCP
// connection did not come up says nothing about RDMA: a comparison tells of it.
func eachResult(measures ...perftest.Measure) func(*Node) []Subject {
	return results(func(r *perftest.Result) bool {
		return slices.Contains(measures, r.Plan.Measure) && (r.Plan.Route != perftest.RouteTCP || r.Failure == nil)
	})
}

// eachDirectResult leaves out what went through host memory, whose speed has no
// threshold of its own.
func eachDirectResult(m perftest.Measure) func(*Node) []Subject {
	return results(func(r *perftest.Result) bool { return r.Plan.Measure == m && direct(r) })
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
	var parts []string
	for _, e := range []*perftest.Endpoint{&r.Initiator, &r.Responder} {
		if e.Device != "" {
			parts = append(parts, fmt.Sprintf("%s/%d", e.Device, e.Port))
		}
	}
	words := []string{string(r.Plan.Operation), string(r.Plan.Measure)}
	if !direct(r) {
		words = append(words, string(r.Plan.Route))
	}
	id := strings.Join(append(words, parts...), " ")
	return Subject{ID: id, Parts: append(parts, id), Result: r}
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
