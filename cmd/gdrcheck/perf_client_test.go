package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// The line that a server with GPU memory prints, run as it stands, measures: what
// the server cannot poll is measured by writes with immediate data, and said to be.
func TestClientOfServerWithGPUMemory(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	dir := t.TempDir()
	perf = doubleBackend(dir)
	server := &perftest.Server{End: perf.end(perftest.Timing{})}
	server.Rails = perf.rails
	server.Local = func(context.Context, string, perftest.MemoryAsk) (perftest.Local, error) {
		l := perftest.NewLocal(perfdouble.Device)
		l.Port, l.Memory, l.GPU = 2, perftest.MemoryCUDA, &perftest.GPU{}
		return l, nil
	}
	token, err := server.Init()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "token")
	if err := writeToken(file, token); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(t.Context(), l) }()
	for _, more := range [][]string{{"--dev", "double0"}, {"--all", "--op", "write"}} {
		s := quiet()
		run(s, append([]string{"perf", "client", l.Addr().String(), "--token-file", file, "--count", "20", "-o", "json"}, more...))
		var doc struct{ Results []*perftest.Result }
		if err := json.Unmarshal([]byte(fmt.Sprint(s.Out)), &doc); err != nil {
			t.Fatalf("%v: %v, %s", more, err, s.Err)
		}
		noted := false
		for _, r := range doc.Results {
			if r.Failure != nil || r.Plan.Polls() {
				t.Errorf("%v: %+v %v", more, r.Plan, r.Failure)
			}
			for _, n := range r.Notes {
				noted = noted || n == perftest.PollNote && r.Plan.Operation == perftest.WriteImm
			}
		}
		if len(doc.Results) < 2 || !noted {
			t.Errorf("%v: %d results, noted: %v", more, len(doc.Results), noted)
		}
	}
}
