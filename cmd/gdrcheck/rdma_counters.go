package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

type rdmaCountersOptions struct {
	IO      *streams
	Source  sourceOptions
	Output  outputs
	Watch   time.Duration // 0: once, since the counters began
	Count   int           // windows to watch; 0: until interrupted
	Verbose bool
}

func newRDMACountersCommand(s *streams, runF func(context.Context, *rdmaCountersOptions) error) *cobra.Command {
	opts := &rdmaCountersOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Show the counters of RDMA ports that tell of trouble, and what they mean",
		Long: `counters shows what the counters of each RDMA port and its NIC tell: errors, the link, lost
packets, retransmissions, pauses, congestion. They run since the driver was loaded, so what
counts is whether they grow: --watch shows what each one did within a window, again and
again, while a job runs.`,
		Example: `  gdrcheck rdma counters
  gdrcheck rdma counters --watch 1s
  gdrcheck rdma counters --watch 10s --count 6 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			if err := opts.validate(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return rdmaCountersRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	addOutputFlag(cmd, &opts.Output, "table", "json")
	f := cmd.Flags()
	f.DurationVar(&opts.Watch, "watch", 0, "show what each window of this length brought, until interrupted")
	f.IntVar(&opts.Count, "count", 0, "end after this many windows of --watch")
	f.BoolVarP(&opts.Verbose, "verbose", "v", false, "show the counters of traffic, too")
	return cmd
}

const minWatch = 10 * time.Millisecond

func (o *rdmaCountersOptions) validate(cmd *cobra.Command) error {
	watched, counted := cmd.Flags().Changed("watch"), cmd.Flags().Changed("count")
	switch {
	case watched && o.Watch < minWatch:
		return usagef("--watch %s: want %s or more, as in --watch 1s", o.Watch, minWatch)
	case counted && !watched:
		return usagef("--count is a number of windows: give --watch, too")
	case counted && o.Count < 1:
		return usagef("--count %d: want 1 or more", o.Count)
	case watched && (o.Source.From != "" || o.Source.Example):
		return usagef("--watch wants a machine: a recording was read once, and its counters do not move")
	case watched && len(o.Output.list) > 1, watched && len(o.Output.list) == 1 && o.Output.list[0].File != "":
		return usagef("--watch writes to standard output, one format")
	}
	return nil
}

func rdmaCountersRun(ctx context.Context, opts *rdmaCountersOptions) error {
	m, _, err := opts.Source.machine(ctx, collect.Options{Config: pci.ConfigPaths, Brief: true, NeedCounters: opts.Watch == 0, NeedQoS: opts.Watch == 0})
	if err != nil {
		return err
	}
	doc := report.NewCounters(m, readBuildInfo().Version)
	ports := watchedPorts(m)
	if opts.Watch > 0 && len(ports) > 0 { // without ports there is nothing to watch
		return watchCounters(ctx, opts, ports, doc)
	}
	for _, p := range ports {
		list, reason := qos.Totals(p.counters)
		doc.Ports = append(doc.Ports, counterPort(p, list, reason))
	}
	return opts.write(doc)
}

// watchedPort is a port with its counters as they were read last.
type watchedPort struct {
	device   string
	number   int
	netdevs  []string
	counters []rdma.Counter
}

func watchedPorts(m *topo.Machine) []watchedPort {
	var out []watchedPort
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		for j := range d.Ports {
			p := &d.Ports[j]
			out = append(out, watchedPort{d.Name, p.Number, qos.NetDevs(&m.RDMA, p), m.QoS.Counters(d, p)})
		}
	}
	return out
}

func counterPort(p watchedPort, list []qos.Change, reason string) report.CounterPort {
	if len(list) == 0 && reason == "" {
		reason = "the driver keeps no counter that the table knows"
	}
	return report.CounterPort{Device: p.device, Port: p.number, Counters: append([]qos.Change{}, list...), Reason: reason}
}

// watchCounters writes a document for each window, from one tick to the next.
func watchCounters(ctx context.Context, opts *rdmaCountersOptions, ports []watchedPort, doc *report.Counters) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	src, err := opts.Source.openInTime()
	if err != nil {
		return err
	}
	reader := &remembering{w: opts.IO.Out}
	streams := *opts.IO
	streams.Out, opts.IO = reader, &streams
	opts.read(ctx, src, ports)
	began := time.Now()
	tick := time.NewTicker(opts.Watch)
	defer tick.Stop()
	for n := 0; opts.Count == 0 || n < opts.Count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := append([]watchedPort{}, ports...)
		opts.read(ctx, src, ports)
		if ctx.Err() != nil {
			return nil // what was cut short is no window
		}
		now := time.Now()
		doc.CollectedAt, doc.WindowNs, doc.Ports = now.UTC(), now.Sub(began).Nanoseconds(), doc.Ports[:0]
		began = now
		for i, p := range ports {
			list, reason := qos.Changes(before[i].counters, p.counters)
			doc.Ports = append(doc.Ports, counterPort(p, list, reason))
		}
		if err := opts.write(doc); err != nil || isBrokenPipe(reader.err) {
			return err // nobody reads any more: "… | head -1"
		}
	}
	return nil
}

// read reads the counters of all ports anew.
func (o *rdmaCountersOptions) read(ctx context.Context, src fact.Source, ports []watchedPort) {
	ctx, cancel := context.WithTimeout(ctx, o.Source.Timeout)
	defer cancel()
	for i := range ports {
		ports[i].counters = qos.ReadCounters(ctx, src, ports[i].device, ports[i].number, ports[i].netdevs)
	}
}

func (o *rdmaCountersOptions) write(doc *report.Counters) error {
	return o.Output.write(o.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, doc)
		}
		style.Verbose = o.Verbose
		return report.CountersTable(w, doc, style)
	})
}
