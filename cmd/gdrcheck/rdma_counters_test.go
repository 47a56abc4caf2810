package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// gone is a standard output whose reader has left: "… | head -1".
type gone struct{ writes int }

func (g *gone) Write([]byte) (int, error) {
	g.writes++
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

// treeOfPort is a tree with one InfiniBand port.
func treeOfPort(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	port := root + "/sys/class/infiniband/mlx5_0/ports/1/"
	for name, text := range map[string]string{"link_layer": "InfiniBand\n", "counters/symbol_error": "0\n"} {
		if err := os.MkdirAll(filepath.Dir(port+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(port+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Where there is no port there is nothing to watch: that is said once, as
// without --watch.
func TestWatchNoPort(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(root+"/sys/class/infiniband", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"table", "json"} {
		var out, errs [2]bytes.Buffer
		for i, more := range [][]string{nil, {"--watch", "10ms"}} {
			s := &streams{Out: &out[i], Err: &errs[i], Getenv: func(string) string { return "" }}
			args := append([]string{"rdma", "counters", "--root", root, "-o", format}, more...)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			cmd := newRootCommand(s)
			cmd.SetArgs(args)
			err := cmd.ExecuteContext(ctx)
			if cancel(); err != nil || ctx.Err() == context.DeadlineExceeded || errs[i].Len() > 0 {
				t.Errorf("%v: %v, stderr %q", args, err, errs[i].String())
			}
		}
		if format == "table" && out[0].String() != out[1].String() {
			t.Errorf("once:\n%s\n--watch:\n%s", out[0].String(), out[1].String())
		}
		if n := bytes.Count(out[1].Bytes(), []byte("\n")); n == 0 || format == "table" && bytes.Count(out[1].Bytes(), []byte("No RDMA port")) != 1 {
			t.Errorf("%s", out[1].String())
		}
	}
}

// Without a reader a watch ends, well, at the first window.
func TestWatchClosedPipe(t *testing.T) {
	root := treeOfPort(t)
	for _, format := range []string{"table", "json"} {
		var out gone
		var errs bytes.Buffer
		s := &streams{Out: &out, Err: &errs, Getenv: func(string) string { return "" }}
		code := make(chan int, 1)
		go func() { code <- run(s, []string{"rdma", "counters", "--root", root, "--watch", "10ms", "-o", format}) }()
		select {
		case c := <-code:
			if c != 0 || out.writes != 1 || errs.Len() != 0 {
				t.Errorf("%s: exit code %d after %d writes, stderr %q", format, c, out.writes, errs.String())
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: watches on after %d writes", format, out.writes)
		}
	}
}
