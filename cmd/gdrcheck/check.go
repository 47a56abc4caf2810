package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

type checkOptions struct {
	IO      *streams
	Source  sourceOptions
	Output  outputs
	Only    []string
	Skip    []string
	Strict  bool
	Record  string
	Judging judging
	Network string
	Perf    nodePerf
}

func newCheckCommand(s *streams, runF func(context.Context, *checkOptions) error) *cobra.Command {
	opts := &checkOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Judge this node and say what to change",
		Example: `  sudo gdrcheck check
  gdrcheck check -o table -o json=node.json
  gdrcheck check --only acs-redirect,pcie-link-width
  sudo gdrcheck check --record node.rec && gdrcheck check --from node.rec
  sudo gdrcheck check --policy policy.yaml
  sudo gdrcheck check --perf
  gdrcheck check --root /host
  sudo gdrcheck check --probe`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Perf.validate(cmd); err != nil {
				return err
			}
			opts.Source.Probe = opts.Source.Probe || opts.Perf.On
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			opts.Perf.Force = opts.Source.Force
			if opts.Record != "" && (opts.Source.From != "" || opts.Source.Example) {
				return usagef("--record makes a recording of a machine; it does not go with --from or --example")
			}
			if format := opts.Output.at(opts.Record); opts.Record != "" && format != "" {
				return usagef("--record and -o %s would go to the same place", format)
			}
			if slices.Contains(stdoutNames, opts.Record) {
				return usagef("--record wants a file, not standard output")
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return checkRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	addProbeFlags(cmd, &opts.Source, "with --probe or --perf, take GPUs and ports that are in use, too")
	addNICFlags(cmd, &opts.Source)
	addOutputFlag(cmd, &opts.Output, "table", "json")
	f := cmd.Flags()
	f.StringSliceVar(&opts.Only, "only", nil, "run only these checks (`IDs` or areas, see 'gdrcheck list')")
	f.StringSliceVar(&opts.Skip, "skip", nil, "leave these checks out (`IDs` or areas)")
	f.BoolVar(&opts.Strict, "strict", false, "count warnings as failures")
	addVerboseFlag(cmd, &opts.Output)
	f.StringVar(&opts.Record, "record", "", "also write what was read to `FILE`, for --from")
	addJudgingFlags(cmd, &opts.Judging)
	addNetworkFlag(cmd, &opts.Network)
	addNodePerfFlags(cmd, &opts.Perf)
	must(cmd.RegisterFlagCompletionFunc("only", completeIDList))
	must(cmd.RegisterFlagCompletionFunc("skip", completeIDList))
	return cmd
}

func checkRun(ctx context.Context, opts *checkOptions) error {
	choice := checks.Options{Only: opts.Only, Skip: opts.Skip, Strict: opts.Strict}
	if err := opts.Judging.read(&choice); err != nil {
		return err
	}
	network, err := readNetwork(opts.Network)
	if err != nil {
		return err
	}
	choice.Network = network
	opts.Source.record = opts.Record != ""
	m, rec, err := opts.Source.machine(ctx, collect.All())
	if err != nil {
		return err
	}
	what := opts.Source.measured
	if opts.Perf.On {
		if what, err = opts.measure(ctx, m, choice); err != nil {
			return err
		}
	}
	choice.Results, choice.Rails = what.Results, what.Rails
	outcome, err := checks.Run(m, choice)
	if err != nil {
		return err
	}
	doc := report.NewCheck(m, outcome, what.Results, what.Rails, readBuildInfo().Version)
	if rec != nil {
		if opts.Perf.On {
			if err := what.keep(rec); err != nil {
				return err
			}
		}
		var file bytes.Buffer
		if err := rec.Save(&file, m.CollectedAt); err != nil {
			return fmt.Errorf("recording not written: %w", err)
		}
		opts.Output.also(opts.Record, file.Bytes())
	}
	err = opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, doc)
		}
		style.Verbose = opts.Output.verbose
		return report.CheckTable(w, doc, style)
	})
	if err != nil {
		return err
	}
	if doc.ExitCode != checks.ExitOf(checks.Ready).Code {
		return verdictError{doc.ExitCode}
	}
	return nil
}

// measure runs the measurements of --perf.
func (o *checkOptions) measure(ctx context.Context, m *topo.Machine, choice checks.Options) (measured, error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	n, err := checks.NewNode(m, choice)
	if err != nil {
		return measured{}, err
	}
	what := perf.measureNode(ctx, o.IO, m, o.Perf, n.Thresholds)
	if ctx.Err() != nil {
		return what, unmeasured{errors.New("interrupted")}
	}
	return what, nil
}

func addNetworkFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "network", "", "what the RoCE network is: `PROFILE` (lossless, lossy, spectrum-x) or dscp=26,priority=3,cnp_dscp=48 (default: taken for lossless)")
	must(cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions(checks.NetworkNames(), cobra.ShellCompDirectiveNoFileComp)))
}

// readNetwork reads the flag; nil: it was not given.
func readNetwork(text string) (*checks.Network, error) {
	if text == "" {
		return nil, nil
	}
	n, err := checks.ParseNetwork(text)
	if err != nil {
		return nil, usagef("--network %s: %w", text, err)
	}
	return n, nil
}
