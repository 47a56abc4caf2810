package main

import (
	"bytes"
	"os"
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

// Without a reader a watch ends, well, at the first window.
func TestWatchClosedPipe(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(root+"/sys", 0o755); err != nil {
		t.Fatal(err)
	}
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
