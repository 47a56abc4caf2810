package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// Whatever keeps a client from its server: one line says what to do next, and names
// the flag, the variable or the port that it takes.
func TestNextStepToServer(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	perf = doubleBackend(t.TempDir())
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	server := &perftest.Server{End: perf.end(perftest.Timing{})}
	if _, err := server.Init(); err != nil {
		t.Fatal(err)
	}
	var before perftest.Server // one that ran before
	stale, err := before.Init()
	if err != nil {
		t.Fatal(err)
	}
	l := listen()
	go func() { _ = server.Serve(t.Context(), l) }()
	closed := listen()
	_ = closed.Close()
	other := listen()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n")
		}
	}()
	damaged := filepath.Join(t.TempDir(), "damaged")
	if err := os.WriteFile(damaged, []byte(stale.Encode()[:40]), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		address, token, file string
		code                 int
		want                 []string
	}{
		"no token":        {l.Addr().String(), "", "", 2, []string{"'gdrcheck perf server' printed", tokenEnv, "--token-file"}},
		"no such file":    {l.Addr().String(), "", "/nowhere/token", 2, []string{"/nowhere/token", "gdrcheck perf server --token-file FILE"}},
		"no token at all": {l.Addr().String(), "hello", "", 2, []string{tokenEnv, "'gdrcheck perf server' printed", "--token-file"}},
		"a damaged one":   {l.Addr().String(), "", damaged, 2, []string{damaged, "copy it as a whole", "--token-file"}},
		"an older token":  {l.Addr().String(), stale.Encode(), "", 3, []string{"started last", "--token-file"}},
		"nobody listens":  {closed.Addr().String(), stale.Encode(), "", 3, []string{"'gdrcheck perf server' running", "address and port"}},
		"no such host":    {"nohost.invalid:18516", stale.Encode(), "", 3, []string{"the address that the server's line has"}},
		"another program": {other.Addr().String(), stale.Encode(), "", 3, []string{"no gdrcheck", "the port with the one in the server's line"}},
	} {
		for _, command := range []string{"client", "compare"} {
			args := []string{"perf", command, tt.address, "--wait", "300ms"}
			if tt.file != "" {
				args = append(args, "--token-file", tt.file)
			}
			out, errs, code := inEnv(map[string]string{tokenEnv: tt.token}, args...)
			got := string(errs)
			if code != tt.code || len(out) > 0 || strings.Count(got, "\n") != 1 {
				t.Errorf("%s, %s: exit code %d, %q, %q", name, command, code, out, got)
			}
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("%s, %s: no %q in %q", name, command, w, got)
				}
			}
		}
	}
}
