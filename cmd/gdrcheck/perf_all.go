package main

import (
	"context"
	"errors"
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
	ours  map[string]perftest.Rail
	pairs []perftest.RailPair

	bar     *groupProgress
	results []*perftest.Result
	lost    error // the server is gone for good
}

func perfAllRun(ctx context.Context, opts *perfClientOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	token, err := readToken(opts.IO, opts.TokenFile)
	if err != nil {
		return err
	}
	ours, err := perf.rails(ctx)
	if err != nil {
		return deviceError(err)
	}
	at := time.Now().UTC()
	group, err := perftest.ConnectGroup(ctx, withPort(opts.Server), token, perf.end(perftest.Timing{}), opts.Wait)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer group.Close()
	theirs, err := group.Rails()
	if err != nil {
		return interrupted(ctx, err)
	}
	run := &allRun{opts: opts, group: group, ours: map[string]perftest.Rail{}, pairs: perftest.MatchRails(ours, theirs)}
	for _, r := range ours {
		run.ours[r.Name()] = r
	}
	run.measure(ctx)
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx, ctx.Err())
	case run.lost != nil && len(run.results) == 0:
		return unmeasured{run.lost}
	}
	group.Close() // before the rest: the server has others to serve
	return writePerf(ctx, opts.IO, &opts.Output, measured{run.results, run.pairs}, at)
}

// measure runs each pair by itself, and then all at the same time.
func (a *allRun) measure(ctx context.Context) {
	var open []*perftest.RailPair
	for i := range a.pairs {
		if a.pairs[i].Why == "" {
			open = append(open, &a.pairs[i])
		}
	}
	a.group.Resize(len(open))
	plans := a.opts.Plan.Plans
	for i := range plans { // all at the same time are to fit into what the server gives
		plans[i].FootprintBytes = min(plans[i].FootprintBytes, perftest.DefaultMaxMemoryBytes/2/int64(max(len(open)*plans[i].QPs, 1)))
	}
	a.bar = newGroupProgress(a.opts.IO)
	defer a.bar.end()
	for i, pair := range open {
		for _, w := range a.ways(perftest.Bandwidth, perftest.Latency) {
			if ctx.Err() != nil || a.lost != nil {
				break
			}
			a.bar.begin(pair.Rail, &w.plan, 1)
			a.add(pair, a.one(pair, i, w, 0, 0, nil))
		}
		if a.lost != nil {
			pair.Why, pair.NotMeasured = perftest.WhyLost, a.lost.Error()
		}
	}
	if len(open) < 2 {
		return
	}
	for _, w := range a.ways(perftest.Bandwidth) {
		if ctx.Err() != nil || a.lost != nil {
			return
		}
		a.bar.begin("all ports", &w.plan, len(open))
		a.together(open, w)
	}
}

// way is a plan in a direction.
type way struct {
	plan    perftest.Plan
	reverse bool
}

// ways are the plans of some measures, bandwidths there and back.
func (a *allRun) ways(measures ...perftest.Measure) []way {
	var out []way
	for _, m := range measures {
		for _, p := range a.opts.Plan.Plans {
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
func (a *allRun) together(pairs []*perftest.RailPair, w way) {
	gate := perftest.NewGate(len(pairs))
	outcomes := make([]outcome, len(pairs))
	var all sync.WaitGroup
	for i, pair := range pairs {
		pass := gate.Pass()
		all.Go(func() {
			defer pass.Leave()
			outcomes[i] = a.one(pair, i, w, i, len(pairs), pass)
		})
	}
	all.Wait()
	for i, pair := range pairs {
		a.add(pair, outcomes[i])
	}
}

type outcome struct {
	result *perftest.Result
	err    error
}

// one runs one test of pair number place on a session of the group.
func (a *allRun) one(pair *perftest.RailPair, place int, w way, session, together int, pass *perftest.Pass) outcome {
	rail := a.ours[pair.Rail]
	l := a.opts.Plan.Local
	l.Device, l.Port, l.Place = rail.Device, rail.Port, 2*place
	r, err := a.group.Run(session, perftest.Request{
		Plan: w.plan, Local: l, Device: pair.Peer, Reverse: w.reverse, Progress: a.bar.member(session), Pass: pass,
	})
	if r == nil {
		r = &perftest.Result{Plan: w.plan}
	}
	r.Rail, r.Peer, r.Reverse, r.Together = pair.Rail, pair.Peer, w.reverse, together
	return outcome{r, err}
}

// add keeps a result. A session that broke off says nothing of the rail but that
// it was not measured to the end; what it had begun is dropped.
func (a *allRun) add(pair *perftest.RailPair, o outcome) {
	if o.err == nil {
		a.results = append(a.results, o.result)
		return
	}
	pair.Why, pair.NotMeasured = perftest.WhyLost, o.err.Error()
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
