package perftest

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// guarded is an engine of which nothing is expected: a call that does not come
// back is given up, a panic is a failure of its call, and Close is called once
// whatever happens.
type guarded struct {
	engine Engine
	timing Timing
	plan   *Plan
	closed func() error
}

func guard(e Engine, p *Plan, t Timing) *guarded {
	g := &guarded{engine: e, timing: t, plan: p}
	g.closed = sync.OnceValue(func() error {
		_, err := bounded(context.Background(), "Close", t.Step, t.Grace, func(context.Context) (struct{}, error) {
			return struct{}{}, e.Close()
		})
		return err
	})
	return g
}

// bounded calls f with a limit, and does not wait for it any longer than grace
// beyond that. f then goes on by itself; nobody sees what it returns.
func bounded[T any](ctx context.Context, name string, limit, grace time.Duration, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s did not end within %s", name, limit))
	defer cancel()
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("gdrcheck's own error in %s: %v (%s)", name, p, panicPlace(debug.Stack()))
			}
			done <- r
		}()
		r.v, r.err = f(ctx)
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case r := <-done:
		return r.v, r.err
	case <-patience.C:
		var none T
		return none, fmt.Errorf("%w, and cannot be stopped", context.Cause(ctx))
	}
}

// panicPlace is the file and line where a panic came from.
func panicPlace(stack []byte) string {
	_, after, _ := strings.Cut(string(stack), "\npanic(")
	const fileLine = 3
	if l := strings.Split(after, "\n"); len(l) > fileLine {
		file, _, _ := strings.Cut(strings.TrimSpace(l[fileLine]), " ")
		return file[strings.LastIndexByte(file, '/')+1:]
	}
	return "place unknown"
}

func (g *guarded) Open(ctx context.Context, p Plan, l Local, side Side) (Endpoint, error) {
	return bounded(ctx, "opening the device", g.timing.Step, g.timing.Grace, func(ctx context.Context) (Endpoint, error) {
		return g.engine.Open(ctx, p, l, side)
	})
}

func (g *guarded) Connect(ctx context.Context, peer Endpoint) error {
	_, err := bounded(ctx, "connecting the queue pairs", g.timing.Step, g.timing.Grace, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.engine.Connect(ctx, peer)
	})
	return err
}

func (g *guarded) Prepare(ctx context.Context, sizeBytes int) error {
	_, err := bounded(ctx, "preparing the run", g.timing.Step, g.timing.Grace, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.engine.Prepare(ctx, sizeBytes)
	})
	return err
}

func (g *guarded) Run(ctx context.Context, sizeBytes int, progress func(Progress)) (Outcome, error) {
	return bounded(ctx, "the run", g.timing.run(g.plan), g.timing.Grace, func(ctx context.Context) (Outcome, error) {
		return g.engine.Run(ctx, sizeBytes, progress)
	})
}

func (g *guarded) Verify(ctx context.Context, sizeBytes int, peer Outcome) (*DataCheck, error) {
	return bounded(ctx, "comparing the data", g.timing.Step, g.timing.Grace, func(ctx context.Context) (*DataCheck, error) {
		return g.engine.Verify(ctx, sizeBytes, peer)
	})
}

// Events implements Engine. That an engine does not tell of any is no error.
func (g *guarded) Events(ctx context.Context) Reported {
	r, err := bounded(ctx, "telling of events", g.timing.Step, g.timing.Grace, func(ctx context.Context) (Reported, error) {
		return g.engine.Events(ctx), nil
	})
	if err != nil {
		return Reported{}
	}
	return r
}

func (g *guarded) Close() error { return g.closed() }
