// Package perfdouble holds a test double of an RDMA device: an engine whose
// memory is a file, so that two of them, in one process or in two, move real
// bytes into each other's memory as RDMA does, without the other end's help.
// Its speed means nothing. Only tests import it.
package perfdouble

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// Device is what the first double calls itself; others are double1 and so on.
const Device = "double0"

const prefix = "double"

// Engine is the double. It implements perftest.Engine.
type Engine struct {
	// Dir is where both ends keep their memory.
	Dir string
	// Before is called before each call does its work, with the call's name; its
	// error is the call's. It may block, to play a driver that hangs.
	Before func(ctx context.Context, call string) error
	// Any: it stands for a device of any name.
	Any bool
	// Corrupt spoils one byte of what this end sends.
	Corrupt bool

	// Reports are the events that it tells of.
	Reports []perftest.AsyncEvent

	Closed atomic.Int32 // how often Close was called

	mu     sync.Mutex
	plan   perftest.Plan
	side   perftest.Side
	memory *os.File
	remote *os.File
}

func (e *Engine) before(ctx context.Context, call string) error {
	if e.Before != nil {
		if err := e.Before(ctx, call); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (e *Engine) file(key uint32) string {
	return filepath.Join(e.Dir, fmt.Sprintf("memory-%08x", key))
}

// Memories counts the registered memories below dir.
func Memories(dir string) int {
	list, _ := filepath.Glob(filepath.Join(dir, "memory-*"))
	return len(list)
}

// Open implements perftest.Engine.
func (e *Engine) Open(ctx context.Context, p perftest.Plan, l perftest.Local, side perftest.Side) (perftest.Endpoint, error) {
	if err := e.before(ctx, "open"); err != nil {
		return perftest.Endpoint{}, err
	}
	if !e.Any && !strings.HasPrefix(l.Device, prefix) {
		return perftest.Endpoint{}, &perftest.Failure{Call: "ibv_open_device", Subject: l.Device, Cause: "there is no such device"}
	}
	var size int
	for _, s := range p.SizesBytes {
		size = max(size, s)
	}
	var random [8]byte
	_, _ = rand.Read(random[:])
	key, psn := binary.NativeEndian.Uint32(random[:]), binary.NativeEndian.Uint32(random[4:])
	f, err := os.OpenFile(e.file(key), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return perftest.Endpoint{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.plan, e.side, e.memory = p, side, f
	const mtu, qpBits = 4096, 0xffffff
	ep := perftest.Endpoint{
		Device: l.Device, Port: l.Port, LinkLayer: "Ethernet", GID: "::ffff:127.0.0.1", MTUBytes: mtu,
		Bytes: uint64(size), RemoteKey: key, MaxReads: 1, CPU: -1, NUMANode: -1, DeviceNode: -1,
		Double: "perfdouble", Notes: []string{"simulated: a test double, no RDMA"},
	}
	if p.Route == perftest.RouteTCP && side == perftest.Responder {
		ep.Stream = &perftest.Stream{}
	}
	for i := range p.QPs {
		ep.QPs = append(ep.QPs, perftest.QP{Number: (key + uint32(i)) & qpBits, PSN: psn & qpBits})
	}
	return ep, f.Truncate(int64(size))
}

// Connect implements perftest.Engine.
func (e *Engine) Connect(ctx context.Context, peer perftest.Endpoint) error {
	if err := e.before(ctx, "connect"); err != nil {
		return err
	}
	f, err := os.OpenFile(e.file(peer.RemoteKey), os.O_RDWR, 0)
	if err != nil {
		return &perftest.Failure{Call: "ibv_modify_qp", Subject: Device, Cause: "the remote key is of no use: " + err.Error()}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.remote = f
	return nil
}

// pattern is what an end's source holds.
func (e *Engine) pattern(side perftest.Side, size int) []byte {
	b := make([]byte, size)
	x := e.plan.Seed
	if side == perftest.Responder {
		x = ^x
	}
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		b[i] = byte(x >> 56)
	}
	return b
}

// Prepare implements perftest.Engine.
func (e *Engine) Prepare(ctx context.Context, size int) error {
	if err := e.before(ctx, "prepare"); err != nil {
		return err
	}
	fill := make([]byte, size)
	if e.plan.Operation == perftest.Read {
		fill = e.pattern(e.side, size)
	}
	_, err := e.memory.WriteAt(fill, 0)
	return err
}

// posts says whether this end's operations move anything.
func (e *Engine) posts() bool { return e.side == perftest.Initiator || e.plan.Bidirectional }

// Run implements perftest.Engine.
func (e *Engine) Run(ctx context.Context, size int, progress func(perftest.Progress)) (perftest.Outcome, error) {
	if err := e.before(ctx, "run"); err != nil {
		return perftest.Outcome{}, err
	}
	if !e.posts() {
		return perftest.Outcome{}, nil
	}
	buf := e.pattern(e.side, size)
	if e.Corrupt {
		buf[size/2] ^= 0xff
	}
	move := e.remote.WriteAt
	if e.plan.Operation == perftest.Read {
		move = e.remote.ReadAt
	}
	start := time.Now()
	var n uint64
	for ; !e.over(n, time.Since(start)); n++ {
		if err := ctx.Err(); err != nil {
			return perftest.Outcome{}, err
		}
		if _, err := move(buf, 0); err != nil {
			return perftest.Outcome{}, &perftest.Failure{Call: "work completion", Status: "IBV_WC_REM_ACCESS_ERR", Cause: err.Error()}
		}
		time.Sleep(time.Millisecond / 10)
		if progress != nil && n%16 == 0 {
			progress(perftest.Progress{SizeBytes: size, Messages: n, BytesPerSec: rate(size, n, time.Since(start)), Done: e.done(n, time.Since(start))})
		}
	}
	if e.plan.Operation == perftest.Read {
		if _, err := e.memory.WriteAt(buf, 0); err != nil {
			return perftest.Outcome{}, err
		}
	}
	return e.outcome(size, n, time.Since(start)), nil
}

func (e *Engine) over(n uint64, t time.Duration) bool { return e.done(n, t) >= 1 }

func (e *Engine) done(n uint64, t time.Duration) float64 {
	if e.plan.DurationNs > 0 {
		return float64(t) / float64(e.plan.DurationNs)
	}
	return float64(n) / float64(e.plan.Messages)
}

func rate(size int, n uint64, t time.Duration) float64 {
	return float64(size) * float64(n) / max(t.Seconds(), 1e-9)
}

func (e *Engine) outcome(size int, n uint64, t time.Duration) perftest.Outcome {
	sent := make([]uint64, e.plan.QPs)
	sent[0] = n // all goes over the first queue pair
	if e.plan.Measure == perftest.Latency {
		each := float64(t) / float64(n) / 2
		return perftest.Outcome{Sent: sent, Latency: &perftest.LatencyDist{
			Samples: n, MinNs: each, MedianNs: each, MeanNs: each, P99Ns: each, P999Ns: each, MaxNs: each,
		}}
	}
	return perftest.Outcome{Sent: sent, Rate: &perftest.Rate{
		BytesPerSec: rate(size, n, t), MessagesPerSec: rate(1, n, t), Messages: n, WindowNs: float64(t),
	}}
}

// Verify implements perftest.Engine.
func (e *Engine) Verify(ctx context.Context, size int, _ perftest.Outcome) (*perftest.DataCheck, error) {
	if err := e.before(ctx, "verify"); err != nil {
		return nil, err
	}
	from := perftest.Initiator
	if e.side == perftest.Initiator {
		from = perftest.Responder
	}
	arrives := e.side == perftest.Responder || e.plan.Bidirectional
	if e.plan.Operation == perftest.Read {
		arrives = e.posts()
	}
	if !arrives {
		return nil, nil
	}
	got, want := make([]byte, size), e.pattern(from, size)
	if _, err := e.memory.ReadAt(got, 0); err != nil {
		return nil, err
	}
	d := &perftest.DataCheck{Side: e.side, Bytes: uint64(size), Correct: bytes.Equal(got, want)}
	for i := range got {
		if got[i] != want[i] {
			d.FirstWrongOffset, d.Got, d.Want = uint64(i), got[i], want[i]
			break
		}
	}
	return d, nil
}

// Events implements perftest.Engine.
func (e *Engine) Events(context.Context) perftest.Reported {
	return perftest.Reported{Events: e.Reports}
}

// Close implements perftest.Engine.
func (e *Engine) Close() error {
	e.Closed.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	if e.memory != nil {
		errs = append(errs, os.Remove(e.memory.Name()), e.memory.Close())
	}
	if e.remote != nil {
		errs = append(errs, e.remote.Close())
	}
	e.memory, e.remote = nil, nil
	return errors.Join(errs...)
}
