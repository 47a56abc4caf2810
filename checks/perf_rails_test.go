package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// onRail is one of several results that were measured between ports of the same
// name, at the given rate.
func onRail(rail string, together int, gbps float64) *perftest.Result {
	r := ndr(gbps)
	r.Rail, r.Peer, r.Together = rail, rail, together
	return r
}

func TestPerfShared(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:01.0 root mps=256
    01:00.0 nic=mlx5_0 link=16x16 mps=256
    01:00.1 nic=mlx5_1 link=16x16 mps=256
  00:02.0 root mps=256
    02:00.0 nic=mlx5_2 link=16x16 mps=256`) // a link carries 230 Gb/s
	software := func(r *perftest.Result) *perftest.Result {
		limit(perftest.Responder, func(l *perftest.Limits) { l.Software = true })(r)
		return r
	}
	failed := func(r *perftest.Result) *perftest.Result {
		r.Failure, r.FailedAt = &perftest.Failure{Call: "x"}, perftest.StageRan
		return r
	}
	for _, tt := range []struct {
		name    string
		results []*perftest.Result
		verdict Verdict
		message string
	}{
		{"nothing shared", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_2/1", 0, 200), onRail("mlx5_0/1", 2, 199), onRail("mlx5_2/1", 2, 198)},
			Pass, "397 Gb/s together, 400 Gb/s alone: 99 %"},
		{"just enough", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_2/1", 0, 200), onRail("mlx5_0/1", 2, 180), onRail("mlx5_2/1", 2, 180)},
			Pass, "90 %"},
		{"a full link", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_1/1", 0, 200), onRail("mlx5_0/1", 2, 112), onRail("mlx5_1/1", 2, 110)},
			Info, "slower: mlx5_0/1, mlx5_1/1, which share the link below 0000:00:01.0; it is full"},
		{"a link that should carry more", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_1/1", 0, 200), onRail("mlx5_0/1", 2, 60), onRail("mlx5_1/1", 2, 60)},
			Warn, "120 Gb/s together, 400 Gb/s alone: 30 %; slower: mlx5_0/1, mlx5_1/1, which share the link below 0000:00:01.0"},
		{"no link in common", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_2/1", 0, 200), onRail("mlx5_0/1", 2, 100), onRail("mlx5_2/1", 2, 100)},
			Warn, "which share no PCIe link"},
		{"one is slower", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_2/1", 0, 200), onRail("mlx5_0/1", 2, 200), onRail("mlx5_2/1", 2, 100)},
			Warn, "slower: mlx5_2/1"},
		{"software", []*perftest.Result{onRail("mlx5_0/1", 0, 9), onRail("mlx5_2/1", 0, 9), software(onRail("mlx5_0/1", 2, 5)), onRail("mlx5_2/1", 2, 5)},
			Info, "shares the CPU"},
		{"one failed", []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_2/1", 0, 200), failed(onRail("mlx5_0/1", 2, 0)), onRail("mlx5_2/1", 2, 200)},
			Unknown, "fewer than two ports"},
		{"never alone", []*perftest.Result{onRail("mlx5_0/1", 2, 200), onRail("mlx5_2/1", 2, 200)}, Unknown, "fewer than two ports"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := Run(m, Options{Only: []string{"perf"}, Results: tt.results})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Check == "perf-shared" })
			if f := o.Findings[i]; f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || f.Subject != "write of 2 ports" {
				t.Errorf("%s, %s: %q, want %s with %q", f.Subject, f.Verdict, f.Message, tt.verdict, tt.message)
			}
			// What is slower since others run is no fault of the port.
			for _, f := range o.Findings {
				if strings.HasSuffix(f.Check, "bandwidth") && strings.Contains(f.Subject, "with all others") {
					t.Errorf("%s %s was judged", f.Check, f.Subject)
				}
			}
		})
	}
}

func TestPerfPorts(t *testing.T) {
	pair := func(why perftest.Why, text string) perftest.RailPair {
		return perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_1/1", By: perftest.MatchSubnet, Why: why, NotMeasured: text}
	}
	for _, tt := range []struct {
		pair             perftest.RailPair
		verdict          Verdict
		subject, message string
	}{
		{pair("", ""), Pass, "mlx5_0/1", "measured with mlx5_1/1 of the other node: the one in the same network"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1"}, Pass, "mlx5_0/1", "measured with itself"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3"}, Pass, "mlx5_0/1", "measured with itself in the memory of GPU3"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3", GPUNotMeasured: "in use", GPUUnknown: true}, Unknown, "mlx5_0/1", "measured with itself, in host memory alone; cannot tell what it reaches in that of GPU3: in use"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3", GPUNotMeasured: "in use", GPUUnknown: true, LeftOut: []string{"latency"}}, Unknown, "mlx5_0/1", "there was no time for: latency"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3", GPUNotMeasured: "refused"}, Info, "mlx5_0/1", "measured with itself, in host memory alone, not in that of GPU3: refused"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPUNotMeasured: "not collected: pci", GPUUnknown: true}, Unknown, "mlx5_0/1", "in host memory alone; cannot tell whether there is a GPU to measure: not collected: pci"},
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", LeftOut: []string{"latency", "read"}}, Info, "mlx5_0/1", "measured with itself; there was no time for: latency, read"},
		{pair(perftest.WhyDown, "mlx5_1/1 is DOWN on the other node"), Fail, "mlx5_0/1", "not measured: mlx5_1/1 is DOWN on the other node"},
		{perftest.RailPair{Rail: "mlx5_0/1", Why: perftest.WhyNoPeer, NotMeasured: "no port left"}, Warn, "mlx5_0/1", "no port left"},
		{perftest.RailPair{Peer: "mlx5_1/1", Why: perftest.WhyNoPeer, NotMeasured: "no port left"}, Warn, "the other node's mlx5_1/1", "no port left"},
		{pair(perftest.WhyLost, "the other side closed the connection"), Unknown, "mlx5_0/1", "closed"},
		{pair(perftest.WhyBusy, "9 Gb/s"), Unknown, "mlx5_0/1", "9 Gb/s"},
		{pair(perftest.WhyTime, "over"), Unknown, "mlx5_0/1", "over"},
		{pair(perftest.WhyUnsupported, "an EFA device"), NotApplicable, "mlx5_0/1", "an EFA device"},
		{perftest.RailPair{Why: perftest.WhyNone, NotMeasured: "no RDMA device"}, NotApplicable, "node", "no RDMA device"},
	} {
		o, err := Run(&topo.Machine{}, Options{Rails: []perftest.RailPair{tt.pair}})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Check == "perf-ports" })
		if f := o.Findings[i]; f.Verdict != tt.verdict || f.Subject != tt.subject || !strings.Contains(f.Message, tt.message) {
			t.Errorf("%+v: %s, %s: %q", tt.pair, f.Subject, f.Verdict, f.Message)
		}
	}
}

// Copies of all GPUs at once: what the two directions reach alone is not mixed up, and
// the link that slower ones share is named, as for ports.
func TestPerfSharedByGPUs(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:01.0 root mps=256
    01:00.0 up link=16x16 mps=256
      02:00.0 down mps=256
        03:00.0 gpu=0 link=16x16 mps=256
      02:01.0 down mps=256
        04:00.0 gpu=1 link=16x16 mps=256`)
	copied := func(gpu string, out bool, together int, gbps float64) *perftest.Result {
		r := ndr(gbps)
		r.Plan, r.Rail, r.Together = r.Plan.Through(perftest.RouteCopy), gpu, together
		r.Initiator, r.Responder = perftest.Endpoint{}, perftest.Endpoint{}
		end := &r.Responder
		if out {
			end = &r.Initiator
		}
		end.Memory.Kind = perftest.MemoryCUDA
		return r
	}
	all := []*perftest.Result{
		copied("GPU0", false, 0, 180), copied("GPU0", true, 0, 200), copied("GPU1", false, 0, 180), copied("GPU1", true, 0, 200),
		copied("GPU0", true, 2, 60), copied("GPU1", true, 2, 60), copied("GPU0", false, 2, 179), copied("GPU1", false, 2, 179),
	}
	found := map[string]Finding{}
	for _, f := range onMeasurements(t, m, "perf-shared", all...) {
		found[f.Subject] = f
	}
	out, in := found["copies to pinned host memory of 2 GPUs"], found["copies from pinned host memory of 2 GPUs"]
	if out.Verdict != Warn || !strings.Contains(out.Message, "120 Gb/s together, 400 Gb/s alone: 30 %; slower: GPU0, GPU1, which share the link below 0000:00:01.0") {
		t.Errorf("%s %s", out.Verdict, out.Message)
	}
	if in.Verdict != Pass || !strings.Contains(in.Message, "358 Gb/s together, 360 Gb/s alone") {
		t.Errorf("%s %s", in.Verdict, in.Message)
	}
	apart := topotest.Machine(t, `
pci0000:00
  00:01.0 root mps=256
    03:00.0 gpu=0 link=16x16 mps=256
  00:02.0 root mps=256
    04:00.0 gpu=1 link=16x16 mps=256`)
	for _, f := range onMeasurements(t, apart, "perf-shared", all[:6]...) {
		if f.Verdict != Warn || !strings.Contains(f.Message, "slower: GPU0, GPU1, which share no PCIe link: what is left for copies to share is the host's memory") {
			t.Errorf("%s %s", f.Verdict, f.Message)
		}
	}
	broken := copied("GPU0", true, 0, 200)
	broken.Failure, broken.Faulty, broken.FailedAt, broken.Steps = &perftest.Failure{Call: "cuMemcpyDtoHAsync_v2"}, perftest.Initiator, perftest.StageRan, nil
	if f := onMeasurements(t, m, "perf-data", broken)[0]; f.Verdict != Fail || strings.Contains(strings.Join(f.Fix, "\n"), "cable") || !strings.Contains(strings.Join(f.Fix, "\n"), "xid") {
		t.Errorf("%s %q", f.Verdict, f.Fix)
	}
	if f := onMeasurements(t, m, "perf-priority", all...); len(f) != 1 || f[0].Verdict != NotApplicable {
		t.Errorf("no port took part: %+v", f)
	}
}
