package verbs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// provider builds the test double that moves data by memcpy.
var provider = sync.OnceValues(func() (string, error) {
	out := filepath.Join("testdata", "provider.so")
	if len(realGPUs) > 0 {
		return filepath.Abs(out) // such a machine may lack the headers; it was built before
	}
	if err := buildProvider(out, "testdata/provider.map"); err != nil {
		return "", err
	}
	return filepath.Abs(out)
})

func buildProvider(out, versions string) error {
	parts, err := filepath.Glob("testdata/provider*.c")
	if err != nil {
		return err
	}
	cmd := exec.Command("cc", append([]string{"-shared", "-fPIC", "-O1", "-o", out, "-Wl,--version-script=" + versions}, parts...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cc: %w\n%s", err, b)
	}
	return nil
}

// olderProvider is the double as an older libibverbs, without some functions.
func olderProvider(t *testing.T, without ...string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/provider.map")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, name := range without {
		if !strings.Contains(text, name+";") {
			t.Fatalf("the double has no %s", name)
		}
		text = strings.ReplaceAll(text, name+";", "absent_"+name+";")
	}
	versions, out := filepath.Join(t.TempDir(), "older.map"), filepath.Join(t.TempDir(), "older.so")
	if err := os.WriteFile(versions, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := buildProvider(out, versions); err != nil {
		t.Fatal(err)
	}
	return out
}

// direct is an engine in the test's own process. Its calls come from one
// goroutine, which the test locks to its thread.
type direct struct {
	library string
	cuda    string // stands for libcuda; empty: the system's own
	s       *Session
	own     perftest.Outcome
}

func (d *direct) Open(_ context.Context, p perftest.Plan, l perftest.Local, side perftest.Side) (e perftest.Endpoint, err error) {
	runtime.LockOSThread()
	kind := mem.HostKind(l.NUMANode)
	if perftest.OnGPU(l.Memory) {
		if kind, err = mem.Open(l.Memory, d.cuda, l.GPU.Addr.String()); err != nil {
			return e, err
		}
	}
	d.s, e, err = Open(d.library, Memory{Ops: kind.Ops, Device: kind.Device}, p, l, side)
	return e, err
}

func (d *direct) Connect(_ context.Context, peer perftest.Endpoint) error { return d.s.Connect(peer) }
func (d *direct) Prepare(_ context.Context, size int) error               { return d.s.Prepare(size) }

func (d *direct) Run(_ context.Context, size int, _ func(perftest.Progress)) (o perftest.Outcome, err error) {
	d.own, err = d.s.Run(size)
	return d.own, err
}

func (d *direct) Verify(_ context.Context, _ int, peer perftest.Outcome) (*perftest.DataCheck, error) {
	return d.s.Verify(d.own, peer)
}

func (d *direct) Events(context.Context) (r perftest.Reported) {
	if d.s != nil {
		r = d.s.Events()
	}
	return r
}

func (d *direct) Close() error {
	if d.s != nil {
		d.s.Close()
	}
	return nil
}

// small is a plan that takes milliseconds.
func small(op perftest.Operation, m perftest.Measure, sizes ...int) perftest.Plan {
	p := perftest.NewPlan(op, m)
	p.SizesBytes, p.FootprintBytes, p.Seed = sizes, 256<<10, 42
	p.DurationNs, p.MarginNs, p.Messages, p.WarmUp = 0, 0, 700, 30
	p.IdleNs = int64(2 * time.Second)
	return p
}

func loopback(t *testing.T, p perftest.Plan) *perftest.Result {
	t.Helper()
	r, err := measure(t.Context(), p, perftest.NewLocal("stub0"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func measure(ctx context.Context, p perftest.Plan, l perftest.Local) (*perftest.Result, error) {
	lib, err := provider()
	if err != nil {
		return nil, err
	}
	return measureBy(ctx, lib, p, l)
}

func measureBy(ctx context.Context, lib string, p perftest.Plan, l perftest.Local) (*perftest.Result, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return perftest.Loopback(ctx, &direct{library: lib}, &direct{library: lib}, p, l, l, nil)
}

type variant struct {
	name   string
	change func(*perftest.Plan)
}

func plans() map[string]perftest.Plan {
	variants := []variant{
		{"", func(*perftest.Plan) {}},
		{"one buffer", func(p *perftest.Plan) { p.FootprintBytes = 0 }},
		{"by time", func(p *perftest.Plan) {
			p.Messages, p.DurationNs, p.MarginNs = 0, int64(60*time.Millisecond), int64(5*time.Millisecond)
		}},
		{"QPs", func(p *perftest.Plan) { p.QPs = 3 }},
		{"lists", func(p *perftest.Plan) { p.PostList, p.Depth, p.CQModeration = 7, 16, 16 }},
		{"shallow", func(p *perftest.Plan) { p.Depth, p.RecvDepth = 1, 1 }},
		{"both", func(p *perftest.Plan) { p.Bidirectional, p.QPs = true, 2 }},
		{"both by time", func(p *perftest.Plan) {
			p.Bidirectional, p.Messages, p.DurationNs = true, 0, int64(50*time.Millisecond)
		}},
		{"events", func(p *perftest.Plan) { p.Events = true }},
		{"no warm-up", func(p *perftest.Plan) { p.WarmUp = 0 }},
		{"inline", func(p *perftest.Plan) { p.InlineBytes = 64 }},
		{"few", func(p *perftest.Plan) { p.Messages, p.WarmUp = 3, 0 }},
	}
	out := map[string]perftest.Plan{}
	for _, op := range perftest.Operations {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			for _, v := range variants {
				p := small(op, m, 1, 2, 63, 64, 4096, 100000)
				v.change(&p)
				if p.Validate() != nil { // a latency test has one QP, and so on
					continue
				}
				out[fmt.Sprintf("%s %s %s", op, m, v.name)] = p
				if op == perftest.Send && v.name != "shallow" {
					p.Transport, p.SizesBytes = perftest.UD, []int{1, 7, 64, 4096}
					out[fmt.Sprintf("UD %s %s %s", op, m, v.name)] = p
				}
			}
		}
	}
	return out
}

// Whatever the plan, as many messages go as it says, and all data is right.
func TestLoopback(t *testing.T) {
	for name, p := range plans() {
		t.Run(name, func(t *testing.T) {
			r := loopback(t, p)
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
			if len(r.Steps) != len(p.SizesBytes) {
				t.Fatalf("%d steps, want %d", len(r.Steps), len(p.SizesBytes))
			}
			for _, s := range r.Steps {
				checkStep(t, &p, s)
			}
		})
	}
}

// stalls is how many datagrams of a test may wait longer, on a loaded machine, than
// what counts as lost.
const stalls = 2

func checkStep(t *testing.T, p *perftest.Plan, s perftest.Step) {
	t.Helper()
	ends := 1
	if p.Bidirectional || p.Measure == perftest.Latency && p.Operation != perftest.Read && p.Route != perftest.RouteCopy {
		ends = 2
	}
	if len(s.Data) != ends {
		t.Errorf("size %d: data compared at %d ends, want %d", s.SizeBytes, len(s.Data), ends)
	}
	for _, d := range s.Data {
		if !d.Correct || d.Bytes < uint64(s.SizeBytes) {
			t.Errorf("size %d: %+v", s.SizeBytes, d)
		}
	}
	if p.Measure == perftest.Latency {
		l := s.Latency
		switch {
		case l == nil:
			t.Errorf("size %d: no latency", s.SizeBytes)
		case p.Messages > 0 && l.Samples+l.Lost != uint64(p.Messages), l.Lost > 0 && p.Transport != perftest.UD, l.Lost > stalls:
			t.Errorf("size %d: %d samples and %d lost of %d messages", s.SizeBytes, l.Samples, l.Lost, p.Messages)
		case !(0 < l.MinNs && l.MinNs <= l.MedianNs && l.MedianNs <= l.P99Ns && l.P99Ns <= l.P999Ns && l.P999Ns <= l.MaxNs):
			t.Errorf("size %d: out of order: %+v", s.SizeBytes, l)
		}
		return
	}
	for _, r := range []*perftest.Rate{s.Forward, s.Reverse} {
		switch {
		case r == nil && (r == s.Reverse && !p.Bidirectional):
		case r == nil:
			t.Errorf("size %d: no rate", s.SizeBytes)
		case p.Messages > 0 && r.Messages > uint64(p.QPs*(p.Messages+p.WarmUp)):
			t.Errorf("size %d: %d messages, more than were sent", s.SizeBytes, r.Messages)
		case r.BytesPerSec <= 0 || r.WindowNs <= 0:
			t.Errorf("size %d: %+v", s.SizeBytes, r)
		}
	}
}

// What a NIC could do to the data is found, where it is.
func TestWrongData(t *testing.T) {
	const size = 1000
	stride := (size + 63) / 64 * 64
	tests := map[string]struct {
		fault string
		plan  perftest.Plan
		want  perftest.DataCheck
	}{
		"write": {"flip:5", small(perftest.Write, perftest.Bandwidth, size), perftest.DataCheck{Side: perftest.Responder, FirstWrongOffset: uint64(4*stride + size/2)}},
		"read":  {"flip:1", small(perftest.Read, perftest.Bandwidth, size), perftest.DataCheck{Side: perftest.Initiator, FirstWrongOffset: size / 2}},
		"send":  {"flip:2", small(perftest.Send, perftest.Bandwidth, size), perftest.DataCheck{Side: perftest.Responder, FirstWrongOffset: uint64(stride + size/2)}},
		"beyond the message": {
			"stray:3", small(perftest.Write, perftest.Bandwidth, size),
			perftest.DataCheck{Side: perftest.Responder, FirstWrongOffset: uint64(2*stride + size), Untouched: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_FAULT", tt.fault)
			tt.plan.Messages, tt.plan.WarmUp = 20, 0 // no second lap mends it
			r := loopback(t, tt.plan)
			if r.Failure != nil || len(r.Steps) != 1 || len(r.Steps[0].Data) != 1 {
				t.Fatalf("%v, %+v", r.Failure, r.Steps)
			}
			got := r.Steps[0].Data[0]
			if got.Got == got.Want || r.Good() {
				t.Errorf("%+v passes as good", got)
			}
			got.Got, got.Want, got.Bytes = 0, 0, 0
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What later messages overwrote is not called compared: of each queue pair's messages
// as many as have room are, and the others are counted.
func TestOverwritten(t *testing.T) {
	const size, slots, messages, qps = 64, 16, 100, 2 // slots are as long as cache lines
	for _, tt := range []struct {
		op        perftest.Operation
		footprint int64
		want      uint64
	}{
		{perftest.Write, qps * slots * size, qps * (messages - slots) * size},
		{perftest.Send, qps * slots * size, qps * (messages - slots) * size},
		{perftest.Read, qps * slots * size, qps * (messages - slots) * size},
		{perftest.Write, 0, qps * (messages - 1) * size}, // one buffer
		{perftest.Write, qps * messages * size, 0},
	} {
		p := small(tt.op, perftest.Bandwidth, size)
		p.QPs, p.FootprintBytes, p.Messages, p.WarmUp = qps, tt.footprint, messages-10, 10
		r := loopback(t, p)
		if !r.Good() || len(r.Steps[0].Data) != 1 {
			t.Fatalf("%v, %+v", r.Failure, r.Steps)
		}
		if got := r.Steps[0].Data[0].OverwrittenBytes; got != tt.want {
			t.Errorf("%s in %d bytes: %d overwritten, want %d", tt.op, tt.footprint, got, tt.want)
		}
	}
}

// Failures name the call and its cause, and end the test at both ends.
func TestFailures(t *testing.T) {
	tests := map[string]struct {
		fault  string
		plan   perftest.Plan
		call   string
		status string
		errno  syscall.Errno
		words  string
	}{
		"memlock":         {"memlock", small(perftest.Write, perftest.Bandwidth, 64), "ibv_reg_mr", "", syscall.ENOMEM, "ulimit -l"},
		"lost write":      {"drop:20", small(perftest.Write, perftest.Bandwidth, 64), "work completion", "IBV_WC_RETRY_EXC_ERR (vendor error 0x81)", 0, "no acknowledgement"},
		"lost ping":       {"drop:20", small(perftest.Write, perftest.Latency, 64), "work completion", "IBV_WC_RETRY_EXC_ERR (vendor error 0x81)", 0, "no acknowledgement"},
		"lost read":       {"drop:20", small(perftest.Read, perftest.Latency, 64), "work completion", "IBV_WC_RETRY_EXC_ERR (vendor error 0x81)", 0, "no acknowledgement"},
		"lost send":       {"drop:20", small(perftest.Send, perftest.Bandwidth, 64), "work completion", "IBV_WC_RETRY_EXC_ERR (vendor error 0x81)", 0, "no acknowledgement"},
		"unplugged":       {"unplug:20", small(perftest.Write, perftest.Bandwidth, 64), "waiting for a completion", "", syscall.ETIMEDOUT, "stub0/1 is PORT_DOWN by now: its link went down"},
		"no port":         {"", small(perftest.Write, perftest.Bandwidth, 64), "ibv_query_port", "", syscall.EINVAL, "no such port"},
		"no device":       {"", small(perftest.Write, perftest.Bandwidth, 64), "ibv_get_device_list", "", syscall.ENODEV, "lists no such device"},
		"empty GID index": {"", small(perftest.Write, perftest.Bandwidth, 64), "ibv_query_gid", "", 0, "empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_FAULT", tt.fault)
			tt.plan.IdleNs = int64(300 * time.Millisecond)
			l := perftest.NewLocal("stub0")
			switch name {
			case "no port":
				l.Port = 3
			case "no device":
				l.Device = "stub9"
			case "empty GID index":
				l.GIDIndex = 5
			}
			r, err := measure(t.Context(), tt.plan, l)
			if err != nil {
				t.Fatal(err)
			}
			f := r.Failure
			if f == nil || f.Call != tt.call || f.Status != tt.status || syscall.Errno(f.Errno) != tt.errno || !strings.Contains(f.Error(), tt.words) {
				t.Errorf("got %+v, want %s %s errno %d with %q", f, tt.call, tt.status, tt.errno, tt.words)
			}
		})
	}
}

// Values of enum ibv_transport_type in infiniband/verbs.h.
func TestTransport(t *testing.T) {
	for typ, words := range map[int]string{-1: "type -1", 0: "", 1: "iWARP", 2: "type 2", 4: "EFA"} {
		err := transport(typ, "dev0")
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("type %d: %v, want %q", typ, err, words)
		}
	}
}

// A lost datagram is counted, and no more than lost.
func TestLostDatagram(t *testing.T) {
	t.Setenv("GDR_STUB_FAULT", "drop:10")
	p := small(perftest.Send, perftest.Bandwidth, 64)
	p.Transport, p.RecvDepth = perftest.UD, 1024
	r := loopback(t, p)
	if r.Failure != nil || len(r.Steps) != 1 || r.Steps[0].Forward == nil {
		t.Fatalf("%v, %+v", r.Failure, r.Steps)
	}
	if lost := r.Steps[0].Forward.Lost; lost != 1 || !r.Good() {
		t.Errorf("%d lost, want 1; %+v", lost, r.Steps[0].Data)
	}
}

// A latency test goes on when a datagram or its answer is lost, wherever in the
// test: all other samples count, and what is lost is told.
func TestLostDatagramLatency(t *testing.T) {
	const messages, warmUp = 40, 10 // the last message is number 99 on the wire, its answer 100
	for fault, want := range map[string]uint64{
		"drop:31": 1, "drop:32": 1, "drop:99": 1, "drop:100": 1, // a message, an answer, the last of each
		"drop:5":  0, // in the warm-up
		"lose:30": 3, // 30, 60 and 90: three answers
	} {
		for name, change := range map[string]func(*perftest.Plan){
			"":             func(*perftest.Plan) {},
			" one receive": func(p *perftest.Plan) { p.RecvDepth = 1 },
			" events":      func(p *perftest.Plan) { p.Events = true },
		} {
			t.Run(fault+name, func(t *testing.T) {
				t.Setenv("GDR_STUB_FAULT", fault)
				p := small(perftest.Send, perftest.Latency, 64, 1000)
				p.Transport, p.Messages, p.WarmUp = perftest.UD, messages, warmUp
				change(&p)
				r := loopback(t, p)
				if r.Failure != nil || !r.Good() || len(r.Steps) != 2 || len(r.Steps[0].Data) != 2 {
					t.Fatalf("%v, %+v", r.Failure, r.Steps)
				}
				l := r.Steps[0].Latency
				if l.Lost < want || l.Lost > want+stalls || l.Samples+l.Lost != messages {
					t.Errorf("%d samples and %d lost of %d messages, want %d lost", l.Samples, l.Lost, messages, want)
				}
				if want > 0 && (l.LostAfterNs != int64(100*time.Millisecond) || l.MaxNs >= float64(l.LostAfterNs)) {
					t.Errorf("a sample of %g ns, lost after %d", l.MaxNs, l.LostAfterNs)
				}
			})
		}
	}
}

// Without any answer the test ends, as one does on which nothing arrives.
func TestAllDatagramsLost(t *testing.T) {
	t.Setenv("GDR_STUB_FAULT", "lose:1")
	p := small(perftest.Send, perftest.Latency, 64)
	p.Transport, p.IdleNs = perftest.UD, int64(400*time.Millisecond)
	began := time.Now()
	if r := loopback(t, p); r.Failure == nil || syscall.Errno(r.Failure.Errno) != syscall.ETIMEDOUT {
		t.Errorf("%v", r.Failure)
	}
	p.Messages, p.WarmUp = 2, 0 // fewer than are lost within the idle limit
	p.IdleNs = int64(2 * time.Second)
	if r := loopback(t, p); r.Failure == nil || !strings.Contains(r.Failure.Error(), "none of 2 messages was answered within 100ms") && syscall.Errno(r.Failure.Errno) != syscall.ETIMEDOUT {
		t.Errorf("%v", r.Failure)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A device that refuses so much inline data gets less, and the result says so.
func TestInlineRefused(t *testing.T) {
	for _, tt := range []struct {
		fault  string
		inline int
		want   string
	}{{"inline", 64, "inlines 32 bytes"}, {"", 4096, "inlines 256 bytes"}} {
		t.Setenv("GDR_STUB_FAULT", tt.fault)
		p := small(perftest.Write, perftest.Latency, tt.inline)
		p.InlineBytes = tt.inline
		r := loopback(t, p)
		if r.Failure != nil || !r.Good() || len(r.Initiator.Notes) != 1 || !strings.Contains(r.Initiator.Notes[0], tt.want) {
			t.Errorf("%v, %+v", r.Failure, r.Initiator.Notes)
		}
	}
}

// Many at the same time, again and again, share nothing and leave nothing.
func TestConcurrent(t *testing.T) {
	const together, rounds = 24, 8
	run := func() {
		var wg sync.WaitGroup
		for range together {
			wg.Go(func() {
				p := small(perftest.Write, perftest.Bandwidth, 512)
				p.Messages = 100
				r, err := measure(t.Context(), p, perftest.NewLocal("stub0"))
				if err != nil || !r.Good() || r.Steps[0].Forward.Messages > 130 {
					t.Errorf("%v, %+v", err, r)
				}
			})
		}
		wg.Wait()
	}
	run() // what a library opens once stays open
	before := openFiles(t)
	for range rounds {
		run()
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d open files before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
