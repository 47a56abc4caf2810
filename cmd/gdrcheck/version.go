package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/report"
)

// Set by the linker: -X main.version=… -X main.commit=….
var (
	version string
	commit  string
)

// buildInfo is what "gdrcheck version" tells.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Target  string `json:"target"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Commit: commit, Go: runtime.Version(), Target: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, set := range info.Settings {
		if set.Key == "vcs.revision" && b.Commit == "" {
			b.Commit = set.Value
		}
	}
	return b
}

type versionOptions struct {
	IO     *streams
	Output outputs
}

func newVersionCommand(s *streams, runF func(*versionOptions) error) *cobra.Command {
	opts := &versionOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if runF != nil {
				return runF(opts)
			}
			return versionRun(opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "text", "json")
	return cmd
}

func versionRun(opts *versionOptions) error {
	b := readBuildInfo()
	return opts.Output.write(opts.IO, func(w io.Writer, format string, _ report.Style) error {
		if format == "json" {
			return report.JSON(w, b)
		}
		_, err := fmt.Fprintf(w, "gdrcheck %s\ncommit %s\n%s %s\n", b.Version, cmp.Or(b.Commit, "unknown"), b.Go, b.Target)
		return err
	})
}
