package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/report"
)

type listOptions struct {
	IO     *streams
	Output outputs
}

func newListCommand(s *streams, runF func(*listOptions) error) *cobra.Command {
	opts := &listOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the checks",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if runF != nil {
				return runF(opts)
			}
			return listRun(opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "table", "json")
	cmd.AddCommand(newListPresetsCommand(s, nil))
	return cmd
}

func newListPresetsCommand(s *streams, runF func(*listOptions) error) *cobra.Command {
	opts := &listOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "presets",
		Short: "List the platforms whose numbers of devices and paths are known",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if runF != nil {
				return runF(opts)
			}
			return listPresetsRun(opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "table", "json")
	return cmd
}

func listPresetsRun(opts *listOptions) error {
	presets, err := checks.Presets()
	if err != nil {
		return err
	}
	list := report.Presets(presets)
	return opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, list)
		}
		return report.PresetTable(w, list, style)
	})
}

func listRun(opts *listOptions) error {
	list := report.Catalogue(checks.All())
	return opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, list)
		}
		return report.CatalogueTable(w, list, style)
	})
}
