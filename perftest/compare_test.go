package perftest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// round is one test of two sizes by a route, with CPU time of 3 ns a byte at
// both ends together.
func round(r Route, kind string, small, large float64) *Result {
	p := NewPlan(Write, Bandwidth).Through(r)
	p.SizesBytes = []int{1000, 1000000}
	out := &Result{Plan: p}
	out.Initiator.Memory.Kind, out.Responder.Memory.Kind = kind, kind
	for i, rate := range []float64{small, large} {
		out.Steps = append(out.Steps, Step{
			SizeBytes: p.SizesBytes[i], BytesPerSec: rate, Forward: &Rate{BytesPerSec: rate},
			CPU: &CPUUse{InitiatorNs: 200, ResponderNs: 100, Bytes: 100}, Data: []DataCheck{{Correct: true}},
		})
	}
	return out
}

func TestCompare(t *testing.T) {
	tcp := round(RouteTCP, MemoryCUDA, 1, 10)
	tcp.Steps[0].Path, tcp.Steps[1].Path = "eth0", "lo"
	wrong := round(RouteStaged, MemoryCUDA, 1000, 1000)
	wrong.Steps[0].Data[0].Correct = false
	broken := round(RouteStaged, MemoryCUDA, 9, 9)
	broken.Steps, broken.Failure, broken.Faulty = nil, &Failure{Call: "ibv_reg_mr", Cause: "none"}, Responder
	got := Compare([]*Result{
		round(RouteDirect, MemoryCUDA, 2, 90), round(RouteStaged, MemoryCUDA, 4, 30), tcp, round(RouteDirect, MemoryHost, 8, 100),
		round(RouteDirect, MemoryCUDA, 6, 70), wrong, broken, round(RouteDirect, MemoryCUDA, 1, 80),
		round(RouteCopy, MemoryCUDA, 500, 500), // is not between two ends
	})
	figure := func(crossings float64, path string, median float64, rounds ...float64) Figure {
		return Figure{BytesPerSec: median, Rounds: rounds, CPUNsPerByte: 3, HostBytesPerByte: crossings, Path: path}
	}
	want := []*Comparison{{
		Measure: Bandwidth, OnGPU: true, Rounds: 3, CrossoverBytes: 0,
		Sizes: []ComparedSize{
			{SizeBytes: 1000, Routes: map[Route]Figure{
				RouteDirect: figure(0, "", 2, 2, 6, 1), RouteStaged: figure(4, "", 4, 4),
				RouteTCP: figure(8, "eth0", 1, 1), RouteHost: figure(2, "", 8, 8),
			}, SpeedUp: map[Route]float64{RouteStaged: 0.5, RouteTCP: 2, RouteHost: 0.25}},
			{SizeBytes: 1000000, Routes: map[Route]Figure{
				RouteDirect: figure(0, "", 80, 90, 70, 80), RouteStaged: figure(4, "", 515, 30, 1000),
				RouteTCP: figure(6, "lo", 10, 10), RouteHost: figure(2, "", 100, 100),
			}, SpeedUp: map[Route]float64{RouteStaged: 80.0 / 515, RouteTCP: 8, RouteHost: 0.8}},
		},
		Failures: map[Route][]string{RouteStaged: {"at the responder: ibv_reg_mr: none"}},
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApprox(1e-12, 0)); diff != "" {
		t.Error(diff)
	}
	if got := Compare([]*Result{round(RouteDirect, MemoryHost, 1, 1), round(RouteDirect, MemoryHost, 1, 1)}); got != nil {
		t.Errorf("one route is no comparison: %+v", got)
	}
	host := Compare([]*Result{round(RouteDirect, MemoryHost, 2, 3), round(RouteStaged, MemoryHost, 1, 1)})[0]
	if host.OnGPU || !host.Simulated || host.Note == "" || host.Sizes[0].SpeedUp[RouteStaged] != 2 {
		t.Errorf("without a GPU: %+v", host)
	}
}

func TestCrossover(t *testing.T) {
	size := func(bytes int, speedUp float64) ComparedSize {
		return ComparedSize{SizeBytes: bytes, SpeedUp: map[Route]float64{RouteStaged: speedUp}}
	}
	for _, tt := range []struct {
		sizes []ComparedSize
		want  int
	}{
		{nil, 0},
		{[]ComparedSize{size(1, 2), size(2, 3)}, 1},
		{[]ComparedSize{size(1, 0.5), size(2, 1), size(4, 1.01), size(8, 3)}, 4},
		{[]ComparedSize{size(1, 2), size(2, 0.9), size(4, 1.1)}, 4}, // from there on for good
		{[]ComparedSize{size(1, 2), size(2, 0.9)}, 0},
		{[]ComparedSize{size(1, 2), {SizeBytes: 2}}, 0}, // a size without figures proves nothing
	} {
		if got := crossover(tt.sizes); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.sizes, got, tt.want)
		}
	}
}

func TestCompareLatency(t *testing.T) {
	of := func(r Route, ns float64) *Result {
		p := NewPlan(WriteImm, Latency).Through(r)
		return &Result{Plan: p, Steps: []Step{{SizeBytes: 2, Latency: &LatencyDist{MedianNs: ns}}}}
	}
	c := Compare([]*Result{of(RouteDirect, 2000), of(RouteStaged, 30000), of(RouteTCP, 50000), of(RouteStaged, 40000)})[0]
	s := c.Sizes[0]
	if s.Routes[RouteStaged].LatencyNs != 35000 || s.SpeedUp[RouteStaged] != 17.5 || s.SpeedUp[RouteTCP] != 25 || c.CrossoverBytes != 2 {
		t.Errorf("%+v", c)
	}
}
