package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/internal/collect"
)

type snapshotOptions struct {
	IO     *streams
	Source sourceOptions
	File   string
	Redact bool
}

func newSnapshotCommand(s *streams, runF func(context.Context, *snapshotOptions) error) *cobra.Command {
	opts := &snapshotOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Record all that check and topo need of this node, without judging it",
		Long: `snapshot writes a recording, which check, topo and policy read with --from and judge as they
would the node itself. It is one JSON document, compressed with zstd: zstd -dc FILE | jq .

With --redact it holds no host and user names, serial numbers, UUIDs, GUIDs, MAC and IP
addresses, but pseudonyms, the same for the same throughout one recording. Verdicts stay
the same. Names of network interfaces and of RDMA devices stay.`,
		Example: `  sudo gdrcheck snapshot -o node.rec
  sudo gdrcheck snapshot --redact -o node.rec
  gdrcheck snapshot --from node.rec --redact -o to-share.rec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			if opts.File == "" && s.TermWidth > 0 {
				return usagef("a recording is no text for a terminal; give it a file: -o node.rec")
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return snapshotRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	addProbeFlags(cmd, &opts.Source, "with --probe, take GPUs that are in use, too")
	addNICFlags(cmd, &opts.Source)
	f := cmd.Flags()
	f.StringVarP(&opts.File, "output", "o", "", "write to `FILE` rather than to standard output")
	f.BoolVar(&opts.Redact, "redact", false, "replace what identifies the machine by pseudonyms")
	return cmd
}

func snapshotRun(ctx context.Context, opts *snapshotOptions) error {
	opts.Source.record = true
	m, rec, err := opts.Source.machine(ctx, collect.All())
	if err != nil {
		return err
	}
	save := rec.Save
	if opts.Redact {
		save = rec.SaveRedacted
	}
	var b bytes.Buffer
	if err := save(&b, m.CollectedAt); err != nil {
		return fmt.Errorf("recording not written: %w", err)
	}
	return writeTo(opts.IO, opts.File, b.Bytes())
}
