package checks

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

const gbit = 1e9 / 8 // bytes

// ndr is a test between two nodes with a 400 Gb/s port each, over PCIe that
// carries 430 Gb/s, measured at the given rate.
func ndr(gbps float64) *perftest.Result {
	end := perftest.Endpoint{Device: "mlx5_0", Port: 1}
	limits := perftest.Limits{PortBytesPerSec: 400 * gbit, PCIeBytesPerSec: 430 * gbit, LimitedBy: "0000:3b:00.0"}
	quiet := perftest.SideCounters{Watched: []string{"out_of_sequence", "link_downed"}}
	return &perftest.Result{
		Plan: perftest.NewPlan(perftest.Write, perftest.Bandwidth), Initiator: end, Responder: end,
		Steps: []perftest.Step{{
			SizeBytes: 65536, BytesPerSec: gbps * gbit, Forward: &perftest.Rate{BytesPerSec: gbps * gbit},
			Data: []perftest.DataCheck{{Side: perftest.Responder, Bytes: 65536, Correct: true}},
		}},
		Limits:   map[perftest.Side]perftest.Limits{perftest.Initiator: limits, perftest.Responder: limits},
		Counters: map[perftest.Side]perftest.SideCounters{perftest.Initiator: quiet, perftest.Responder: quiet},
	}
}

func latency(op perftest.Operation, meanNs float64) *perftest.Result {
	r := ndr(0)
	r.Plan = perftest.NewPlan(op, perftest.Latency)
	r.Steps[0].SizeBytes, r.Steps[0].Forward, r.Steps[0].Latency = 2, nil, &perftest.LatencyDist{MeanNs: meanNs, P99Ns: 2 * meanNs}
	return r
}

func moved(sign qos.Sign) func(*perftest.Result) {
	return func(r *perftest.Result) {
		c := r.Counters[perftest.Responder]
		c.Moved = []perftest.CounterDelta{{Name: "x", Sign: sign, Counted: "things counted", Delta: 3}}
		r.Counters = map[perftest.Side]perftest.SideCounters{perftest.Initiator: r.Counters[perftest.Initiator], perftest.Responder: c}
	}
}

// reported has the responder report events of these numbers of enum ibv_event_type.
func reported(types ...int) func(*perftest.Result) {
	return func(r *perftest.Result) {
		for _, n := range types {
			e := perftest.NewAsyncEvent(n, "mlx5_0/1", 65536, 0)
			e.Side = perftest.Responder
			r.Events = append(r.Events, e)
		}
	}
}

func limit(side perftest.Side, change func(*perftest.Limits)) func(*perftest.Result) {
	return func(r *perftest.Result) {
		l := r.Limits[side]
		change(&l)
		r.Limits[side] = l
	}
}

func TestPerfChecks(t *testing.T) {
	broken := func(r *perftest.Result) {
		r.Failure, r.Faulty, r.Steps = &perftest.Failure{Call: "work completion", Status: "IBV_WC_RETRY_EXC_ERR", Cause: "the other end does not answer", Check: "Look at the link"}, perftest.Initiator, nil
	}
	unopened := func(at perftest.Stage) func(*perftest.Result) {
		return func(r *perftest.Result) {
			r.Failure, r.Faulty, r.FailedAt, r.Steps = &perftest.Failure{
				Call: "ibv_open_device", Subject: "mlx5_0/1", Cause: "/dev/infiniband/uverbs0 is missing", Check: "give it to the container",
			}, perftest.Responder, at, nil
		}
	}
	wrong := func(r *perftest.Result) {
		r.Steps[0].Data = []perftest.DataCheck{{Side: perftest.Responder, FirstWrongOffset: 4097, Got: 1, Want: 2}}
	}
	for _, tt := range []struct {
		name    string
		result  *perftest.Result
		change  func(*perftest.Result)
		check   string
		verdict Verdict
		message string
	}{
		{"line rate", ndr(392), nil, "perf-bandwidth", Pass, "98 % of what the port of the initiator carries"},
		{"just enough", ndr(360), nil, "perf-bandwidth", Pass, "90 %"},
		{"a little low", ndr(359), nil, "perf-bandwidth", Warn, "90 %"},
		{"low enough to warn", ndr(320), nil, "perf-bandwidth", Warn, "80 %"},
		{"low", ndr(319), nil, "perf-bandwidth", Fail, "80 %"},
		{"a slow path at the other end", ndr(196), limit(perftest.Responder, func(l *perftest.Limits) { l.PCIeBytesPerSec = 200 * gbit }), "perf-bandwidth", Pass, "98 % of what PCIe at the responder, 0000:3b:00.0 carries"},
		{"a slow port at the other end", ndr(98), limit(perftest.Responder, func(l *perftest.Limits) { l.PortBytesPerSec = 100 * gbit }), "perf-bandwidth", Pass, "the port of the responder"},
		{"low, but the path is not known", ndr(100), limit(perftest.Responder, func(l *perftest.Limits) { l.PCIeBytesPerSec = 0 }), "perf-bandwidth", Warn, "25 %"},
		{"nothing known", ndr(100), func(r *perftest.Result) { r.Limits = nil }, "perf-bandwidth", Unknown, "rate of the responder's port is not known"},
		{"small messages", ndr(100), func(r *perftest.Result) { r.Steps[0].SizeBytes = 4096 }, "perf-bandwidth", Info, "not expected to fill a port"},
		{"one direction is slow", ndr(392), func(r *perftest.Result) { r.Steps[0].Reverse = &perftest.Rate{BytesPerSec: 100 * gbit} }, "perf-bandwidth", Fail, "25 %"},
		{"the largest size counts", ndr(100), func(r *perftest.Result) {
			r.Steps = append(r.Steps, perftest.Step{SizeBytes: 1 << 20, Forward: &perftest.Rate{BytesPerSec: 395 * gbit}})
		}, "perf-bandwidth", Pass, "99 %"},
		{"software", ndr(1), limit(perftest.Initiator, func(l *perftest.Limits) { l.Software = true }), "perf-bandwidth", Info, "software RDMA"},
		{"simulated", ndr(1), func(r *perftest.Result) { r.Simulated = true }, "perf-bandwidth", Info, "simulated"},
		{"loopback", ndr(392), func(r *perftest.Result) { r.Scope = "within one port" }, "perf-bandwidth", Pass, "; within one port"},
		{"failed", ndr(392), broken, "perf-bandwidth", Blocked, "perf-data"},

		{"quick write", latency(perftest.Write, 1500), nil, "perf-latency", Pass, "1.50 us on average"},
		{"slow write", latency(perftest.Write, 2600), nil, "perf-latency", Warn, "2.60 us"},
		{"very slow write", latency(perftest.Write, 5100), nil, "perf-latency", Fail, "5.10 us"},
		{"a read takes longer", latency(perftest.Read, 4400), nil, "perf-latency", Pass, "4.40 us"},
		{"slow read", latency(perftest.Read, 4600), nil, "perf-latency", Warn, "4.60 us"},
		{"large messages", latency(perftest.Send, 9000), func(r *perftest.Result) { r.Steps[0].SizeBytes = 65536 }, "perf-latency", Info, "no threshold"},
		{"as quick as may be", latency(perftest.Write, 2500), nil, "perf-latency", Pass, "2.50 us"},
		{"as slow as may be", latency(perftest.Write, 5000), nil, "perf-latency", Warn, "5.00 us"},
		{"the largest of the small", latency(perftest.Write, 1500), func(r *perftest.Result) { r.Steps[0].SizeBytes = 64 }, "perf-latency", Pass, ""},
		{"the smallest size counts", latency(perftest.Write, 1500), func(r *perftest.Result) {
			large := perftest.Step{SizeBytes: 64, Latency: &perftest.LatencyDist{MeanNs: 9000}}
			r.Steps = []perftest.Step{large, r.Steps[0], large}
		}, "perf-latency", Pass, "1.50 us"},
		{"no latency measured", latency(perftest.Write, 1500), func(r *perftest.Result) { r.Steps[0].Latency = nil }, "perf-latency", Unknown, "nothing was measured"},
		{"no step of a latency", latency(perftest.Write, 1500), func(r *perftest.Result) { r.Steps = nil }, "perf-latency", Unknown, "nothing was measured"},
		{"no rate measured", ndr(392), func(r *perftest.Result) { r.Steps[0].Forward = nil }, "perf-bandwidth", Unknown, "nothing was measured"},
		{"no step", ndr(392), func(r *perftest.Result) { r.Steps = nil }, "perf-bandwidth", Unknown, "nothing was measured"},
		{"both directions", ndr(392), func(r *perftest.Result) { r.Plan.Bidirectional = true }, "perf-bandwidth", Pass, "in each direction"},
		{"failed latency", latency(perftest.Send, 1), broken, "perf-latency", Blocked, "perf-data"},

		{"no queue pair of that kind", ndr(1), func(r *perftest.Result) {
			r.Failure, r.FailedAt = &perftest.Failure{Call: "ibv_create_qp", Errno: int(syscall.EOPNOTSUPP), Cause: "not supported"}, perftest.StageOpened
		}, "perf-setup", Unknown, "cannot tell"},
		{"set up", ndr(1), nil, "perf-setup", Pass, "opened and connected"},
		{"not opened", ndr(1), unopened(perftest.StageOpened), "perf-setup", Fail, "at the responder: ibv_open_device on mlx5_0/1: /dev/infiniband/uverbs0 is missing"},
		{"not connected", ndr(1), unopened(perftest.StageConnected), "perf-setup", Fail, "could not be set up"},
		{"set up, but ended later", ndr(1), unopened(perftest.StageRan), "perf-setup", Pass, "connected"},
		{"no device, no data", ndr(1), unopened(perftest.StageOpened), "perf-data", Blocked, "perf-setup write bandwidth mlx5_0/1"},
		{"no device, no bandwidth", ndr(1), unopened(perftest.StageOpened), "perf-bandwidth", Blocked, "perf-setup"},
		{"no device, no latency", latency(perftest.Write, 1), unopened(perftest.StageConnected), "perf-latency", Blocked, "perf-setup"},
		{"no device, no counters", ndr(1), unopened(perftest.StageOpened), "perf-counters", Blocked, "perf-setup"},

		{"right data", ndr(1), nil, "perf-data", Pass, "65536 bytes"},
		{"wrong data", ndr(1), wrong, "perf-data", Fail, "at offset 4097"},
		{"not arrived in a GPU's memory", ndr(1), func(r *perftest.Result) {
			wrong(r)
			r.Responder.Memory = perftest.Buffer{Kind: perftest.MemoryCUDA, GPU: &perftest.GPU{Index: 3}}
			r.Steps[0].Data[0].Side, r.Steps[0].Data[0].Got, r.Steps[0].Data[0].Want = perftest.Responder, 0xf0, 0x0f
		}, "perf-data", Fail, "completed, and did not reach the memory of GPU 0000:00:00.0 at the responder"},
		{"wrong data in a GPU's memory", ndr(1), func(r *perftest.Result) {
			wrong(r)
			r.Responder.Memory = perftest.Buffer{Kind: perftest.MemoryCUDA}
			r.Steps[0].Data[0].Side, r.Steps[0].Data[0].Got, r.Steps[0].Data[0].Want = perftest.Responder, 0xf1, 0x0f
		}, "perf-data", Fail, "wrong data arrived"},
		{"data not compared", ndr(1), func(r *perftest.Result) { r.Steps[0].Data[0].Skipped = "UD" }, "perf-data", Unknown, "UD"},
		{"nothing compared", ndr(1), func(r *perftest.Result) { r.Steps[0].Data = nil }, "perf-data", Unknown, "nothing was compared"},
		{"ended early", ndr(1), broken, "perf-data", Fail, "the run with messages of 65536 bytes broke off at the initiator: work completion: IBV_WC_RETRY_EXC_ERR: the other end does not answer"},
		{"wrong data, and then ended", ndr(1), func(r *perftest.Result) {
			wrong(r)
			steps := r.Steps
			broken(r)
			r.Steps = steps
		}, "perf-data", Fail, "wrong data arrived"},

		{"quiet", ndr(1), nil, "perf-counters", Pass, "4 counters watched"},
		{"retransmissions", ndr(1), moved(qos.SignRetransmission), "perf-counters", Warn, "3 things counted at the responder"},
		{"link errors", ndr(1), moved(qos.SignLink), "perf-counters", Warn, "3 things"},
		{"congestion", ndr(1), moved(qos.SignCongestion), "perf-counters", Info, "held back: 3 things"},
		{"one side without counters", ndr(1), func(r *perftest.Result) { r.Counters[perftest.Initiator] = perftest.SideCounters{Reason: "none here"} }, "perf-counters", Unknown, "initiator: none here"},
		{"no counters", ndr(1), func(r *perftest.Result) { r.Counters = nil }, "perf-counters", Unknown, "no counters were read"},
		{"a port that went down and came up", ndr(1), reported(10, 9), "perf-counters", Warn, "the port went down at the responder"},
		{"that, and no counters", ndr(1), func(r *perftest.Result) {
			reported(10, 9)(r)
			r.Counters = nil
		}, "perf-counters", Warn, "the port went down at the responder"},
		{"another subnet manager", ndr(1), reported(13), "perf-counters", Pass, "4 counters watched"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change != nil {
				tt.change(tt.result)
			}
			o, err := Run(&topo.Machine{}, Options{Only: []string{"perf"}, Results: []*perftest.Result{tt.result}})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Check == tt.check })
			f := o.Findings[i]
			if f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) {
				t.Errorf("%s: %q, want %s with %q", f.Verdict, f.Message, tt.verdict, tt.message)
			}
			if !strings.Contains(f.Subject, "mlx5_0/1") && f.Verdict != NotApplicable {
				t.Errorf("subject %q", f.Subject)
			}
		})
	}
}

// A run that broke off says nothing against its data: nobody is told to take a node
// out of service for it, as for wrong data.
func TestBrokeOffFix(t *testing.T) {
	const remove = "out of service"
	for name, tt := range map[string]struct {
		change func(*perftest.Result)
		remove bool
		fixes  string
	}{
		"broke off": {func(r *perftest.Result) {
			r.Failure, r.Faulty, r.FailedAt = &perftest.Failure{Call: "work completion", Cause: "x", Check: "look at the cable"}, perftest.Responder, perftest.StageRan
			r.Events = []perftest.AsyncEvent{perftest.NewAsyncEvent(10, "mlx5_0/1", 65536, 0), perftest.NewAsyncEvent(13, "mlx5_0/1", 65536, 0)}
		}, false, "look at the cable"},
		"wrong data": {func(r *perftest.Result) { r.Steps[0].Data[0].Correct = false }, true, "measure each end against a third"},
	} {
		r := ndr(1)
		tt.change(r)
		o, err := Run(&topo.Machine{}, Options{Only: []string{"perf-data"}, Results: []*perftest.Result{r}})
		if err != nil {
			t.Fatal(err)
		}
		f := o.Findings[0]
		fixes := strings.Join(f.Fix, "\n")
		if f.Verdict != Fail || strings.Contains(fixes, remove) != tt.remove || !strings.Contains(fixes, tt.fixes) {
			t.Errorf("%s: %s, %q", name, f.Verdict, f.Fix)
		}
		events := 0
		for _, e := range f.Evidence {
			if strings.Contains(e.Got, "IBV_EVENT_") {
				events++
			}
		}
		if want := len(r.Events) / 2; events != want { // the harmful one
			t.Errorf("%s: %d events as evidence, want %d", name, events, want)
		}
	}
}

// A run without measurements says nothing of measurements.
func TestNoMeasurements(t *testing.T) {
	o, err := Run(&topo.Machine{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range o.Findings {
		if strings.HasPrefix(f.Check, "perf-") {
			t.Errorf("%s: %s", f.Check, f.Message)
		}
	}
}

func TestPerfPriority(t *testing.T) {
	carried := func(initiator, responder []perftest.PriorityBytes, signs ...qos.Sign) func(*perftest.Result) {
		return func(r *perftest.Result) {
			r.Counters = map[perftest.Side]perftest.SideCounters{perftest.Initiator: {Priorities: initiator}, perftest.Responder: {Priorities: responder}}
			for _, s := range signs {
				c := r.Counters[perftest.Responder]
				c.Moved = append(c.Moved, perftest.CounterDelta{Name: "x", Sign: s, Counted: "x", Delta: 1})
				r.Counters[perftest.Responder] = c
			}
		}
	}
	on := func(priority int, sent, received uint64) []perftest.PriorityBytes {
		return []perftest.PriorityBytes{{Priority: 0, Sent: 2 << 20, Received: 1 << 20}, {Priority: priority, Sent: sent, Received: received}}
	}
	const gib = 1 << 30
	for _, tc := range []struct {
		name, check string
		change      func(*perftest.Result)
		want        Verdict
		say         string
	}{
		{"one priority", "perf-priority", carried(on(3, 9*gib, 1<<22), on(3, 1<<22, 9*gib)), Pass, "priority 3; flow control (pauses) not exercised, congestion control (ECN, CNP) not exercised"},
		{"under load", "perf-priority", carried(on(3, 9*gib, 0), on(3, 0, 9*gib), qos.SignPause, qos.SignCongestion), Pass, "flow control (pauses) acted, congestion control (ECN, CNP) acted"},
		{"received on another", "perf-priority", carried(on(3, 9*gib, 0), on(1, 0, 9*gib)), Warn, "sent on priority 3 and received on 1"},
		{"a read goes the other way", "perf-priority", func(r *perftest.Result) {
			r.Plan.Operation = perftest.Read
			carried(on(3, 1<<22, 9*gib), on(3, 9*gib, 1<<22))(r)
		}, Pass, "priority 3"},
		{"a loopback within the NIC", "perf-priority", carried([]perftest.PriorityBytes{{Priority: 0}, {Priority: 3}}, []perftest.PriorityBytes{{Priority: 0}, {Priority: 3}}), Info, "not exercised"},
		{"one end does not count", "perf-priority", carried(on(3, 9*gib, 0), nil), Pass, "priority 3"},
		{"neither counts", "perf-priority", carried(nil, nil), NotApplicable, "neither"},
		{"simulated", "perf-priority", func(r *perftest.Result) { r.Simulated = true }, Info, "simulated"},
	} {
		r := ndr(380)
		tc.change(r)
		n, err := NewNode(goodNode(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n.Results = []*perftest.Result{r}
		check, _ := Lookup(tc.check)
		f := runCheck(n, &check, nil)[0]
		if f.Verdict != tc.want || !strings.Contains(f.Message, tc.say) {
			t.Errorf("%s: %s %s", tc.name, f.Verdict, f.Message)
		}
		checkFinding(t, f)
	}
}

// A figure below what both ends carry is sure; where one limit is not known, it is not.
func TestLowBandwidthIsSure(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*perftest.Result)
		unsure bool
	}{
		"all limits known": {func(*perftest.Result) {}, false},
		"a path not known": {limit(perftest.Responder, func(l *perftest.Limits) { l.PCIeBytesPerSec = 0 }), true},
	} {
		r := ndr(350)
		tt.change(r)
		o, err := Run(&topo.Machine{}, Options{Only: []string{"perf-bandwidth"}, Results: []*perftest.Result{r}})
		if err != nil {
			t.Fatal(err)
		}
		if f := o.Findings[0]; f.Verdict != Warn || (f.Unsure != "") != tt.unsure {
			t.Errorf("%s: %s, unsure %q", name, f.Verdict, f.Unsure)
		}
	}
}

// Where perf-setup is not to be judged, nothing is judged of a test that was
// never set up.
func TestNotSetUp(t *testing.T) {
	for _, tt := range []struct {
		check   string
		result  *perftest.Result
		verdict Verdict
	}{
		{"perf-bandwidth", ndr(1), NotApplicable}, {"perf-latency", latency(perftest.Write, 1), NotApplicable}, {"perf-data", ndr(1), NotApplicable},
	} {
		r := tt.result
		r.Failure, r.Faulty, r.FailedAt, r.Steps = &perftest.Failure{Call: "ibv_open_device"}, perftest.Responder, perftest.StageOpened, nil
		o, err := Run(&topo.Machine{}, Options{Only: []string{tt.check}, Results: []*perftest.Result{r}})
		if err != nil {
			t.Fatal(err)
		}
		if f := o.Findings[0]; f.Verdict != tt.verdict || f.Message != "nothing was measured" {
			t.Errorf("%s: %s %s", tt.check, f.Verdict, f.Message)
		}
	}
}

// On a network that reorders packets by design, packets out of order are no loss.
func TestPerfCountersReordered(t *testing.T) {
	for name, want := range map[string]Verdict{"lossless": Warn, "spectrum-x": Info} {
		r := ndr(380)
		moved(qos.SignOrder)(r)
		n, err := NewNode(goodNode(), Options{Network: &Network{Profile: name}})
		if err != nil {
			t.Fatal(err)
		}
		n.Results = []*perftest.Result{r}
		if f := runCheck(n, &perfCounters, nil)[0]; f.Verdict != want {
			t.Errorf("%s: %s %s", name, f.Verdict, f.Message)
		}
	}
}

// What is low for a latency depends on the platform, and a policy has the last word.
func TestPerfLatencyThresholds(t *testing.T) {
	policy, err := ParsePolicy([]byte("thresholds: {perf_latency_pass_ns: {write: 8000}}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		options Options
		op      perftest.Operation
		verdict Verdict
	}{
		{"default", Options{Preset: PresetNone}, perftest.Write, Fail},
		{"Grace", Options{Preset: "gb200"}, perftest.Write, Warn},
		{"policy", Options{Preset: "gb200", Policy: policy}, perftest.Write, Pass},
		{"another operation", Options{Policy: policy}, perftest.Send, Fail}, // what a policy does not name stays
	} {
		tt.options.Only, tt.options.Results = []string{"perf-latency"}, []*perftest.Result{latency(tt.op, 8000)}
		o, err := Run(&topo.Machine{}, tt.options)
		if err != nil {
			t.Fatal(err)
		}
		if v := o.Findings[0].Verdict; v != tt.verdict {
			t.Errorf("%s: 8 us %s, want %s", tt.name, v, tt.verdict)
		}
	}
}
