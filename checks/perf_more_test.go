package checks

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// onMeasurements are one check's findings on measurements, without those that it
// depends on.
func onMeasurements(t *testing.T, m *topo.Machine, id string, list ...*perftest.Result) []Finding {
	t.Helper()
	o, err := Run(m, Options{Only: []string{id}, Results: list})
	if err != nil {
		t.Fatal(err)
	}
	return o.Findings
}

// What is compared: the direct with the staged route's bandwidth, wherever in
// the list they are, and only where both were measured.
func TestComparisonSubject(t *testing.T) {
	list := compared(231, 209, 0, topo.ClassPIX)
	slices.Reverse(list)
	f := onMeasurements(t, &topo.Machine{}, "gdr-beats-staging", list...)[0]
	if f.Verdict != Pass || f.Subject != "comparison mlx5_0/1" {
		t.Errorf("staged first: %s %s %s", f.Subject, f.Verdict, f.Message)
	}
	list = compared(231, 209, 0, topo.ClassPIX)
	list[1].Plan = list[1].Plan.Through(perftest.RouteTCP)
	if f := onMeasurements(t, &topo.Machine{}, "gdr-beats-staging", list...)[0]; f.Verdict != NotApplicable || f.Subject != nodeID {
		t.Errorf("direct and TCP: %s %s %s", f.Subject, f.Verdict, f.Message)
	}
	list = compared(231, 209, 0, topo.ClassPIX)
	for _, r := range list {
		r.Plan.SizesBytes = nil
	}
	if f := onMeasurements(t, &topo.Machine{}, "gdr-beats-staging", list...)[0]; f.Verdict != Unknown || !strings.Contains(f.Message, "nothing was measured") {
		t.Errorf("no sizes: %s %s", f.Verdict, f.Message)
	}
}

// The thresholds' own values, the ends' own paths, and what is not known of them.
func TestComparisonBounds(t *testing.T) {
	size := func(n int) func([]*perftest.Result) {
		return func(list []*perftest.Result) {
			for _, r := range list {
				r.Steps[0].SizeBytes, r.Plan.SizesBytes = n, []int{n}
			}
		}
	}
	paths := func(initiator, responder *perftest.GPU) func([]*perftest.Result) {
		return func(list []*perftest.Result) {
			for _, r := range list[:2] {
				r.Initiator.Memory.GPU, r.Responder.Memory.GPU = initiator, responder
			}
		}
	}
	on := func(path topo.Class) *perftest.GPU { return &perftest.GPU{Index: 3, Path: path} }
	for _, tt := range []struct {
		name    string
		results []*perftest.Result
		change  func([]*perftest.Result)
		verdict Verdict
		message string
		fix     string // "!…" must not be in it
		unsure  bool
	}{
		{"the smallest that are judged", compared(200, 190, 0, topo.ClassPIX), size(1 << 20), Warn, "not clearly faster", "", false},
		{"90 % of the port fill it", compared(360, 355, 0, topo.ClassPIX), nil, Pass, "both fill the port", "", false},
		{"1.1 times is clearly faster", compared(220, 200, 0, topo.ClassPIX), nil, Pass, "(1.10 times as fast)", "", false},
		{"90 % of host memory's on a short path", compared(351, 150, 390, topo.ClassPIX), nil, Pass, "2.34 times", "", false},
		{"one end's path is not known", compared(200, 190, 0, topo.ClassPIX), func(list []*perftest.Result) {
			for _, r := range list {
				limit(perftest.Responder, func(l *perftest.Limits) { l.PCIeBytesPerSec = 0 })(r)
			}
		}, Warn, "not clearly faster", "", true},
		{"a GPU at the initiator alone", compared(300, 150, 390, topo.ClassPIX), paths(on(topo.ClassPIX), nil), Warn, "class PIX promises 90 %", "", false},
		{"a GPU at the responder alone", compared(300, 150, 390, topo.ClassPIX), paths(nil, on(topo.ClassPIX)), Warn, "class PIX promises 90 %", "", false},
		{"the responder's path is worse", compared(200, 100, 390, topo.ClassPIX), paths(on(topo.ClassPIX), on(topo.ClassNODE)), Warn, "class NODE promises 70 %", "1. the path from GPU3 to mlx5_0 at the responder is NODE", false},
		{"the initiator's path is worse", compared(200, 100, 390, topo.ClassPIX), paths(on(topo.ClassNODE), on(topo.ClassPIX)), Warn, "class NODE promises 70 %", "1. the path from GPU3 to mlx5_0 at the initiator is NODE", false},
		{"the initiator's path is not known", compared(200, 100, 390, topo.ClassPIX), paths(on(""), on(topo.ClassPIX)), Pass, "2.00 times", "", false},
		{"the responder's path is not known", compared(200, 100, 390, topo.ClassPIX), paths(on(topo.ClassPIX), on("")), Pass, "2.00 times", "", false},
		{"a good path is no reason", compared(300, 150, 390, topo.ClassPXB), nil, Warn, "class PXB", "!the path from", false},
		{"nor is one that is not known", compared(200, 190, 0, ""), nil, Warn, "not clearly faster", "!the path from", false},
	} {
		if tt.change != nil {
			tt.change(tt.results)
		}
		f := onMeasurements(t, &topo.Machine{}, "gdr-beats-staging", tt.results...)[0]
		fix := strings.Join(f.Fix, "\n")
		no, absent := strings.CutPrefix(tt.fix, "!")
		if f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || (f.Unsure != "") != tt.unsure || strings.Contains(fix, no) == absent {
			t.Errorf("%s: %s %q, want %s with %q; fix %q; unsure %q", tt.name, f.Verdict, f.Message, tt.verdict, tt.message, f.Fix, f.Unsure)
		}
	}
}

// The evidence of a comparison is each route's own figure.
func TestComparisonEvidence(t *testing.T) {
	got := map[string]string{}
	for _, e := range onMeasurements(t, &topo.Machine{}, "gdr-beats-staging", compared(360, 180, 380, topo.ClassPIX)...)[0].Evidence {
		rate, _, _ := strings.Cut(e.Got, ",")
		got[e.Name] = rate
	}
	for name, want := range map[string]string{"direct, 4194304 bytes": "360.0 Gb/s", "staged, 4194304 bytes": "180.0 Gb/s", "host, 4194304 bytes": "380.0 Gb/s"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// A check that could not tell is named once, on however many devices.
func TestDetoursUnseen(t *testing.T) {
	m := goodNode()
	denied(&fn(m, gpuAddr).Link)
	denied(&fn(m, nicAddr).Link)
	fix := strings.Join(onMeasurements(t, m, "gdr-beats-staging", compared(200, 190, 0, topo.ClassPIX)...)[0].Fix, "\n")
	if !strings.Contains(fix, "sudo gdrcheck check --only pcie-link-width,pcie-link-speed\n") {
		t.Error(fix)
	}
}

// Who is judged: each check names the measurements that it has something to say of.
func TestMeasurementSubjects(t *testing.T) {
	through := func(r *perftest.Result, route perftest.Route) *perftest.Result {
		r.Plan = r.Plan.Through(route)
		return r
	}
	tcp := func(change func(*perftest.Result)) *perftest.Result {
		r := through(ndr(90), perftest.RouteTCP)
		change(r)
		return r
	}
	refused := func(r *perftest.Result) {
		r.Failure, r.FailedAt = &perftest.Failure{Call: "connect"}, perftest.StageConnected
	}
	toHost := func(side perftest.Side, failed bool) *perftest.Result {
		r := through(ndr(90), perftest.RouteCopy)
		r.Initiator, r.Responder = perftest.Endpoint{}, perftest.Endpoint{}
		switch {
		case failed:
			r.Failure, r.FailedAt, r.Faulty = &perftest.Failure{Call: "cuInit"}, perftest.StageOpened, side
		case side == perftest.Initiator:
			r.Initiator.Memory.Kind = "cuda"
		default:
			r.Responder.Memory.Kind = "cuda"
		}
		return r
	}
	unnamed := ndr(392)
	unnamed.Plan.Route = ""
	reversed := onRail("mlx5_0/1", 0, 392)
	reversed.Peer, reversed.Reverse = "mlx5_7/1", true
	for _, tt := range []struct {
		name, check string
		result      *perftest.Result
		subject     string // the node: it is not judged
	}{
		{"a TCP connection that came up", "perf-setup", tcp(func(*perftest.Result) {}), "write bandwidth tcp mlx5_0/1"},
		{"one that did not was asked for, too", "perf-setup", tcp(refused), "write bandwidth tcp mlx5_0/1"},
		{"a latency has no share of priorities", "perf-priority", latency(perftest.Write, 1500), nodeID},
		{"counters beside TCP", "perf-counters", tcp(func(*perftest.Result) {}), "write bandwidth tcp mlx5_0/1"},
		{"no counters beside TCP that did not come up", "perf-counters", tcp(refused), nodeID},
		{"no counters where TCP took no RDMA port", "perf-counters", tcp(func(r *perftest.Result) { r.Initiator.Device = "" }), nodeID},
		{"staged bandwidth has no threshold", "perf-bandwidth", through(ndr(100), perftest.RouteStaged), nodeID},
		{"a plan that names no route is direct", "perf-bandwidth", unnamed, "write bandwidth mlx5_0/1"},
		{"a copy from the GPU", "perf-setup", toHost(perftest.Initiator, false), "copy bandwidth to pinned host memory"},
		{"a copy to the GPU", "perf-setup", toHost(perftest.Responder, false), "copy bandwidth from pinned host memory"},
		{"a copy whose GPU did not open", "perf-setup", toHost(perftest.Initiator, true), "copy bandwidth to pinned host memory"},
		{"a copy whose other GPU did not open", "perf-setup", toHost(perftest.Responder, true), "copy bandwidth from pinned host memory"},
		{"the other node's", "perf-bandwidth", reversed, "write bandwidth mlx5_7/1 mlx5_0/1 from the other node"},
	} {
		if f := onMeasurements(t, &topo.Machine{}, tt.check, tt.result)[0]; f.Subject != tt.subject {
			t.Errorf("%s: %s judges %q, want %q", tt.name, tt.check, f.Subject, tt.subject)
		}
	}
	forth := onRail("mlx5_0/1", 0, 392)
	forth.Peer = "mlx5_7/1"
	if f := onMeasurements(t, &topo.Machine{}, "perf-bandwidth", forth)[0]; f.Subject != "write bandwidth mlx5_0/1 mlx5_7/1" {
		t.Errorf("this node's: %s", f.Subject)
	}
}

func TestRates(t *testing.T) {
	for gbps, want := range map[float64]string{0.98765: "0.9877 Gb/s", 392.04: "392 Gb/s", 1234.56: "1235 Gb/s", 10000: "10000 Gb/s", 12345: "12345 Gb/s"} {
		if got := rate(gbps * gbit); got != want {
			t.Errorf("%v Gb/s: %s, want %s", gbps, got, want)
		}
	}
}

// Data that stayed what the buffer was filled with did not arrive; a buffer that
// nothing was to reach, or one of the host's, tells no such thing.
func TestNotArrived(t *testing.T) {
	for _, tt := range []struct {
		name      string
		kind      string
		untouched bool
		gpu       *perftest.GPU
		message   string
		fix       string
	}{
		{"a GPU's", perftest.MemoryCUDA, false, &perftest.GPU{Index: 3}, "did not reach the memory of GPU", "--explain GPU3 mlx5_0"},
		{"a GPU that is not described", perftest.MemoryCUDA, false, nil, "did not reach the memory of the GPU", "--explain GPU0 mlx5_0"},
		{"a part that nothing was to reach", perftest.MemoryCUDA, true, nil, "wrong data arrived", ""},
		{"host memory", perftest.MemoryHost, false, nil, "wrong data arrived", ""},
	} {
		r := ndr(1)
		r.Responder.Memory = perftest.Buffer{Kind: tt.kind, GPU: tt.gpu}
		r.Steps[0].Data = []perftest.DataCheck{{Side: perftest.Responder, Got: 0xf0, Want: 0x0f, Untouched: tt.untouched}}
		f := onMeasurements(t, &topo.Machine{}, "perf-data", r)[0]
		if f.Verdict != Fail || !strings.Contains(f.Message, tt.message) || !strings.Contains(strings.Join(f.Fix, "\n"), tt.fix) {
			t.Errorf("%s: %s %q; fix %q", tt.name, f.Verdict, f.Message, f.Fix)
		}
	}
}

// What a rail is part of: itself, whichever node's it is; the node otherwise.
func TestRailParts(t *testing.T) {
	for _, tt := range []struct {
		pair perftest.RailPair
		want []string
	}{
		{perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_1/1"}, []string{"mlx5_0/1"}},
		{perftest.RailPair{Rail: "mlx5_0/1"}, []string{"mlx5_0/1"}},
		{perftest.RailPair{Peer: "mlx5_1/1"}, []string{"the other node's mlx5_1/1"}},
		{perftest.RailPair{}, nil},
	} {
		s := eachRail(&Node{Rails: []perftest.RailPair{tt.pair}})[0]
		if !slices.Equal(s.Parts, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.pair, s.Parts, tt.want)
		}
	}
}

func TestPerfPriorityMore(t *testing.T) {
	counted := func(initiator, responder []perftest.PriorityBytes) func(*perftest.Result) {
		return func(r *perftest.Result) {
			r.Counters = map[perftest.Side]perftest.SideCounters{perftest.Initiator: {Priorities: initiator}, perftest.Responder: {Priorities: responder,
				Moved: []perftest.CounterDelta{{Sign: qos.SignDiscard}}}}
		}
	}
	const gib = 1 << 30
	sent := []perftest.PriorityBytes{{Priority: 3, Sent: 9 * gib}}
	for _, tt := range []struct {
		name    string
		change  func(*perftest.Result)
		verdict Verdict
		message string
	}{
		{"it failed", func(r *perftest.Result) { r.Failure = &perftest.Failure{Call: "x"} }, NotApplicable, "did not come to its end"},
		{"the receiver alone counts", counted(nil, []perftest.PriorityBytes{{Priority: 3, Received: 9 * gib}}), Pass, "priority 3; flow control (pauses) not exercised, congestion control (ECN, CNP) not exercised"},
		{"the receiver alone counts, nothing", counted(nil, []perftest.PriorityBytes{{Priority: 3}}), Info, "not exercised"},
		{"the sender alone counts, nothing", counted([]perftest.PriorityBytes{{Priority: 3}}, nil), Info, "not exercised"},
		{"sent and not received", counted(sent, []perftest.PriorityBytes{{Priority: 3}}), Info, "not exercised"},
		{"received and not sent", counted([]perftest.PriorityBytes{{Priority: 3}}, []perftest.PriorityBytes{{Priority: 3, Received: 9 * gib}}), Info, "not exercised"},
	} {
		r := ndr(380)
		tt.change(r)
		if f := onMeasurements(t, goodNode(), "perf-priority", r)[0]; f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) {
			t.Errorf("%s: %s %s", tt.name, f.Verdict, f.Message)
		}
	}
}

// A queue pair of a kind that the NIC has not is no fault, and what keeps gdrcheck
// itself from starting is none of the node's; any other call, or any other answer, is.
func TestPerfSetupOfUnsupported(t *testing.T) {
	for _, tt := range []struct {
		call    string
		errno   syscall.Errno
		verdict Verdict
	}{
		{"ibv_create_qp", syscall.EOPNOTSUPP, Unknown}, {"ibv_create_qp", syscall.ENOMEM, Fail}, {"ibv_reg_mr", syscall.EOPNOTSUPP, Fail},
		{perftest.CallStart, syscall.EMFILE, Unknown}, {perftest.CallStart, 0, Unknown},
	} {
		r := ndr(1)
		r.Failure, r.FailedAt = &perftest.Failure{Call: tt.call, Errno: int(tt.errno)}, perftest.StageOpened
		if f := onMeasurements(t, &topo.Machine{}, "perf-setup", r)[0]; f.Verdict != tt.verdict {
			t.Errorf("%s: %s: %s %s", tt.call, tt.errno, f.Verdict, f.Message)
		}
	}
}

func TestPerfSharedMore(t *testing.T) {
	drawing := `
pci0000:00
  00:01.0 root mps=256
    01:00.0 nic=mlx5_0 link=16x16 mps=256
    01:00.1 nic=mlx5_1 link=16x16 mps=256`
	carries := func() float64 {
		_, bytes, ok := topo.New(topotest.Machine(t, drawing)).CommonLink([]string{"mlx5_0", "mlx5_1"})
		if !ok || bytes == 0 {
			t.Fatal("no common link")
		}
		return bytes / gbit
	}()
	measured := func(together float64) []*perftest.Result {
		return []*perftest.Result{onRail("mlx5_0/1", 0, 200), onRail("mlx5_1/1", 0, 200), onRail("mlx5_0/1", 2, together), onRail("mlx5_1/1", 2, together)}
	}
	unlinked := func(m *topo.Machine) {
		for i := range m.PCI {
			denied(&m.PCI[i].Link)
		}
	}
	change := func(list []*perftest.Result, f func(*perftest.Result)) []*perftest.Result {
		for _, r := range list {
			f(r)
		}
		return list
	}
	for _, tt := range []struct {
		name    string
		machine func(*topo.Machine)
		results []*perftest.Result
		verdict Verdict
		message string
		want    string // of the link's own row; empty: there is none
	}{
		{"90 % of the link fill it", nil, measured(0.9 * carries / 2), Info, "it is full", ""},
		{"less does not", nil, measured(60), Warn, "which share the link below 0000:00:01.0", "up to " + rate(carries*gbit)},
		{"nobody knows what the link carries", unlinked, measured(60), Warn, "which share the link below 0000:00:01.0", ""},
		{"simulated", nil, change(measured(60), func(r *perftest.Result) { r.Simulated = true }), Info, "(simulated)", ""},
		{"nothing moved", nil, change(measured(60), func(r *perftest.Result) { r.Steps[0].Forward = nil }), Unknown, "fewer than two", ""},
		{"no step", nil, change(measured(60), func(r *perftest.Result) { r.Steps = nil }), Unknown, "fewer than two", ""},
	} {
		m := topotest.Machine(t, drawing)
		if tt.machine != nil {
			tt.machine(m)
		}
		f := onMeasurements(t, m, "perf-shared", tt.results...)[0]
		want := ""
		for _, e := range f.Evidence {
			if strings.HasPrefix(e.Name, "link below") {
				want = e.Want
			}
		}
		if f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || want != tt.want {
			t.Errorf("%s: %s %q, the link's row wants %q", tt.name, f.Verdict, f.Message, want)
		}
	}
}

// A link under load counts for the GPU that it was read of, and only if it was read.
func TestLoadOfAnotherGPU(t *testing.T) {
	idle := pci.Link{SpeedGTPerSec: 2.5, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}
	full := pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}
	for _, tt := range []struct {
		name string
		load perftest.GPULoad
		want Verdict
	}{
		{"its own", perftest.GPULoad{Addr: at(gpuAddr), Link: full}, Pass},
		{"another's", perftest.GPULoad{Addr: at("0000:99:00.0"), Link: full}, Warn},
		{"its own, not read", perftest.GPULoad{Addr: at(gpuAddr), Link: pci.Link{SpeedGTPerSec: 32}}, Warn},
	} {
		m := goodNode()
		fn(m, gpuAddr).Link.V = idle
		r := &perftest.Result{Load: map[perftest.Side]perftest.GPULoad{perftest.Responder: tt.load}}
		o := mustRun(t, m, Options{Only: []string{"pcie-link-speed"}, Results: []*perftest.Result{r}})
		if f := one(t, o, "pcie-link-speed", "GPU0"); f.Verdict != tt.want {
			t.Errorf("%s: %s %s", tt.name, f.Verdict, f.Message)
		}
	}
}

// Of a rail that was measured with itself, its GPU's bandwidth is told beside host
// memory's, each by its own result.
func TestRailBesideHost(t *testing.T) {
	measured := func(gbps float64, change func(*perftest.Result)) *perftest.Result {
		r := onRail("mlx5_0/1", 0, gbps)
		change(r)
		return r
	}
	gpu := func(*perftest.Result) {}
	host := func(r *perftest.Result) { r.Reference = true }
	simulated := func(r *perftest.Result) { r.Simulated = true }
	none := func(r *perftest.Result) { r.Steps = nil }
	other := func(r *perftest.Result) { r.Rail = "mlx5_9/1" }
	peer := func(r *perftest.Result) { r.Peer = "mlx5_9/1" }
	together := func(r *perftest.Result) { r.Together = 2 }
	slow := func(r *perftest.Result) { r.Plan.Measure = perftest.Latency }
	for _, tt := range []struct {
		name    string
		results []*perftest.Result
		want    string
		rows    int
	}{
		{"both", []*perftest.Result{measured(180, gpu), measured(200, host)}, " in the memory of GPU3, and beside it in host memory, of which it reaches 90 %", 2},
		{"the other way round", []*perftest.Result{measured(200, host), measured(180, gpu)}, "reaches 90 %", 2},
		{"others first", []*perftest.Result{measured(1, other), measured(2, peer), measured(3, together), measured(4, slow), measured(180, none), measured(180, gpu), measured(200, host)}, "reaches 90 %", 2},
		{"simulated", []*perftest.Result{measured(180, simulated), measured(200, host)}, "and beside it in host memory", 2},
		{"no host memory", []*perftest.Result{measured(180, gpu)}, " in the memory of GPU3", 0},
		{"no GPU memory", []*perftest.Result{measured(200, host)}, " in the memory of GPU3", 0},
	} {
		pair := perftest.RailPair{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3"}
		o := mustRun(t, &topo.Machine{}, Options{Only: []string{"perf-ports"}, Rails: []perftest.RailPair{pair}, Results: tt.results})
		f := one(t, o, "perf-ports", "mlx5_0/1")
		if f.Verdict != Pass || !strings.HasSuffix(f.Message, tt.want) || len(f.Evidence) != tt.rows {
			t.Errorf("%s: %s %q, %d rows", tt.name, f.Verdict, f.Message, len(f.Evidence))
		}
	}
}

// A test that broke off is a failure by itself, with what its error asks to look at.
func TestBrokenOff(t *testing.T) {
	broken := func(check string) *perftest.Result {
		r := ndr(100)
		r.Failure, r.Faulty, r.FailedAt = &perftest.Failure{Call: "ibv_poll_cq", Cause: "it stopped", Check: check}, perftest.Initiator, perftest.StageRan
		return r
	}
	for check, want := range map[string]string{"Look at the link": "Look at the link", "": perfBandwidth.Fix[0]} {
		f := onMeasurements(t, &topo.Machine{}, "perf-bandwidth", broken(check))[0]
		if f.Verdict != Fail || !strings.Contains(f.Message, "ended with an error at the initiator") || f.Fix[0] != want {
			t.Errorf("%q: %s %q; fix %q", check, f.Verdict, f.Message, f.Fix)
		}
	}
	rows := func(r *perftest.Result) map[string]string {
		out := map[string]string{}
		for _, e := range onMeasurements(t, &topo.Machine{}, "perf-data", r)[0].Evidence {
			out[e.Name] = e.Got
		}
		return out
	}
	r := broken("")
	r.Events = []perftest.AsyncEvent{{Type: "IBV_EVENT_PORT_ERR", Meaning: "the port went down", Harmful: true}}
	if got := rows(r); got["compared"] != "65536 bytes" || !strings.Contains(got["event"], "the port went down") {
		t.Errorf("%q", got)
	}
	r.Events = []perftest.AsyncEvent{{Type: "IBV_EVENT_PORT_ACTIVE", Meaning: "the port came up"}}
	r.Steps = nil
	if got := rows(r); got["compared"] != "" || got["event"] != "" {
		t.Errorf("nothing compared: %q", got)
	}
	r.Failure, r.FailedAt = nil, ""
	if got := rows(r); got["compared"] != "0 bytes" {
		t.Errorf("nothing compared, and no error: %q", got)
	}
}

// An event is this connection's own; a counter is the whole port's, and may have
// counted what is another's.
func TestCountersAreUnsure(t *testing.T) {
	event := func(r *perftest.Result) {
		r.Events = []perftest.AsyncEvent{{Type: "IBV_EVENT_PORT_ERR", Meaning: "the port went down", Side: perftest.Initiator, Harmful: true}}
	}
	counter := moved(qos.SignLink)
	unread := func(r *perftest.Result) { // of one side, counters beside others
		r.Counters = map[perftest.Side]perftest.SideCounters{perftest.Initiator: {Watched: []string{"x"}, Reason: "permission denied"}, perftest.Responder: {Watched: []string{"x"}}}
	}
	for name, tt := range map[string]struct {
		change []func(*perftest.Result)
		unsure bool
	}{
		"an event": {[]func(*perftest.Result){event}, false}, "a counter": {[]func(*perftest.Result){counter}, true}, "both": {[]func(*perftest.Result){event, counter}, true},
		"an event, and counters that could not be read": {[]func(*perftest.Result){unread, event}, false},
	} {
		r := ndr(380)
		for _, change := range tt.change {
			change(r)
		}
		if f := onMeasurements(t, goodNode(), "perf-counters", r)[0]; f.Verdict != Warn || (f.Unsure != "") != tt.unsure {
			t.Errorf("%s: %s %s; unsure %q", name, f.Verdict, f.Message, f.Unsure)
		}
	}
}
