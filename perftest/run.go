package perftest

import (
	"context"
	"errors"
	"fmt"
)

// Run takes one end through a test: both ends call it, each with its engine and
// its end of the channel. The result holds what was measured until the test
// ended; a Failure of either end is in it and no error. The error is for a
// channel that broke, or for the end of ctx. Run closes the engine.
func Run(ctx context.Context, e Engine, side Side, p Plan, l Local, ch Channel, progress func(Progress)) (*Result, error) {
	defer e.Close()
	r := &runner{engine: e, side: side, ch: ch, result: &Result{Plan: p, Steps: []Step{}}}
	err := r.run(ctx, l, progress)
	r.result.Join(e.Events(context.WithoutCancel(ctx)).of(side))
	if _, ended := errors.AsType[*testEnded](err); ended {
		err = nil
	}
	return r.result, err
}

type runner struct {
	engine Engine
	side   Side
	ch     Channel
	result *Result
}

// testEnded says that a failure is in the result and the peer knows it.
type testEnded struct{}

func (*testEnded) Error() string { return "the test ended with a failure" }

func (s Side) other() Side {
	if s == Initiator {
		return Responder
	}
	return Initiator
}

func (r *runner) fail(at Stage, f *Failure, faulty Side) {
	r.result.Failure, r.result.Faulty, r.result.FailedAt = f, faulty, at
}

// exchange tells the other end ours, or that this end failed with err, and
// returns what it says.
func (r *runner) exchange(ctx context.Context, ours Message, err error) (Message, error) {
	if err != nil {
		f := AsFailure(err)
		r.fail(ours.Stage, f, r.side)
		ours = Message{Stage: ours.Stage, Size: ours.Size, Failure: f}
	}
	theirs, chErr := r.ch.Exchange(ctx, ours)
	switch {
	case err != nil:
		// Of two failures, that nothing came is the other one's consequence.
		if theirs.Failure != nil && r.result.Failure.Call == callWaiting {
			r.fail(ours.Stage, theirs.Failure, r.side.other())
		}
		switch {
		case ctx.Err() == nil:
			return theirs, &testEnded{}
		case errors.Is(err, context.Cause(ctx)): // and it says where
			return theirs, err
		}
		return theirs, ctx.Err()
	case chErr != nil:
		return theirs, chErr
	case theirs.Failure != nil:
		r.fail(ours.Stage, theirs.Failure, r.side.other())
		return theirs, &testEnded{}
	case theirs.Stage != ours.Stage || theirs.Size != ours.Size:
		return theirs, fmt.Errorf("the other end is at %q of size %d, this one at %q of size %d", theirs.Stage, theirs.Size, ours.Stage, ours.Size)
	}
	return theirs, nil
}

func (r *runner) run(ctx context.Context, l Local, progress func(Progress)) error {
	ours, err := r.engine.Open(ctx, r.result.Plan, l, r.side)
	theirs, err := r.exchange(ctx, Message{Stage: StageOpened, Endpoint: &ours}, err)
	if err != nil {
		return err
	}
	if theirs.Endpoint == nil {
		return errors.New("the other end sent no endpoint")
	}
	r.result.Initiator, r.result.Responder = ours.public(), theirs.Endpoint.public()
	if r.side == Responder {
		r.result.Initiator, r.result.Responder = r.result.Responder, r.result.Initiator
	}
	r.result.Simulated = ours.simulated() || theirs.Endpoint.simulated()
	r.result.MTUBytes = MTU(r.result.Plan, ours, *theirs.Endpoint)
	r.result.explain(&ours, theirs.Endpoint)
	if err := Compatible(r.result.Plan, ours, *theirs.Endpoint); err != nil {
		// Both ends come to the same, so neither needs to be told.
		r.fail(StageConnected, AsFailure(err), r.side)
		return &testEnded{}
	}
	err = r.engine.Connect(ctx, *theirs.Endpoint)
	if _, err = r.exchange(ctx, Message{Stage: StageConnected}, err); err != nil {
		return err
	}
	for _, size := range r.result.Plan.SizesBytes {
		if err := r.step(ctx, size, progress); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) step(ctx context.Context, size int, progress func(Progress)) error {
	err := r.engine.Prepare(ctx, size)
	if _, err = r.exchange(ctx, Message{Stage: StagePrepared, Size: size}, err); err != nil {
		return err
	}
	ours, err := r.engine.Run(ctx, size, progress)
	theirs, err := r.exchange(ctx, Message{Stage: StageRan, Size: size, Outcome: &ours}, err)
	if err != nil {
		return err
	}
	if theirs.Outcome == nil {
		return errors.New("the other end sent no outcome")
	}
	data, err := r.engine.Verify(ctx, size, *theirs.Outcome)
	verified, err := r.exchange(ctx, Message{Stage: StageVerified, Size: size, Data: data}, err)
	if err != nil {
		return err
	}
	if r.side == Responder {
		r.result.Steps = append(r.result.Steps, newStep(&r.result.Plan, size, *theirs.Outcome, ours, verified.Data, data))
	} else {
		r.result.Steps = append(r.result.Steps, newStep(&r.result.Plan, size, ours, *theirs.Outcome, data, verified.Data))
	}
	return nil
}

// newStep joins both ends' figures. Of datagrams the receiver's rate counts:
// what was sent may have been lost.
func newStep(p *Plan, size int, initiator, responder Outcome, atInitiator, atResponder *DataCheck) Step {
	s := Step{SizeBytes: size, Latency: initiator.Latency, Path: initiator.Path}
	s.Flush = append(s.Flush, initiator.Flush...)
	s.Flush = append(s.Flush, responder.Flush...)
	if initiator.CPUNs+responder.CPUNs > 0 {
		moved := (sum(initiator.Sent) + sum(responder.Sent)) * uint64(size)
		s.CPU = &CPUUse{initiator.CPUNs, responder.CPUNs, moved}
	}
	for _, d := range []*DataCheck{atInitiator, atResponder} {
		if d != nil {
			s.Data = append(s.Data, *d)
		}
	}
	if p.Measure == Latency {
		return s
	}
	s.Forward, s.Reverse = initiator.Rate, responder.Rate
	if p.Transport == UD {
		s.Forward, s.Reverse = arrived(initiator, responder), arrived(responder, initiator)
	}
	for _, r := range []*Rate{s.Forward, s.Reverse} {
		if r != nil {
			s.BytesPerSec += r.BytesPerSec
		}
	}
	return s
}

// arrived is the sender's rate, as far as the datagrams came.
func arrived(sender, receiver Outcome) *Rate {
	sent, got := sum(sender.Sent), sum(receiver.Received)
	if sender.Rate == nil || sent == 0 {
		return nil
	}
	r := *sender.Rate
	if got < sent {
		r.Lost = sent - got
		share := float64(got) / float64(sent)
		r.BytesPerSec *= share
		r.MessagesPerSec *= share
	}
	return &r
}

func sum(list []uint64) (total uint64) {
	for _, n := range list {
		total += n
	}
	return total
}

// MTU is the connection's: the plan's, or the smaller one of the ports', but
// never more than either port has active.
func MTU(p Plan, a, b Endpoint) int {
	mtu := min(a.MTUBytes, b.MTUBytes)
	if p.MTUBytes > 0 {
		mtu = min(mtu, p.MTUBytes)
	}
	return mtu
}

// Compatible says whether two opened ends can be connected.
func Compatible(p Plan, a, b Endpoint) error {
	switch {
	case a.LinkLayer != b.LinkLayer:
		return &Failure{Call: "connect", Cause: fmt.Sprintf("one port's link layer is %s, the other's %s", a.LinkLayer, b.LinkLayer)}
	case a.GIDIndex >= 0 && b.GIDIndex >= 0 && a.GIDType != b.GIDType:
		return &Failure{
			Call: "connect", Cause: fmt.Sprintf("one end's GID is %s, the other's %s", a.GIDType, b.GIDType),
			Check: "choose entries of one type with --gid-index on both ends",
		}
	case p.Route == RouteTCP && (a.Stream == nil) == (b.Stream == nil):
		return &Failure{Call: "connect", Cause: "one end, and only one, must wait for the data connection"}
	case p.Route == RouteTCP:
		return nil
	case len(a.QPs) != p.QPs || len(b.QPs) != p.QPs:
		return &Failure{Call: "connect", Cause: fmt.Sprintf("%d and %d QPs, want %d each", len(a.QPs), len(b.QPs), p.QPs)}
	case p.Transport == UD && p.SizesBytes[len(p.SizesBytes)-1] > MTU(p, a, b):
		return &Failure{
			Call: "connect", Cause: fmt.Sprintf("a datagram has at most the path's MTU of %d bytes", MTU(p, a, b)),
			Check: "take smaller sizes, or RC",
		}
	}
	return nil
}

// explain adds what the figures cover.
func (r *Result) explain(a, b *Endpoint) {
	p := &r.Plan
	if p.Route != RouteTCP {
		r.Scope = scope(*a, *b)
	}
	switch one, other := a.Memory.GPU, b.Memory.GPU; {
	case p.Measure != Latency:
	case p.Route == RouteDirect && (one != nil || other != nil):
		r.Notes = append(r.Notes, GPULatencyNote)
	case p.Route != RouteDirect && one != nil && other != nil && one.UUID != "" && one.UUID == other.UUID:
		r.Notes = append(r.Notes, SharedGPUNote)
	}
}

func scope(a, b Endpoint) string {
	if a.GID == b.GID && a.LID == b.LID && a.Device == b.Device && a.Port == b.Port {
		return "a loopback within one port: PCIe, memory and driver are measured, not cable and switch"
	}
	return ""
}

// AsFailure returns the *Failure in err, or one that holds its words.
func AsFailure(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Call: "gdrcheck", Cause: err.Error()}
}
