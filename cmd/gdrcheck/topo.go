package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

type topoOptions struct {
	IO      *streams
	Source  sourceOptions
	Output  outputs
	Explain bool
	Between []string // the two devices to explain
}

func newTopoCommand(s *streams, runF func(context.Context, *topoOptions) error) *cobra.Command {
	opts := &topoOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Show how GPUs and NICs are connected",
		Long: `topo shows the class of the path between every two of the GPUs and NICs, as
nvidia-smi topo -m does, and marks for each GPU the NICs that GPUDirect RDMA should use.
Nothing is measured and nothing that runs on the node is disturbed.`,
		Example: `  gdrcheck topo
  gdrcheck topo -o tree
  gdrcheck topo --explain GPU0 mlx5_3
  gdrcheck topo -o nccl-xml=topo.xml
  gdrcheck topo -o dot | dot -Tsvg > topo.svg`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case opts.Explain && len(args) != 2:
				return usagef("--explain wants two devices, as in --explain GPU0 mlx5_0")
			case !opts.Explain && len(args) > 0:
				return usagef("unknown argument %q; to ask about two devices: --explain GPU0 mlx5_0", args[0])
			}
			opts.Between = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			if opts.Explain && slices.ContainsFunc(opts.Output.list, func(o output) bool { return o.Format != "table" }) {
				return usagef("--explain is drawn as table only")
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return topoRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	addOutputFlag(cmd, &opts.Output, "table", "tree", "json", "nccl-xml", "dot")
	cmd.Flags().BoolVar(&opts.Explain, "explain", false, "tell hop by hop how two devices are connected, and why that is their class")
	return cmd
}

func topoRun(ctx context.Context, opts *topoOptions) error {
	m, _, err := opts.Source.machine(ctx, collect.Topology())
	if err != nil {
		return err
	}
	doc := report.NewTopo(m, readBuildInfo().Version)
	for _, id := range opts.Between {
		if _, ok := doc.Graph.Device(id); !ok {
			return usagef("no device %q here; there are: %s", id, deviceNames(doc.Devices))
		}
	}
	return opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		switch {
		case opts.Explain:
			return report.TopoExplain(w, doc, style, opts.Between[0], opts.Between[1])
		case format == "json":
			return report.JSON(w, doc)
		case format == "tree":
			return report.TopoTree(w, doc, style)
		case format == "dot":
			return report.TopoDot(w, doc)
		case format == "nccl-xml":
			return doc.Graph.NCCL().Write(w)
		}
		return report.TopoTable(w, doc, style)
	})
}

func deviceNames(devices []topo.Device) string {
	if len(devices) == 0 {
		return "none"
	}
	ids := make([]string, len(devices))
	for i, d := range devices {
		ids[i] = d.ID
	}
	return strings.Join(ids, ", ")
}
