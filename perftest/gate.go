package perftest

import (
	"context"
	"sync"
)

// Gate has tests that run at the same time begin each size together: who has
// prepared waits until all have. A test that ends early is waited for no longer.
type Gate struct {
	mu      sync.Mutex
	members int
	waiting int
	open    chan struct{} // closed when all of a round are there
}

// NewGate makes a gate for so many tests. Each takes one Pass.
func NewGate(members int) *Gate { return &Gate{members: members, open: make(chan struct{})} }

// Pass is one test's right to go through a gate.
type Pass struct {
	gate *Gate
	left sync.Once
}

// Pass returns the next test's. It must be given back by Leave.
func (g *Gate) Pass() *Pass { return &Pass{gate: g} }

// Engine is an engine of the test whose Prepare ends when all tests' do.
func (p *Pass) Engine(e Engine) Engine { return &gated{e, p} }

// Leave says that the test is over; it may be called several times.
func (p *Pass) Leave() {
	p.left.Do(func() {
		p.gate.mu.Lock()
		defer p.gate.mu.Unlock()
		p.gate.members--
		p.gate.release()
	})
}

// release opens the gate when all that are left wait. g.mu is held.
func (g *Gate) release() {
	if g.waiting > 0 && g.waiting >= g.members {
		close(g.open)
		g.open, g.waiting = make(chan struct{}), 0
	}
}

// wait returns when all are there, or at ctx's end.
func (g *Gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.waiting++
	g.release()
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-open: // both at once
	default:
		g.waiting--
	}
	return context.Cause(ctx)
}

type gated struct {
	Engine
	pass *Pass
}

// Prepare implements Engine.
func (e *gated) Prepare(ctx context.Context, sizeBytes int) error {
	if err := e.Engine.Prepare(ctx, sizeBytes); err != nil {
		return err
	}
	return e.pass.gate.wait(ctx)
}

// Close implements Engine.
func (e *gated) Close() error {
	e.pass.Leave()
	return e.Engine.Close()
}
