package worker

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

func kib(b uint64) string {
	if b == math.MaxUint64 {
		return "unlimited"
	}
	return strconv.FormatUint(b/1024, 10)
}

func hex16(n uint64) string { return fmt.Sprintf("%016x", n) }

// addTestAsks gives the test's worker a question whose subjects behave as they
// are called.
func addTestAsks() {
	asks["test"] = func(s *session, subjects []string) {
		s.expect(subjects)
		for _, name := range subjects {
			s.subject(name, func() fact.Record { return behave(s, name) })
		}
	}
	asks["test-dead"] = func(*session, []string) { os.Exit(9) }
	asks["test-silent"] = func(*session, []string) { time.Sleep(time.Hour) }
}

func behave(s *session, name string) fact.Record {
	what, _, _ := strings.Cut(name, " ")
	raw := func(text string) {
		_, _ = s.out.WriteString(text)
		s.flush()
	}
	switch what {
	case "hang":
		s.at("sleep")
		time.Sleep(time.Hour)
	case "panic":
		var p *int
		*p = 1
	case "exit":
		fmt.Fprint(os.Stderr, "first line\nlast \x1b[31mwords\n")
		os.Exit(5)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "garbage":
		raw("\xff\xfe{{{\n")
	case "truncated":
		raw(`{"record":{"subj`)
		os.Exit(0)
	case "other":
		raw(`{"record":{"subject":"never asked","state":"known"}}` + "\n")
	case "state":
		raw(`{"record":{"subject":"state","state":"splendid"}}` + "\n")
	case "empty":
		raw("{}\n")
	case "long":
		raw(strings.Repeat("y", maxLineBytes+1) + "\n")
	case "flood":
		for {
			raw(`{"at":"` + strings.Repeat("z", 1<<20) + `"}` + "\n")
		}
	case "fds":
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return failed(err)
		}
		var open []string
		for _, e := range list {
			target, _ := os.Readlink("/proc/self/fd/" + e.Name())
			open = append(open, e.Name()+" "+target)
		}
		return toRecord(fact.Of(open, "test"))
	case "closed":
		_ = syscall.Close(3)
		time.Sleep(time.Hour)
	}
	return toRecord(fact.Of(name, "test"))
}

// TestBadWorker: whatever a worker does costs the subject it did it with.
func TestBadWorker(t *testing.T) {
	tests := []struct{ what, reason string }{
		{"hang", "sleep: no answer within 2s"},
		{"panic", "panic: runtime error: invalid memory address"},
		{"exit", "the worker ended with exit status 5: first line; last  [31mwords"},
		{"killed", "the worker was ended by SIGKILL"},
		{"garbage", "unreadable answer"},
		{"truncated", "unexpected EOF"},
		{"other", `an answer for "never asked" that was not asked`},
		{"state", "unknown fact state"},
		{"empty", "an empty message"},
		{"long", "longer than"},
		{"flood", "more than 256 MiB"},
		{"closed", "the worker closed its answers and did not end"},
	}
	c := &Client{SubjectTimeout: 2 * time.Second} // a loaded machine takes its time over what does answer
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			c := *c
			if tt.what == "flood" || tt.what == "long" {
				c.SubjectTimeout, c.OverallTimeout = time.Minute, time.Minute // under the race detector
			}
			recs, err := c.Ask(t.Context(), "test", "before", tt.what, "after")
			if err != nil {
				t.Fatal(err)
			}
			check(t, recs, []outcome{
				{"before", fact.Known, ""}, {tt.what, fact.Failed, tt.reason}, {"after", fact.Known, ""},
			})
		})
	}
}

// TestEachHangs: every subject gets its turn, each in a new worker.
func TestEachHangs(t *testing.T) {
	c := &Client{SubjectTimeout: 2 * time.Second}
	recs, err := c.Ask(t.Context(), "test", "hang 1", "hang 2", "exit 3", "ok")
	if err != nil {
		t.Fatal(err)
	}
	check(t, recs, []outcome{
		{"hang 1", fact.Failed, "no answer"}, {"hang 2", fact.Failed, "no answer"},
		{"exit 3", fact.Failed, "exit status 5"}, {"ok", fact.Known, ""},
	})
}

func TestNoAnswerAtAll(t *testing.T) {
	for ask, want := range map[string]string{
		"nonsense": `no worker answers "nonsense"`, "test-dead": "exit status 9", "test-silent": "no answer within 300ms",
	} {
		c := &Client{}
		if ask == "test-silent" {
			c.GateTimeout = 300 * time.Millisecond
		}
		if _, err := c.Ask(t.Context(), ask); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", ask, err, want)
		}
	}
}

// TestParentDies: a worker whose stdin ends is gone soon, even from a hang.
func TestParentDies(t *testing.T) {
	p, err := start(request{Ask: "test", Args: []string{"hang"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	for {
		m, err := p.next(t.Context(), time.Now().Add(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if m.At == "sleep" {
			break
		}
	}
	_ = p.stdin.Close()
	if _, err := p.next(t.Context(), time.Now().Add(5*time.Second)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the worker's end", err)
	}
}

// TestInheritNothing: a file that our own parent left open for us stays with us.
func TestInheritNothing(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/inherited")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leaky, err := syscall.Dup(int(f.Fd())) // without FD_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leaky)
	closeOnExec()
	recs, err := new(Client).Ask(t.Context(), "test", "fds")
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	open := fact.Decode[[]string](recs[0]).V
	if len(open) < 4 {
		t.Errorf("open in the worker: %q, want at least fd 0 to 3", open)
	}
	for _, o := range open {
		if strings.Contains(o, "inherited") {
			t.Errorf("the worker has %s open", o)
		}
	}
}

func TestEnvironment(t *testing.T) {
	got := environment([]string{"A=1", "LD_PRELOAD=x.so", "CUDA_VISIBLE_DEVICES=", "LD_LIBRARY_PATH=/l", "CUDA_DEVICE_ORDER=x"})
	want := []string{"A=1", "LD_LIBRARY_PATH=/l", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// FuzzTake feeds the parent's half of the protocol what no worker should send.
func FuzzTake(f *testing.F) {
	f.Add([]byte(`{"start":"a","gate":true}`))
	f.Add([]byte(`{"record":{"subject":"a","state":"known","data":1}}`))
	f.Add([]byte(`{"subjects":["a","a"]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Skip()
		}
		defer r.Close()
		go func() { _, _ = w.Write(line); _ = w.Close() }()
		p := newReader(r)
		q := &question{client: &Client{}, answered: map[string]bool{}}
		for {
			m, err := p.next(t.Context(), time.Now().Add(time.Second))
			if err != nil {
				break
			}
			if q.take(m) != nil {
				break
			}
		}
		q.giveUp("over")
		seen := map[string]bool{}
		for _, r := range q.records {
			if r.Subject == "" || seen[r.Subject] {
				t.Errorf("subject %q twice, or none", r.Subject)
			}
			seen[r.Subject] = true
		}
	})
}
