package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

// Whatever is measured on this node alone, and at whatever it is interrupted: it
// says so, in those words, and what was not measured is not judged.
func TestInterruptedHere(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	for _, call := range []string{"open", "prepare", "run"} {
		for _, line := range []string{
			"perf loopback --dev double0", "perf loopback --all", "perf compare loopback --dev double0", "perf copy --mem host",
		} {
			if call != "open" && strings.HasPrefix(line, "perf copy") {
				continue // the double copies nothing
			}
			ctx, cancel := context.WithCancel(t.Context())
			dir := t.TempDir()
			perf = doubleBackend(dir)
			perf.newEngine = func() perftest.Engine {
				e := &perfdouble.Engine{Dir: dir}
				e.Before = func(_ context.Context, at string) error {
					if at == call {
						cancel()
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				return e
			}
			s := quiet()
			code := guard(s, func() error {
				root := newRootCommand(s)
				root.SetArgs(strings.Fields(line))
				return root.ExecuteContext(ctx)
			})
			if got := fmt.Sprint(s.Err); code != 3 || got != "gdrcheck: interrupted\n" || fmt.Sprint(s.Out) != "" {
				t.Errorf("%s, in %s: exit code %d, %q, %q", line, call, code, got, s.Out)
			}
			cancel()
		}
	}
}

// nthOpen ends something when an engine is opened for so many a time, and has that
// test broken off.
func nthOpen(dir string, n int32, end context.CancelFunc) func() perftest.Engine {
	var opened atomic.Int32
	return func() perftest.Engine {
		e := &perfdouble.Engine{Dir: dir}
		e.Before = func(ctx context.Context, at string) error {
			if at == "open" && opened.Add(1) == n {
				end()
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		return e
	}
}

// What was measured before a test was lost is written, to every output, and says how
// many tests were not made and why: the exit code is 3, and never that all is well,
// or 1 where something failed: of --all a port that is down.
func TestLostOnItsWay(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	t.Setenv(railsEnv, "2")
	for _, tt := range []struct {
		line    string
		end     string // who ends
		nth     int32  // test at which, in opened engines of that side
		results int
		tests   int
		why     string
	}{
		{"perf loopback --dev double0 --op write,read --count 20", "here", 5, 2, 4, "interrupted"},
		{"perf loopback --all --count 20", "here", 7, 3, 6, "interrupted"},
		{"perf loopback --all --count 20", "here", 11, 4, 6, "interrupted"},
		{"perf compare loopback --dev double0 --route direct --rounds 2 --size 4K --count 20", "here", 5, 2, 4, "interrupted"},
		{"perf client SERVER --op write,read --count 20", "here", 3, 2, 4, "interrupted; the other side was told"},
		{"perf client SERVER --op write,read --count 20", "there", 3, 2, 4, "the other side says: it was interrupted"},
		{"perf client SERVER --all --op write --count 20", "here", 4, 3, 10, "interrupted; the other side was told"},
		{"perf client SERVER --all --op write --count 20", "there", 4, 3, 10, "the server is not reached any more"},
		{"perf compare SERVER --route direct --rounds 2 --size 4K --count 20", "here", 3, 2, 4, "interrupted; the other side was told"},
		{"perf compare SERVER --route direct --rounds 2 --size 4K --count 20", "there", 3, 2, 4, "the other side says: it was interrupted"},
	} {
		t.Run(tt.line+", ended "+tt.end, func(t *testing.T) {
			dir := t.TempDir()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			serving, stop := context.WithCancel(t.Context())
			defer stop()
			plain := func() perftest.Engine { return &perfdouble.Engine{Dir: dir} }
			perf = doubleBackend(dir)
			end := perf.end(perftest.Timing{})
			perf.newEngine, end.NewEngine = plain, plain
			if tt.end == "here" {
				perf.newEngine = nthOpen(dir, tt.nth, interrupt)
			} else {
				end.NewEngine = nthOpen(dir, tt.nth, stop)
			}
			if strings.Contains(tt.line, "SERVER") {
				address, token := serve(serving, t, dir, end)
				tt.line = strings.Replace(tt.line, "SERVER", address+" --wait 1s --token-file "+token, 1)
			}
			file := filepath.Join(dir, "table")
			s := quiet()
			code := guard(s, func() error {
				root := newRootCommand(s)
				root.SetArgs(append(strings.Fields(tt.line), "-o", "json", "-o", "table="+file))
				return root.ExecuteContext(ctx)
			})
			var doc report.Perf
			text := []byte(fmt.Sprint(s.Out))
			if err := json.Unmarshal(text, &doc); err != nil {
				t.Fatalf("exit code %d, %s: %v", code, s.Err, err)
			}
			want := fmt.Sprintf("%d of %d test", tt.tests-tt.results, tt.tests)
			got := fmt.Sprint(s.Err)
			wantCode := 3
			if strings.HasPrefix(tt.line, "perf client") && strings.Contains(tt.line, "--all") {
				wantCode = 1
			}
			if code != wantCode || doc.ExitCode != wantCode || !strings.HasPrefix(got, "gdrcheck: "+want) || !strings.Contains(got, tt.why) {
				t.Errorf("exit code %d, in the document %d, %s", code, doc.ExitCode, got)
			}
			if doc.NotMade == nil || len(doc.Results) != tt.results || !strings.Contains(doc.NotMade.Why, tt.why) {
				t.Errorf("%d results, %v", len(doc.Results), doc.NotMade)
			}
			for _, r := range doc.Results {
				if len(r.Steps) == 0 {
					t.Errorf("%s %s was not measured to its end", r.Plan.Operation, r.Plan.Measure)
				}
			}
			v, err := validate.UnmarshalJSON(bytes.NewReader(text))
			if err == nil {
				err = compileSchema(t, "perf").Validate(v)
			}
			if err != nil {
				t.Error(err)
			}
			if b, err := os.ReadFile(file); err != nil || !bytes.Contains(b, []byte(want)) {
				t.Errorf("the table: %v\n%s", err, b)
			}
			if n := perfdouble.Memories(dir); n > 0 {
				t.Errorf("%d memories are left", n)
			}
		})
	}
}

// serve serves clients over doubles until ctx ends.
func serve(ctx context.Context, t *testing.T, dir string, end perftest.End) (address, tokenFile string) {
	t.Helper()
	server := &perftest.Server{End: end}
	server.Local = func(ctx context.Context, device string, _ perftest.MemoryAsk) (perftest.Local, error) {
		l, err := perf.device(ctx, device)
		l.Memory = perftest.MemoryHost
		return l, err
	}
	token, err := server.Init()
	if err != nil {
		t.Fatal(err)
	}
	tokenFile = filepath.Join(dir, "token")
	if err := writeToken(tokenFile, token); err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		_ = server.Serve(ctx, l)
	}()
	return l.Addr().String(), tokenFile
}
