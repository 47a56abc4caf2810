package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// askPerf makes a worker one end of a measurement: it takes a perfCommand a
// line until its stdin ends, and answers each by perfReplies, of which the last
// one is Done.
const askPerf = "perf"

type perfCommand struct {
	Do    string             `json:"do"` // open, connect, prepare, run, verify, events
	Plan  *perftest.Plan     `json:"plan,omitempty"`
	Local *perftest.Local    `json:"local,omitempty"`
	Side  perftest.Side      `json:"side,omitempty"`
	Peer  *perftest.Endpoint `json:"peer,omitempty"`
	Size  int                `json:"size,omitempty"`
	// Outcome is the peer's, to verify against.
	Outcome *perftest.Outcome `json:"outcome,omitempty"`
}

type perfReply struct {
	Endpoint *perftest.Endpoint  `json:"endpoint,omitempty"`
	Outcome  *perftest.Outcome   `json:"outcome,omitempty"`
	Data     *perftest.DataCheck `json:"data,omitempty"`
	// What was reported since the reply before.
	perftest.Reported
	// Completed is sent while a run is under way.
	Completed *uint64           `json:"completed,omitempty"`
	Failure   *perftest.Failure `json:"failure,omitempty"`
	Done      bool              `json:"done,omitempty"`
}

// Time limits of what a driver can hang in. A run has none of its own: what
// must not stop for long is its progress.
const (
	openLimit     = 60 * time.Second  // bringing a device up, registering gigabytes
	memoryLimit   = 120 * time.Second // filling and comparing gigabytes
	eventsLimit   = 200 * time.Millisecond
	progressEvery = 200 * time.Millisecond
	runGrace      = 10 * time.Second // beyond the plan's idle limit, with which a run ends itself
)

// Perf is one end of a measurement in a worker of its own, which owns memory
// and queue pairs: killed, it leaves nothing behind. The zero value is ready.
// It implements perftest.Engine.
type Perf struct {
	p     *process
	plan  perftest.Plan
	local perftest.Local
	gone  *perftest.Failure // how the worker ended by itself; nil: it did not

	reported perftest.Reported
}

var _ perftest.Engine = (*Perf)(nil)

// Open implements perftest.Engine.
func (e *Perf) Open(ctx context.Context, p perftest.Plan, l perftest.Local, side perftest.Side) (perftest.Endpoint, error) {
	if e.p != nil {
		return perftest.Endpoint{}, errors.New("the engine is open")
	}
	if err := p.Validate(); err != nil {
		return perftest.Endpoint{}, err
	}
	var err error
	if e.p, err = start(request{Ask: askPerf}); err != nil {
		return perftest.Endpoint{}, notStarted(err)
	}
	e.plan, e.local = p, l
	r, err := e.do(ctx, perfCommand{Do: "open", Plan: &p, Local: &l, Side: side}, e.atMost(openLimit), nil)
	if err != nil {
		return perftest.Endpoint{}, err
	}
	if r.Endpoint == nil {
		return perftest.Endpoint{}, errNoAnswer
	}
	return *r.Endpoint, nil
}

// notStarted says which limit of this very process keeps it from starting a worker:
// it is no fault of what was to be measured.
func notStarted(err error) error {
	errno := syscall.Errno(0)
	_ = errors.As(err, &errno) // 0: no system call's
	return &perftest.Failure{Call: perftest.CallStart, Errno: int(errno), Cause: err.Error(), Check: raises[errno]}
}

// raises says what raises the limit that a call's error stands for.
var raises = map[syscall.Errno]string{
	syscall.EMFILE: "let gdrcheck open more files: ulimit -n 4096, or LimitNOFILE= of its unit",
	syscall.ENFILE: "let this node open more files: sysctl fs.file-max",
	syscall.EAGAIN: "let this user have more processes: ulimit -u 4096, or TasksMax= of the unit, pids.max of the container",
	syscall.ENOMEM: "let gdrcheck have more memory: ulimit -v unlimited, or memory.max of the container",
}

var errNoAnswer = errors.New("the worker's answer lacks what was asked for")

// Connect implements perftest.Engine.
func (e *Perf) Connect(ctx context.Context, peer perftest.Endpoint) error {
	_, err := e.do(ctx, perfCommand{Do: "connect", Peer: &peer}, e.atMost(openLimit), nil)
	return err
}

// Prepare implements perftest.Engine.
func (e *Perf) Prepare(ctx context.Context, size int) error {
	_, err := e.do(ctx, perfCommand{Do: "prepare", Size: size}, e.atMost(memoryLimit), nil)
	return err
}

// Run implements perftest.Engine.
func (e *Perf) Run(ctx context.Context, size int, progress func(perftest.Progress)) (perftest.Outcome, error) {
	began, last := time.Now(), uint64(0)
	since := began
	tell := func(completed uint64) {
		now := time.Now()
		if progress != nil {
			progress(e.progress(size, completed, completed-last, now.Sub(since), now.Sub(began)))
		}
		last, since = completed, now
	}
	r, err := e.do(ctx, perfCommand{Do: "run", Size: size}, time.Duration(e.plan.IdleNs)+e.atMost(runGrace), tell)
	if err != nil {
		return perftest.Outcome{}, err
	}
	if r.Outcome == nil {
		return perftest.Outcome{}, errNoAnswer
	}
	return *r.Outcome, nil
}

func (e *Perf) progress(size int, completed, more uint64, during, all time.Duration) perftest.Progress {
	p := perftest.Progress{SizeBytes: size, Messages: completed}
	if e.plan.Measure == perftest.Bandwidth && during > 0 {
		p.BytesPerSec = float64(more) * float64(size) / during.Seconds()
	}
	if e.plan.DurationNs > 0 {
		p.Done = float64(all) / float64(e.plan.DurationNs)
	} else {
		p.Done = float64(completed) / float64((e.plan.Messages+e.plan.WarmUp)*e.plan.QPs)
	}
	p.Done = min(p.Done, 1)
	return p
}

// Verify implements perftest.Engine.
func (e *Perf) Verify(ctx context.Context, size int, peer perftest.Outcome) (*perftest.DataCheck, error) {
	r, err := e.do(ctx, perfCommand{Do: "verify", Size: size, Outcome: &peer}, e.atMost(memoryLimit), nil)
	return r.Data, err
}

// Events implements perftest.Engine.
func (e *Perf) Events(ctx context.Context) perftest.Reported {
	if e.p != nil && e.gone == nil { // one that hangs, or is gone, has told what it could
		_, _ = e.do(ctx, perfCommand{Do: "events"}, eventsLimit, nil)
	}
	if e.gone != nil {
		e.reported.Lost(e.gone)
	}
	return e.reported
}

// Close implements perftest.Engine.
func (e *Perf) Close() error {
	if e.p != nil {
		e.p.kill()
		e.p = nil
	}
	return nil
}

// atMost is a limit, or what whoever asked allows each step where that is less.
func (e *Perf) atMost(limit time.Duration) time.Duration {
	if e.plan.StepNs > 0 {
		return min(limit, time.Duration(e.plan.StepNs))
	}
	return limit
}

// do sends a command and reads replies up to the last one. With tell, limit
// holds from one change of the progress to the next.
func (e *Perf) do(ctx context.Context, c perfCommand, limit time.Duration, tell func(uint64)) (perfReply, error) {
	if e.p == nil {
		return perfReply{}, errors.New("the engine is not open")
	}
	line, err := json.Marshal(c)
	if err != nil {
		return perfReply{}, err
	}
	p := e.p // Close, which may come meanwhile, forgets it
	stop := context.AfterFunc(ctx, func() { _ = p.answers.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// In a goroutine: a worker that does not read would block us.
	go func() {
		<-p.requested
		_, _ = p.stdin.Write(append(line, '\n'))
	}()
	var completed uint64
	deadline := time.Now().Add(limit)
	for {
		var r perfReply
		if err := p.nextInto(ctx, deadline, &r); err != nil {
			return perfReply{}, e.lost(ctx, c.Do, limit, err)
		}
		e.reported.Join(r.Reported)
		switch {
		case r.Failure != nil:
			return perfReply{}, r.Failure
		case r.Done:
			return r, nil
		case r.Completed != nil && tell != nil:
			if *r.Completed != completed {
				completed, deadline = *r.Completed, time.Now().Add(limit)
			}
			tell(completed)
		}
	}
}

// lost says how the worker was lost, and at what: at the call that it was in, or in
// step after the last one. It is of no more use.
func (e *Perf) lost(ctx context.Context, step string, limit time.Duration, err error) error {
	call, through := e.p.call()
	f := &perftest.Failure{Call: step, Subject: e.local.Device, Cause: oneLine(err.Error())}
	switch {
	case ctx.Err() != nil && (call == "" || through):
		return context.Cause(ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("%w, in %s", context.Cause(ctx), call)
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.Cause = fmt.Sprintf("no answer from the driver within %s", limit)
		f.Check = "look at the kernel log"
		if e.plan.StepNs > 0 {
			f.Check += ", or wait longer (--idle)"
		}
	case errors.Is(err, io.EOF):
		if e.gone != nil {
			return e.gone
		}
		f.Cause, e.gone = e.p.ending(), f
	}
	switch {
	case through && call != "":
		f.Cause += "; the last call before was " + call
	case call != "":
		f.Call = call
		f.Subject = e.local.Subject(call)
	}
	return f
}
