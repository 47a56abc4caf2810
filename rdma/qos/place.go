package qos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// places reads settings out of files that a driver or its firmware serves: what
// is wanted is noted first, then asked for in one question.
type places struct {
	names   []string
	noted   map[string]bool
	answers map[string]fact.Value[string]
}

func (s *places) want(names ...string) {
	for _, n := range names {
		if n != "" && !s.noted[n] {
			if s.noted == nil {
				s.noted = map[string]bool{}
			}
			s.noted[n] = true
			s.names = append(s.names, n)
		}
	}
}

func (s *places) ask(ctx context.Context, src fact.Source) {
	s.answers = make(map[string]fact.Value[string], len(s.names))
	if len(s.names) == 0 {
		return
	}
	recs, err := src.Ask(ctx, fact.AskFiles, s.names...)
	for _, r := range recs {
		v := fact.Decode[[]byte](r)
		v.Source = r.Subject
		s.answers[r.Subject] = fact.As(v, strings.TrimSpace(string(v.V)))
	}
	for _, n := range s.names {
		if _, ok := s.answers[n]; ok {
			continue
		}
		if err == nil {
			err = fmt.Errorf("no answer: %w", fact.ErrNotCollected)
		}
		s.answers[n] = fact.FromError[string](err, n)
	}
}

// text is a file's content; EINVAL and EOPNOTSUPP from a file that is there are
// a driver's way to say that it has no such setting.
func (s *places) text(name string) fact.Value[string] {
	v := s.answers[name]
	if v.State == fact.Failed && v.Errno == syscall.EINVAL {
		v.State = fact.Unsupported
	}
	return v
}

// number is the first of the places that is there, a number of 0 to limit.
func (s *places) number(names []string, limit int, unseen string) fact.Value[int] {
	return firstPlace(names, unseen, func(name string) fact.Value[int] {
		return fact.Map(s.text(name), func(t string) (int, error) { return parseNumber(t, limit) })
	})
}

// priorities is the first of the places that is there: a file for each priority
// where the name has {prio}, else one switch for all.
func (s *places) priorities(names []string, unseen string) fact.Value[Priorities] {
	return firstPlace(names, unseen, func(name string) fact.Value[Priorities] {
		if !strings.Contains(name, prioMark) {
			return fact.Map(s.text(name), func(t string) (Priorities, error) {
				on, err := parseSwitch(t)
				if on {
					return 1<<PriorityCount - 1, err
				}
				return 0, err
			})
		}
		var set Priorities
		for i, file := range eachPriority(name) {
			on := fact.Map(s.text(file), parseSwitch)
			if on.State != fact.Known {
				return fact.As(on, Priorities(0))
			}
			if on.V {
				set |= 1 << i
			}
		}
		return fact.Of(set, strings.TrimSuffix(name, "/"+prioMark))
	})
}

const prioMark = "{prio}"

func eachPriority(name string) []string {
	out := make([]string, PriorityCount)
	for i := range out {
		out[i] = strings.ReplaceAll(name, prioMark, strconv.Itoa(i))
	}
	return out
}

// firstPlace takes the first place that is Known. Where none is, one that is
// there but could not be read counts, since it may hold the answer; where none
// is there at all, nobody can tell.
func firstPlace[T any](names []string, unseen string, read func(string) fact.Value[T]) fact.Value[T] {
	out := fact.Missing[T](fact.Unsupported, "", unseen)
	there := false
	for _, name := range names {
		v := read(name)
		switch {
		case v.State == fact.Known:
			return v
		case v.State != fact.Absent && !there:
			out, there = v, true
		}
	}
	if !there && len(names) > 0 {
		out.Source = strings.Join(names, " or ")
	}
	return out
}

func parseNumber(s string, limit int) (int, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil || int(n) > limit {
		return 0, fmt.Errorf("%q: want a number of 0 to %d", s, limit)
	}
	return int(n), nil
}

// parseSwitch reads 0 and 1 of sysfs, 0x1 of Broadcom's configfs, and Y and N of
// module parameters.
func parseSwitch(s string) (bool, error) {
	switch s {
	case "0", "0x0", "N":
		return false, nil
	case "1", "0x1", "Y":
		return true, nil
	}
	return false, fmt.Errorf("%q: want 0 or 1", s)
}
