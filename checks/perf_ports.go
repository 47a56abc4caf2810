package checks

import (
	"cmp"

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
			c.Pass("measured with itself")
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
		c.Fix("Give it more time: gdrcheck check --perf --perf-budget 60s")
	default:
		c.Unknown("not measured: %s", r.NotMeasured)
	}
}
