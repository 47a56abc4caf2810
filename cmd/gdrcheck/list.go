package main

import "github.com/spf13/cobra"

func newListCommand(s *streams, runF func() error) *cobra.Command {
	return &cobra.Command{Use: "list"}
}

func newExplainCommand(s *streams, runF func() error) *cobra.Command {
	return &cobra.Command{Use: "explain"}
}
