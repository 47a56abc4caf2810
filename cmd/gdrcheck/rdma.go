package main

import "github.com/spf13/cobra"

func newRDMACommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rdma",
		Short: "Show the settings and counters of RDMA ports",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRDMAQoSCommand(s, nil), newRDMACountersCommand(s, nil))
	return cmd
}
