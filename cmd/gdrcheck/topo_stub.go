package main

import "github.com/spf13/cobra"

// Goes when topo.go comes; its constructor is
// newTopoCommand(s *streams, runF func(context.Context, *topoOptions) error).
func newTopoCommand(*streams, func() error) *cobra.Command {
	return &cobra.Command{Use: "topo", Short: "Show how GPUs and NICs are connected", RunE: func(*cobra.Command, []string) error { return nil }}
}
