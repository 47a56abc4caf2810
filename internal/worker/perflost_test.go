package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// An end whose worker is killed in a run is what the result blames, also the one that
// answers, of which no call runs then: not the wire, of which the other end complains.
func TestLostWorkerIsBlamed(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	for _, op := range []perftest.Operation{perftest.Write, perftest.Read, perftest.Send} {
		for _, lost := range []perftest.Side{perftest.Initiator, perftest.Responder} {
			p := perftest.NewPlan(op, perftest.Bandwidth)
			p.FootprintBytes, p.DurationNs, p.MarginNs = 1<<20, int64(3*time.Second), 0
			engines := map[perftest.Side]*Perf{perftest.Initiator: {}, perftest.Responder: {}}
			kill := sync.OnceFunc(func() { _ = engines[lost].p.proc.Kill() })
			progress := func(now perftest.Progress) {
				if now.BytesPerSec > 0 {
					kill()
				}
			}
			l := perftest.NewLocal("stub0")
			l.Port, l.Memory = 1, perftest.MemoryHost
			r, err := perftest.Loopback(t.Context(), engines[perftest.Initiator], engines[perftest.Responder], p, l, l, progress)
			if err != nil || r.Failure == nil {
				t.Fatalf("%s: %v, %+v", op, err, r)
			}
			if r.Faulty != lost || r.FailedAt != perftest.StageRan || !strings.Contains(r.Failure.Error(), "stub0: the worker was ended by SIGKILL") {
				t.Errorf("%s, the %s's worker killed: at the %s: %v", op, lost, r.Faulty, r.Failure)
			}
			if len(r.Events) > 0 {
				t.Errorf("%s: told twice: %+v", op, r.Events)
			}
		}
	}
}

// An end may be closed in the very moment in which its time is over, in whatever step.
func TestClosedWhenOver(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	p := perftest.NewPlan(perftest.WriteImm, perftest.Bandwidth).Through(perftest.RouteCopy)
	p.SizesBytes, p.ChunkBytes, p.FootprintBytes = []int{4096}, 4096, 1<<20
	const runs, longest = 80, 150 * time.Millisecond
	for i := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(longest))
		if i%2 == 0 { // before it began
			cancel()
		}
		if _, err := perftest.Copies(ctx, &Perf{}, perftest.Initiator, p, perftest.NewLocal(""), nil); err == nil {
			t.Error("it was over, and did not say so")
		}
		cancel()
	}
}
