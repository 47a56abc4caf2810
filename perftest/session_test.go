package perftest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fast are waits short enough for tests, and long enough for a loaded machine
// where a test does not wait for them to run out.
var fast = perftest.Timing{
	Handshake: 2 * time.Second, Queue: 300 * time.Millisecond, Heartbeat: 50 * time.Millisecond,
	Silence: 2 * time.Second, Step: 3 * time.Second, Run: 3 * time.Second, Grace: 500 * time.Millisecond,
	Farewell: 300 * time.Millisecond,
}

// lab is a server on the loopback interface with what it did.
type lab struct {
	*perftest.Server
	token   perftest.Token
	address string
	dir     string // the doubles' memory
	stop    context.CancelFunc
	served  chan error

	mu      sync.Mutex
	engines []*perfdouble.Engine // the server's
	events  []perftest.Event
}

// labOptions change a lab before it starts.
type labOptions struct {
	timing perftest.Timing
	once   bool
	before func(ctx context.Context, call string) error // of the server's engines
}

func newLab(t *testing.T, o labOptions) *lab {
	t.Helper()
	if o.timing == (perftest.Timing{}) {
		o.timing = fast
	}
	b := &lab{dir: t.TempDir(), served: make(chan error, 1)}
	var reads atomic.Uint64
	b.Server = &perftest.Server{
		End: perftest.End{
			Version: "test", Simulated: true, Timing: o.timing,
			NewEngine: func() perftest.Engine {
				e := &perfdouble.Engine{Dir: b.dir, Before: o.before, Reports: []perftest.AsyncEvent{serverEvent}}
				b.mu.Lock()
				defer b.mu.Unlock()
				b.engines = append(b.engines, e)
				return e
			},
			Counters: func(context.Context, perftest.Local) []rdma.Counter {
				return []rdma.Counter{
					{Name: "out_of_sequence", Value: fact.Of(3*reads.Add(1), "test")},
					{Name: "port_xmit_data", Value: fact.Of(reads.Load(), "test")},
				}
			},
		},
		Once: o.once,
		Local: func(_ context.Context, device string, _ perftest.MemoryAsk) (perftest.Local, error) {
			if device != "" && device != perfdouble.Device {
				return perftest.Local{}, errors.New("there is no device " + device)
			}
			return perftest.NewLocal(perfdouble.Device), nil
		},
		Log: func(e perftest.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
		},
	}
	var err error
	if b.token, err = b.Init(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() { b.served <- b.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-b.served:
			if err != nil && !o.once {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Serve did not end")
		}
		b.released(t)
	})
	return b
}

// released checks that every engine of the server was closed, and just once.
func (b *lab) released(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range b.engines {
		if n := e.Closed.Load(); n != 1 {
			t.Errorf("engine %d was closed %d times", i, n)
		}
	}
	if n := perfdouble.Memories(b.dir); n != 0 {
		t.Errorf("%d memories are still registered", n)
	}
}

// engineCount is how many engines the server made.
func (b *lab) engineCount() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.engines)
}

// wait waits for an event that f takes.
func (b *lab) wait(t *testing.T, what string, f func(perftest.Event) bool) perftest.Event {
	t.Helper()
	for range 1000 {
		b.mu.Lock()
		for _, e := range b.events {
			if f(e) {
				b.mu.Unlock()
				return e
			}
		}
		b.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the server never told of %s", what)
	return perftest.Event{}
}

// client is the other end.
func (b *lab) end() perftest.End {
	return perftest.End{
		NewEngine: func() perftest.Engine { return &perfdouble.Engine{Dir: b.dir} },
		Version:   "test", Simulated: true, Timing: b.Timing,
	}
}

func (b *lab) connect(t *testing.T, end perftest.End) *perftest.Session {
	t.Helper()
	s, err := perftest.Connect(t.Context(), b.address, b.token, end, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// short is a plan of a few milliseconds.
func short(op perftest.Operation, m perftest.Measure) perftest.Plan {
	p := perftest.NewPlan(op, m)
	p.DurationNs, p.MarginNs, p.Messages, p.Seed = 0, 0, 20, 7
	p.FootprintBytes = 0
	return p
}

func request(p perftest.Plan) perftest.Request {
	return perftest.Request{Plan: p, Local: perftest.NewLocal(perfdouble.Device)}
}

// works runs a test and checks its result: proof that the server goes on.
func (b *lab) works(t *testing.T) {
	t.Helper()
	s := b.connect(t, b.end())
	defer s.Close()
	r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth)))
	if err != nil {
		t.Fatalf("the server does not go on: %v", err)
	}
	if r.Failure != nil || len(r.Steps) != 1 || len(r.Steps[0].Data) != 1 || !r.Steps[0].Data[0].Correct {
		t.Fatalf("the server does not go on well: %+v", r)
	}
}

// serverEvent is what the server's device reports: IBV_EVENT_SM_CHANGE.
var serverEvent = perftest.NewAsyncEvent(13, perfdouble.Device+"/1", 0, time.Millisecond)

func TestSession(t *testing.T) {
	for _, tt := range []struct {
		name    string
		op      perftest.Operation
		measure perftest.Measure
		change  func(*perftest.Request)
		arrives []perftest.Side // where data must have arrived
	}{
		{"write", perftest.Write, perftest.Bandwidth, nil, []perftest.Side{perftest.Responder}},
		{"read", perftest.Read, perftest.Bandwidth, nil, []perftest.Side{perftest.Initiator}},
		{"latency", perftest.Write, perftest.Latency, nil, []perftest.Side{perftest.Responder}},
		{"server first", perftest.Write, perftest.Bandwidth, func(r *perftest.Request) { r.Reverse = true }, []perftest.Side{perftest.Responder}},
		{"both ways", perftest.Write, perftest.Bandwidth, func(r *perftest.Request) { r.Plan.Bidirectional = true }, []perftest.Side{perftest.Initiator, perftest.Responder}},
		{"sweep", perftest.Send, perftest.Bandwidth, func(r *perftest.Request) { r.Plan.SizesBytes = perftest.Sweep(1, 1<<16) }, []perftest.Side{perftest.Responder}},
		{"by device", perftest.Write, perftest.Bandwidth, func(r *perftest.Request) { r.Device = perfdouble.Device }, []perftest.Side{perftest.Responder}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newLab(t, labOptions{})
			s := b.connect(t, b.end())
			defer s.Close()
			r := request(short(tt.op, tt.measure))
			if tt.change != nil {
				tt.change(&r)
			}
			var seen int
			r.Progress = func(perftest.Progress) { seen++ }
			got, err := s.Run(r)
			if err != nil || got.Failure != nil {
				t.Fatalf("%v, %v", err, got.Failure)
			}
			checkResult(t, got, r.Plan, tt.arrives)
			if !r.Reverse && seen == 0 {
				t.Error("no progress was told")
			}
			there := b.wait(t, "the result", func(e perftest.Event) bool { return e.Result != nil })
			checkResult(t, there.Result, r.Plan, tt.arrives)
			server := perftest.Responder
			if r.Reverse {
				server = perftest.Initiator
			}
			for _, r := range []*perftest.Result{got, there.Result} {
				want := serverEvent
				want.Side = server
				if diff := cmp.Diff([]perftest.AsyncEvent{want}, r.Events); diff != "" {
					t.Errorf("the server's events (-want +got)\n%s", diff)
				}
			}
			c := got.Counters[server]
			if len(c.Watched) != 1 || len(c.Moved) != 1 || c.Moved[0].Delta != 3 || c.Moved[0].Sign != qos.SignOrder {
				t.Errorf("the server's counters: %+v", c)
			}
		})
	}
}

func checkResult(t *testing.T, r *perftest.Result, p perftest.Plan, arrives []perftest.Side) {
	t.Helper()
	if !r.Simulated {
		t.Error("the result of a double does not say so")
	}
	if len(r.Steps) != len(p.SizesBytes) || r.Initiator.RemoteKey != 0 || r.Responder.RemoteKey != 0 {
		t.Fatalf("%d steps, keys %d and %d are told", len(r.Steps), r.Initiator.RemoteKey, r.Responder.RemoteKey)
	}
	if len(r.Counters) != 2 {
		t.Errorf("counters of %d sides", len(r.Counters))
	}
	for _, s := range r.Steps {
		if p.Measure == perftest.Bandwidth && (s.Forward == nil || s.Forward.Messages != uint64(p.Messages) || (s.Reverse != nil) != p.Bidirectional) {
			t.Errorf("size %d: %+v", s.SizeBytes, s.Forward)
		}
		if p.Measure == perftest.Latency && (s.Latency == nil || s.Latency.Samples != uint64(p.Messages)) {
			t.Errorf("size %d: %+v", s.SizeBytes, s.Latency)
		}
		if len(s.Data) != len(arrives) {
			t.Fatalf("size %d: data compared at %d ends, want %d", s.SizeBytes, len(s.Data), len(arrives))
		}
		for i, d := range s.Data {
			if d.Side != arrives[i] || !d.Correct || d.Bytes != uint64(s.SizeBytes) {
				t.Errorf("size %d: %+v", s.SizeBytes, d)
			}
		}
	}
}

// What is spoilt on the way is found, at the right place.
func TestWrongData(t *testing.T) {
	b := newLab(t, labOptions{})
	end := b.end()
	end.NewEngine = func() perftest.Engine { return &perfdouble.Engine{Dir: b.dir, Corrupt: true} }
	s := b.connect(t, end)
	defer s.Close()
	r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth)))
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Steps[0].Data[0]; d.Correct || d.FirstWrongOffset != perftest.DefaultBandwidthSize/2 {
		t.Errorf("%+v", d)
	}
}

func TestManySessions(t *testing.T) {
	b := newLab(t, labOptions{})
	const sessions = 24
	for range sessions {
		b.works(t)
	}
	s := b.connect(t, b.end())
	defer s.Close()
	for range sessions { // and as many tests in one session
		if r, err := s.Run(request(short(perftest.Read, perftest.Bandwidth))); err != nil || r.Failure != nil {
			t.Fatal(err, r.Failure)
		}
	}
	if n := b.engineCount(); n != 2*sessions {
		t.Errorf("%d engines", n)
	}
}

func TestBusy(t *testing.T) {
	b := newLab(t, labOptions{})
	first := b.connect(t, b.end())
	_, err := perftest.Connect(t.Context(), b.address, b.token, b.end(), time.Second)
	if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeBusy || !strings.Contains(e.Text, "busy") {
		t.Errorf("a second client got %v", err)
	}
	first.Close()
	b.works(t)
}

func TestRefusedTest(t *testing.T) {
	b := newLab(t, labOptions{})
	s := b.connect(t, b.end())
	defer s.Close()
	for _, tt := range []struct {
		name   string
		change func(*perftest.Request)
		want   string
	}{
		{"device", func(r *perftest.Request) { r.Device = "mlx5_9" }, "no device mlx5_9"},
		{"memory", func(r *perftest.Request) { r.Plan.FootprintBytes, r.Plan.QPs = 1<<30, 64 }, "memory"},
		{"time", func(r *perftest.Request) { r.Plan.Messages, r.Plan.DurationNs = 0, int64(2*time.Hour) }, "2h0m0s"},
	} {
		r := request(short(perftest.Write, perftest.Bandwidth))
		tt.change(&r)
		_, err := s.Run(r)
		if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeRefused || !strings.Contains(e.Text, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if n := b.engineCount(); n != 0 {
		t.Errorf("%d engines for tests that were refused", n)
	}
	if r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth))); err != nil || r.Failure != nil {
		t.Errorf("the session does not go on: %v, %v", err, r)
	}
}

func TestOnce(t *testing.T) {
	b := newLab(t, labOptions{once: true})
	// Who does not prove himself, or runs no test, does not use it up.
	if c, err := net.Dial("tcp", b.address); err == nil {
		c.Close()
	}
	b.connect(t, b.end()).Close()
	b.works(t)
	select {
	case err := <-b.served:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
		b.served <- nil
	case <-time.After(5 * time.Second):
		t.Fatal("the server goes on after its one session")
	}
	if _, err := perftest.Connect(t.Context(), b.address, b.token, b.end(), 200*time.Millisecond); err == nil {
		t.Error("the server takes another session")
	}
}

// Clients that wait for a server that serves once are told just that, each of them:
// nobody interrupted it.
func TestOnceWithOthersWaiting(t *testing.T) {
	timing := fast
	timing.Queue = 10 * time.Second
	const waiting = 4
	for range 5 { // who is first to see that the seat is free is chance
		b := newLab(t, labOptions{once: true, timing: timing})
		s := b.connect(t, b.end())
		if r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth))); err != nil || !r.Good() {
			t.Fatal(err)
		}
		said := make(chan error, waiting)
		for range waiting {
			go func() {
				other, err := perftest.Connect(t.Context(), b.address, b.token, b.end(), time.Second)
				if err == nil {
					_ = other.Close()
				}
				said <- err
			}()
		}
		time.Sleep(200 * time.Millisecond) // until they wait
		s.Close()
		for range waiting {
			err := <-said
			if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeBusy || !strings.Contains(e.Text, "--once") {
				t.Errorf("one that waited was told: %v", err)
			}
		}
	}
}

// A server that lost its own process in a run says so to the client and to its log,
// where the client saw no more than that nothing was acknowledged.
func TestServerBlamesItself(t *testing.T) {
	b := newLab(t, labOptions{})
	var loss perftest.Reported
	loss.Lost(&perftest.Failure{Call: "events", Subject: "double0", Cause: "the worker was ended by SIGKILL"})
	b.NewEngine = func() perftest.Engine { return &perfdouble.Engine{Dir: b.dir, Reports: loss.Events} }
	end := b.end()
	end.NewEngine = func() perftest.Engine {
		return &perfdouble.Engine{Dir: b.dir, Before: func(_ context.Context, call string) error {
			if call == "run" {
				return &perftest.Failure{Call: "work completion", Status: "IBV_WC_RETRY_EXC_ERR", Cause: "no acknowledgement after all retries"}
			}
			return nil
		}}
	}
	s := b.connect(t, end)
	defer s.Close()
	got, err := s.Run(request(short(perftest.Write, perftest.Bandwidth)))
	if err != nil {
		t.Fatal(err)
	}
	there := b.wait(t, "the result", func(e perftest.Event) bool { return e.Result != nil })
	for who, r := range map[string]*perftest.Result{"client": got, "server": there.Result} {
		const want = "run on double0: the worker was ended by SIGKILL; what the other end saw of it was IBV_WC_RETRY_EXC_ERR"
		if r.Failure == nil || r.Failure.Error() != want || r.Faulty != perftest.Responder || len(r.Events) > 0 {
			t.Errorf("%s: at the %s: %v, %+v", who, r.Faulty, r.Failure, r.Events)
		}
	}
}
