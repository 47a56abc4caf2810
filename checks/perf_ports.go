package checks

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfPorts = Check{
	ID: "perf-ports", Title: "every port that should be measured was", Area: AreaPerf, Severity: SeverityError,
	Why: "A collective is as fast as its slowest rail, and a rail without a peer does not take part at all.",
	Fix: []string{"See what is wrong with the port, on the node that has it: gdrcheck check --only rdma"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
		"https://docs.kernel.org/admin-guide/abi-stable.html",
	},
	Subjects: eachRail,
	Eval:     evalPerfPorts,
}

func eachRail(n *Node) []Subject {
	var out []Subject
	for i := range n.Rails {
		r := &n.Rails[i]
		s := Subject{ID: cmp.Or(r.Rail, nodeID), Rail: r}
		if r.Rail == "" && r.Peer != "" {
			s.ID = "the other node's " + r.Peer
		}
		if r.Rail != "" || r.Peer != "" {
			s.Parts = []string{s.ID}
		}
		out = append(out, s)
	}
	return out
}

var matchWords = map[perftest.Match]string{
	perftest.MatchName:   "the port of the same name",
	perftest.MatchSubnet: "the one in the same network",
	perftest.MatchOrder:  "the next one in order, since neither name nor network tells",
}

func evalPerfPorts(c *Case) {
	r := c.Subject.Rail
	switch r.Why {
	case "":
		if r.By == "" {
			withItself(c, r)
			return
		}
		c.Row("peer", r.Peer, matchWords[r.By])
		c.Pass("measured with %s of the other node: %s", r.Peer, matchWords[r.By])
	case perftest.WhyDown:
		c.Fail("not measured: %s", r.NotMeasured)
	case perftest.WhyNoPeer:
		c.Warn("not measured: %s", r.NotMeasured)
		c.Fix("Compare what both nodes have: gdrcheck topo, on each")
	case perftest.WhyUnsupported, perftest.WhyNone:
		c.NotApplicable("%s", r.NotMeasured)
	case perftest.WhyBusy:
		c.Unknown("not measured: %s", r.NotMeasured)
		c.Fix("Measure when nobody uses it; or nevertheless, which disturbs whoever does: --force")
	case perftest.WhyTime:
		c.Unknown("not measured: %s", r.NotMeasured)
		c.Fix(moreTime)
	default:
		c.Unknown("not measured: %s", r.NotMeasured)
	}
}

// withItself tells what memory a rail was measured in. That a GPU's cannot be
// registered is judged by gdr-registration.
func withItself(c *Case, r *perftest.RailPair) {
	text, judge := "measured with itself", c.Pass
	switch {
	case r.GPUNotMeasured != "" && r.GPU == "":
		text += ", in host memory alone; cannot tell whether there is a GPU to measure: " + r.GPUNotMeasured
	case r.GPUUnknown:
		text += fmt.Sprintf(", in host memory alone; cannot tell what it reaches in that of %s: %s", r.GPU, r.GPUNotMeasured)
	case r.GPUNotMeasured != "":
		text += fmt.Sprintf(", in host memory alone, not in that of %s: %s", r.GPU, r.GPUNotMeasured)
		judge = c.Info
	case r.GPU != "":
		text += c.besideHost(r)
	}
	if len(r.LeftOut) > 0 {
		text += "; there was no time for: " + strings.Join(r.LeftOut, ", ")
		c.Fix(moreTime)
		judge = c.Info
	}
	if r.GPUUnknown {
		judge = c.Unknown
	}
	judge("%s", text)
}

const moreTime = "Give it more time: gdrcheck check --perf --perf-budget 60s"

// besideHost says what a GPU's memory reaches of what host memory does.
func (c *Case) besideHost(r *perftest.RailPair) string {
	text := " in the memory of " + r.GPU
	onGPU, onHost := c.bandwidthOf(r, false), c.bandwidthOf(r, true)
	if onGPU == nil || onHost == nil {
		return text
	}
	c.Row("in the memory of "+r.GPU, rate(forward(onGPU)), "measured")
	c.Row("in host memory", rate(forward(onHost)), "measured")
	text += ", and beside it in host memory"
	if !onGPU.Simulated {
		text += fmt.Sprintf(", of which it reaches %.0f %%", 100*forward(onGPU)/forward(onHost))
	}
	return text
}

// bandwidthOf is a rail's bandwidth by itself; nil: it gave none.
func (c *Case) bandwidthOf(r *perftest.RailPair, reference bool) *perftest.Result {
	for _, m := range c.Results {
		if m.Rail == r.Rail && m.Peer == r.Peer && m.Plan.Measure == perftest.Bandwidth && m.Together == 0 && m.Reference == reference && forward(m) > 0 {
			return m
		}
	}
	return nil
}
