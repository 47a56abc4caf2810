package perftest

import (
	"context"
	"fmt"
	"time"

	"github.com/gdrcheck/gdrcheck/rdma"
)

// End is what a server or a client needs of the program around it.
type End struct {
	// NewEngine makes the engine of one test.
	NewEngine func() Engine
	// Counters reads the counters of a port and its NIC; nil: nothing does.
	Counters func(ctx context.Context, l Local) []rdma.Counter
	// Limits says what a port and its path to memory carry; nil: nothing does.
	Limits func(ctx context.Context, l Local) Limits
	// Load reads a GPU while its memory is measured; nil: nothing does.
	Load func(ctx context.Context, l Local) *GPULoad
	// Rails lists the ports that can be measured on; nil: nobody is told.
	Rails func(ctx context.Context) ([]Rail, error)
	// Version is the program's, for the other side.
	Version string
	// Simulated: the engine is a test double. The results say so.
	Simulated bool
	Timing    Timing
}

// network is a test's Channel over the control connection.
type network struct {
	link *link
	id   uint64
	plan *Plan
}

// Exchange implements Channel. Ours goes out even when ctx has ended, since
// the other end waits for it.
func (n *network) Exchange(ctx context.Context, ours Message) (Message, error) {
	if err := n.link.send(message{Step: &step{ID: n.id, Message: ours}}); err != nil {
		return Message{}, err
	}
	// Once for the other end to give its engine up, once for the word of it to come.
	limit := n.link.timing.Step + 2*n.link.timing.Grace
	if ours.Stage == StageRan {
		limit = n.link.timing.run(n.plan) + 2*n.link.timing.Grace
	}
	m, err := n.link.receive(ctx, limit, fmt.Sprintf("its word of being %s", ours.Stage), func(m *message) bool {
		return m.Step != nil && m.Step.ID == n.id
	})
	if err != nil {
		return Message{}, err
	}
	return m.Step.Message, m.Step.fits(n.plan)
}

// peerFailed is why a run of this end is stopped when the other end's failed.
type peerFailed struct{ told *Message }

func (e *peerFailed) Error() string { return "the other end failed: " + e.told.Failure.Error() }

// runTest takes this end through one test that both ends have agreed on. The
// error is one of the session, which cannot go on; how the test itself came
// out is in the result. Whatever happens, the engine has been closed.
func (e *End) runTest(c *link, id uint64, side Side, p Plan, l Local, before []rdma.Counter, progress func(Progress)) (*Result, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	notify := func(m *Message) {
		// The other end's word may cross with the end of ours.
		time.AfterFunc(c.timing.Farewell, func() { cancel(&peerFailed{m}) })
	}
	c.failed.Store(&notify)
	defer c.failed.Store(nil)

	engine := guard(e.NewEngine(), &p, c.timing)
	defer engine.Close()
	stop := e.watchLoad(ctx, l)
	result, err := Run(ctx, engine, side, p, l, &network{link: c, id: id, plan: &p}, progress)
	load := stop()
	_ = engine.Close() // before anything else is waited for: no remote key outlives its test
	c.over.Store(id)
	if failed, ok := context.Cause(ctx).(*peerFailed); ok && err != nil { //nolint:errorlint // a cause is never wrapped
		result.Failure, result.Faulty, result.FailedAt, err = failed.told.Failure, side.other(), failed.told.Stage, nil
	}
	if cause := context.Cause(c.ctx); cause != nil {
		return result, cause
	}
	if err != nil {
		return result, err
	}
	ours := e.compare(c.ctx, l, before)
	limits := e.limits(c.ctx, l)
	reported := result.Reported // this end's: the other's are not there yet
	if err := c.send(message{Finished: &finished{ID: id, Counters: ours, Limits: limits, Load: load, Reported: reported}}); err != nil {
		return result, err
	}
	m, err := c.receive(c.ctx, c.timing.Step+c.timing.Grace, "its counters", func(m *message) bool {
		return m.Finished != nil && m.Finished.ID == id
	})
	if err != nil {
		return result, err
	}
	result.Join(m.Finished.of(side.other()))
	result.blameLost()
	result.Counters = map[Side]SideCounters{side: ours, side.other(): m.Finished.Counters}
	if side == Initiator {
		result.SetLimits(limits, m.Finished.Limits)
	} else {
		result.SetLimits(m.Finished.Limits, limits)
	}
	result.setLoad(side, load)
	result.setLoad(side.other(), m.Finished.Load)
	return result, nil
}

func (e *End) limits(ctx context.Context, l Local) Limits {
	const unknown = "not looked at"
	if e.Limits == nil {
		return Limits{PCIeReason: unknown}
	}
	t := e.Timing.withDefaults()
	limits, err := bounded(ctx, "looking at the path", t.Step, t.Grace, func(ctx context.Context) (Limits, error) {
		return e.Limits(ctx, l), nil
	})
	if err != nil {
		return Limits{PCIeReason: err.Error()}
	}
	return limits
}

func (e *End) readCounters(ctx context.Context, l Local, t Timing) []rdma.Counter {
	if e.Counters == nil {
		return nil
	}
	list, err := bounded(ctx, "reading the counters", t.Step, t.Grace, func(ctx context.Context) ([]rdma.Counter, error) {
		return e.Counters(ctx, l), nil
	})
	if err != nil {
		return nil
	}
	return list
}

func (e *End) compare(ctx context.Context, l Local, before []rdma.Counter) SideCounters {
	if e.Counters == nil {
		return SideCounters{Reason: "counters were not read"}
	}
	return CompareCounters(before, e.readCounters(ctx, l, e.Timing.withDefaults()))
}
