package lab

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/gpu-run.sh
var gpuRun string

// TestGPU moves data between the memory of two GPUs, and between a GPU and the
// host, over Soft-RoCE. The GPUs are doubles; the verbs are the kernel's, which
// refuse a dma-buf there and take memory by its address.
func TestGPU(t *testing.T) {
	dir := boot(t, Guest{Script: perfSetUp + gpuRun, Machine: []string{"-machine", "q35", "-m", "1G"}})
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
	polled := decode[report.Perf](t, dir, "polled.json").Results[0]
	if polled.Plan.Operation != perftest.WriteImm || len(polled.Notes) != 1 {
		t.Errorf("%s, %q", polled.Plan.Operation, polled.Notes)
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
