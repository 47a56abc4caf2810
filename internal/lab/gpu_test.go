package lab

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/gpu.sh
var gpuScript string

// checkGPU: data moved between the memory of two GPUs, and between a GPU and the
// host, over Soft-RoCE. The GPUs are doubles; the verbs are the kernel's, which
// refuse a dma-buf there and take memory by its address.
func checkGPU(t *testing.T, dir string) {
	sizes := len(perftest.Sweep(1, 8<<20))
	for _, tt := range []struct {
		file          string
		plans, steps  int
		from, to      string // kind and GPU
		way, fallback perftest.Way
	}{
		{"sweep-write", 1, sizes, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"sweep-write_imm", 1, sizes, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"sweep-read", 1, sizes, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"sweep-send", 1, sizes, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"latency", 3, 3, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"polled", 1, 1, "host", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"datagrams", 2, 3, "cuda 0", "cuda 1", perftest.WayPeermem, perftest.WayDMABuf},
		{"to-gpu", 3, 1, "host", "cuda-vmm 1", perftest.WayPeermem, ""},
		{"from-gpu", 4, 1, "cuda 0", "host", perftest.WayPeermem, ""},
	} {
		t.Run(tt.file, func(t *testing.T) {
			doc := decode[report.Perf](t, dir, tt.file+".json")
			if len(doc.Results) != tt.plans || !doc.Simulated {
				t.Fatalf("%d results, want %d; simulated: %v", len(doc.Results), tt.plans, doc.Simulated)
			}
			for _, r := range doc.Results {
				checkResult(t, r, tt.steps)
				if r.Plan.Polls() {
					t.Errorf("%s %s of a GPU's memory", r.Plan.Operation, r.Plan.Measure)
				}
				checkFlushes(t, r)
				for end, want := range map[*perftest.Endpoint]string{&r.Initiator: tt.from, &r.Responder: tt.to} {
					checkBuffer(t, &end.Memory, want, tt.way, tt.fallback)
				}
			}
		})
	}
	for file, words := range map[string]string{
		"dmabuf":   "ibv_reg_dmabuf_mr on rxe0: driver or provider have no dma-buf registration (errno 95",
		"memory":   "CUDA_ERROR_OUT_OF_MEMORY (2): the GPU has not enough free memory",
		"mismatch": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
		"crash":    "SIGABRT",
	} {
		doc := decode[report.Perf](t, dir, file+".json")
		if f := doc.Results[0].Failure; f == nil || !strings.Contains(strings.ReplaceAll(f.Error(), "rxe1", "rxe0"), words) {
			t.Errorf("%s: %v, want %q", file, f, words)
		}
	}
	checkProbe(t, dir)
	polled := decode[report.Perf](t, dir, "polled.json").Results[0]
	if polled.Plan.Operation != perftest.WriteImm || len(polled.Notes) != 2 {
		t.Errorf("%s, %q", polled.Plan.Operation, polled.Notes)
	}
}

// checkFlushes wants a flush of each GPU's memory that a latency's data arrived in.
func checkFlushes(t *testing.T, r *perftest.Result) {
	t.Helper()
	want := 0
	for i, e := range []*perftest.Endpoint{&r.Initiator, &r.Responder} {
		if arrives := r.Plan.Operation != perftest.Read || i == 0; r.Plan.Measure == perftest.Latency && arrives && perftest.OnGPU(e.Memory.Kind) {
			want += 2 // by a read, and by the library's call
		}
	}
	for _, s := range r.Steps {
		for _, f := range s.Flush {
			if f.Failure != nil || f.Latency == nil {
				t.Errorf("flush by %s: %v", f.Method, f.Failure)
			}
		}
		if len(s.Flush) != want {
			t.Errorf("%s %s: %d flushes, want %d", r.Plan.Operation, r.Plan.Measure, len(s.Flush), want)
		}
	}
}

// Soft-RoCE registers the memory by its address and no dma-buf, and that is no
// GPUDirect RDMA. Whether the doubles of the GPUs are in use is not known, so
// they are taken only where that is forced.
func checkProbe(t *testing.T, dir string) {
	t.Helper()
	forced := decode[report.Check](t, dir, "probe.json")
	if len(forced.Machine.Registrations) != 2*2*pairs || !forced.Simulated {
		t.Errorf("%d registrations, want 2 GPUs with %d devices each; simulated: %v", len(forced.Machine.Registrations), 2*pairs, forced.Simulated)
	}
	for _, r := range forced.Machine.Registrations {
		p, ok := r.Probe.Get()
		if !ok || len(p.Ways) != 4 || p.Failed != nil {
			t.Fatalf("%+v", r.Probe)
		}
		for _, w := range p.Ways {
			if works := w.Error == nil; works != (w.Way == string(perftest.WayPeermem)) || !works && w.Error.Errno != 95 {
				t.Errorf("%s %s: %+v", w.Memory, w.Way, w.Error)
			}
		}
	}
	for _, f := range forced.Findings {
		if f.Verdict != checks.Info || !strings.Contains(f.Message, "software RDMA") || !strings.Contains(f.Message, "no dma-buf registration") {
			t.Errorf("%s: %s %q", f.Subject, f.Verdict, f.Message)
		}
	}
	idle := decode[report.Check](t, dir, "idle.json")
	for _, f := range idle.Findings {
		if f.Verdict != checks.Unknown || !strings.Contains(f.Message, "in use is not known") {
			t.Errorf("%s: %s %q", f.Subject, f.Verdict, f.Message)
		}
	}
	again := decode[report.Check](t, dir, "again.json")
	if diff := cmp.Diff(idle.Findings, again.Findings); diff != "" || len(again.Findings) != 2*2*pairs {
		t.Errorf("the recording: %d findings %s", len(again.Findings), diff)
	}
}

func checkBuffer(t *testing.T, m *perftest.Buffer, want string, way, fallback perftest.Way) {
	t.Helper()
	got := m.Kind
	if m.GPU != nil {
		got += fmt.Sprintf(" %d", m.GPU.Index)
	}
	if got != want {
		t.Errorf("memory %s, want %s", got, want)
	}
	if !perftest.OnGPU(m.Kind) {
		return
	}
	if m.Way != way || m.Double == "" || (len(m.Failed) == 1) != (fallback != "") {
		t.Errorf("%+v, want %s after %q", m, way, fallback)
	}
	const eopnotsupp = 95
	for _, f := range m.Failed {
		if f.Way != fallback || f.Failure.Errno != eopnotsupp {
			t.Errorf("%s: %+v", f.Way, f.Failure)
		}
	}
}
