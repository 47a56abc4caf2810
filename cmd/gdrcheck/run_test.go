package main

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A panic in a command is exit code 4 and one line that names the place.
func TestPanic(t *testing.T) {
	var stderr bytes.Buffer
	s := &streams{Out: &bytes.Buffer{}, Err: &stderr, Getenv: func(string) string { return "" }}
	code := guard(s, func() error {
		cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error {
			var m map[string]int
			m["x"] = 1
			return nil
		}}
		cmd.SetArgs(nil)
		return cmd.Execute()
	})
	got := stderr.String()
	if code != 4 || strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "assignment to entry in nil map at run_test.go:") || !strings.Contains(got, bugsURL) {
		t.Errorf("exit code %d, stderr %q", code, got)
	}
}
