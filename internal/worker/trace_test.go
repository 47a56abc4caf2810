package worker

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// doubles puts those of libibverbs, CUDA and HIP in the libraries' places.
func doubles(t *testing.T) (cuda, hip string) {
	t.Helper()
	cuda, hip = filepath.Join(stubDir, "cuda.so"), filepath.Join(t.TempDir(), "libhip.so")
	if b, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-w", "-o", hip, "../mem/testdata/libhip.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv(CUDALibraryEnv, cuda)
	t.Setenv(HIPLibraryEnv, hip)
	return cuda, hip
}

// However a worker is lost while it sets up, in whichever call of libibverbs, CUDA or
// HIP: the failure names that call and the device or GPU, and a call that hangs costs
// no more than was allowed.
func TestLostInSetUp(t *testing.T) {
	cuda, hip := doubles(t)
	const gpu = "GPU3 (0000:10:00.0)"
	const onDevice, onGPU = "GDR_STUB_CALL", "GDR_STUB_CUDA"
	for _, tt := range []struct {
		kind, env, calls, subject string
		hangs                     []string // of calls: each costs the time that it is given
	}{
		{
			perftest.MemoryHost, onDevice,
			"ibv_get_device_list ibv_open_device ibv_query_device ibv_query_port ibv_query_port_speed ibv_alloc_pd ibv_reg_mr ibv_create_comp_channel ibv_create_cq ibv_create_qp ibv_modify_qp",
			"stub0", []string{"ibv_open_device", "ibv_create_qp"},
		},
		{perftest.MemoryCUDA, onDevice, "ibv_reg_dmabuf_mr", "stub0", []string{"ibv_reg_dmabuf_mr"}},
		{
			perftest.MemoryCUDA, onGPU,
			"cuInit cuDeviceGetByPCIBusId cuDevicePrimaryCtxRetain cuCtxSetCurrent cuMemAlloc_v2 cuMemGetHandleForAddressRange",
			gpu, []string{"cuInit", "cuMemAlloc_v2"},
		},
		{perftest.MemoryCUDAVMM, onGPU, "cuMemAddressReserve cuMemCreate cuMemMap cuMemSetAccess", gpu, nil},
		{perftest.MemoryROCm, onGPU, "hipInit hipDeviceGetByPCIBusId hipSetDevice hipMalloc hsa_amd_portable_export_dmabuf", gpu, []string{"hipInit", "hipMalloc"}},
	} {
		t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
		if tt.kind == perftest.MemoryROCm {
			t.Setenv("GDR_STUB_CUDA_LIBRARY", hip)
		}
		lose := func(call, how, cause string) {
			t.Run(tt.kind+" "+call+" "+how, func(t *testing.T) {
				t.Setenv(tt.env, call+":"+how)
				p := perftest.NewPlan(perftest.WriteImm, perftest.Bandwidth)
				p.FootprintBytes, p.Events, p.StepNs = 1<<20, true, int64(time.Second)
				l := perftest.NewLocal("stub0")
				if l.Memory = tt.kind; perftest.OnGPU(tt.kind) {
					l.GPU = &perftest.GPU{Index: 3, Addr: pci.Address{Bus: 0x10}}
				}
				e := &Perf{}
				defer e.Close()
				within(t, 4*time.Second, func() {
					_, err := e.Open(t.Context(), p, l, perftest.Responder)
					f, ok := errors.AsType[*perftest.Failure](err)
					if !ok || !strings.HasPrefix(f.Call, call) || f.Subject != tt.subject || !strings.HasPrefix(f.Cause, cause) {
						t.Errorf("got %v, want %s on %s: %s", err, call, tt.subject, cause)
					}
				})
			})
		}
		for call := range strings.FieldsSeq(tt.calls) {
			lose(call, "crash", "the worker was ended by SIGABRT")
			if tt.env == onDevice {
				lose(call, "exit", "the worker ended with exit status 3")
			}
		}
		for _, call := range tt.hangs {
			lose(call, "hang", "no answer from the driver within 1s")
		}
	}
}

// What ends while a call is under way names it, and is still what ended it.
func TestEndedInSetUp(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv("GDR_STUB_CALL", "ibv_create_cq:hang")
	e := &Perf{}
	defer e.Close()
	why := errors.New("the time was over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
	defer cancel()
	if _, err := perfOpen(ctx, e); !errors.Is(err, why) || !strings.HasSuffix(err.Error(), "the time was over, in ibv_create_cq") {
		t.Errorf("%v", err)
	}
}

// A worker that dies between two calls says which was the last.
func TestLostBetweenCalls(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	e := &Perf{}
	defer e.Close()
	if _, err := perfOpen(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	_ = e.p.proc.Kill()
	err := e.Prepare(t.Context(), 4096)
	if f, ok := errors.AsType[*perftest.Failure](err); !ok || f.Call != "prepare" || !strings.Contains(f.Cause, "SIGKILL; the last call before was ibv_") {
		t.Errorf("%v", err)
	}
}

// Every call of CUDA or HIP that fails while memory is taken or registered says of
// which GPU: its number and its address.
func TestFailureNamesGPU(t *testing.T) {
	cuda, hip := doubles(t)
	for kind, faults := range map[string]string{
		perftest.MemoryCUDA:    "cuInit:100 cuDeviceGetByPCIBusId:101 cuDevicePrimaryCtxRetain:2 cuCtxSetCurrent:201 cuMemAlloc_v2:2 cuMemGetHandleForAddressRange:801",
		perftest.MemoryCUDAVMM: "cuMemAddressReserve:2 cuMemCreate:2 cuMemMap:1 cuMemSetAccess:1",
		perftest.MemoryROCm:    "hipInit:100 hipDeviceGetByPCIBusId:101 hipSetDevice:101 hipMalloc:2 hsa_amd_portable_export_dmabuf:4097",
	} {
		t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
		if kind == perftest.MemoryROCm {
			t.Setenv("GDR_STUB_CUDA_LIBRARY", hip)
		}
		for fault := range strings.FieldsSeq(faults) {
			t.Run(kind+" "+fault, func(t *testing.T) {
				t.Setenv("GDR_STUB_CUDA", fault)
				p := perftest.NewPlan(perftest.WriteImm, perftest.Bandwidth)
				p.FootprintBytes = 1 << 20
				l := perftest.NewLocal("stub0")
				l.Memory, l.Way, l.GPU = kind, perftest.WayDMABuf, &perftest.GPU{Index: 3, Addr: pci.Address{Bus: 0x10}}
				e := &Perf{}
				defer e.Close()
				_, err := e.Open(t.Context(), p, l, perftest.Responder)
				call, _, _ := strings.Cut(fault, ":")
				if err == nil || !strings.Contains(err.Error(), call+" on GPU3 (0000:10:00.0): ") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}
