package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// byRoute is a plan that takes milliseconds, in chunks that messages end within,
// at and beyond.
func byRoute(r perftest.Route, m perftest.Measure) perftest.Plan {
	p := small(perftest.Write, m, 1, 63, 4096, 4097, 50000).Through(r)
	p.ChunkBytes, p.Chunks, p.Messages, p.FootprintBytes = 4096, 3, 200, 256<<10
	return p
}

func localStream() perftest.Local {
	l := perftest.NewLocal("stub0")
	l.Address = "127.0.0.1"
	return l
}

func hostMemory() Memory {
	k := mem.HostKind(-1)
	return Memory{Ops: k.Ops, Device: k.Device}
}

// Through host memory as many messages go as directly, and all data is right.
func TestThroughHostMemory(t *testing.T) {
	variants := []variant{
		{"by count", func(*perftest.Plan) {}},
		{"by time", func(p *perftest.Plan) {
			p.Messages, p.DurationNs, p.MarginNs = 0, int64(60*time.Millisecond), int64(5*time.Millisecond)
		}},
		{"no warm-up", func(p *perftest.Plan) { p.WarmUp = 0 }},
		{"one slot", func(p *perftest.Plan) { p.Chunks = 1 }},
		{"many slots", func(p *perftest.Plan) { p.Chunks = perftest.MaxChunks }},
		{"whole messages", func(p *perftest.Plan) { p.ChunkBytes = perftest.DefaultChunkBytes }},
		{"one buffer", func(p *perftest.Plan) { p.FootprintBytes = 0 }},
		{"both", func(p *perftest.Plan) { p.Bidirectional = true }},
		{"both by time", func(p *perftest.Plan) {
			p.Bidirectional, p.Messages, p.DurationNs = true, 0, int64(50*time.Millisecond)
		}},
		{"few", func(p *perftest.Plan) { p.Messages, p.WarmUp = 3, 0 }},
	}
	for _, route := range []perftest.Route{perftest.RouteStaged, perftest.RouteTCP} {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			for _, v := range variants {
				p := byRoute(route, m)
				v.change(&p)
				if m == perftest.Latency && p.Bidirectional {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", route, m, v.name), func(t *testing.T) {
					r, err := measure(t.Context(), p, localStream())
					if err != nil || r.Failure != nil {
						t.Fatal(err, r.Failure)
					}
					if len(r.Steps) != len(p.SizesBytes) {
						t.Fatalf("%d steps, want %d", len(r.Steps), len(p.SizesBytes))
					}
					for _, s := range r.Steps {
						checkStep(t, &p, s)
						if s.CPU == nil || s.CPU.InitiatorNs <= 0 || s.CPU.ResponderNs <= 0 || s.CPU.Bytes < uint64(s.SizeBytes) {
							t.Errorf("size %d: CPU %+v", s.SizeBytes, s.CPU)
						}
					}
				})
			}
		}
	}
}

// What goes wrong on the way through host memory is found in the device's.
func TestThroughHostMemoryWrong(t *testing.T) {
	t.Setenv("GDR_STUB_FAULT", "flip:3")
	p := byRoute(perftest.RouteStaged, perftest.Bandwidth)
	// Each chunk is answered by a credit before the next goes: the third message
	// on the wire is the second chunk.
	p.SizesBytes, p.Chunks, p.Messages, p.WarmUp = []int{8192}, 1, 2, 0
	r, err := measure(t.Context(), p, localStream())
	if err != nil || r.Failure != nil || len(r.Steps) != 1 || len(r.Steps[0].Data) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	const wrong = 4096 + 2048
	if d := r.Steps[0].Data[0]; d.Correct || d.Side != perftest.Responder || d.FirstWrongOffset != wrong || d.Got^d.Want != 1 {
		t.Errorf("%+v", d)
	}
}

func TestThroughHostMemoryFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		fault, call, words string
		measure            perftest.Measure
	}{
		"memlock":      {"memlock", "ibv_reg_mr", "ulimit -l", perftest.Bandwidth},
		"lost chunk":   {"drop:21", "work completion", "no acknowledgement", perftest.Bandwidth},
		"lost credit":  {"drop:22", "work completion", "no acknowledgement", perftest.Bandwidth},
		"lost in ping": {"drop:33", "work completion", "no acknowledgement", perftest.Latency},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_FAULT", tt.fault)
			p := byRoute(perftest.RouteStaged, tt.measure)
			p.IdleNs = int64(300 * time.Millisecond)
			r, err := measure(t.Context(), p, localStream())
			if err != nil {
				t.Fatal(err)
			}
			if f := r.Failure; f == nil || f.Call != tt.call || !strings.Contains(f.Error(), tt.words) {
				t.Errorf("%+v, want %s with %q", f, tt.call, tt.words)
			}
		})
	}
}

// No device, no library: TCP needs neither.
func TestTCPWithoutRDMA(t *testing.T) {
	p := byRoute(perftest.RouteTCP, perftest.Bandwidth)
	l := perftest.NewLocal("")
	l.Address = "127.0.0.1"
	r, err := perftest.Loopback(t.Context(), &direct{library: "/nowhere"}, &direct{library: "/nowhere"}, p, l, l, nil)
	if err != nil || !r.Good() || r.MTUBytes != 0 || r.Scope != "" || r.Responder.Stream != nil {
		t.Errorf("%v, %+v", err, r)
	}
	l.Address = "192.0.2.1" // for documentation: no node has it
	r, err = perftest.Loopback(t.Context(), &direct{}, &direct{}, p, l, l, nil)
	if err != nil || r.Failure == nil || r.Failure.Call != "listen" || r.Failure.Errno != int(syscall.EADDRNOTAVAIL) || r.Faulty != perftest.Responder {
		t.Errorf("%v, %+v", err, r)
	}
}

// A peer that knows the key and then keeps to nothing harms nobody: each of
// these is answered by an error, in time.
func TestHostileStream(t *testing.T) {
	frame := func(kind string, last uint32, value uint64) []byte {
		b := binary.NativeEndian.AppendUint32([]byte(kind), last)
		return binary.NativeEndian.AppendUint64(b, value)
	}
	chunk := append(frame("chun", 0, 64), make([]byte, 64)...)
	for name, tt := range map[string]struct {
		sent  []byte
		stays bool
		call  string
		errno syscall.Errno
	}{
		"leaves":               {nil, false, "the other end closed the data socket", syscall.ECONNRESET},
		"says nothing":         {nil, true, "waiting for a completion", syscall.ETIMEDOUT},
		"half a header":        {frame("chun", 0, 64)[:7], false, "the other end closed the data socket", syscall.ECONNRESET},
		"half a chunk":         {chunk[:20], true, "waiting for a completion", syscall.ETIMEDOUT},
		"another protocol":     {[]byte("GET / HTTP/1.1\r\nHost: node\r\n\r\n"), true, "what arrived on the data socket", syscall.EPROTO},
		"a chunk too long":     {frame("chun", 0, 65), true, "what arrived on the data socket", syscall.EPROTO},
		"a chunk of 16 EiB":    {frame("chun", 0, 1<<64-1), true, "what arrived on the data socket", syscall.EPROTO},
		"a chunk of nothing":   {frame("chun", 0, 0), true, "what arrived on the data socket", syscall.EPROTO},
		"credit for nothing":   {frame("cred", 0, 1), true, "a credit for what was not sent", syscall.EPROTO},
		"chunks after the end": {slices.Concat(frame("chun", 1, 64), make([]byte, 64), chunk), true, "a chunk without a free slot", syscall.EPROTO},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			p := byRoute(perftest.RouteTCP, perftest.Bandwidth)
			p.SizesBytes, p.IdleNs = []int{64}, int64(200*time.Millisecond)
			s, e, err := Open("", hostMemory(), p, localStream(), perftest.Responder)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			peer := make(chan *net.TCPConn, 1)
			go func() {
				conn, err := perftest.DialStream(t.Context(), *e.Stream, netip.Addr{})
				if err != nil {
					t.Error(err)
				}
				peer <- conn
			}()
			if err := s.Connect(perftest.Endpoint{}); err != nil {
				t.Fatal(err)
			}
			conn := <-peer
			defer conn.Close()
			if err := s.Prepare(64); err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write(tt.sent)
			if !tt.stays {
				_ = conn.Close()
			}
			_, err = s.Run(64)
			f := perftest.AsFailure(err)
			if err == nil || f.Call != tt.call || syscall.Errno(f.Errno) != tt.errno {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Copies alone: as many as were asked for, in both directions, and each arrives.
func TestCopies(t *testing.T) {
	for _, side := range []perftest.Side{perftest.Initiator, perftest.Responder} {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			t.Run(fmt.Sprintf("%s %s", side, m), func(t *testing.T) {
				p := byRoute(perftest.RouteCopy, m)
				p.ChunkBytes = 64 << 10
				r, err := perftest.Copies(t.Context(), &direct{}, side, p, perftest.NewLocal(""), nil)
				if err != nil || r.Failure != nil || len(r.Steps) != len(p.SizesBytes) {
					t.Fatalf("%v, %+v", err, r)
				}
				for _, s := range r.Steps {
					checkStep(t, &p, s)
					if m == perftest.Bandwidth && s.Forward.Messages != uint64(p.Messages) {
						t.Errorf("size %d: %d copies, want %d", s.SizeBytes, s.Forward.Messages, p.Messages)
					}
				}
			})
		}
	}
}

// On a GPU copies are still under way when the CPU goes on: a slot that is used
// again too early, or sent before it is filled, shows as wrong data.
func TestThroughHostMemoryOnGPU(t *testing.T) {
	t.Setenv("GDR_STUB_CUDA_LATE", "3")
	host := localStream()
	kinds := map[string]perftest.Local{
		"cuda": gpuLocal(t, perftest.MemoryCUDA, "", gpuA), "vmm": gpuLocal(t, perftest.MemoryCUDAVMM, "", gpuB),
	}
	for name, l := range kinds {
		l.Address = host.Address
		kinds[name] = l
	}
	kinds["host"] = host
	for _, route := range []perftest.Route{perftest.RouteStaged, perftest.RouteTCP} {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			for _, ends := range [][2]string{{"cuda", "vmm"}, {"vmm", "host"}, {"host", "cuda"}} {
				t.Run(fmt.Sprint(route, m, ends), func(t *testing.T) {
					p := byRoute(route, m)
					p.Bidirectional = m == perftest.Bandwidth
					r := measureGPU(t, p, kinds[ends[0]], kinds[ends[1]])
					if r.Failure != nil || len(r.Steps) != len(p.SizesBytes) {
						t.Fatal(r.Failure)
					}
					for _, s := range r.Steps {
						checkStep(t, &p, s)
					}
					if b := r.Initiator.Memory; b.Kind != kinds[ends[0]].Memory || (b.Way == "") != (route == perftest.RouteTCP) {
						t.Errorf("%+v", b)
					}
				})
			}
		}
	}
}

// An error of the GPU's library is the test's, by its own name.
func TestThroughHostMemoryGPUFailures(t *testing.T) {
	for fault, call := range map[string]string{
		"cuMemHostRegister_v2:1": "cuMemHostRegister_v2", "cuStreamCreate:2": "cuStreamCreate", "cuEventCreate:2": "cuEventCreate",
		"cuMemcpyDtoHAsync_v2:719": "cuMemcpyDtoHAsync_v2", "cuEventQuery:719": "copying from the device", "cuMemcpyHtoDAsync_v2:719": "cuMemcpyHtoDAsync_v2",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("GDR_STUB_CUDA", fault)
			p := byRoute(perftest.RouteStaged, perftest.Bandwidth)
			p.IdleNs = int64(300 * time.Millisecond)
			l := gpuLocal(t, perftest.MemoryCUDA, "", gpuA)
			r := measureGPU(t, p, l, l)
			if f := r.Failure; f == nil || f.Call != call || f.Code == 0 || !strings.HasPrefix(f.Status, "CUDA_ERROR_") {
				t.Errorf("%+v, want one of %s", r.Failure, call)
			}
		})
	}
}
