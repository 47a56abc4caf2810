package worker

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
)

func registrationArgs(t *testing.T, kinds ...string) []string {
	t.Helper()
	var args []string
	for _, gpu := range []string{"0000:10:00.0", "0000:30:00.0"} {
		a, err := pci.ParseAddress(gpu)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, rdma.RegistrationAsk{GPU: a, Device: "stub0", Kinds: kinds, Ways: []string{"data-direct", "dmabuf", "peermem"}}.String())
	}
	return args
}

func askRegistrations(t *testing.T, args []string) []fact.Record {
	t.Helper()
	cuda := filepath.Join(stubDir, "cuda.so")
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv(CUDALibraryEnv, cuda)
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	c := &Client{GateTimeout: 2 * time.Second}
	recs, err := c.Ask(t.Context(), fact.AskRegistration, args...)
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != 1+len(args) || recs[0].Subject != "double" {
		t.Fatalf("%+v", recs)
	}
	return recs[1:]
}

// summary is a probe without its times: "cuda dmabuf ok", "cuda peermem ibv_reg_mr 14".
func summary(t *testing.T, r fact.Record) []string {
	t.Helper()
	v := fact.Decode[rdma.RegistrationProbe](r)
	p, ok := v.Get()
	if !ok {
		return []string{v.State.String() + " " + v.Reason}
	}
	if p.Failed != nil {
		return []string{errorText(p.Failed)}
	}
	var out []string
	for _, w := range p.Ways {
		text := "ok"
		if w.Error != nil {
			text = errorText(w.Error)
		} else if w.RegisterNs <= 0 || (w.ExportNs > 0) != (w.Way != "peermem") {
			t.Errorf("%+v", w)
		}
		out = append(out, w.Memory+" "+w.Way+" "+text)
	}
	return out
}

func errorText(e *rdma.CallError) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s %s", e.Call, e.Errno+e.Code, e.Name, e.Text))
}

func TestRegistration(t *testing.T) {
	for name, tt := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"all ways": {nil, []string{
			"cuda data-direct ok", "cuda dmabuf ok", "cuda peermem ok",
			"cuda-vmm data-direct ok", "cuda-vmm dmabuf ok", "cuda-vmm peermem ok",
		}},
		"none": {map[string]string{"GDR_STUB_DMABUF": "95", "GDR_STUB_DIRECT": "22", "GDR_STUB_PEERMEM": "14"}, []string{
			"cuda data-direct mlx5dv_reg_dmabuf_mr 22", "cuda dmabuf ibv_reg_dmabuf_mr 95", "cuda peermem ibv_reg_mr 14",
			"cuda-vmm data-direct mlx5dv_reg_dmabuf_mr 22", "cuda-vmm dmabuf ibv_reg_dmabuf_mr 95", "cuda-vmm peermem ibv_reg_mr 14",
		}},
		"no export": {map[string]string{"GDR_STUB_CUDA": "cuMemGetHandleForAddressRange:801"}, []string{
			"cuda data-direct cuMemGetHandleForAddressRange for PCIe 801 CUDA_ERROR_NOT_SUPPORTED",
			"cuda dmabuf cuMemGetHandleForAddressRange 801 CUDA_ERROR_NOT_SUPPORTED", "cuda peermem ok",
			"cuda-vmm data-direct cuMemGetHandleForAddressRange for PCIe 801 CUDA_ERROR_NOT_SUPPORTED",
			"cuda-vmm dmabuf cuMemGetHandleForAddressRange 801 CUDA_ERROR_NOT_SUPPORTED", "cuda-vmm peermem ok",
		}},
		"no VMM": {map[string]string{"GDR_STUB_CUDA": "cuMemCreate:801"}, []string{
			"cuda data-direct ok", "cuda dmabuf ok", "cuda peermem ok",
			"cuda-vmm data-direct cuMemCreate 801 CUDA_ERROR_NOT_SUPPORTED",
			"cuda-vmm dmabuf cuMemCreate 801 CUDA_ERROR_NOT_SUPPORTED", "cuda-vmm peermem cuMemCreate 801 CUDA_ERROR_NOT_SUPPORTED",
		}},
		"mismatch":      {map[string]string{"GDRCHECK_STUB_MODE": "mismatch"}, []string{"cuInit 803 CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}},
		"out of memory": {map[string]string{"GDR_STUB_CUDA": "cuMemAlloc_v2:2"}, []string{"cuMemAlloc_v2 2 CUDA_ERROR_OUT_OF_MEMORY"}},
		"GPU busy":      {map[string]string{"GDR_STUB_CUDA": "cuDevicePrimaryCtxRetain:46"}, []string{"cuDevicePrimaryCtxRetain 46 CUDA_ERROR_DEVICE_UNAVAILABLE"}},
		"hidden":        {map[string]string{"GDR_STUB_CUDA_GPUS": "0000:99:00.0"}, []string{"cuDeviceGetByPCIBusId 101 CUDA_ERROR_INVALID_DEVICE"}},
		"hang": {map[string]string{"GDR_STUB_CUDA": "cuMemAlloc_v2:hang"}, []string{
			"failed a context and cuda memory on GPU ADDR: no answer within 2s",
		}},
		"crash": {map[string]string{"GDR_STUB_CUDA": "cuMemGetHandleForAddressRange:crash"}, []string{
			"failed registration of cuda memory by data-direct: the worker was ended by SIGABRT",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			for i, r := range askRegistrations(t, registrationArgs(t, "cuda", "cuda-vmm")) {
				var want []string
				for _, w := range tt.want {
					want = append(want, strings.ReplaceAll(w, "ADDR", []string{"0000:10:00.0", "0000:30:00.0"}[i]))
				}
				if d := cmp.Diff(want, summary(t, r)); d != "" {
					t.Errorf("%s: %s", r.Subject, d)
				}
			}
		})
	}
}

// What the libraries lack is said of every pair.
func TestRegistrationWithout(t *testing.T) {
	args := registrationArgs(t, "cuda")
	t.Setenv(VerbsLibraryEnv, "/nowhere/libibverbs.so.1")
	t.Setenv(CUDALibraryEnv, "")
	recs, err := new(Client).Ask(t.Context(), fact.AskRegistration, args...)
	if err != nil || len(recs) != 3 || !strings.Contains(strings.Join(summary(t, recs[1]), ""), "dlopen /nowhere/libibverbs.so.1 0") {
		t.Errorf("%+v, %v", recs, err)
	}
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv(CUDALibraryEnv, "/nowhere/libcuda.so.1")
	recs, err = new(Client).Ask(t.Context(), fact.AskRegistration, args...)
	if err != nil || len(recs) != 3 || strings.Join(summary(t, recs[1]), "") != "dlopen 0  the library is not installed" {
		t.Errorf("%+v, %v", recs, err)
	}
}

// A measurement on a GPU says which call of its library did not return, and what
// else its library had to say.
func TestPerfOnGPU(t *testing.T) {
	cuda := filepath.Join(stubDir, "cuda.so")
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv(CUDALibraryEnv, cuda)
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	addr, err := pci.ParseAddress("0000:10:00.0")
	if err != nil {
		t.Fatal(err)
	}
	p := perftest.NewPlan(perftest.Write, perftest.Bandwidth)
	p.FootprintBytes = 1 << 20
	l := perftest.NewLocal("stub0")
	l.Memory, l.GPU = perftest.MemoryCUDA, &perftest.GPU{Addr: addr}
	for fault, tt := range map[string]struct {
		words string
		late  bool
	}{
		"":                             {"", false},
		"cuMemAlloc_v2:hang":           {"cuMemAlloc_v2", true},
		"cuCtxSetCurrent:hang":         {"cuCtxSetCurrent", true},
		"cuInit:803":                   {"of different versions", false},
		"cuDevicePrimaryCtxRetain:46":  {"another process has it", false},
		"cuDevicePrimaryCtxRetain:304": {"a call of the operating system failed", false},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("GDR_STUB_CUDA", fault)
			e := &Perf{}
			p.StepNs = int64(time.Second)
			defer e.Close()
			got, err := e.Open(t.Context(), p, l, perftest.Responder)
			switch {
			case fault == "":
				if err != nil || got.Memory.Way != perftest.WayDMABuf || got.Memory.Double != cuda || got.Memory.GPU.Addr != addr {
					t.Errorf("%+v, %v", got.Memory, err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "no answer from the driver") != tt.late:
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

// Two workers move data between the memory of two GPUs, and its data is right, or
// found to be wrong.
func TestPerfBetweenWorkers(t *testing.T) {
	cuda := filepath.Join(stubDir, "cuda.so")
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv(CUDALibraryEnv, cuda)
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	ends := map[string][2]perftest.Local{}
	for kind, name := range map[string]string{perftest.MemoryHost: "host", perftest.MemoryCUDA: "GPU", perftest.MemoryCUDAVMM: "VMM"} {
		a := perftest.NewLocal("stub0")
		a.Memory = kind
		b := a
		b.Place = 1
		if perftest.OnGPU(kind) {
			a.GPU, b.GPU = &perftest.GPU{Addr: pci.Address{Bus: 0x10}}, &perftest.GPU{Addr: pci.Address{Bus: 0x30}}
		}
		ends[name] = [2]perftest.Local{a, b}
	}
	for name, l := range ends {
		for _, op := range perftest.Operations {
			for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
				p := perftest.NewPlan(op, m)
				p.SizesBytes, p.FootprintBytes = []int{1, 64, 70000}, 256<<10
				p.Messages, p.WarmUp, p.DurationNs, p.MarginNs = 100, 5, 0, 0
				if p.Polls() && name != "host" {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %s", name, op, m), func(t *testing.T) {
					r, err := perftest.Loopback(t.Context(), &Perf{}, &Perf{}, p, l[0], l[1], nil)
					if err != nil || !r.Good() || len(r.Steps) != 3 || !r.Simulated {
						t.Fatalf("%v, %+v", err, r)
					}
				})
			}
		}
	}
	for _, fault := range []string{"flip:5", "stray:5", "stale:5"} {
		t.Setenv("GDR_STUB_FAULT", fault)
		p := perftest.NewPlan(perftest.Write, perftest.Bandwidth)
		p.SizesBytes, p.FootprintBytes, p.Messages, p.WarmUp, p.DurationNs, p.MarginNs = []int{1000}, 256<<10, 20, 0, 0, 0
		r, err := perftest.Loopback(t.Context(), &Perf{}, &Perf{}, p, ends["GPU"][0], ends["GPU"][1], nil)
		if err != nil || r.Failure != nil || r.Good() {
			t.Errorf("%s passes as good: %v, %+v", fault, err, r)
		}
	}
}
