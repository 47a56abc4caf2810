package rdma

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// served holds the files that a driver or its firmware answers and that so may
// hang: they are asked for in one question, and a file that hangs costs itself.
type served struct {
	paths   []string
	answers map[string]fact.Record
	err     error
}

func (s *served) want(dir string, names ...string) {
	for _, n := range names {
		s.paths = append(s.paths, dir+"/"+n)
	}
}

func (s *served) ask(ctx context.Context, src fact.Source) {
	if len(s.paths) == 0 {
		return
	}
	var recs []fact.Record
	recs, s.err = src.Ask(ctx, fact.AskFiles, s.paths...)
	s.answers = make(map[string]fact.Record, len(recs))
	for _, r := range recs {
		s.answers[r.Subject] = r
	}
}

// data returns a file's bytes; the source is its name below dir.
func (s *served) data(dir, name string) fact.Value[[]byte] {
	r, ok := s.answers[dir+"/"+name]
	switch {
	case ok:
		v := fact.Decode[[]byte](r)
		v.Source = name
		return v
	case s.err != nil:
		return fact.FromError[[]byte](s.err, name)
	}
	return fact.Missing[[]byte](fact.NotCollected, name, "no answer")
}

// text returns a file's text without trailing white space.
func (s *served) text(dir, name string) fact.Value[string] {
	return fact.Map(s.data(dir, name), func(b []byte) (string, error) {
		return strings.TrimRight(string(b), " \t\r\n\x00"), nil
	})
}

// counter reads one counter file. EINVAL is how drivers say that they do not
// keep a counter which the core lists.
func (s *served) counter(dir, name string) fact.Value[uint64] {
	v := s.text(dir, name)
	if v.State == fact.Failed && v.Errno == syscall.EINVAL {
		v.State = fact.Unsupported
	}
	if strings.HasPrefix(v.V, "N/A") {
		return fact.Missing[uint64](fact.Unsupported, name, fmt.Sprintf("%v: %s", errNoCounter, v.V))
	}
	return fact.Map(v, ParseCounter)
}
