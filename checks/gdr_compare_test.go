package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// compared is a comparison at 4 MiB over two 400 Gb/s ports, from a GPU to a GPU
// and, for reference, between host memories; 0 leaves a route out.
func compared(direct, staged, host float64, path topo.Class) []*perftest.Result {
	var out []*perftest.Result
	for _, lane := range []struct {
		route perftest.Route
		gbps  float64
		kind  string
	}{
		{perftest.RouteDirect, direct, "cuda"}, {perftest.RouteStaged, staged, "cuda"}, {perftest.RouteDirect, host, "host"},
	} {
		if lane.gbps == 0 {
			continue
		}
		r := ndr(lane.gbps)
		r.Plan = r.Plan.Through(lane.route)
		r.Plan.SizesBytes = []int{4 << 20}
		r.Steps[0].SizeBytes = 4 << 20
		for _, e := range []*perftest.Endpoint{&r.Initiator, &r.Responder} {
			e.Memory.Kind = lane.kind
			if lane.kind == "cuda" {
				e.Memory.GPU = &perftest.GPU{Index: 3, Path: path}
			}
		}
		out = append(out, r)
	}
	return out
}

func TestGDRBeatsStaging(t *testing.T) {
	each := func(f func(*perftest.Result)) func([]*perftest.Result) {
		return func(list []*perftest.Result) {
			for _, r := range list {
				f(r)
			}
		}
	}
	for _, tt := range []struct {
		name    string
		check   string
		results []*perftest.Result
		change  func([]*perftest.Result)
		verdict Verdict
		message string
		fix     string
	}{
		{"clearly faster", "gdr-beats-staging", compared(360, 180, 380, topo.ClassPIX), nil, Pass, "360.0 Gb/s by GPUDirect RDMA, 180.0 Gb/s staged (2.00 times as fast)", ""},
		{"just clearly faster", "gdr-beats-staging", compared(231, 209, 0, topo.ClassPIX), nil, Pass, "1.11 times", ""},
		{"not faster", "gdr-beats-staging", compared(200, 190, 0, topo.ClassPIX), nil, Warn, "1.05 times as fast): not clearly faster", "which end is slow"},
		{"slower", "gdr-beats-staging", compared(30, 190, 0, topo.ClassSYS), nil, Warn, "0.16 times", "1. the path from GPU3 to mlx5_0 at the initiator is SYS"},
		{"staging fills the port, too", "gdr-beats-staging", compared(385, 380, 390, topo.ClassPIX), nil, Pass, "both fill the port of the initiator", ""},
		{"slower than host memory on a short path", "gdr-beats-staging", compared(300, 150, 390, topo.ClassPXB), nil, Warn, "the same NICs move 390.0 Gb/s between host memories, of which this is 77 %, and a path of class PXB promises 90 %", "which end"},
		{"as slow as a longer path explains", "gdr-beats-staging", compared(300, 150, 390, topo.ClassPHB), nil, Pass, "2.00 times", ""},
		{"slower than that", "gdr-beats-staging", compared(200, 100, 390, topo.ClassNODE), nil, Warn, "class NODE promises 70 %", "is NODE"},
		{"a path that promises nothing", "gdr-beats-staging", compared(150, 100, 390, topo.ClassSYS), nil, Pass, "1.50 times", ""},
		{"the port is not known", "gdr-beats-staging", compared(200, 190, 0, topo.ClassPIX), each(func(r *perftest.Result) { r.Limits = nil }), Warn, "not clearly faster", ""},
		{"small messages", "gdr-beats-staging", compared(10, 40, 0, topo.ClassPIX), each(func(r *perftest.Result) { r.Steps[0].SizeBytes, r.Plan.SizesBytes = 65536, []int{65536} }), Info, "only messages from 1048576 bytes on", ""},
		{"no GPU", "gdr-beats-staging", compared(100, 90, 0, topo.ClassPIX), each(func(r *perftest.Result) { r.Initiator.Memory.Kind, r.Responder.Memory.Kind = "host", "host" }), NotApplicable, "host memory stood for it", ""},
		{"simulated", "gdr-beats-staging", compared(100, 90, 0, topo.ClassPIX), each(func(r *perftest.Result) { r.Simulated = true }), Info, "simulated", ""},
		{"no figure for the largest size", "gdr-beats-staging", compared(100, 90, 0, topo.ClassPIX), func(list []*perftest.Result) { list[1].Steps = nil }, Unknown, "the staged route gave no figure", ""},
		{"wrong data gives no figure", "gdr-beats-staging", compared(100, 90, 0, topo.ClassPIX), func(list []*perftest.Result) { list[0].Steps[0].Data[0].Correct = false }, Unknown, "the direct route gave no figure", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.results)
			}
			// perf-data would block it, which is another test's.
			o, err := Run(&topo.Machine{}, Options{Only: []string{tt.check}, Results: tt.results})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Check == tt.check })
			f := o.Findings[i]
			if f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || !strings.Contains(strings.Join(f.Fix, "\n"), tt.fix) {
				t.Errorf("%s: %q, want %s with %q; fix %q", f.Verdict, f.Message, tt.verdict, tt.message, f.Fix)
			}
			if (f.Unsure != "") != (tt.name == "the port is not known") {
				t.Errorf("unsure %q", f.Unsure)
			}
		})
	}
}

// The machine's own findings are named before what could not be seen.
func TestDetours(t *testing.T) {
	m := goodNode()
	fn(m, gpuPort).Config.ACS.V.Ctl = 0x1d
	o, err := Run(m, Options{Only: []string{"gdr-beats-staging"}, Results: compared(200, 190, 0, topo.ClassPIX)})
	if err != nil {
		t.Fatal(err)
	}
	fix := strings.Join(o.Findings[0].Fix, "\n")
	if !strings.Contains(fix, "1. acs-redirect, ") || strings.Contains(fix, "what was not seen here") {
		t.Errorf("%s", fix)
	}
}
