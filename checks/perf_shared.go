package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfShared = Check{
	ID: "perf-shared", Title: "ports, and GPUs, keep their bandwidth when all run at the same time", Area: AreaPerf, Severity: SeverityWarning,
	Why: "A collective uses all ports at once. What they share (a PCIe link, a switch's uplink, memory, the way between sockets) may be too narrow for all, and no test of one port shows it.",
	Fix: []string{
		"See what the ports share: gdrcheck topo -o tree",
		"Move NICs to slots with links of their own, or expect no more than the shared link carries",
		"Where they share no link: look at memory bandwidth, IOMMU translation and the CPUs' power settings",
	},
	Refs: []string{
		"https://github.com/linux-rdma/perftest",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
	},
	Subjects: eachTogether,
	Eval:     evalPerfShared,
}

// eachTogether has as subjects the sets of bandwidths that were measured at the
// same time.
func eachTogether(n *Node) []Subject {
	var out []Subject
	for _, r := range n.Results {
		if r.Together == 0 || r.Plan.Measure != perftest.Bandwidth {
			continue
		}
		id := fmt.Sprintf("%s of %d ports", r.Plan.Operation, r.Together)
		switch {
		case r.Plan.Route == perftest.RouteCopy && r.CopiedOut():
			id = fmt.Sprintf("copies to pinned host memory of %d GPUs", r.Together)
		case r.Plan.Route == perftest.RouteCopy:
			id = fmt.Sprintf("copies from pinned host memory of %d GPUs", r.Together)
		case r.Reverse:
			id += " from the other node"
		}
		i := slices.IndexFunc(out, func(s Subject) bool { return s.ID == id })
		if i < 0 {
			i = len(out)
			out = append(out, Subject{ID: id})
		}
		out[i].Results = append(out[i].Results, r)
		out[i].Parts = append(out[i].Parts, r.Rail)
	}
	return out
}

// alike is what was measured at the same time.
func alike(r *perftest.Result) string {
	if r.Plan.Route == perftest.RouteCopy {
		return "GPU"
	}
	return "port"
}

// twoWays is one port's bandwidth, or one GPU's, alone and with all others.
type twoWays struct {
	r               *perftest.Result
	alone, together float64 // bytes/s
}

func evalPerfShared(c *Case) {
	var ports, slower []twoWays
	var alone, together float64
	for _, r := range c.Subject.Results {
		p := twoWays{r, forward(aloneOf(c.Node, r)), forward(r)}
		if p.alone == 0 || p.together == 0 {
			continue
		}
		ports = append(ports, p)
		alone, together = alone+p.alone, together+p.together
		if p.together < c.Thresholds.PerfTogetherMinShare*p.alone {
			slower = append(slower, p)
		}
	}
	if len(ports) < 2 {
		c.Unknown("cannot tell: fewer than two %ss were measured both alone and together", alike(c.Subject.Results[0]))
		return
	}
	c.Row(fmt.Sprintf("%d %ss together", len(ports), alike(ports[0].r)), rate(together), "measured")
	c.Want("%s, their sum alone", rate(alone))
	text := fmt.Sprintf("%s together, %s alone: %.0f %%", rate(together), rate(alone), 100*together/alone)
	r := ports[0].r
	switch {
	case r.Simulated:
		c.Info("%s (simulated)", text)
	case r.Limits[perftest.Initiator].Software || r.Limits[perftest.Responder].Software:
		c.Info("%s; software RDMA shares the CPU", text)
	case len(slower) == 0:
		c.Pass("%s", text)
	default:
		judgeSlower(c, text, slower)
	}
}

// judgeSlower names what the ports share that are slower together.
func judgeSlower(c *Case, text string, slower []twoWays) {
	var nics, names []string
	var sum float64
	for _, p := range slower {
		nic, _, _ := strings.Cut(p.r.Rail, "/")
		nics, names = append(nics, nic), append(names, p.r.Rail)
		sum += p.together
		c.Row(p.r.Rail+" with all others", rate(p.together), "measured")
		c.Want("%s, as alone", rate(p.alone))
	}
	text = fmt.Sprintf("%s; slower: %s", text, strings.Join(names, ", "))
	port, carries, shared := c.Graph.CommonLink(nics)
	switch {
	case len(slower) < 2:
		c.Warn("%s", text)
		c.Unsure("one %s alone is slower: others may have used it meanwhile; measure again", alike(slower[0].r))
	case !shared && alike(slower[0].r) == "GPU":
		c.Warn("%s, which share no PCIe link: what is left for copies to share is the host's memory", text)
	case !shared:
		c.Warn("%s, which share no PCIe link", text)
	case carries > 0 && sum >= c.Thresholds.PerfBandwidthPassShare*carries:
		c.Info("%s, which share the link below %s; it is full: it carries %s", text, port, rate(carries))
	default:
		c.Warn("%s, which share the link below %s", text, port)
		if carries > 0 {
			c.Row("link below "+port.String(), rate(sum), "measured")
			c.Want("up to %s", rate(carries))
		}
	}
}

// aloneOf is the same measurement with no other at the same time; nil: there is none.
func aloneOf(n *Node, together *perftest.Result) *perftest.Result {
	for _, r := range n.Results {
		if r.Together == 0 && r.Reference == together.Reference && r.Rail == together.Rail && r.Peer == together.Peer && r.Reverse == together.Reverse &&
			(together.Plan.Route != perftest.RouteCopy || r.CopiedOut() == together.CopiedOut()) && r.Plan.Operation == together.Plan.Operation && r.Plan.Measure == together.Plan.Measure {
			return r
		}
	}
	return nil
}

// forward is the bandwidth of the largest messages that the initiator moved; 0: none.
func forward(r *perftest.Result) float64 {
	if r == nil || r.Failure != nil {
		return 0
	}
	if s := largestStep(r); s != nil && s.Forward != nil {
		return s.Forward.BytesPerSec
	}
	return 0
}
