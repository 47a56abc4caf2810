package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
)

type copyOptions struct {
	IO     *streams
	Output outputs
	Plan   planFlags
	All    bool
	sized  bool // by --size
}

// copySizes are those of NCCL's chunks and around them.
const copySizes = "4K,64K,512K,4M,32M"

func newPerfCopyCommand(s *streams, runF func(context.Context, *copyOptions) error) *cobra.Command {
	opts := &copyOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "copy [--gpu GPU | --all]",
		Short: "Measure copies between a GPU and pinned host memory",
		Long: `copy measures the copies that staging makes, and nothing else: out of a GPU's memory into
pinned host memory, and into it. No NIC takes part. What it gives bounds every route through
host memory; the two directions are measured one after the other. --all measures every GPU by
itself and then all at the same time, which shows what they share.`,
		Example: `  gdrcheck perf copy --gpu 0
  gdrcheck perf copy --gpu 0 --size 512K --chunks 2 --measure bandwidth -o json
  gdrcheck perf copy --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &opts.Plan
			p.ops, p.routes = []string{string(perftest.WriteImm)}, []string{string(perftest.RouteCopy)}
			if p.Memory == (perftest.MemoryAsk{}) {
				p.Memory.Memory = perftest.MemoryAuto
			}
			if opts.All {
				if err := opts.validateAll(cmd); err != nil {
					return err
				}
			}
			if err := p.validate(cmd); err != nil {
				return err
			}
			if _, way, _ := p.Memory.Parse(); way != perftest.WayAuto && way != "" {
				return usagef("--mem %s: a copy registers nothing, and takes no way to", p.Memory.Memory)
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			if opts.All {
				return copyAllRun(cmd.Context(), opts)
			}
			return copyRun(cmd.Context(), opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "table", "json")
	addVerboseFlag(cmd, &opts.Output)
	addRunFlags(cmd, &opts.Plan)
	f := cmd.Flags()
	f.BoolVar(&opts.All, "all", false, "every GPU, one after another and then all at the same time; by default 32M copies for bandwidth, 4K for latency, one second each")
	size := f.Lookup("size")
	opts.Plan.size = copySizes
	size.DefValue, size.Usage = copySizes, "`BYTES` of a copy, as 64K; several as 2,64K; powers of two as 2:8M"
	f.Lookup("chunks").Usage = "copies under way at the same time (bandwidth)"
	f.Lookup("cpu").Usage = "`NUMBER` of the CPU that starts the copies (-1: one near the GPU)"
	f.Lookup("numa-node").Usage = "NUMA `NODE` of the pinned memory (-1: the GPU's)"
	f.Lookup("gpu").Usage = "`GPU` whose memory it is, by number, UUID or PCI address (default: the first)"
	f.Lookup("mem").Usage = "`KIND` of the memory: host, cuda, cuda-vmm, auto (default auto: a GPU's where there is one)"
	return cmd
}

func copyRun(ctx context.Context, opts *copyOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	l, err := opts.Plan.place(ctx)
	if err != nil {
		return interruptedHere(ctx, err)
	}
	if opts.Plan.Memory.Memory == perftest.MemoryAuto && !perftest.OnGPU(l.Memory) {
		return usagef("there is no GPU here whose memory could be copied; --mem host copies within the host's own")
	}
	by, err := perfChoice(&judging{})
	if err != nil {
		return err
	}
	at := time.Now().UTC()
	var what measured
	for _, p := range opts.Plan.Plans {
		for _, side := range []perftest.Side{perftest.Initiator, perftest.Responder} {
			progress, end := newProgress(opts.IO, &p)
			r, err := perftest.Copies(ctx, perf.newEngine(), side, p, l, progress)
			end()
			switch {
			case what.why != nil:
				what.notMade++
			case err != nil:
				what.cut(1, interruptedHere(ctx, err))
			default:
				what.Results = append(what.Results, r)
			}
		}
	}
	return writePerf(ctx, opts.IO, &opts.Output, by, what, at)
}
