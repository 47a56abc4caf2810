package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
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
