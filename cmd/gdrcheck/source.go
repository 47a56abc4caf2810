package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/topo"
)

// sourceOptions are the flags that say which machine a command reads.
type sourceOptions struct {
	Example bool
	Root    string
	From    string
	Timeout time.Duration
	MST     bool // also ask mstconfig on a live machine
	Module  bool // also read modules there
	SMP     bool // also ask the neighbours of InfiniBand ports there
	record  bool // remember what is read, for check --record
	// Probe registers memory of idle GPUs with RDMA devices; Force, of all GPUs.
	Probe, Force bool

	measured measured // what a recording holds of measurements
}

const (
	defaultTimeout = 20 * time.Second
	probeTimeout   = 60 * time.Second // GPUs without a persistence daemon are brought up one by one
)

func addSourceFlags(cmd *cobra.Command, o *sourceOptions) {
	f := cmd.Flags()
	f.BoolVar(&o.Example, "example", false, "read the example node inside the binary instead of this machine")
	f.StringVar(&o.Root, "root", "", "read the machine whose /sys and /proc are below `DIR`")
	f.StringVar(&o.From, "from", "", "read the recording in `FILE`, made with 'gdrcheck snapshot'")
	f.DurationVar(&o.Timeout, "timeout", defaultTimeout, "longest time to collect; what is not told by then counts as unknown")
	must(cmd.MarkFlagDirname("root"))
}

// addProbeFlags adds what makes a command disturb the GPUs; inUse says what
// --force takes.
func addProbeFlags(cmd *cobra.Command, o *sourceOptions, inUse string) {
	f := cmd.Flags()
	f.BoolVar(&o.Probe, "probe", false, "also register memory of each idle GPU with each RDMA device, without traffic: a CUDA context on each, 0.5 GB for a moment")
	f.BoolVar(&o.Force, "force", false, inUse)
}

// addNICFlags adds what is asked of NICs on demand alone.
func addNICFlags(cmd *cobra.Command, o *sourceOptions) {
	f := cmd.Flags()
	f.BoolVar(&o.MST, "mst", false, "also ask mstconfig, where it is installed, for the non-volatile settings of NVIDIA's NICs; takes a second a NIC")
	f.BoolVar(&o.Module, "module", false, "also read the memory of the ports' modules, as ethtool -m does: reading clears alarms that they have latched")
	f.BoolVar(&o.SMP, "neighbour", false, "also ask what InfiniBand ports are cabled to, as smpquery -D 0,1 does; wants root, and where an M_Key protects reading, the subnet manager logs a violation")
}

func (o *sourceOptions) validate(cmd *cobra.Command) error {
	given := 0
	for _, name := range []string{"example", "root", "from"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given > 1 {
		return usagef("give only one of --example, --root and --from")
	}
	if o.Probe && given > 0 {
		return usagef("--probe registers memory on this node: it does not go with --example, --root or --from")
	}
	if o.Force && !o.Probe {
		return usagef("--force: %s", cmd.Flags().Lookup("force").Usage)
	}
	if o.Probe && !cmd.Flags().Changed("timeout") {
		o.Timeout = probeTimeout
	}
	if o.Timeout <= 0 {
		return usagef("--timeout %s: want a time above zero, as in --timeout 20s", o.Timeout)
	}
	return nil
}

// source is what was opened, and what collect and documents say of it.
type source struct {
	fact.Source
	live        bool
	origin      string // as topo.Machine has it
	simulated   bool
	collectedAt time.Time
}

// open opens what the flags name. This is the one place where a command gets
// its machine from.
func (o *sourceOptions) open() (*source, error) {
	switch {
	case o.Example:
		rec, err := fact.OpenRecording(bytes.NewReader(exampleRecording))
		return replay(rec, "example"), err
	case o.From != "":
		rec, err := openRecording(o.From)
		return replay(rec, "recording"), err
	}
	root := cmp.Or(o.Root, "/")
	src, err := fact.NewOS(root, &worker.Client{})
	if err != nil {
		return nil, usagef("cannot read %s: %w", root, pathCause(err))
	}
	_, sysErr := src.Stat("/sys")
	_, procErr := src.Stat("/proc")
	if sysErr != nil && procErr != nil {
		return nil, usagef("%s has neither sys nor proc: --root wants the directory that holds a machine's /sys and /proc", root)
	}
	s := &source{Source: src, live: src.Live(), origin: "tree", collectedAt: time.Now().UTC()}
	if s.live {
		s.origin = "live"
	}
	return s, nil
}

// origins are what a recording can be of; one of the machine's text may not say.
var origins = []string{"", "live", "tree", "recording", "example"}

// replay is a recording, judged as what it was made of. fallback is the origin
// of one that does not say.
func replay(rec *fact.Recording, fallback string) *source {
	if rec == nil {
		return nil
	}
	origin, simulated := rec.Origin()
	return &source{Source: rec, origin: cmp.Or(origin, fallback), simulated: simulated, collectedAt: rec.CollectedAt()}
}

// openInTime is open within the time limit: a FIFO that nobody writes to, or a
// file system that does not answer, would hold it for ever.
func (o *sourceOptions) openInTime() (*source, error) {
	limit := max(o.Timeout, time.Second)
	src, ok, err := inTime(limit, o.open)
	if !ok {
		return nil, usagef("cannot read %s: no answer within %s", cmp.Or(o.From, o.Root, "/"), limit)
	}
	return src, err
}

// inTime gives up on f after a time; f goes on by itself then, since a read that
// hangs in the kernel cannot be stopped. ok is false where it was given up.
func inTime[T any](limit time.Duration, f func() (T, error)) (v T, ok bool, err error) {
	type result struct {
		v        T
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.v, r.err = f()
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.v, true, r.err
	case <-time.After(limit):
		return v, false, nil
	}
}

// machine opens the source and collects the machine from it. A live machine is
// asked for no more than want; what was recorded is all read, since it costs
// nothing. The recorder is nil unless the options ask for one.
func (o *sourceOptions) machine(ctx context.Context, want collect.Options) (*topo.Machine, *fact.Recorder, error) {
	src, err := o.openInTime()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !src.live:
		want = collect.All()
		want.Probe = collect.ProbeForced
	case o.Force:
		want.Probe = collect.ProbeForced
	case o.Probe:
		want.Probe = collect.ProbeIdle
	}
	if src.live {
		want.NeedMST, want.NeedModules, want.NeedSMP = o.MST, o.Module, o.SMP
	}
	want.Origin, want.CollectedAt, want.Timeout = src.origin, src.collectedAt, o.Timeout
	// A test double knows of GPUs that the PCI tree has not.
	want.AskNVIDIA = src.simulated || src.live && (os.Getenv(worker.NVMLLibraryEnv) != "" || os.Getenv(worker.CUDALibraryEnv) != "")
	var rec *fact.Recorder
	facts := src.Source
	if o.record {
		rec = fact.NewRecorder(facts)
		facts = rec
	}
	m := collect.Machine(ctx, facts, want)
	m.Simulated = m.Simulated || src.simulated
	if r, ok := src.Source.(*fact.Recording); ok && r.Asked(fact.AskMeasured) {
		if o.measured, err = recordedPerf(ctx, facts); err != nil {
			return nil, nil, usagef("cannot read %s: %w", o.From, err)
		}
	}
	if rec != nil {
		rec.SetOrigin(m.Origin, m.Simulated)
		lost := map[string]string{}
		for _, p := range m.Problems {
			lost[p.Part] = p.Reason
		}
		for _, f := range m.PCI {
			if f.Late != "" {
				lost[f.Dir] = f.Late
			}
		}
		rec.SetLost(lost)
	}
	return m, rec, nil
}

// openRecording opens a recording; whatever is wrong with it is the caller's to mend.
func openRecording(name string) (*fact.Recording, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("cannot read %s: %w", name, pathCause(err))
	}
	defer func() { _ = f.Close() }()
	rec, err := fact.OpenRecording(f)
	if err == nil {
		if origin, _ := rec.Origin(); !slices.Contains(origins, origin) {
			err = fmt.Errorf("%w: its origin is %q", fact.ErrRecordingBroken, origin)
		}
	}
	if err != nil {
		return nil, usagef("cannot read %s: %w; make a recording with 'gdrcheck snapshot -o FILE'", name, pathCause(err))
	}
	return rec, nil
}

// pathCause drops the path that package os puts before an error, where the message names it.
func pathCause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}
