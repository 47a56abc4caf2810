package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

// nodeDouble moves data over doubles of whatever devices the machine has.
// traffic is how many words each port's counter grows by with each reading.
func nodeDouble(t *testing.T, traffic map[string]uint64, before func(ctx context.Context, call string) error) *perfBackend {
	dir := t.TempDir()
	t.Cleanup(func() {
		if n := perfdouble.Memories(dir); n != 0 {
			t.Errorf("%d memories are still registered", n)
		}
	})
	var mu sync.Mutex
	count := map[string]uint64{}
	return &perfBackend{
		newEngine: func() perftest.Engine { return &perfdouble.Engine{Dir: dir, Any: true, Before: before} },
		read: func(_ context.Context, device string, _ int, _ []string) []rdma.Counter {
			mu.Lock()
			defer mu.Unlock()
			if traffic == nil {
				return nil
			}
			count[device] += traffic[device]
			return []rdma.Counter{{Name: "port_xmit_data", Value: fact.Of(count[device], "x")}, {Name: "out_of_sequence", Value: fact.Of[uint64](0, "y")}}
		},
		simulated: true,
	}
}

func nodeMachine(names ...string) *topo.Machine {
	m := &topo.Machine{Origin: "live"}
	for _, n := range names {
		m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Name: n, Ports: []rdma.Port{{Number: 1, State: fact.Of("ACTIVE", "state")}}})
	}
	return m
}

func quiet() *streams {
	return &streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
}

func measureTest(t *testing.T, b *perfBackend, m *topo.Machine, o nodePerf) (measured, checks.Outcome) {
	t.Helper()
	n, err := checks.NewNode(m, checks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	what := b.measureNode(t.Context(), quiet(), m, o, n.Thresholds)
	const late = 3 * time.Second // a loaded machine
	if took := time.Since(began); took > o.Budget+late {
		t.Errorf("it took %s of %s", took, o.Budget)
	}
	outcome, err := checks.Run(m, checks.Options{Only: []string{"perf"}, Results: what.Results, Rails: what.Rails})
	if err != nil {
		t.Fatal(err)
	}
	return what, outcome
}

func verdictOf(o checks.Outcome, check, subject string) string {
	for _, f := range o.Findings {
		if f.Check == check && f.Subject == subject {
			return f.Verdict.String() + ": " + f.Message
		}
	}
	return "no finding"
}

func TestMeasureNode(t *testing.T) {
	const budget = 3 * time.Second
	b := nodeDouble(t, map[string]uint64{}, nil)
	what, outcome := measureTest(t, b, nodeMachine("mlx5_0", "mlx5_1", "mlx5_2"), nodePerf{Budget: budget})
	var kinds []string
	for _, r := range what.Results {
		kinds = append(kinds, strings.Join([]string{r.Rail, string(r.Plan.Measure), string(rune('0' + r.Together))}, " "))
		if !r.Good() || !r.Simulated || r.Peer != r.Rail || len(r.Counters) != 2 || len(r.Limits) != 2 {
			t.Errorf("%+v", r)
		}
	}
	if diff := cmp.Diff([]string{
		"mlx5_0/1 bandwidth 0", "mlx5_0/1 latency 0", "mlx5_1/1 bandwidth 0", "mlx5_1/1 latency 0", "mlx5_2/1 bandwidth 0", "mlx5_2/1 latency 0",
		"mlx5_0/1 bandwidth 3", "mlx5_1/1 bandwidth 3", "mlx5_2/1 bandwidth 3",
	}, kinds); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := verdictOf(outcome, "perf-ports", "mlx5_2/1"); got != "pass: measured with itself" {
		t.Error(got)
	}
	if got := verdictOf(outcome, "perf-shared", "write of 3 ports"); !strings.HasPrefix(got, "info: ") || !strings.Contains(got, "simulated") {
		t.Error(got)
	}
}

// A port that others use is left alone, unless forced; so is one of which
// nothing tells.
func TestMeasureNodeBusy(t *testing.T) {
	m := nodeMachine("mlx5_0", "mlx5_1")
	b := nodeDouble(t, map[string]uint64{"mlx5_1": 1 << 24}, nil) // 64 MiB each time
	what, outcome := measureTest(t, b, m, nodePerf{Budget: 2 * time.Second})
	if slices.ContainsFunc(what.Results, func(r *perftest.Result) bool { return r.Rail == "mlx5_1/1" }) || len(what.Results) != 2 {
		t.Errorf("%d results, those of a busy port among them", len(what.Results))
	}
	if got := verdictOf(outcome, "perf-ports", "mlx5_1/1"); !strings.HasPrefix(got, "unknown: not measured: others use it: its counters moved by ") {
		t.Error(got)
	}
	if outcome.ExitCode != 3 {
		t.Errorf("exit code %d, though a port was not measured", outcome.ExitCode)
	}
	what, outcome = measureTest(t, b, m, nodePerf{Budget: 2 * time.Second, Force: true})
	if got := verdictOf(outcome, "perf-ports", "mlx5_1/1"); got != "pass: measured with itself" || len(what.Results) != 6 {
		t.Errorf("forced: %s, %d results", got, len(what.Results))
	}
	_, outcome = measureTest(t, nodeDouble(t, nil, nil), m, nodePerf{Budget: 2 * time.Second})
	if got := verdictOf(outcome, "perf-ports", "mlx5_0/1"); got != "unknown: not measured: no counter tells whether others use it" {
		t.Error(got)
	}
}

// A folder of counters, or a counter, that could not be read beside others that were,
// before the test, after it or both times: the check of counters says so, and which,
// and does not pass; nor where others moved.
func TestMeasureNodeUnreadCounters(t *testing.T) {
	for _, state := range []fact.State{fact.Denied, fact.Failed, fact.NotCollected} {
		for _, unread := range []rdma.Counter{
			{Name: "ports/1/hw_counters", Group: true, Value: fact.Missing[uint64](state, "x", "no luck")},
			{Name: "out_of_buffer", Value: fact.Missing[uint64](state, "x", "no luck")},
		} {
			for _, moving := range []bool{false, true} {
				b := nodeDouble(t, map[string]uint64{}, nil)
				var reads atomic.Uint64
				b.read = func(context.Context, string, int, []string) []rdma.Counter {
					n := uint64(0)
					if moving {
						n = reads.Add(1)
					}
					return []rdma.Counter{
						{Name: "port_xmit_data", Value: fact.Of[uint64](0, "x")},
						{Name: "link_downed", Value: fact.Of(n, "y")}, unread,
					}
				}
				_, outcome := measureTest(t, b, nodeMachine("mlx5_0"), nodePerf{Budget: 2 * time.Second})
				got, want := verdictOf(outcome, "perf-counters", "write bandwidth mlx5_0/1"), "unknown: cannot tell of all: initiator: 1 watched, and others not: "
				if moving {
					want = "warn: "
				}
				if !strings.HasPrefix(got, want) || !strings.Contains(got, "1 watched, and others not: ") || !strings.Contains(got, "no luck") || unread.Group && !strings.Contains(got, unread.Name) {
					t.Errorf("%s %s, moving %t: %s", unread.Name, state, moving, got)
				}
			}
		}
	}
}

// Whatever a driver does, it ends within the budget, and each port has its word.
func TestMeasureNodeBudget(t *testing.T) {
	const budget = time.Second
	for name, before := range map[string]func(context.Context, string) error{
		"hangs in open": func(ctx context.Context, call string) error {
			if call == "open" {
				<-ctx.Done()
			}
			return ctx.Err()
		},
		"hangs in run": func(ctx context.Context, call string) error {
			if call == "run" {
				<-ctx.Done()
			}
			return ctx.Err()
		},
		"takes its time": func(context.Context, string) error { time.Sleep(100 * time.Millisecond); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var names []string
			for i := range 1000 {
				names = append(names, "mlx5_"+string(rune('a'+i/100))+string(rune('0'+i/10%10))+string(rune('0'+i%10)))
			}
			what, outcome := measureTest(t, nodeDouble(t, map[string]uint64{}, before), nodeMachine(names...), nodePerf{Budget: budget})
			if got := verdictOf(outcome, "perf-ports", names[999]+"/1"); got != "unknown: not measured: the time for --perf was over" {
				t.Error(got)
			}
			if outcome.ExitCode != 3 || len(what.Rails) != 1001 { // and one for all of them at the same time
				t.Errorf("exit code %d, %d ports", outcome.ExitCode, len(what.Rails))
			}
		})
	}
}

// Where the time does not suffice for all, each port has its bandwidth first, and the
// finding says what is missing.
func TestMeasureNodeLeftOut(t *testing.T) {
	var opened atomic.Int32
	const ports = 3
	before := func(ctx context.Context, call string) error {
		// All but the bandwidths by itself and with others hang.
		if call == "open" && opened.Add(1) == 2*ports+1 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	what, outcome := measureTest(t, nodeDouble(t, map[string]uint64{}, before), nodeMachine("mlx5_0", "mlx5_1", "mlx5_2"), nodePerf{Budget: 6 * time.Second})
	if len(what.Results) != 2*ports {
		t.Errorf("%d results, want each port's bandwidth, alone and with the others", len(what.Results))
	}
	if got := verdictOf(outcome, "perf-ports", "mlx5_2/1"); got != "info: measured with itself; there was no time for: latency" {
		t.Error(got)
	}
}

// A port that fails hides none of the others.
func TestMeasureNodeNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		machine *topo.Machine
		want    string
	}{
		"no device":     {&topo.Machine{}, "not_applicable: this node has no RDMA device: nothing was measured"},
		"no port is up": {&topo.Machine{RDMA: rdma.Facts{Devices: []rdma.Device{{Name: "mlx5_0", Ports: []rdma.Port{{Number: 1, State: fact.Of("DOWN", "state")}}}}}}, "not_applicable: no RDMA port of this node is active: nothing was measured"},
		"not collected": {&topo.Machine{Problems: []topo.Problem{{Part: "rdma", Reason: "cut short"}}}, "unknown: not measured: rdma could not be collected: cut short"},
	} {
		what, outcome := measureTest(t, nodeDouble(t, nil, nil), tt.machine, nodePerf{Budget: time.Second})
		if got := verdictOf(outcome, "perf-ports", "node"); got != tt.want || len(what.Results) > 0 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A recording keeps what was measured: judged anew, it gives the same document.
func TestMeasuredIsRecorded(t *testing.T) {
	o := sourceOptions{Root: machineDir(t, "eight-gpu", render.EightGPU), Timeout: defaultTimeout, record: true}
	m, rec, err := o.machine(t.Context(), collect.All())
	if err != nil {
		t.Fatal(err)
	}
	what, _ := measureTest(t, nodeDouble(t, map[string]uint64{}, nil), m, nodePerf{Budget: 4 * time.Second})
	if len(what.Results) < 10 {
		t.Fatalf("%d results", len(what.Results))
	}
	const address = "203.0.113.77"
	what.Results[0].Initiator.GID, what.Results[0].Initiator.GIDReason = "::ffff:"+address, address+" (RoCE v2, IPv4), chosen of 2 entries"
	outcome, err := checks.Run(m, checks.Options{Results: what.Results, Rails: what.Rails})
	if err != nil {
		t.Fatal(err)
	}
	var want, file, redacted bytes.Buffer
	if err := report.JSON(&want, report.NewCheck(m, outcome, what.Results, what.Rails, readBuildInfo().Version)); err != nil {
		t.Fatal(err)
	}
	if err := what.keep(rec); err != nil {
		t.Fatal(err)
	}
	if err := rec.Save(&file, m.CollectedAt); err != nil {
		t.Fatal(err)
	}
	if err := rec.SaveRedacted(&redacted, m.CollectedAt); err != nil {
		t.Fatal(err)
	}
	name, secret := filepath.Join(t.TempDir(), "node.rec"), filepath.Join(t.TempDir(), "redacted.rec")
	for file, data := range map[string][]byte{name: file.Bytes(), secret: redacted.Bytes()} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := mustRun(t, "check", "--from", name, "-o", "json")
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("(-live +recorded)\n%.2000s", diff)
	}
	promised(t, got)
	table, _ := mustRun(t, "check", "--from", name)
	if !strings.Contains(string(table), "\nmeasured:\neach port with itself, which stays inside the NIC\n") || !strings.Contains(string(table), "perf-shared") {
		t.Errorf("%s", table)
	}
	again := filepath.Join(t.TempDir(), "again.rec")
	if _, code := mustRun(t, "snapshot", "--from", name, "-o", again); code != 0 {
		t.Errorf("snapshot: exit code %d", code)
	}
	if copied, _ := mustRun(t, "check", "--from", again, "-o", "json"); string(copied) != string(got) {
		t.Error("a copy of the recording gives another document")
	}
	// Without names and addresses, but with the same verdicts.
	hidden, _ := mustRun(t, "check", "--from", secret, "-o", "json")
	if diff := cmp.Diff(perfVerdicts(t, got), perfVerdicts(t, hidden)); diff != "" {
		t.Errorf("redacted (-want +got)\n%s", diff)
	}
	if bytes.Contains(hidden, []byte(address)) {
		t.Error("an address is in what was redacted")
	}
}

// promised checks a document with measurements against the schemas.
func promised(t *testing.T, text []byte) {
	t.Helper()
	doc, err := validate.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := compileSchema(t, "check").Validate(doc); err != nil {
		t.Error(err)
	}
	for field, def := range map[string]string{"results": "Result", "rails": "RailPair"} {
		c := validate.NewCompiler()
		schema, err := c.Compile(schemaDir + "perf.schema.json#/$defs/" + def)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := doc.(map[string]any)[field].([]any)
		if len(list) == 0 {
			t.Errorf("no %s", field)
		}
		for _, v := range list {
			if err := schema.Validate(v); err != nil {
				t.Error(err)
			}
		}
	}
}

func perfVerdicts(t *testing.T, doc []byte) []string {
	t.Helper()
	var d report.Check
	if err := json.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range d.Findings {
		if strings.HasPrefix(f.Check, "perf-") {
			out = append(out, f.Check+" "+f.Subject+" "+f.Verdict.String())
		}
	}
	if len(out) < 30 {
		t.Errorf("%d findings of measurements", len(out))
	}
	return out
}
