package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// validateAll refuses what --all decides by itself, and sets what it measures by default.
func (o *copyOptions) validateAll(cmd *cobra.Command) error {
	for _, name := range []string{"gpu", "cpu", "numa-node"} {
		if cmd.Flags().Changed(name) {
			return usagef("--all measures every GPU, each from near it: --%s does not go with it", name)
		}
	}
	if kind, _, err := o.Plan.Memory.Parse(); err == nil && kind == perftest.MemoryHost {
		return usagef("--all measures every GPU: --mem host does not go with it")
	}
	o.Plan.shortest, o.sized = allDuration, cmd.Flags().Changed("size")
	return nil
}

// Sizes of --all where none are given: one that fills the link, and one of which the
// start alone counts.
const (
	allCopyBytes   = 32 << 20
	allCopyLatency = 4 << 10
)

// copyTest is a GPU's copies in one direction.
type copyTest struct {
	local perftest.Local
	side  perftest.Side
}

func (t copyTest) gpu() string { return fmt.Sprintf("GPU%d", t.local.GPU.Index) }

// copyAllRun measures the copies of each GPU by itself, and then those of all at the
// same time, out of their memory and into it.
func copyAllRun(ctx context.Context, opts *copyOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	by, err := perfChoice(&judging{})
	if err != nil {
		return err
	}
	ends, err := copyEnds(ctx, opts.Plan.Local, opts.Plan.Memory)
	if err != nil {
		return interruptedHere(ctx, err)
	}
	at := time.Now().UTC()
	bar := newGroupProgress(opts.IO)
	defer bar.end()
	var what measured
	run := func(p *perftest.Plan, tests ...copyTest) {
		var whole []*perftest.Result
		if ctx.Err() == nil {
			whole = copyTogether(ctx, bar, p, tests)
		}
		what.Results = append(what.Results, whole...)
		if left := len(tests) - len(whole); left > 0 {
			what.cut(left, interruptedHere(ctx, nil))
		}
	}
	sides := []perftest.Side{perftest.Initiator, perftest.Responder}
	for i := range opts.Plan.Plans {
		p := &opts.Plan.Plans[i]
		if !opts.sized {
			p.SizesBytes = []int{allCopyBytes}
			if p.Measure == perftest.Latency {
				p.SizesBytes = []int{allCopyLatency}
			}
		}
		for _, l := range ends {
			for _, side := range sides {
				run(p, copyTest{l, side})
			}
		}
		if p.Measure != perftest.Bandwidth || len(ends) < 2 {
			continue
		}
		for _, side := range sides {
			var tests []copyTest
			for _, l := range ends {
				tests = append(tests, copyTest{l, side})
			}
			run(p, tests...)
		}
	}
	return writePerf(ctx, opts.IO, &opts.Output, by, what, at)
}

// copyEnds are where the copies of each GPU with memory of the kind are made.
func copyEnds(ctx context.Context, like perftest.Local, ask perftest.MemoryAsk) ([]perftest.Local, error) {
	kind, way, err := ask.Parse()
	if err != nil {
		return nil, err
	}
	m, err := perf.machine(ctx)
	if err != nil {
		return nil, err
	}
	g := topo.New(m)
	var ends []perftest.Local
	for _, d := range gpusOf(g, kind) {
		l := like
		l.Place = len(ends) // each a CPU of its own
		if err := chooseMemoryIn(g, m, &l, kind, way, d.GPU.Addr.String()); err != nil {
			return nil, deviceError(fmt.Errorf("--mem: %w", err))
		}
		ends = append(ends, l)
	}
	if len(ends) == 0 {
		var l perftest.Local
		if err := chooseMemoryIn(g, m, &l, kind, way, "0"); err != nil { // says why
			return nil, deviceError(fmt.Errorf("--all: %w", err))
		}
	}
	return ends, nil
}

// copyTogether makes the copies of all tests at the same time. That of one that could
// not be started at all is its failure: the others count. Those that ctx's end broke
// off are left out.
func copyTogether(ctx context.Context, bar *groupProgress, p *perftest.Plan, tests []copyTest) []*perftest.Result {
	label, together := "all GPUs", len(tests)
	if together == 1 {
		label, together = tests[0].gpu(), 0
	}
	bar.begin(label, p, len(tests))
	gate := perftest.NewGate(len(tests))
	results := make([]*perftest.Result, len(tests))
	var all sync.WaitGroup
	for i, t := range tests {
		pass := gate.Pass()
		all.Go(func() {
			defer pass.Leave()
			r, err := perftest.Copies(ctx, pass.Engine(perf.newEngine()), t.side, *p, t.local, bar.member(i))
			if err != nil { // it is ctx's
				return
			}
			r.Rail, r.Together = t.gpu(), together
			results[i] = r
		})
	}
	all.Wait()
	return slices.DeleteFunc(results, func(r *perftest.Result) bool { return r == nil })
}
