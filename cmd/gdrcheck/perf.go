package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

func newPerfCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "perf",
		Short: "Measure RDMA bandwidth and latency",
		Long: `perf moves data and measures it, as linux-rdma/perftest does, and compares what arrived.
It loads the ports that it is given: do not run it beside a job.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPerfLoopbackCommand(s, nil), newPerfServerCommand(s, nil), newPerfClientCommand(s, nil), newPerfCompareCommand(s, nil), newPerfCopyCommand(s, nil))
	return cmd
}

type loopbackOptions struct {
	IO         *streams
	Output     outputs
	Plan       planFlags
	PeerDevice string
	PeerPort   int
	PeerCPU    int
	All        bool
	Judging    judging
}

func newPerfLoopbackCommand(s *streams, runF func(context.Context, *loopbackOptions) error) *cobra.Command {
	opts := &loopbackOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "loopback {--dev DEVICE [--peer-dev DEVICE] | --all}",
		Short: "Measure between two ports of this node, or a port and itself",
		Long: `loopback runs both ends on this node. From a port to itself the data stays inside the NIC:
PCIe, memory and driver are measured, not cable and switch.`,
		Example: `  gdrcheck perf loopback --dev mlx5_0
  gdrcheck perf loopback --dev mlx5_0 --peer-dev mlx5_1 --op write,read --bidirectional
  gdrcheck perf loopback --dev mlx5_0 --measure bandwidth --size 1K:8M -o json
  gdrcheck perf loopback --dev mlx5_0 --mem cuda --peer-mem host --op write,read
  gdrcheck perf loopback --all --mem auto`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case opts.All:
				if err := opts.validateAll(cmd); err != nil {
					return err
				}
			case opts.Plan.Local.Device == "" && opts.Plan.needsDevice():
				return usagef("--dev is missing: which RDMA device? see ls /sys/class/infiniband; --all measures every one")
			case opts.PeerPort != 0 && opts.PeerDevice == "" && opts.Plan.Local.Device == "":
				return usagef("--peer-port is one of a device: which? give --peer-dev, too")
			}
			if err := opts.Plan.validate(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return loopbackRun(cmd.Context(), opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "table", "json")
	addVerboseFlag(cmd, &opts.Output)
	addJudgingFlags(cmd, &opts.Judging)
	addPlanFlags(cmd, &opts.Plan)
	f := cmd.Flags()
	f.StringVar(&opts.PeerDevice, "peer-dev", "", "the other end's RDMA `DEVICE` (default: the same)")
	f.BoolVar(&opts.All, "all", false, "every active port with itself, one after another and then all at the same time")
	f.IntVar(&opts.PeerCPU, "peer-cpu", -1, "`NUMBER` of the CPU that the other end measures on (-1: another one near its NIC)")
	f.IntVar(&opts.PeerPort, "peer-port", 0, "the other end's port `NUMBER` (default: the same, or the first active one of --peer-dev)")
	addMemoryFlags(cmd, &opts.Plan.PeerMemory, "peer-", "`KIND[,WAY]` of the other end's memory (default: as --mem and --gpu)")
	return cmd
}

func loopbackRun(ctx context.Context, opts *loopbackOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	by, err := perfChoice(&opts.Judging)
	if err != nil {
		return err
	}
	if opts.All {
		return loopbackAllRun(ctx, opts, by)
	}
	a, b, err := opts.ends(ctx)
	if err != nil {
		return interruptedHere(ctx, err)
	}
	at := time.Now().UTC()
	var what measured
	plans := adaptPlans(opts.Plan.Plans, perftest.OnGPU(a.Memory) || perftest.OnGPU(b.Memory))
	for i, p := range plans {
		r, err := measureLoopback(ctx, opts.IO, p.Plan, a, b)
		if err != nil {
			what.cut(len(plans)-i, interruptedHere(ctx, err))
			break
		}
		what.Results = append(what.Results, noted(r, p.Note))
	}
	return writePerf(ctx, opts.IO, &opts.Output, by, what, at)
}

// ends are where both ends of a loopback measure.
func (o *loopbackOptions) ends(ctx context.Context) (a, b perftest.Local, err error) {
	if a, err = o.Plan.place(ctx); err != nil {
		return a, b, err
	}
	b = a
	peer := o.Plan
	if o.PeerDevice != "" {
		peer.Local.Device, peer.portGiven = o.PeerDevice, false
	}
	if o.PeerPort != 0 {
		peer.Local.Port, peer.portGiven = o.PeerPort, true
	}
	if o.Plan.PeerMemory != (perftest.MemoryAsk{}) {
		peer.Memory, peer.whose = o.Plan.PeerMemory, "peer-"
	}
	if o.PeerDevice != "" || o.PeerPort != 0 || peer.Memory != o.Plan.Memory {
		b, err = peer.place(ctx)
	}
	b.Place++ // the next CPU: two loops on one would take turns
	b.CPU = o.PeerCPU
	return a, b, err
}

func measureLoopback(ctx context.Context, s *streams, p perftest.Plan, a, b perftest.Local) (*perftest.Result, error) {
	progress, end := newProgress(s, &p)
	defer end()
	l := loopback{backend: perf, limits: func(l perftest.Local) perftest.Limits { return perf.limits(ctx, l) }}
	return l.run(ctx, p, perf.newEngine(), a, b, progress)
}

// loopback measures between two ends of this node.
type loopback struct {
	backend *perfBackend
	limits  func(perftest.Local) perftest.Limits
}

// run runs a plan; first is the initiator's engine.
func (l loopback) run(ctx context.Context, p perftest.Plan, first perftest.Engine, a, b perftest.Local, progress func(perftest.Progress)) (*perftest.Result, error) {
	beforeA, beforeB := l.backend.counters(ctx, a), l.backend.counters(ctx, b)
	here := l.backend.end(perftest.Timing{})
	r, err := here.Loopback(ctx, first, p, a, b, progress)
	if err != nil {
		return r, err
	}
	r.Simulated = r.Simulated || l.backend.simulated
	r.SetLimits(l.limits(a), l.limits(b))
	r.Counters = map[perftest.Side]perftest.SideCounters{
		perftest.Initiator: perftest.CompareCounters(beforeA, l.backend.counters(ctx, a)),
		perftest.Responder: perftest.CompareCounters(beforeB, l.backend.counters(ctx, b)),
	}
	return r, nil
}

// noted adds what is to be said of a result; empty: nothing.
func noted(r *perftest.Result, note string) *perftest.Result {
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	return r
}

// measured is what a command measured; Rails only where it was every port.
type measured struct {
	Results []*perftest.Result
	Rails   []perftest.RailPair
	notMade int   // tests of which there is no result
	why     error // there is none; nil: all were made
}

// cut says of so many tests that they were not made, and why. What was measured
// before stays: who waited for it is to have it.
func (m *measured) cut(tests int, why error) {
	if tests > 0 {
		m.notMade, m.why = m.notMade+tests, why
	}
}

// perfChoice is what the checks of measurements judge by.
func perfChoice(j *judging) (checks.Options, error) {
	o := checks.Options{Only: []string{string(checks.AreaPerf)}}
	return o, j.read(&o)
}

// writePerf has the checks judge the results, writes the document and ends with
// the exit code of its verdict.
func writePerf(ctx context.Context, s *streams, o *outputs, by checks.Options, what measured, at time.Time) error {
	if what.why != nil {
		if len(what.Results) == 0 {
			return what.why
		}
		ctx = context.WithoutCancel(ctx) // it may be over; the reading has its own limit
	}
	m, err := perf.machine(ctx)
	if err != nil {
		return err
	}
	by.Results, by.Rails = what.Results, what.Rails
	outcome, err := checks.Run(m, by)
	if err != nil {
		return err
	}
	if what.why != nil {
		outcome.Incomplete()
	}
	doc := report.NewPerf(what.Results, what.Rails, outcome, at, readBuildInfo().Version)
	if what.why != nil {
		doc.NotMade = &report.NotMade{Tests: what.notMade, Measured: len(what.Results), Why: what.why.Error()}
	}
	err = o.write(s, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, doc)
		}
		style.Verbose = o.verbose
		return report.PerfTable(w, doc, style)
	})
	if what.why != nil {
		complain(s.Err, errors.New(doc.NotMade.String()))
	}
	if err == nil && doc.ExitCode != checks.ExitOf(checks.Ready).Code {
		return verdictError{doc.ExitCode}
	}
	return err
}
