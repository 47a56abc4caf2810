package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
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
}

const defaultTimeout = 20 * time.Second

func addSourceFlags(cmd *cobra.Command, o *sourceOptions) {
	f := cmd.Flags()
	f.BoolVar(&o.Example, "example", false, "read the example node inside the binary instead of this machine")
	f.StringVar(&o.Root, "root", "", "read the machine whose /sys and /proc are below `DIR`")
	f.StringVar(&o.From, "from", "", "read the recording in `FILE`, made with 'gdrcheck check --record'")
	f.DurationVar(&o.Timeout, "timeout", defaultTimeout, "longest time to collect; what is not told by then counts as unknown")
	must(cmd.MarkFlagDirname("root"))
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
	if o.Timeout <= 0 {
		return usagef("--timeout %s: want a time above zero, as in --timeout 20s", o.Timeout)
	}
	return nil
}

// origin says in documents what was read.
func (o *sourceOptions) origin() string {
	switch {
	case o.Example:
		return "example"
	case o.From != "":
		return "recording"
	case o.Root != "":
		return "tree"
	}
	return "live"
}

// open returns the source that the flags name. This is the one place where a
// command gets its machine from.
func (o *sourceOptions) open() (fact.Source, error) {
	switch {
	case o.Example:
		return openExample()
	case o.From != "":
		return openRecordingFile(o.From)
	}
	src, err := fact.NewOS(cmp.Or(o.Root, "/"), &worker.Client{})
	if err != nil {
		return nil, usagef("cannot read %s: %w", cmp.Or(o.Root, "/"), pathCause(err))
	}
	_, sysErr := src.Stat("/sys")
	_, procErr := src.Stat("/proc")
	if sysErr != nil && procErr != nil {
		return nil, usagef("%s has neither sys nor proc: --root wants the directory that holds a machine's /sys and /proc", o.Root)
	}
	return src, nil
}

// machine opens the source and collects from it what is needed. A live source
// or a tree is recorded along the way.
func (o *sourceOptions) machine(ctx context.Context, need collect.Options) (*topo.Machine, fact.Source, error) {
	src, err := o.open()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if _, ok := src.(*fact.Recording); !ok {
		src = fact.NewRecorder(src)
	}
	return collectMachine(ctx, src, o.origin(), need), src, nil
}

// openRecordingFile opens a recording; whatever is wrong with it is the caller's to mend.
func openRecordingFile(name string) (fact.Source, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("cannot read %s: %w", name, pathCause(err))
	}
	src, err := openRecording(b)
	if err != nil {
		return nil, usagef("%s is no whole recording: %w; make one with 'gdrcheck check --record FILE'", name, err)
	}
	return src, nil
}

// pathCause drops the path that package os puts before an error, where the message names it.
func pathCause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
