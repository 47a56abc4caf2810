package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// nodePerf are the flags of check --perf.
type nodePerf struct {
	On     bool
	Budget time.Duration
	Force  bool // measure ports that others use, too
}

const (
	defaultPerfBudget = 10 * time.Second
	leastPerfBudget   = time.Second
)

func addNodePerfFlags(cmd *cobra.Command, o *nodePerf) {
	f := cmd.Flags()
	f.BoolVar(&o.On, "perf", false, "also measure: a short loopback of each active RDMA port, alone and then all at the same time, in the memory of its nearest GPU where that can be registered and nobody uses it, with host memory beside it; it loads ports and GPUs, and probes as --probe does")
	f.DurationVar(&o.Budget, "perf-budget", defaultPerfBudget, "longest time for --perf")
}

func (o *nodePerf) validate(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if given("perf-budget") && !o.On {
		return usagef("--perf-budget is for --perf, which was not given")
	}
	for _, name := range []string{"from", "example", "root"} {
		if given(name) && o.On {
			return usagef("--perf measures this machine; it does not go with --%s", name)
		}
	}
	if o.Budget < leastPerfBudget {
		return usagef("--perf-budget %s: want at least %s, as in --perf-budget %s", o.Budget, leastPerfBudget, defaultPerfBudget)
	}
	return nil
}

// nodeTest measures the ports of this node, each with itself.
type nodeTest struct {
	backend *perfBackend
	machine *topo.Machine
	graph   *topo.Graph
	nodePerf
	busyBytesPerSec float64

	bar   *groupProgress
	start time.Time
	what  measured
}

// measureNode runs within the budget. What it could not measure it says.
func (b *perfBackend) measureNode(ctx context.Context, s *streams, m *topo.Machine, o nodePerf, limits checks.Thresholds) measured {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Budget, errBudget)
	defer cancel()
	b.mu.Lock()
	b.last, b.at = m, time.Now() // counters are looked for in it
	b.mu.Unlock()
	t := &nodeTest{
		backend: b, machine: m, graph: topo.New(m), nodePerf: o, busyBytesPerSec: limits.PerfBusyBytesPerSec,
		bar: newGroupProgress(s), start: time.Now(),
	}
	defer t.bar.end()
	if open := t.withGPUs(t.choose(ctx)); len(open) > 0 {
		t.measure(ctx, open)
	}
	return t.what
}

var errBudget = errors.New("the time for --perf was over")

// port is one that is measured; its pair is at index in what.Rails.
type port struct {
	local perftest.Local
	host  bool // local is in a GPU's memory: host memory is measured beside it
	index int
}

// lanes are what a port is measured in, by itself.
func (p port) lanes() []lane {
	if !p.host {
		return []lane{{p.local, false}}
	}
	return []lane{{p.local, false}, {hostMemory(p.local), true}}
}

type lane struct {
	local     perftest.Local
	reference bool
}

// choose lists the ports that can be measured, and says why others cannot.
func (t *nodeTest) choose(ctx context.Context) []port {
	var ports []port
	for _, r := range railsOf(t.machine, nil) {
		if r.Why == perftest.WhyDown { // rdma-port-state judges it
			continue
		}
		pair := perftest.RailPair{Rail: r.Name(), Peer: r.Name(), Why: r.Why}
		if r.Why != "" {
			pair.NotMeasured = r.Unfit
		}
		t.what.Rails = append(t.what.Rails, pair)
		if r.Why == "" {
			l := perftest.NewLocal(r.Device)
			l.Port, l.Place = r.Port, 2*len(ports)
			ports = append(ports, port{local: l, index: len(t.what.Rails) - 1})
		}
	}
	if len(t.what.Rails) == 0 {
		t.what.Rails = []perftest.RailPair{nothingHere(t.machine)}
	}
	if t.Force {
		return ports
	}
	return t.idle(ctx, ports)
}

// nothingHere says why a node has no port to measure.
func nothingHere(m *topo.Machine) perftest.RailPair {
	switch {
	case len(m.RDMA.Devices) > 0:
		return perftest.RailPair{Why: perftest.WhyNone, NotMeasured: "no RDMA port of this node is active: nothing was measured"}
	case len(m.Problems) > 0:
		p := m.Problems[0]
		return perftest.RailPair{Why: perftest.WhyUnseen, NotMeasured: fmt.Sprintf("%s could not be collected: %s", p.Part, p.Reason)}
	}
	return perftest.RailPair{Why: perftest.WhyNone, NotMeasured: "this node has no RDMA device: nothing was measured"}
}

// busyWindow is how long the counters of a port are watched.
const busyWindow = 300 * time.Millisecond

// idle drops the ports that others use, or of which nobody can tell.
func (t *nodeTest) idle(ctx context.Context, ports []port) []port {
	began := time.Now()
	before := t.counters(ctx, ports)
	select {
	case <-time.After(busyWindow):
	case <-ctx.Done():
	}
	after := t.counters(ctx, ports)
	seconds := time.Since(began).Seconds()
	var out []port
	for i, p := range ports {
		bytes, ok := perftest.Traffic(before[i], after[i])
		pair := &t.what.Rails[p.index]
		switch rate := float64(bytes) / seconds; {
		case !ok:
			pair.Why, pair.NotMeasured = perftest.WhyBusy, "no counter tells whether others use it"
		case rate > t.busyBytesPerSec:
			pair.Why = perftest.WhyBusy
			pair.NotMeasured = fmt.Sprintf("others use it: its counters moved by %.2f Gb/s", rate*8/1e9)
		default:
			out = append(out, p)
		}
	}
	return out
}

// counters reads those of all ports, several at a time.
func (t *nodeTest) counters(ctx context.Context, ports []port) [][]rdma.Counter {
	const atOnce = 8
	out := make([][]rdma.Counter, len(ports))
	turns := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, p := range ports {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			out[i] = t.backend.counters(ctx, p.local)
		})
	}
	all.Wait()
	return out
}

// How long a bandwidth test takes, and what comes with it: opening, registering,
// comparing.
const (
	shortestTest = 100 * time.Millisecond
	longestTest  = time.Second
	aroundTest   = 250 * time.Millisecond
	aroundGPU    = 500 * time.Millisecond // two contexts on a GPU beside that
	maxTogether  = 64
)

// plans are the bandwidth and the latency test of a node with such ports.
func (t *nodeTest) plans(ports []port) (bandwidth, latency perftest.Plan) {
	const share, footprint = 8, 16 << 20
	tests, around := time.Duration(1), aroundTest // all at the same time
	onGPU := false
	for _, p := range ports {
		for _, l := range p.lanes() {
			tests++
			around += aroundTest
			if perftest.OnGPU(l.local.Memory) {
				around += aroundGPU
				onGPU = true
			}
		}
	}
	if onGPU {
		around += aroundGPU
	}
	left := t.Budget - time.Since(t.start)
	d := min(max((left-left/share-around)/tests, shortestTest), longestTest)
	bandwidth, latency = perftest.NewPlan(perftest.Write, perftest.Bandwidth), perftest.NewPlan(perftest.Write, perftest.Latency)
	bandwidth.DurationNs, bandwidth.MarginNs = int64(d), min(int64(perftest.DefaultMargin), int64(d)/4)
	bandwidth.FootprintBytes, latency.FootprintBytes = footprint, footprint
	latency.Messages, latency.DurationNs = 0, int64(min(d/4, longestTest/10))
	bandwidth.Seed, latency.Seed = rand.Uint64(), rand.Uint64()
	if onGPU { // host memory by the same operation: to compare
		latency, _ = latency.ForGPU()
	}
	return bandwidth, latency
}

// measure runs each port by itself, and then all at the same time.
func (t *nodeTest) measure(ctx context.Context, ports []port) {
	bandwidth, latency := t.plans(ports)
	// The last share of the time is for all at the same time.
	alone, cancel := context.WithDeadlineCause(ctx, t.start.Add(t.Budget-t.Budget/time.Duration(len(ports)+1)), errBudget)
	defer cancel()
	// What matters most of all ports first: the time may not suffice for the rest.
	for _, kind := range []struct {
		plan      perftest.Plan
		reference bool
	}{{bandwidth, false}, {bandwidth, true}, {latency, false}, {latency, true}} {
		for _, p := range ports {
			for _, l := range p.lanes() {
				if pair := &t.what.Rails[p.index]; pair.Why == "" && l.reference == kind.reference {
					t.bar.begin(pair.Rail, &kind.plan, 1)
					t.add(p, t.one(alone, p, l, kind.plan, 0, nil), leftOut(&kind.plan, l))
				}
			}
		}
	}
	t.sort(ports)
	t.together(ctx, ports, bandwidth, "")
}

// together runs a plan on all ports at the same time, where there are several.
func (t *nodeTest) together(ctx context.Context, ports []port, plan perftest.Plan, note string) {
	if len(ports) < 2 {
		return
	}
	if len(ports) > maxTogether {
		t.what.Rails = append(t.what.Rails, perftest.RailPair{
			Why: perftest.WhyTime, NotMeasured: fmt.Sprintf("all at the same time: %d ports are more than %d", len(ports), maxTogether),
		})
		return
	}
	t.bar.begin("all ports", &plan, len(ports))
	gate := perftest.NewGate(len(ports))
	outcomes := make([]outcome, len(ports))
	var all sync.WaitGroup
	for i, p := range ports {
		pass := gate.Pass()
		all.Go(func() {
			defer pass.Leave()
			outcomes[i] = t.one(ctx, p, lane{p.local, false}, plan, len(ports), &member{pass, i})
		})
	}
	all.Wait()
	for i, p := range ports {
		t.add(p, outcomes[i].noted(note), "")
	}
}

// leftOut names a test that a port can do without; empty: it is the first of all.
func leftOut(p *perftest.Plan, l lane) string {
	text := string(p.Measure)
	switch {
	case l.reference:
		return text + " in host memory"
	case p.Measure == perftest.Bandwidth:
		return ""
	}
	return text
}

// sort has the results of each port side by side.
func (t *nodeTest) sort(ports []port) {
	at := map[string]int{}
	for _, p := range ports {
		at[t.what.Rails[p.index].Rail] = p.index
	}
	slices.SortStableFunc(t.what.Results, func(a, b *perftest.Result) int { return cmp.Compare(at[a.Rail], at[b.Rail]) })
}

// member is a test's place among those at the same time.
type member struct {
	pass *perftest.Pass
	at   int
}

func (t *nodeTest) one(ctx context.Context, p port, in lane, plan perftest.Plan, together int, as *member) outcome {
	if ctx.Err() != nil {
		return outcome{nil, context.Cause(ctx)}
	}
	b := in.local
	b.Place++ // the next CPU: two loops on one would take turns
	first, at := t.backend.newEngine(), 0
	if as != nil {
		first, at = as.pass.Engine(first), as.at
	}
	l := loopback{backend: t.backend, limits: func(l perftest.Local) perftest.Limits { return limitsOf(t.graph, l) }}
	r, err := l.run(ctx, plan, first, in.local, b, t.bar.member(at))
	if r != nil {
		r.Rail, r.Peer, r.Together = t.what.Rails[p.index].Rail, t.what.Rails[p.index].Peer, together
		r.Reference = in.reference
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = context.Cause(ctx) // one that is it says in which call, too
	}
	return outcome{r, err}
}

// add keeps a result, or says why there is none. canDo is what the port can do
// without, where it is that for which there was no time.
func (t *nodeTest) add(p port, o outcome, canDo string) {
	pair := &t.what.Rails[p.index]
	switch {
	case o.err == nil:
		t.what.Results = append(t.what.Results, o.result)
		return
	case errors.Is(o.err, errBudget) && canDo != "":
		pair.LeftOut = append(pair.LeftOut, canDo)
		return
	}
	why := perftest.WhyLost
	if errors.Is(o.err, errBudget) {
		why = perftest.WhyTime
	}
	pair.Why, pair.NotMeasured = why, o.err.Error()
}
