package perftest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// seat is what a server serves one client on: one session, or several at the
// same time if they name the same group, which the client made up.
type seat struct {
	mu       sync.Mutex
	group    string
	sessions int
	free     chan struct{} // closed when nobody has the seat any more
	memory   int64         // bytes that running tests may register
	places   []bool        // CPUs that running tests have, by order of choice
	tests    int           // of whoever has the seat
	err      error         // how the first session that broke off did
}

func newSeat() *seat { return &seat{free: make(chan struct{})} }

// take waits for the seat, at most for the time given.
func (s *seat) take(ctx context.Context, group string, limit time.Duration) bool {
	patience := time.NewTimer(limit)
	defer patience.Stop()
	for {
		s.mu.Lock()
		if ctx.Err() != nil { // both at once: the seat is free, and nobody is to have it
			s.mu.Unlock()
			return false
		}
		if s.sessions == 0 || group != "" && group == s.group && s.sessions < MaxRails {
			s.group = group
			s.sessions++
			s.mu.Unlock()
			return true
		}
		free := s.free
		s.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return false
		case <-patience.C:
			return false
		}
	}
}

// leave ends a session of the group, which err broke off, if any. After the last one,
// and before anybody else gets the seat, over is called with the number of the group's
// tests and its first error.
func (s *seat) leave(err error, over func(tests int, first error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if s.sessions--; s.sessions > 0 {
		return
	}
	over(s.tests, s.err)
	s.group, s.tests, s.err = "", 0, nil
	close(s.free)
	s.free = make(chan struct{})
}

var errNoMemoryLeft = errors.New("tests that run at the same time need more memory than the server gives")

// begin takes memory and a place for a test; end, which may be called again,
// gives both back.
func (s *seat) begin(bytes, most int64) (place int, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory+bytes > most {
		return 0, nil, fmt.Errorf("%w, %d bytes: take a smaller footprint", errNoMemoryLeft, most)
	}
	s.memory += bytes
	s.tests++
	for place < len(s.places) && s.places[place] {
		place++
	}
	if place == len(s.places) {
		s.places = append(s.places, false)
	}
	s.places[place] = true
	return place, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.memory -= bytes
		s.places[place] = false
	}), nil
}

// leased is an engine with whose end its share of the seat is free: the client,
// once told that the test is over, may ask for the next at once.
type leased struct {
	Engine
	end func()
}

// Close implements Engine.
func (l *leased) Close() error {
	defer l.end()
	return l.Engine.Close()
}
