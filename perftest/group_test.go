package perftest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
)

func (b *lab) group(t *testing.T, end perftest.End, members int) *perftest.Group {
	t.Helper()
	g, err := perftest.ConnectGroup(t.Context(), b.address, b.token, end, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	g.Resize(members)
	t.Cleanup(g.Close)
	return g
}

// Tests of one client run at the same time, on both sides, and begin together.
func TestGroup(t *testing.T) {
	const members = 5
	var running, most atomic.Int32
	together := make(chan struct{})
	b := newLab(t, labOptions{before: func(ctx context.Context, call string) error {
		if call != "run" {
			return nil
		}
		defer running.Add(-1)
		if n := running.Add(1); n == members {
			close(together)
		} else {
			most.Store(max(most.Load(), n))
		}
		select { // each waits for the others: one after another they would never end
		case <-together:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	g := b.group(t, b.end(), members)
	gate := perftest.NewGate(members)
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() {
			r := request(short(perftest.Write, perftest.Bandwidth))
			r.Reverse, r.Pass = true, gate.Pass()
			defer r.Pass.Leave()
			got, err := g.Run(i, r)
			if err != nil || got.Failure != nil {
				t.Errorf("test %d: %v, %+v", i, err, got)
			}
		})
	}
	all.Wait()
	select {
	case <-together:
	default:
		t.Errorf("%d tests ran at the same time", most.Load())
	}
	// Another client has to wait until the whole group is gone.
	_, err := perftest.Connect(t.Context(), b.address, b.token, b.end(), time.Second)
	if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeBusy {
		t.Errorf("beside a group, another client got %v", err)
	}
	if _, err := perftest.ConnectGroup(t.Context(), b.address, b.token, b.end(), time.Second); err == nil {
		t.Error("beside a group, another group was let in")
	}
	g.Close()
	b.works(t)
}

// A test that fails, or whose session breaks, costs the others nothing, and
// does not keep them waiting at the gate.
func TestGroupMemberFails(t *testing.T) {
	b := newLab(t, labOptions{})
	end := b.end()
	for name, fault := range map[string]struct {
		call string
		err  error
	}{
		"cannot open":  {"open", &perftest.Failure{Call: "ibv_open_device", Cause: "it was told to"}},
		"hangs":        {"prepare", &perftest.Failure{Call: "prepare", Cause: "no answer from the driver"}},
		"fails in run": {"run", &perftest.Failure{Call: "work completion", Cause: "it was told to"}},
	} {
		t.Run(name, func(t *testing.T) {
			const members = 3
			var made atomic.Int32
			end.NewEngine = func() perftest.Engine {
				e := &perfdouble.Engine{Dir: b.dir}
				if made.Add(1) == 1 {
					e.Before = func(_ context.Context, call string) error {
						if call != fault.call {
							return nil
						}
						if call == "prepare" { // as the worker gives a driver up before the session does
							time.Sleep(fast.Step / 2)
						}
						return fault.err
					}
				}
				return e
			}
			g := b.group(t, end, members)
			defer g.Close()
			gate := perftest.NewGate(members)
			var good, failed atomic.Int32
			var all sync.WaitGroup
			for i := range members {
				all.Go(func() {
					r := request(short(perftest.Write, perftest.Bandwidth))
					r.Pass = gate.Pass()
					defer r.Pass.Leave()
					switch got, err := g.Run(i, r); {
					case err == nil && got.Good():
						good.Add(1)
					case err != nil || got.Failure != nil:
						failed.Add(1)
					}
				})
			}
			all.Wait()
			if good.Load() != members-1 || failed.Load() != 1 {
				t.Errorf("%d good, %d failed", good.Load(), failed.Load())
			}
			// The same sessions, or new ones, take the next test.
			for i := range members {
				if r, err := g.Run(i, request(short(perftest.Read, perftest.Bandwidth))); err != nil || !r.Good() {
					t.Errorf("session %d does not go on: %v, %+v", i, err, r)
				}
			}
		})
	}
}

// What runs at the same time shares the memory that the server gives.
func TestGroupMemory(t *testing.T) {
	opened := make(chan struct{}, 1)
	hold := make(chan struct{})
	b := newLab(t, labOptions{before: func(ctx context.Context, call string) error {
		if call == "connect" {
			opened <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}})
	b.MaxMemoryBytes = 3 << 20
	g := b.group(t, b.end(), 2)
	r := request(short(perftest.Write, perftest.Bandwidth))
	r.Plan.FootprintBytes = 2 << 20
	var all sync.WaitGroup
	all.Go(func() {
		if got, err := g.Run(0, r); err != nil || !got.Good() {
			t.Errorf("%v, %+v", err, got)
		}
	})
	<-opened
	_, err := g.Run(1, r)
	if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeRefused || !strings.Contains(e.Text, "at the same time") {
		t.Errorf("a second test got %v", err)
	}
	close(hold)
	all.Wait()
	if got, err := g.Run(1, r); err != nil || !got.Good() { // its memory is free again
		t.Errorf("%v, %+v", err, got)
	}
}

// A server that serves once serves a group's sessions to the last one.
func TestGroupOnce(t *testing.T) {
	b := newLab(t, labOptions{once: true})
	g := b.group(t, b.end(), 2)
	for _, i := range []int{1, 0, 1} {
		if r, err := g.Run(i, request(short(perftest.Write, perftest.Bandwidth))); err != nil || !r.Good() {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	g.Close()
	select {
	case err := <-b.served:
		b.served <- err
	case <-time.After(5 * time.Second):
		t.Fatal("the server goes on after its one client")
	}
}

func TestServerRails(t *testing.T) {
	b := newLab(t, labOptions{})
	s := b.connect(t, b.end())
	defer s.Close()
	_, err := s.Rails()
	if e, ok := errors.AsType[*perftest.PeerError](err); !ok || e.Code != perftest.CodeRefused {
		t.Errorf("a server that tells no rails: %v", err)
	}
	b.Rails = func(context.Context) ([]perftest.Rail, error) {
		return []perftest.Rail{{Device: "mlx5_0", Port: 1, LinkLayer: "Ethernet", Subnets: []string{"10.0.0.0/24"}}}, nil
	}
	list, err := s.Rails()
	if err != nil || len(list) != 1 || list[0].Name() != "mlx5_0/1" || list[0].Subnets[0] != "10.0.0.0/24" {
		t.Errorf("%v, %v", list, err)
	}
	if r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth))); err != nil || !r.Good() {
		t.Errorf("the session does not go on: %v", err)
	}
}
