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
			panic("out of order")
		}}
		cmd.SetArgs([]string{})
		return cmd.Execute()
	})
	got := stderr.String()
	if code != 4 || strings.Count(got, "\n") != 1 ||
		!strings.Contains(got, "internal error: out of order at run_test.go:") || !strings.Contains(got, bugsURL) {
		t.Errorf("exit code %d, stderr %q", code, got)
	}
}

// inProcess runs one command line as in a pipe of a UTF-8 locale.
func inProcess(args ...string) (stdout, stderr []byte, code int) {
	return inEnv(map[string]string{"LANG": "C.UTF-8"}, args...)
}

func inEnv(env map[string]string, args ...string) (stdout, stderr []byte, code int) {
	var out, errs bytes.Buffer
	s := &streams{Out: &out, Err: &errs, Getenv: func(name string) string { return env[name] }}
	code = run(s, args)
	return out.Bytes(), errs.Bytes(), code
}

// mustRun is for commands that reach a verdict.
func mustRun(t *testing.T, args ...string) (stdout []byte, code int) {
	t.Helper()
	out, errs, code := inProcess(args...)
	if code == 2 || code == 4 || len(errs) > 0 {
		t.Fatalf("gdrcheck %s: exit code %d\n%s", strings.Join(args, " "), code, errs)
	}
	return out, code
}
