package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/report"
)

type rdmaQoSOptions struct {
	IO      *streams
	Source  sourceOptions
	Output  outputs
	Network string
}

func newRDMAQoSCommand(s *streams, runF func(context.Context, *rdmaQoSOptions) error) *cobra.Command {
	opts := &rdmaQoSOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "qos",
		Short: "Show how RoCE packets fare on each NIC: mark, priority, flow and congestion control",
		Long: `qos follows the packets of NCCL, UCX and rdma_cm through each RDMA port: the type of service
(ToS) that they are marked with, the priority that the NIC makes of it, whether that is
lossless (PFC), its receive buffer, and the congestion control (ECN, CNP) for it; and the
GID that programs take. 'gdrcheck check --only rdma' judges all this. Root sees the most.`,
		Example: `  sudo gdrcheck rdma qos
  gdrcheck rdma qos --example
  gdrcheck rdma qos --from node.rec -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return rdmaQoSRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	addNICFlags(cmd, &opts.Source)
	addOutputFlag(cmd, &opts.Output, "table", "json")
	addNetworkFlag(cmd, &opts.Network)
	return cmd
}

func rdmaQoSRun(ctx context.Context, opts *rdmaQoSOptions) error {
	network, err := readNetwork(opts.Network)
	if err != nil {
		return err
	}
	m, _, err := opts.Source.machine(ctx, collect.Ports())
	if err != nil {
		return err
	}
	n, err := checks.NewNode(m, checks.Options{Network: network})
	if err != nil {
		return err
	}
	doc := report.NewQoS(m, n, readBuildInfo().Version)
	return opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, doc)
		}
		return report.QoSTable(w, doc, style)
	})
}
