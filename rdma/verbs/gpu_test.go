package verbs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// realGPUs are PCI addresses of GPUs, one or two, that tests of this package take
// in place of the doubles, with the machine's own libcuda. The verbs stay a double.
var realGPUs = strings.Fields(os.Getenv("GDRCHECK_TEST_GPU"))

// cudaDouble builds the test double of libcuda. Its memory crashes whoever
// touches it by the CPU.
var cudaDouble = sync.OnceValues(func() (string, error) {
	if len(realGPUs) > 0 {
		return "libcuda.so.1", nil
	}
	out := filepath.Join("testdata", "libcuda.so")
	cmd := exec.Command("cc", "-shared", "-fPIC", "-O1", "-w", "-o", out, "../../internal/mem/testdata/libcuda.c")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, b)
	}
	return filepath.Abs(out)
})

// hipDouble builds the test double of HIP, over that of libcuda.
var hipDouble = sync.OnceValues(func() (string, error) {
	out := filepath.Join("testdata", "libhip.so")
	cmd := exec.Command("cc", "-shared", "-fPIC", "-O1", "-w", "-o", out, "../../internal/mem/testdata/libhip.c")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w\n%s", err, b)
	}
	return filepath.Abs(out)
})

// gpuLocal is an end whose data is in the memory of a GPU of the double.
func gpuLocal(t *testing.T, kind string, way perftest.Way, addr string) perftest.Local {
	t.Helper()
	a, err := pci.ParseAddress(addr)
	if err != nil {
		t.Fatal(err)
	}
	l := perftest.NewLocal("stub0")
	l.Memory, l.Way, l.GPU = kind, way, &perftest.GPU{Addr: a}
	return l
}

var gpuA, gpuB = func() (a, b string) {
	if n := len(realGPUs); n > 0 {
		return realGPUs[0], realGPUs[n-1]
	}
	return "0000:10:00.0", "0000:30:00.0"
}()

// ofDoubleOnly skips a test that tells libcuda how to fail.
func ofDoubleOnly(t *testing.T) {
	t.Helper()
	if len(realGPUs) > 0 {
		t.Skip("a real GPU does not fail as told")
	}
}

func measureGPU(t *testing.T, p perftest.Plan, a, b perftest.Local) *perftest.Result {
	t.Helper()
	lib, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	double := cudaDouble
	if a.Memory == perftest.MemoryROCm {
		double = hipDouble
	}
	cuda, err := double()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID") // as the worker does
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := perftest.Loopback(ctx, &direct{library: lib, cuda: cuda}, &direct{library: lib, cuda: cuda}, p, a, b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every plan that does not poll memory runs on a GPU's, and its data is right:
// each with one pair of ends in turn, so that over all plans every kind of memory
// and every way takes part as source and as destination.
func TestGPU(t *testing.T) {
	host := perftest.NewLocal("stub0")
	cuda := func(way perftest.Way, addr string) perftest.Local { return gpuLocal(t, perftest.MemoryCUDA, way, addr) }
	vmm := gpuLocal(t, perftest.MemoryCUDAVMM, perftest.WayPeermem, gpuA)
	pairs := [][2]perftest.Local{
		{cuda(perftest.WayDMABuf, gpuA), cuda(perftest.WayPeermem, gpuB)},
		{vmm, vmm},
		{host, cuda(perftest.WayDMABufPCIe, gpuA)},
		{cuda(perftest.WayDataDirect, gpuA), host},
	}
	if len(realGPUs) > 0 { // which may map nothing for PCIe
		pairs[2][1].Way, pairs[3][0].Way = perftest.WayDMABuf, perftest.WayDMABuf
		pairs[1] = [2]perftest.Local{gpuLocal(t, perftest.MemoryCUDAVMM, perftest.WayDMABuf, gpuA), vmm}
	}
	all := plans()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		p, ends := all[name], pairs[i%len(pairs)]
		if p.Polls() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := measureGPU(t, p, ends[0], ends[1])
			if r.Failure != nil {
				t.Fatal(r.Failure)
			}
			if len(r.Steps) != len(p.SizesBytes) {
				t.Fatalf("%d steps, want %d", len(r.Steps), len(p.SizesBytes))
			}
			for _, s := range r.Steps {
				checkStep(t, &p, s)
				checkFlush(t, &p, s, ends)
			}
			for i, e := range []perftest.Endpoint{r.Initiator, r.Responder} {
				if m := e.Memory; m.Kind != ends[i].Memory || m.Way != ends[i].Ways()[0] || len(m.Failed) > 0 || (m.GPU != nil) != perftest.OnGPU(m.Kind) {
					t.Errorf("end %d: %+v", i, m)
				}
			}
		})
	}
}

// checkFlush wants both ways of each end that data arrives at in a GPU's memory.
func checkFlush(t *testing.T, p *perftest.Plan, s perftest.Step, ends [2]perftest.Local) {
	t.Helper()
	want := 0
	for i, l := range ends {
		arrives := p.Operation != perftest.Read || i == 0
		if p.Measure == perftest.Latency && arrives && perftest.OnGPU(l.Memory) {
			want += 2
		}
	}
	if len(s.Flush) != want {
		t.Errorf("size %d: %d flushes, want %d", s.SizeBytes, len(s.Flush), want)
	}
	for _, f := range s.Flush {
		if f.Failure != nil || f.Latency == nil || f.Latency.MinNs <= 0 {
			t.Errorf("size %d: %+v, %v", s.SizeBytes, f, f.Failure)
		}
	}
}

// Memory of several pieces is one to whoever uses it.
func TestVMMPieces(t *testing.T) {
	p := small(perftest.WriteImm, perftest.Latency, 1<<20)
	p.FootprintBytes, p.Messages = 30<<20, 40 // sources and destinations: pieces of 20 MiB
	l := gpuLocal(t, perftest.MemoryCUDAVMM, perftest.WayPeermem, gpuB)
	if r := measureGPU(t, p, l, l); r.Failure != nil || !r.Good() || r.Initiator.Bytes < 60<<20 {
		t.Errorf("%v, %+v", r.Failure, r)
	}
}

// What goes wrong on the way to a GPU's memory is found in it.
func TestWrongDataOnGPU(t *testing.T) {
	const size = 1000
	for fault, untouched := range map[string]bool{"flip:5": false, "stray:3": true, "stale:7": false} {
		for _, op := range perftest.Operations {
			t.Run(fault+" "+string(op), func(t *testing.T) {
				t.Setenv("GDR_STUB_FAULT", fault)
				p := small(op, perftest.Bandwidth, size)
				p.Messages, p.WarmUp = 20, 0
				end := gpuLocal(t, perftest.MemoryCUDA, perftest.WayAuto, gpuA)
				r := measureGPU(t, p, end, end)
				if r.Failure != nil || r.Good() || len(r.Steps) != 1 || len(r.Steps[0].Data) != 1 {
					t.Fatalf("passes as good: %v, %+v", r.Failure, r.Steps)
				}
				if d := r.Steps[0].Data[0]; d.Untouched != untouched || d.Got == d.Want {
					t.Errorf("%+v", d)
				}
			})
		}
	}
}

// Auto takes the first way that works, and says why the others did not.
func TestWays(t *testing.T) {
	for name, tt := range map[string]struct {
		dmabuf, direct, peermem string
		dataDirect              bool
		want                    perftest.Way
		failed                  []perftest.Way
		words                   string // of the failure, where there is no way
	}{
		"dma-buf":          {want: perftest.WayDMABuf},
		"peer memory":      {dmabuf: "95", want: perftest.WayPeermem, failed: []perftest.Way{perftest.WayDMABuf}},
		"Data Direct":      {dataDirect: true, want: perftest.WayDataDirect},
		"no Data Direct":   {dataDirect: true, direct: "95", want: perftest.WayDMABuf, failed: []perftest.Way{perftest.WayDataDirect}},
		"none, Soft-RoCE":  {dmabuf: "95", peermem: "14", words: "by dmabuf: ibv_reg_dmabuf_mr: driver or provider have no dma-buf registration (errno 95"},
		"none, old kernel": {dmabuf: "93", peermem: "14", words: "RDMA core has no dma-buf registration (errno 93"},
		"refused":          {dmabuf: "524", peermem: "14", words: "refused this NIC"},
		"no peermem":       {dmabuf: "22", peermem: "14", words: "by peermem: ibv_reg_mr: the kernel could not pin the address: device memory without a peer memory module"},
		"BAR1 full":        {dmabuf: "12", peermem: "12", words: "BAR1"},
	} {
		t.Run(name, func(t *testing.T) {
			for env, v := range map[string]string{"GDR_STUB_DMABUF": tt.dmabuf, "GDR_STUB_DIRECT": tt.direct, "GDR_STUB_PEERMEM": tt.peermem} {
				t.Setenv(env, v)
			}
			l := gpuLocal(t, perftest.MemoryCUDA, perftest.WayAuto, gpuA)
			l.DataDirect = tt.dataDirect
			if tt.dataDirect {
				ofDoubleOnly(t)
			}
			r := measureGPU(t, small(perftest.Write, perftest.Bandwidth, 64), l, l)
			if tt.words != "" {
				if r.Failure == nil || !strings.Contains(r.Failure.Error(), tt.words) {
					t.Errorf("%v, want %q", r.Failure, tt.words)
				}
				return
			}
			m := r.Initiator.Memory
			if r.Failure != nil || !r.Good() || m.Way != tt.want || len(m.Failed) != len(tt.failed) {
				t.Fatalf("%v, %+v", r.Failure, m)
			}
			for i, f := range m.Failed {
				if f.Way != tt.failed[i] || f.Failure.Errno == 0 || f.Failure.Cause == "" {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// Errors of CUDA are never read as an errno, and are named.
func TestCUDAFailures(t *testing.T) {
	ofDoubleOnly(t)
	for name, tt := range map[string]struct {
		fault, call, status, words string
		way                        perftest.Way
	}{
		"out of memory":      {"cuMemAlloc_v2:2", "cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY (2)", "not enough free memory", ""},
		"no dma-buf":         {"cuMemGetHandleForAddressRange:801", "cuMemGetHandleForAddressRange", "CUDA_ERROR_NOT_SUPPORTED (801)", "exports no dma-buf", perftest.WayDMABuf},
		"exclusive process":  {"cuDevicePrimaryCtxRetain:46", "cuDevicePrimaryCtxRetain", "CUDA_ERROR_DEVICE_UNAVAILABLE (46)", "another process has it", ""},
		"GPU lost":           {"cuMemcpyHtoD_v2:719", "filling the memory", "CUDA_ERROR_LAUNCH_FAILED (719)", "lost", ""},
		"PCIe mapping":       {"pcie-mapping:801", "cuMemGetHandleForAddressRange for PCIe", "CUDA_ERROR_NOT_SUPPORTED (801)", "maps no dma-buf for PCIe", perftest.WayDMABufPCIe},
		"unknown to us, too": {"cuMemAlloc_v2:4711", "cuMemAlloc_v2", "CUDA error 4711", "does not know", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_CUDA", tt.fault)
			l := gpuLocal(t, perftest.MemoryCUDA, tt.way, gpuA)
			f := measureGPU(t, small(perftest.Write, perftest.Bandwidth, 64), l, l).Failure
			if f == nil || f.Call != tt.call || f.Status != tt.status || f.Errno != 0 || f.Code == 0 || !strings.Contains(f.Error(), tt.words) {
				t.Errorf("%+v", f)
			}
		})
	}
}

// A dma-buf holds the whole of the memory, whatever its size, and begins where the
// address does: the double of the verbs looks at its length, and at offset and
// address as the kernel does.
func TestExport(t *testing.T) {
	lib, err := provider()
	if err != nil {
		t.Fatal(err)
	}
	cuda, err := cudaDouble()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, failed := OpenRegistrar(lib, "stub0")
	if failed != nil {
		t.Fatalf("%+v", failed)
	}
	defer r.Close()
	largest := 64 << 20
	if len(realGPUs) > 0 {
		largest = 8 << 30
	}
	for _, kind := range []string{mem.CUDA, mem.CUDAVMM} {
		k, err := mem.Open(kind, cuda, gpuA)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{64 << 10, 1 << 20, 20 << 20, 64 << 20, 1 << 30, 8 << 30} {
			if size > largest {
				break
			}
			if failed := r.Alloc(Memory{Ops: k.Ops, Device: k.Device}, size); failed != nil {
				t.Fatalf("%s, %d bytes: %+v", kind, size, failed)
			}
			for _, way := range []perftest.Way{perftest.WayDMABuf, perftest.WayDMABufPCIe, perftest.WayPeermem} {
				p := r.Try(kind, way)
				t.Logf("%-8s %-11s %10d bytes: export %6d ns, %+v", kind, way, size, p.ExportNs, p.Error)
				if p.Error != nil && (len(realGPUs) == 0 || way == perftest.WayDMABuf) {
					t.Errorf("%s by %s, %d bytes: %+v", kind, way, size, p.Error)
				}
			}
		}
	}
}

// The same over HIP: a dma-buf that does not begin where the memory does, peer
// memory, errors of HIP and of HSA.
func TestHIP(t *testing.T) {
	ofDoubleOnly(t)
	for name, tt := range map[string]struct {
		fault, dmabuf string
		way           perftest.Way
		status, words string
	}{
		"dma-buf":       {way: perftest.WayDMABuf},
		"peer memory":   {dmabuf: "95", way: perftest.WayPeermem},
		"out of memory": {fault: "hipMalloc:2", status: "hipErrorOutOfMemory (2)", words: "rocm-smi"},
		"no GPU":        {fault: "hipSetDevice:100", status: "hipErrorUnknown (100)", words: "HIP sees no GPU"},
		"no export":     {fault: "hsa_amd_portable_export_dmabuf:4097", way: perftest.WayPeermem},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GDR_STUB_CUDA", tt.fault)
			t.Setenv("GDR_STUB_DMABUF", tt.dmabuf)
			l := gpuLocal(t, perftest.MemoryROCm, perftest.WayAuto, gpuA)
			for _, op := range perftest.Operations {
				r := measureGPU(t, small(op, perftest.Bandwidth, 64, 4096), l, l)
				if tt.words != "" {
					if f := r.Failure; f == nil || f.Status != tt.status || !strings.Contains(f.Error(), tt.words) {
						t.Errorf("%s: %+v", op, f)
					}
					continue
				}
				if r.Failure != nil || !r.Good() || r.Responder.Memory.Way != tt.way {
					t.Errorf("%s: %v, %+v", op, r.Failure, r.Responder.Memory)
				}
			}
		})
	}
}

// The CPU cannot poll a GPU's memory, and a test that would is refused.
func TestPollingRefused(t *testing.T) {
	l := gpuLocal(t, perftest.MemoryCUDA, perftest.WayAuto, gpuA)
	f := measureGPU(t, small(perftest.Write, perftest.Latency, 64), perftest.NewLocal("stub0"), l).Failure
	if f == nil || !strings.Contains(f.Error(), "write_imm") || syscall.Errno(f.Errno) != 0 {
		t.Errorf("%+v", f)
	}
}
