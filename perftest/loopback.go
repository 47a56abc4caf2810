package perftest

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Loopback runs a plan between two engines of this process and returns the
// initiator's result.
func Loopback(ctx context.Context, initiator, responder Engine, p Plan, a, b Local, progress func(Progress)) (*Result, error) {
	there, here := pipe()
	g, ctx := errgroup.WithContext(ctx)
	var result, other *Result
	g.Go(func() (err error) {
		result, err = Run(ctx, initiator, Initiator, p, a, here, progress)
		return err
	})
	g.Go(func() (err error) {
		other, err = Run(ctx, responder, Responder, p, b, there, nil)
		return err
	})
	err := g.Wait()
	result.Join(other.Reported)
	result.blameLost()
	return result, err
}

// Loopback is the same with what this end knows of the devices: the GPUs' load.
// first is the initiator's engine.
func (e *End) Loopback(ctx context.Context, first Engine, p Plan, a, b Local, progress func(Progress)) (*Result, error) {
	stopA, stopB := e.watchLoad(ctx, a), func() *GPULoad { return nil }
	if b.GPU != nil && (a.GPU == nil || a.GPU.Addr != b.GPU.Addr) {
		stopB = e.watchLoad(ctx, b)
	}
	r, err := Loopback(ctx, first, e.NewEngine(), p, a, b, progress)
	ofA, ofB := stopA(), stopB()
	if r != nil {
		r.setLoad(Initiator, ofA)
		r.setLoad(Responder, ofB)
	}
	return r, err
}

// half is one end of a channel within the process.
type half struct {
	out chan<- Message
	in  <-chan Message
}

func pipe() (a, b Channel) {
	x, y := make(chan Message, 1), make(chan Message, 1)
	return &half{x, y}, &half{y, x}
}

// Exchange implements Channel.
func (h *half) Exchange(ctx context.Context, ours Message) (Message, error) {
	select {
	case h.out <- ours:
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	}
	select {
	case theirs := <-h.in:
		return theirs, nil
	case <-ctx.Done():
		return Message{}, context.Cause(ctx)
	}
}

var errNoSamples = errors.New("no samples")
