package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
)

type compareOptions struct {
	perfClientOptions      // of which a loopback uses IO, Output, Plan and PeerDevice
	Loopback          bool // both ends on this node
	PeerCPU, PeerPort int  // of a loopback
	Rounds            int  // of each route
}

const (
	// So few sizes that a comparison takes a minute or two.
	compareSizes     = "4K,64K,256K,1M,4M,16M"
	compareRoutes    = "direct,staged,tcp"
	compareRounds    = 3
	compareDuration  = time.Second
	maxCompareRounds = 100
)

func newPerfCompareCommand(s *streams, runF func(context.Context, *compareOptions) error) *cobra.Command {
	opts := &compareOptions{}
	opts.IO = s
	cmd := &cobra.Command{
		Use:   "compare HOST[:PORT]",
		Short: "Compare GPUDirect RDMA with staging in host memory and with TCP",
		Long: `compare moves the same data by three routes, in turns, and shows what each costs:
direct, RDMA on the memory itself, which is GPUDirect RDMA where it is a GPU's; staged,
copied to pinned host memory, by RDMA from there to there, and copied again, in chunks that
are all under way at the same time, as NCCL does without GPUDirect RDMA; and tcp, the same
over a TCP connection between the addresses of the NICs' network interfaces. A route that
fails leaves the others as they are. The other end is 'gdrcheck perf server'.`,
		Example: `  gdrcheck perf compare 10.0.0.1 --token-file /shared/perf.token --dev mlx5_0
  gdrcheck perf compare loopback --dev mlx5_0 --peer-dev mlx5_1
  gdrcheck perf compare loopback --dev mlx5_0 --size 64K:16M --rounds 5 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("compare wants the server's address, or loopback, as in gdrcheck perf compare loopback --dev mlx5_0")
			}
			if args[0] == "client" {
				return usagef("compare is a client already: it wants the server's address, as in gdrcheck perf compare 10.0.0.1")
			}
			var err error
			opts.Server, err = serverAddress(args[0])
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Wait <= 0 {
				return usagef("--wait %s: want a time above zero, as in --wait 10s", opts.Wait)
			}
			return opts.start(cmd, runF)
		},
	}
	addCompareFlags(cmd, opts)
	f := cmd.Flags()
	f.StringVar(&opts.TokenFile, "token-file", "", "read the server's token from `FILE` (-: standard input)")
	f.StringVar(&opts.PeerDevice, "peer-dev", "", "the server's RDMA `DEVICE`, or DEVICE/PORT (default: the server chooses)")
	addMemoryFlags(cmd, &opts.Plan.PeerMemory, "peer-", "`KIND[,WAY]` of the server's memory (default auto: a GPU's where it has one)")
	f.DurationVar(&opts.Wait, "wait", connectWait, "for a server that is not there yet")
	cmd.AddCommand(newPerfCompareLoopbackCommand(s, runF))
	return cmd
}

func newPerfCompareLoopbackCommand(s *streams, runF func(context.Context, *compareOptions) error) *cobra.Command {
	opts := &compareOptions{Loopback: true}
	opts.IO = s
	cmd := &cobra.Command{
		Use:   "loopback --dev DEVICE [--peer-dev DEVICE]",
		Short: "Compare between two ports of this node, or a port and itself",
		Long: `loopback runs both ends on this node. The TCP connection between two addresses of one node
stays within its kernel, and touches no NIC: the table says which interface carried it.`,
		Example: `  gdrcheck perf compare loopback --dev mlx5_0
  gdrcheck perf compare loopback --dev mlx5_0 --peer-dev mlx5_1 --measure bandwidth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Plan.Local.Device == "" {
				return usagef("--dev is missing: which RDMA device? see ls /sys/class/infiniband")
			}
			return opts.start(cmd, runF)
		},
	}
	addCompareFlags(cmd, opts)
	f := cmd.Flags()
	f.StringVar(&opts.PeerDevice, "peer-dev", "", "the other end's RDMA `DEVICE` (default: the same)")
	f.IntVar(&opts.PeerCPU, "peer-cpu", -1, "`NUMBER` of the CPU that the other end measures on (-1: another one near its NIC)")
	f.IntVar(&opts.PeerPort, "peer-port", 0, "the other end's port `NUMBER` (default: the same, or the first active one of --peer-dev)")
	addMemoryFlags(cmd, &opts.Plan.PeerMemory, "peer-", "`KIND[,WAY]` of the other end's memory (default: as --mem and --gpu)")
	return cmd
}

func addCompareFlags(cmd *cobra.Command, o *compareOptions) {
	addOutputFlag(cmd, &o.Output, "table", "json")
	addVerboseFlag(cmd, &o.Output)
	addJudgingFlags(cmd, &o.Judging)
	addPlanFlags(cmd, &o.Plan)
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", compareRounds, "how often each route is measured; medians are compared")
	o.Plan.size, o.Plan.routes = compareSizes, strings.Split(compareRoutes, ",")
	f.Lookup("size").DefValue, f.Lookup("route").DefValue = compareSizes, "["+compareRoutes+"]"
	f.Lookup("duration").DefValue = compareDuration.String()
	f.Lookup("mem").Usage = memoryUsage + " (default auto: a GPU's where there is one)"
	for _, name := range notCompared {
		_ = f.MarkHidden(name)
	}
}

// notCompared are flags of what not all routes can do.
var notCompared = []string{"op", "transport", "events", "bidirectional", "post-list"}

// start checks what was given and measures.
func (o *compareOptions) start(cmd *cobra.Command, runF func(context.Context, *compareOptions) error) error {
	f := cmd.Flags()
	for _, name := range notCompared {
		if f.Changed(name) {
			return usagef("--%s is not for compare: what is compared are writes, one way, over a reliable connection", name)
		}
	}
	if o.Rounds < 1 || o.Rounds > maxCompareRounds {
		return usagef("--rounds %d: want 1 to %d", o.Rounds, maxCompareRounds)
	}
	if !f.Changed("duration") && !f.Changed("count") {
		_ = f.Set("duration", compareDuration.String())
	}
	if o.Plan.Memory == (perftest.MemoryAsk{}) {
		o.Plan.Memory.Memory = perftest.MemoryAuto
	}
	if !o.Loopback && o.Plan.PeerMemory == (perftest.MemoryAsk{}) {
		o.Plan.PeerMemory.Memory = perftest.MemoryAuto
	}
	// A write that the receiver is told of, since it may not poll a GPU's memory.
	o.Plan.ops = []string{string(perftest.WriteImm)}
	if err := o.Plan.make(cmd); err != nil {
		return err
	}
	for i := range o.Plan.Plans { // a bandwidth test has its completions
		if p := &o.Plan.Plans[i]; p.Measure == perftest.Bandwidth {
			p.Operation = perftest.Write
		}
	}
	if err := o.Plan.checkUnused(cmd); err != nil {
		return err
	}
	if runF != nil {
		return runF(cmd.Context(), o)
	}
	return compareRun(cmd.Context(), o)
}

func compareRun(ctx context.Context, o *compareOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	by, err := perfChoice(&o.Judging)
	if err != nil {
		return err
	}
	at := time.Now().UTC()
	measure, end, err := o.connect(ctx)
	if err != nil {
		return o.broken(ctx, err)
	}
	defer end()
	what := o.compare(measure)
	end() // before the rest: a server has others to serve
	if what.why != nil {
		what.why = o.broken(ctx, what.why)
	}
	return writePerf(ctx, o.IO, &o.Output, by, what, at)
}

func (o *compareOptions) broken(ctx context.Context, err error) error {
	if o.Loopback {
		return interruptedHere(ctx, err)
	}
	return err // it says what the other end knows
}

// compare measures every route in each round. One that failed is not tried again.
// With an error, which is of the other end or an interruption, the rest is only counted.
func (o *compareOptions) compare(measure measurer) (what measured) {
	failed := map[string]bool{}
	onGPU := false
	try := func(p perftest.Plan, onHost bool) {
		key := fmt.Sprint(p.Route, p.Measure, onHost)
		if failed[key] {
			return
		}
		if what.why != nil {
			what.notMade++
			return
		}
		r, err := measure(p, onHost)
		if err != nil {
			what.cut(1, err)
			return
		}
		failed[key] = r.Failure != nil
		what.Results = append(what.Results, r)
		onGPU = onGPU || r.OnGPU()
	}
	for round := range o.Rounds {
		for _, p := range turns(o.Plan.Plans, round) {
			p.Seed += uint64(round) // what an earlier round left is wrong
			try(p, false)
			// What GPUDirect RDMA is to be held against: the same NICs without it.
			if p.Route == perftest.RouteDirect && onGPU {
				try(p, true)
			}
		}
	}
	return what
}

// turns has the routes in another order in each round, so that none is always
// behind the same one.
func turns(plans []perftest.Plan, round int) []perftest.Plan {
	n := len(plans)
	return slices.Concat(plans[round%n:], plans[:round%n])
}

// measurer runs a plan, onHost: over the host memory of both ends.
type measurer func(p perftest.Plan, onHost bool) (*perftest.Result, error)

func hostMemory(l perftest.Local) perftest.Local {
	l.Memory, l.Way, l.GPU = perftest.MemoryHost, "", nil
	return l
}

// connect readies the other end.
func (o *compareOptions) connect(ctx context.Context) (measurer, func(), error) {
	if o.Loopback {
		l := &loopbackOptions{IO: o.IO, Plan: o.Plan, PeerDevice: o.PeerDevice, PeerPort: o.PeerPort, PeerCPU: o.PeerCPU}
		a, b, err := l.ends(ctx)
		return func(p perftest.Plan, onHost bool) (*perftest.Result, error) {
			if onHost {
				return measureLoopback(ctx, o.IO, p, hostMemory(a), hostMemory(b))
			}
			return measureLoopback(ctx, o.IO, p, a, b)
		}, func() {}, err
	}
	token, err := readToken(o.IO, o.TokenFile)
	if err != nil {
		return nil, nil, err
	}
	local, err := o.Plan.place(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := perftest.Connect(ctx, o.Server, token, perf.end(perftest.Timing{}), o.Wait)
	if err != nil {
		return nil, nil, interruptedHere(ctx, unmeasured{err}) // nobody is there to be told
	}
	return func(p perftest.Plan, onHost bool) (*perftest.Result, error) {
		client, local := o.perfClientOptions, local
		if onHost {
			local, client.Plan.PeerMemory = hostMemory(local), perftest.MemoryAsk{Memory: perftest.MemoryHost}
		}
		r, err := client.measure(s, &p, local)
		if err != nil {
			return r, interrupted(ctx, err)
		}
		return r, nil
	}, func() { _ = s.Close() }, nil
}
