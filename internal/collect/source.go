package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

// source puts questions early: startAsks begins those that take long before
// anybody has come to need the answer, and whoever asks then joins in. It
// leaves out questions that the options do not want, and notes test doubles.
type source struct {
	fact.Source
	leaveOut []string

	mu     sync.Mutex
	early  map[string]*question
	double bool
}

// question is one that was put, or is under way.
type question struct {
	done chan struct{}
	recs []fact.Record
	err  error
}

func newSource(src fact.Source, opt Options) *source {
	s := &source{Source: src, early: map[string]*question{}}
	if !opt.NeedLimits {
		s.leaveOut = append(s.leaveOut, fact.AskLimits)
	}
	if !opt.NeedSymbols {
		s.leaveOut = append(s.leaveOut, fact.AskSymbols)
	}
	if !opt.NeedNames {
		s.leaveOut = append(s.leaveOut, fact.AskGHW)
	}
	if !opt.NeedLog {
		s.leaveOut = append(s.leaveOut, fact.AskKernelLog)
	}
	if !opt.NeedVerbs {
		s.leaveOut = append(s.leaveOut, fact.AskVerbs, fact.AskRDMAMap)
	}
	return s
}

// startAsks puts the questions that need nothing else first. NVIDIA's libraries
// are among them only where the driver is loaded: without it, the PCI tree
// tells whether they are worth asking.
func (s *source) startAsks(ctx context.Context, opt Options) {
	if opt.NeedLimits {
		s.start(ctx, fact.AskLimits)
	}
	if opt.NeedNames {
		s.start(ctx, fact.AskGHW)
	}
	if opt.NeedLog {
		s.start(ctx, fact.AskKernelLog)
	}
	loaded, _ := part(ctx, nil, "driver", func() bool {
		_, err := s.Stat("/proc/driver/nvidia")
		return err == nil
	})
	if !loaded && !opt.AskNVIDIA {
		return
	}
	if opt.Brief {
		s.start(ctx, fact.AskNVML, gpu.Brief)
	} else {
		s.start(ctx, fact.AskNVML)
	}
	if opt.NeedCUDA {
		s.start(ctx, fact.AskCUDA)
	}
}

func key(name string, args []string) string {
	b, _ := json.Marshal(append([]string{name}, args...)) // strings always marshal
	return string(b)
}

func (s *source) start(ctx context.Context, name string, args ...string) {
	q := &question{done: make(chan struct{})}
	s.early[key(name, args)] = q
	go func() {
		defer close(q.done)
		defer func() {
			if p := recover(); p != nil {
				q.recs, q.err = nil, fmt.Errorf("asking %s: panic: %v", name, p)
			}
		}()
		q.recs, q.err = s.Source.Ask(ctx, name, args...)
	}()
}

// Ask implements fact.Source.
func (s *source) Ask(ctx context.Context, name string, args ...string) (recs []fact.Record, err error) {
	if slices.Contains(s.leaveOut, name) {
		return nil, fmt.Errorf("not needed for this command: %w", fact.ErrNotCollected)
	}
	if q := s.early[key(name, args)]; q != nil {
		<-q.done
		recs, err = slices.Clone(q.recs), q.err
	} else {
		recs, err = s.Source.Ask(ctx, name, args...)
	}
	s.note(recs)
	return recs, err
}

func (s *source) note(recs []fact.Record) {
	if slices.ContainsFunc(recs, func(r fact.Record) bool { return r.Subject == gpu.SubjectDouble }) {
		s.mu.Lock()
		s.double = true
		s.mu.Unlock()
	}
}

// simulated says whether a test double answered any question.
func (s *source) simulated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.double
}
