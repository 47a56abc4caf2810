package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

var gdrBeatsStaging = Check{
	ID: "gdr-beats-staging", Title: "GPUDirect RDMA is faster than staging, and nearly as fast as host memory", Area: AreaPerf, Severity: SeverityWarning,
	DependsOn: []string{"perf-setup", "perf-data"},
	Why:       "Where data takes a detour between GPU and NIC, GPUDirect RDMA works and gains nothing: jobs run at the speed of the detour, and nothing says so.",
	Fix:       []string{"See which GPU and NIC belong together, and compare those: gdrcheck topo"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/#supported-systems",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
	},
	Subjects: eachComparison,
	Eval:     evalGDRBeatsStaging,
}

// eachComparison is the bandwidth of the direct and the staged route, where both
// were measured or tried.
func eachComparison(n *Node) []Subject {
	for _, c := range perftest.Compare(n.Results) {
		if c.Measure != perftest.Bandwidth {
			continue
		}
		i := slices.IndexFunc(n.Results, func(r *perftest.Result) bool {
			return r.Plan.Measure == c.Measure && r.Plan.Route == perftest.RouteStaged
		})
		if i < 0 {
			continue
		}
		s := resultSubject(n.Results[i])
		s.ID = strings.Join(append([]string{"comparison"}, s.Parts[:len(s.Parts)-1]...), " ")
		s.Parts[len(s.Parts)-1] = s.ID
		s.Comparison = c
		return []Subject{s}
	}
	return nil
}

func evalGDRBeatsStaging(c *Case) {
	m := c.Subject.Comparison
	switch {
	case !m.OnGPU:
		c.NotApplicable("no GPU's memory took part: host memory stood for it")
		return
	case m.Simulated:
		c.Info("simulated: the figures say nothing about a machine")
		return
	case len(m.Sizes) == 0:
		c.Unknown("cannot tell: nothing was measured")
		return
	}
	size := m.Sizes[len(m.Sizes)-1]
	direct, okDirect := size.Routes[perftest.RouteDirect]
	staged, okStaged := size.Routes[perftest.RouteStaged]
	if !okDirect || !okStaged {
		c.Unknown("cannot tell: %s", missingRoute(m, okDirect))
		return
	}
	c.compared(size)
	text := fmt.Sprintf("messages of %d bytes: %s by GPUDirect RDMA, %s staged (%.2f times as fast)",
		size.SizeBytes, measuredRate(direct.BytesPerSec), measuredRate(staged.BytesPerSec), size.SpeedUp[perftest.RouteStaged])
	if size.SizeBytes < c.Thresholds.GDRCompareMinSizeBytes {
		c.Info("%s; only messages from %d bytes on are judged", text, c.Thresholds.GDRCompareMinSizeBytes)
		return
	}
	most, by, reason := ceiling(c.Subject.Result)
	full := most > 0 && direct.BytesPerSec >= c.Thresholds.PerfBandwidthPassShare*most
	slower := size.SpeedUp[perftest.RouteStaged] < c.Thresholds.GDRMinSpeedUp
	switch lost := c.behindHost(size); {
	case lost != "":
		c.Warn("%s; %s", text, lost)
	case slower && !full:
		c.Warn("%s: not clearly faster", text)
		if most == 0 || reason != "" {
			c.Unsure("it may be all that the port or its path carries: %s", cmp.Or(reason, "not known"))
		}
	case slower:
		c.Pass("%s: both fill %s, and GPUDirect RDMA spares CPU and host memory", text, by)
		return
	default:
		c.Pass("%s", text)
		return
	}
	c.Fix(c.detours()...)
}

func missingRoute(c *perftest.Comparison, okDirect bool) string {
	route := perftest.RouteDirect
	if okDirect {
		route = perftest.RouteStaged
	}
	if list := c.Failures[route]; len(list) > 0 {
		return fmt.Sprintf("the %s route failed %s", route, list[0])
	}
	return fmt.Sprintf("the %s route gave no figure for the largest messages", route)
}

// compared adds what was measured as evidence.
func (c *Case) compared(size perftest.ComparedSize) {
	for _, lane := range perftest.Lanes {
		f, ok := size.Routes[lane]
		if !ok {
			continue
		}
		c.Row(fmt.Sprintf("%s, %d bytes", lane, size.SizeBytes), fmt.Sprintf("%s, %.3f CPU s/GB", measuredRate(f.BytesPerSec), f.CPUNsPerByte), fmt.Sprintf("median of %d", len(f.Rounds)))
	}
}

// behindHost says that GPU memory is slower than the path explains; empty: it is
// not, or nothing promises that it would be faster.
func (c *Case) behindHost(size perftest.ComparedSize) string {
	host := size.Routes[perftest.RouteHost]
	if host.BytesPerSec == 0 {
		return ""
	}
	path := worstPath(c.Subject.Result)
	want, promised := c.Thresholds.GDRHostShare[path]
	share := size.Routes[perftest.RouteDirect].BytesPerSec / host.BytesPerSec
	if !promised || share >= want {
		return ""
	}
	return fmt.Sprintf("the same NICs move %s between host memories, of which this is %.0f %%, and a path of class %s promises %.0f %%",
		measuredRate(host.BytesPerSec), share*100, path, want*100)
}

// worstPath is the worse of both ends' paths; one that is not known is the worst.
func worstPath(r *perftest.Result) topo.Class {
	paths := []topo.Class{topo.ClassSelf}
	for _, e := range []*perftest.Endpoint{&r.Initiator, &r.Responder} {
		if g := e.Memory.GPU; g != nil {
			paths = append(paths, g.Path)
		}
	}
	return slices.MaxFunc(paths, func(a, b topo.Class) int { return cmp.Compare(a.Rank(), b.Rank()) })
}

// detourChecks are what may send GPU traffic a longer way or slow it down, the
// likeliest first.
var detourChecks = []*Check{&acsRedirect, &iommuTranslation, &pcieLinkWidth, &pcieLinkSpeed, &bridgeLink, &pcieReadRequest, &relaxedOrdering, &bar1Size}

// detours are the likely reasons, in order: the path as it is, then what this
// machine's own checks say, then what could not be seen.
func (c *Case) detours() []string {
	var found, unseen []string
	r := c.Subject.Result
	ends := map[perftest.Side]*perftest.Endpoint{perftest.Initiator: &r.Initiator, perftest.Responder: &r.Responder}
	for _, side := range bothSides {
		e := ends[side]
		if g := e.Memory.GPU; g != nil && g.Path != "" && g.Path.Rank() > c.Thresholds.PathGood.Rank() {
			found = append(found, fmt.Sprintf("the path from GPU%d to %s at the %s is %s: measure with the nearest NIC; gdrcheck topo --explain GPU%d %s", g.Index, e.Device, side, g.Path, g.Index, e.Device))
		}
	}
	for _, check := range detourChecks {
		for _, s := range check.Subjects(c.Node) {
			switch f := judge(check, c.Node, s); f.Verdict {
			case Fail, Warn:
				found = append(found, fmt.Sprintf("%s, %s: %s; gdrcheck explain %s", f.Check, f.Subject, f.Message, f.Check))
			case Unknown:
				if !slices.Contains(unseen, check.ID) {
					unseen = append(unseen, check.ID)
				}
			default:
			}
		}
	}
	if len(unseen) > 0 {
		found = append(found, "what was not seen here: sudo gdrcheck check --only "+strings.Join(unseen, ","))
	}
	found = append(found, "which end is slow: measure with --mem host at this end, then with --peer-mem host")
	for i := range found {
		found[i] = fmt.Sprintf("%d. %s", i+1, found[i])
	}
	return append([]string{"Likely reasons, in this order:"}, found...)
}

// measuredRate is a measured bandwidth for people.
func measuredRate(bytesPerSec float64) string { return fmt.Sprintf("%.1f Gb/s", bytesPerSec*8/1e9) }
