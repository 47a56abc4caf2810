package verbs

/*
#include "session.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// noEvents is said of an end whose libibverbs lacks what tells of events.
const noEvents = "this libibverbs has no ibv_get_async_event: what port and device report during a run is not seen"

// eventGrace is how much later than a failed completion its cause may be told of.
const eventGrace = 50 * time.Millisecond

// watch collects what device, port and queue pairs report, until close. It has a
// thread of its own, which sleeps meanwhile.
type watch struct {
	s     *Session
	stop  int
	ended chan struct{}

	mu    sync.Mutex
	since uint64 // CLOCK_MONOTONIC: when the run under way, or the watch, began
	size  int    // of the run
	told  perftest.Reported
	ofRun []perftest.AsyncEvent // since the last run began
}

// watch starts watching; nil: nothing tells of events.
func (s *Session) watch() (*watch, error) {
	if C.gdr_can_watch(s.s) == 0 {
		return nil, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, perftest.CallFailure("eventfd", s.local.Device, err.(unix.Errno)) //nolint:errorlint,forcetypeassert // a system call's own
	}
	w := &watch{s: s, stop: fd, ended: make(chan struct{}), since: uint64(C.gdr_now_ns())}
	go func() {
		defer close(w.ended)
		for more := true; more && C.gdr_wait_event(s.s, C.int(fd)) != 0; {
			more = w.drain()
		}
	}()
	return w, nil
}

// drain takes the events that are there; false: no other will come.
func (w *watch) drain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.take()
}

// take is drain. w.mu is held: who holds it misses none that has been read.
func (w *watch) take() bool {
	const most = 1024 // at a time: a flood must not hold up the rest
	for range most {
		var e C.struct_gdr_event
		if rc := C.gdr_take_event(w.s.s, &e); rc <= 0 {
			return rc == 0
		}
		w.note(&e)
	}
	return true
}

func (w *watch) note(e *C.struct_gdr_event) {
	subject := w.s.local.Device
	switch {
	case e.port > 0:
		subject += fmt.Sprintf("/%d", e.port)
	case e.qp >= 0:
		subject += fmt.Sprintf(" QP %d", e.qp)
	}
	at := time.Duration(max(uint64(e.ns), w.since) - w.since)
	event := perftest.NewAsyncEvent(int(e._type), subject, w.size, at)
	w.told.Add(event)
	if len(w.ofRun) < perftest.MaxAsyncEvents {
		w.ofRun = append(w.ofRun, event)
	}
}

// prepared says that this end is ready for the run of a size. The other end's may
// begin before this one's.
func (w *watch) prepared(size int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.take() // of before
	w.since, w.size, w.ofRun = uint64(C.gdr_now_ns()), size, nil
}

// begin says that the run begins.
func (w *watch) begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.take()
	w.since = uint64(C.gdr_now_ns())
}

// ofFailedRun are the events of the last run, which has failed.
func (w *watch) ofFailedRun() []perftest.AsyncEvent {
	if w == nil {
		return nil
	}
	time.Sleep(eventGrace)
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.take()
	return w.ofRun
}

func (w *watch) close() {
	if w == nil {
		return
	}
	_, _ = unix.Write(w.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	<-w.ended
	_ = unix.Close(w.stop)
}

// Events are what device, port and queue pairs have reported since it was called
// last; it may be called from any thread until Close.
func (s *Session) Events() perftest.Reported {
	w := s.events
	if w == nil {
		return perftest.Reported{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.take()
	out := w.told
	w.told = perftest.Reported{}
	return out
}
