package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// blind cannot read files of one kind, and notes the kinds that it is asked for.
type blind struct {
	fact.Source
	kind string
	err  error

	mu    sync.Mutex
	kinds map[string]bool
}

var digits = regexp.MustCompile(`[0-9a-f]{4,}:[0-9a-f]{2}(:[0-9a-f]{2}\.[0-7])?|[0-9]+`)

func (b *blind) see(op, name string) error {
	kind := op + " " + digits.ReplaceAllString(name, "N")
	b.mu.Lock()
	b.kinds[kind] = true
	b.mu.Unlock()
	if kind == b.kind {
		return &fs.PathError{Op: op, Path: name, Err: b.err}
	}
	return nil
}

func (b *blind) ReadFile(name string) ([]byte, error) {
	if err := b.see("file", name); err != nil {
		return nil, err
	}
	return b.Source.ReadFile(name)
}

func (b *blind) ReadDir(name string) ([]fact.Entry, error) {
	if err := b.see("dir", name); err != nil {
		return nil, err
	}
	return b.Source.ReadDir(name)
}

func (b *blind) Readlink(name string) (string, error) {
	if err := b.see("link", name); err != nil {
		return "", err
	}
	return b.Source.Readlink(name)
}

func (b *blind) Stat(name string) (fact.Info, error) {
	if err := b.see("stat", name); err != nil {
		return fact.Info{}, err
	}
	return b.Source.Stat(name)
}

func (b *blind) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	recs, err := b.Source.Ask(ctx, name, args...)
	for i, r := range recs {
		if err := b.see("ask", name+" "+r.Subject); err != nil {
			recs[i] = fact.ContentRecord(r.Subject, nil, err)
		}
	}
	return recs, err
}

// Whatever kind of file is withheld, nothing that failed passes, the node does
// not become ready, and what passed does not fail: it cannot be told.
func TestUnseenNeverPasses(t *testing.T) {
	rec, err := fact.OpenRecording(bytes.NewReader(exampleRecording))
	if err != nil {
		t.Fatal(err)
	}
	judge := func(kind string, err error) (*blind, map[string]checks.Verdict, int) {
		b := &blind{Source: rec, kind: kind, err: err, kinds: map[string]bool{}}
		opt := collect.All()
		opt.AskNVIDIA, opt.Origin = true, "live"
		out, err := checks.Run(collect.Machine(t.Context(), b, opt), checks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]checks.Verdict{}
		for _, f := range out.Findings {
			got[f.Check+" "+f.Subject] = f.Verdict
		}
		return b, got, out.ExitCode
	}
	whole, want, exit := judge("", nil)
	if exit != 1 || len(want) < 100 || len(whole.kinds) < 150 {
		t.Fatalf("exit code %d, %d findings, %d kinds of files", exit, len(want), len(whole.kinds))
	}
	for _, kind := range slices.Sorted(maps.Keys(whole.kinds)) {
		for _, cause := range []error{syscall.EACCES, syscall.EIO, fact.ErrNotCollected, syscall.ENOENT} {
			_, got, exit := judge(kind, cause)
			if exit == 0 {
				t.Errorf("%s: %v: the node is ready", kind, cause)
			}
			for subject, was := range want {
				switch now := got[subject]; {
				case (was == checks.Fail || was == checks.Warn || was == checks.Unknown) && now == checks.Pass:
					t.Errorf("%s: %v: %s: %s becomes %s", kind, cause, subject, was, now)
				case was == checks.Pass && now == checks.Fail && !errors.Is(cause, syscall.ENOENT) && !strings.HasPrefix(kind, "ask limits") &&
					// A device that may not be opened is one that jobs cannot use.
					(!strings.HasPrefix(kind, "ask verbs") || !errors.Is(cause, syscall.EACCES)):
					t.Errorf("%s: %v: %s: %s becomes %s", kind, cause, subject, was, now)
				}
			}
		}
	}
}
