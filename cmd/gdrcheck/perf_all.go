package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// allDuration is how long each of the many tests of --all takes.
const allDuration = time.Second

// validateAll refuses what --all decides by itself, and sets what it measures by default.
func (o *perfClientOptions) validateAll(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	for _, name := range []string{"dev", "port", "peer-dev", "reverse", "cpu", "numa-node"} {
		if given(name) {
			return usagef("--all measures every port, there and back: --%s does not go with it", name)
		}
	}
	if !given("op") {
		o.Plan.ops = []string{string(perftest.Write), string(perftest.Read)}
	}
	o.Plan.shortest = allDuration
	return nil
}

// allRun measures every rail of this node with its peer.
type allRun struct {
	opts  *perfClientOptions
	group *perftest.Group
	pairs []perftest.RailPair
	open  []*perftest.RailPair // those that can be measured
	plans []adapted
	ends  []perftest.Local // this node's, of each open pair

	bar     *groupProgress
	results []*perftest.Result
	lost    error // the server is gone for good
}

func perfAllRun(ctx context.Context, opts *perfClientOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	by, err := perfChoice(&opts.Judging)
	if err != nil {
		return err
	}
	token, err := readToken(opts.IO, opts.TokenFile)
	if err != nil {
		return err
	}
	ours, err := perf.rails(ctx)
	if err != nil {
		return deviceError(err)
	}
	at := time.Now().UTC()
	group, err := perftest.ConnectGroup(ctx, opts.Server, token, perf.end(perftest.Timing{}), opts.Wait)
	if err != nil {
		return interruptedHere(ctx, unmeasured{err}) // nobody is there to be told
	}
	defer group.Close()
	theirs, err := group.Rails()
	if err != nil {
		return interrupted(ctx, err)
	}
	run := &allRun{opts: opts, group: group, pairs: perftest.MatchRails(ours, theirs)}
	if err := run.prepare(ctx, ours); err != nil {
		return err
	}
	run.measure(ctx)
	group.Close() // before the rest: the server has others to serve
	what := measured{Results: run.results, Rails: run.pairs}
	if ctx.Err() != nil || run.lost != nil {
		what.cut(run.planned()-len(run.results), interrupted(ctx, run.lost))
	}
	return writePerf(ctx, opts.IO, &opts.Output, by, what, at)
}

// prepare settles where each pair is measured, and what.
func (a *allRun) prepare(ctx context.Context, ours []perftest.Rail) error {
	kind, _, _ := a.opts.Plan.PeerMemory.Parse() // it was checked with the flags
	onGPU := perftest.OnGPU(kind)
	for i := range a.pairs {
		pair := &a.pairs[i]
		at := slices.IndexFunc(ours, func(r perftest.Rail) bool { return r.Name() == pair.Rail })
		if pair.Why != "" || at < 0 {
			continue
		}
		l := a.opts.Plan.Local
		l.Device, l.Port, l.Place = ours[at].Device, ours[at].Port, 2*len(a.open)
		if err := perf.memory(ctx, &l, a.opts.Plan.Memory); err != nil {
			return deviceError(fmt.Errorf("--%s, for %s: %w", memoryFlag(a.opts.Plan.Memory, err), pair.Rail, err))
		}
		onGPU = onGPU || perftest.OnGPU(l.Memory)
		a.open, a.ends = append(a.open, pair), append(a.ends, l)
	}
	a.plans = adaptPlans(a.opts.Plan.Plans, onGPU)
	for i := range a.plans { // all at the same time are to fit into what the server gives
		p := &a.plans[i].Plan
		p.FootprintBytes = min(p.FootprintBytes, perftest.DefaultMaxMemoryBytes/2/int64(max(len(a.open)*p.QPs, 1)))
	}
	a.group.Resize(len(a.open))
	return nil
}

// measure runs each pair by itself, and then all at the same time.
func (a *allRun) measure(ctx context.Context) {
	a.bar = newGroupProgress(a.opts.IO)
	defer a.bar.end()
	for i, pair := range a.open {
		for _, w := range a.ways(perftest.Bandwidth, perftest.Latency) {
			if ctx.Err() != nil || a.lost != nil {
				break
			}
			a.bar.begin(pair.Rail, &w.Plan, 1)
			a.add(ctx, pair, a.one(i, w, 0, 0, nil))
		}
		switch {
		case a.lost != nil:
			pair.Why, pair.NotMeasured = perftest.WhyLost, a.lost.Error()
		case ctx.Err() != nil:
			pair.Why, pair.NotMeasured = perftest.WhyLost, interrupted(ctx, nil).Error()
		}
	}
	if len(a.open) < 2 {
		return
	}
	for _, w := range a.ways(perftest.Bandwidth) {
		if ctx.Err() != nil || a.lost != nil {
			return
		}
		a.bar.begin("all ports", &w.Plan, len(a.open))
		a.together(ctx, w)
	}
}

// planned is how many tests there are to be.
func (a *allRun) planned() int {
	n := len(a.open) * len(a.ways(perftest.Bandwidth, perftest.Latency))
	if len(a.open) > 1 {
		n += len(a.open) * len(a.ways(perftest.Bandwidth))
	}
	return n
}

// way is a plan in a direction.
type way struct {
	adapted
	reverse bool
}

// ways are the plans of some measures, bandwidths there and back.
func (a *allRun) ways(measures ...perftest.Measure) []way {
	var out []way
	for _, m := range measures {
		for _, p := range a.plans {
			if p.Measure != m {
				continue
			}
			out = append(out, way{p, false})
			if m == perftest.Bandwidth && !p.Bidirectional {
				out = append(out, way{p, true})
			}
		}
	}
	return out
}

// together runs one way on all pairs at the same time.
func (a *allRun) together(ctx context.Context, w way) {
	gate := perftest.NewGate(len(a.open))
	outcomes := make([]outcome, len(a.open))
	var all sync.WaitGroup
	for i := range a.open {
		pass := gate.Pass()
		all.Go(func() {
			defer pass.Leave()
			outcomes[i] = a.one(i, w, i, len(a.open), pass)
		})
	}
	all.Wait()
	for i, pair := range a.open {
		a.add(ctx, pair, outcomes[i])
	}
}

type outcome struct {
	result *perftest.Result
	err    error
}

// noted adds what is to be said of the result.
func (o outcome) noted(note string) outcome {
	if o.result != nil {
		noted(o.result, note)
	}
	return o
}

// one runs one test of pair i on a session of the group.
func (a *allRun) one(i int, w way, session, together int, pass *perftest.Pass) outcome {
	pair := a.open[i]
	ask := perftest.Request{
		Plan: w.Plan, Local: a.ends[i], Device: pair.Peer, Memory: a.opts.Plan.PeerMemory,
		Reverse: w.reverse, Progress: a.bar.member(session), Pass: pass,
	}
	r, err := a.group.Run(session, ask)
	if other, ok := a.opts.withoutPolling(&w.Plan, err); ok {
		ask.Plan, w.Note = other, perftest.PollNote
		r, err = a.group.Run(session, ask)
	}
	if err != nil {
		return outcome{nil, err}
	}
	r.Rail, r.Peer, r.Reverse, r.Together = pair.Rail, pair.Peer, w.reverse, together
	return outcome{noted(r, w.Note), nil}
}

// add keeps a result. A session that broke off says nothing of the rail but that
// it was not measured to the end; what it had begun is dropped.
func (a *allRun) add(ctx context.Context, pair *perftest.RailPair, o outcome) {
	if o.err == nil {
		a.results = append(a.results, o.result)
		return
	}
	pair.Why, pair.NotMeasured = perftest.WhyLost, interrupted(ctx, o.err).Error()
	if errors.Is(o.err, perftest.ErrNoServer) {
		a.lost = o.err
	}
}

// groupProgress draws the progress of several tests as one.
type groupProgress struct {
	io   *streams
	bar  *progressBar
	mu   sync.Mutex
	each []perftest.Progress
}

func newGroupProgress(s *streams) *groupProgress { return &groupProgress{io: s} }

// begin begins the drawing of so many tests.
func (g *groupProgress) begin(label string, p *perftest.Plan, members int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop()
	g.bar, g.each = progressOn(g.io, label, p), make([]perftest.Progress, members)
}

func (g *groupProgress) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop()
}

func (g *groupProgress) stop() {
	if g.bar != nil {
		g.bar.end()
	}
	g.bar = nil
}

// member is what test i reports its progress to.
func (g *groupProgress) member(i int) func(perftest.Progress) {
	return func(p perftest.Progress) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.bar == nil || i >= len(g.each) {
			return
		}
		g.each[i] = p
		sum := p
		sum.BytesPerSec = 0
		for _, q := range g.each {
			sum.BytesPerSec += q.BytesPerSec
		}
		g.bar.tell(sum)
	}
}
