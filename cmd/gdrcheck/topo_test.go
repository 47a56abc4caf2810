package main

import (
	"context"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTopoOptions(t *testing.T) {
	var got *topoOptions
	cmd := newTopoCommand(&streams{Out: io.Discard, Err: io.Discard}, func(_ context.Context, o *topoOptions) error {
		got = o
		return nil
	})
	cmd.SetArgs([]string{"GPU0", "--explain", "mlx5_3", "--root", "/node"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"GPU0", "mlx5_3"}, got.Between); d != "" || !got.Explain || got.Source.Root != "/node" {
		t.Errorf("explain %t, root %q, between (-want +got):\n%s", got.Explain, got.Source.Root, d)
	}
}
