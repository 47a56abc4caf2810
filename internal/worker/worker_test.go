package worker

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
)

// stubDir holds the libraries that TestMain builds.
var stubDir string

// TestMain lets the test binary be the worker that its own clients start.
func TestMain(m *testing.M) {
	if IsWorker(os.Args) {
		addTestAsks()
		os.Exit(Main())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if stubDir, err = os.MkdirTemp("", "gdrcheck-stubs"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(stubDir)
	for name, args := range map[string][]string{
		"nvml.so": {"testdata/nvml_stub.c"}, "nvml-old.so": {"-DOLD", "testdata/nvml_stub.c"},
		"cuda.so": {"../mem/testdata/libcuda.c"}, "cuda-old.so": {"-DOLD", "../mem/testdata/libcuda.c"},
	} {
		args = append([]string{"-shared", "-fPIC", "-O0", "-w", "-o", filepath.Join(stubDir, name)}, args...)
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	return m.Run()
}

// within fails the test if f takes longer than d.
func within(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > d {
		t.Errorf("took %s, want at most %s", took, d)
	}
}

type outcome struct {
	Subject string
	State   fact.State
	Reason  string // a part of it
}

// check compares subjects and states, and looks for each wanted part of a reason.
func check(t *testing.T, recs []fact.Record, want []outcome) {
	t.Helper()
	got := make([]outcome, 0, len(recs))
	for i, r := range recs {
		o := outcome{r.Subject, r.State, r.Reason}
		if i < len(want) && want[i].Reason != "" && strings.Contains(r.Reason, want[i].Reason) {
			o.Reason = want[i].Reason
		}
		got = append(got, o)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	blob := filepath.Join(dir, "blob")
	want := []byte("\x00\xff\"\n<&>\xe2\x80\xa8")
	if err := os.WriteFile(blob, want, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	recs, err := new(Client).Ask(t.Context(), fact.AskFiles, blob, missing, dir, blob)
	if err != nil {
		t.Fatal(err)
	}
	check(t, recs, []outcome{
		{blob, fact.Known, ""}, {missing, fact.Absent, "no such file"}, {dir, fact.Failed, "is a directory"},
	})
	if d := cmp.Diff(want, fact.Decode[[]byte](recs[0]).V); d != "" {
		t.Error(d)
	}
	if recs[1].Errno != 2 {
		t.Errorf("errno %d, want ENOENT (2)", recs[1].Errno)
	}
}

func TestNVML(t *testing.T) {
	two := func(second outcome) []outcome {
		return []outcome{{"double", fact.Known, ""}, {"system", fact.Known, ""}, {"gpu0", fact.Known, ""}, second}
	}
	system := func(state fact.State, reason string) []outcome {
		return []outcome{{"double", fact.Known, ""}, {"system", state, reason}}
	}
	tests := []struct {
		mode string
		want []outcome
	}{
		{"", two(outcome{"gpu1", fact.Known, ""})},
		{"slow", two(outcome{"gpu1", fact.Known, ""})},
		{"slow-init", two(outcome{"gpu1", fact.Known, ""})},
		{"chatty", two(outcome{"gpu1", fact.Known, ""})},
		{"garbage", two(outcome{"gpu1", fact.Known, ""})},
		{"hang-gpu1", two(outcome{"gpu1", fact.Failed, "nvmlDeviceGetName: no answer within 2s"})},
		{"crash-gpu1", two(outcome{"gpu1", fact.Failed, "nvmlDeviceGetName: the worker was ended by SIGSEGV"})},
		{"abort-gpu1", two(outcome{"gpu1", fact.Failed, "nvmlDeviceGetName: the worker was ended by SIGABRT"})},
		{"exit-gpu1", two(outcome{"gpu1", fact.Failed, "nvmlDeviceGetName: the worker ended with exit status 3"})},
		{"lost-gpu1", two(outcome{"gpu1", fact.Failed, "GPU is lost (NVML error 15)"})},
		{"hang-init", system(fact.Failed, "nvmlInit: no answer within 3s")},
		{"crash-init", system(fact.Failed, "nvmlInit: the worker was ended by SIGSEGV")},
		{"exit-init", system(fact.Failed, "nvmlInit: the worker ended with exit status 7: NVML stub: giving up")},
		{"no-driver", system(fact.Failed, "Driver Not Loaded (NVML error 9)")},
		{"mismatch", system(fact.Failed, "Driver/library version mismatch (NVML error 18)")},
		{"odd-init", system(fact.Failed, "NVML error -77")},
		{"absurd-count", system(fact.Failed, "absurd number of devices: 2147483648")},
		{"odd-count", system(fact.Failed, "NVML error 4242")},
		{"scribble", system(fact.Failed, `nvmlInit: unreadable answer "not json at all`)},
		{"scribble-flood", system(fact.Failed, `nvmlInit: unreadable answer "xxxx`)},
	}
	c := &Client{SubjectTimeout: 2 * time.Second, GateTimeout: 3 * time.Second}
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	for _, tt := range tests {
		t.Run("mode="+tt.mode, func(t *testing.T) {
			t.Setenv("GDRCHECK_STUB_MODE", tt.mode)
			within(t, 15*time.Second, func() {
				recs, err := c.Ask(t.Context(), fact.AskNVML)
				if err != nil {
					t.Fatal(err)
				}
				check(t, recs, tt.want)
			})
		})
	}
}

// TestNVMLAnswers compares every field with what the stub is written to say.
func TestNVMLAnswers(t *testing.T) {
	lib := filepath.Join(stubDir, "nvml.so")
	t.Setenv(NVMLLibraryEnv, lib)
	recs, err := new(Client).Ask(t.Context(), fact.AskNVML)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	wantSystem := gpu.NVMLSystem{
		DriverVersion: "580.1.2", NVMLVersion: "13.580.1.2", CUDAVersion: 13000, DeviceCount: 2,
		Library: lib, Simulated: true,
	}
	if d := cmp.Diff(wantSystem, fact.Decode[gpu.NVMLSystem](recs[1]).V); d != "" {
		t.Error(d)
	}
	got := fact.Decode[gpu.NVMLDevice](recs[3]).V
	addr := func(bus uint8) pci.Address { return pci.Address{Bus: bus} }
	unsupported := "Not Supported (NVML error 3)"
	absent := func(fn string) (string, string) { return "nvml:" + fn, "this NVML library has no " + fn }
	want := gpu.NVMLDevice{
		Index: 1, Addr: addr(0x30),
		Name:         fact.Of("Stub GPU", "nvml:nvmlDeviceGetName"),
		UUID:         fact.Of("GPU-00000000-0000-0000-0000-000000000001", "nvml:nvmlDeviceGetUUID"),
		Architecture: fact.Of("Hopper", "nvml:nvmlDeviceGetArchitecture"),
		BAR1:         fact.Of(gpu.Memory{TotalBytes: 256 << 30, UsedBytes: 4096}, "nvml:nvmlDeviceGetBAR1MemoryInfo"),
		Memory:       fact.Of(gpu.Memory{TotalBytes: 80 << 30, UsedBytes: 1 << 30}, "nvml:nvmlDeviceGetMemoryInfo"),
		MIG:          fact.Missing[gpu.MIGMode](fact.Unsupported, "nvml:nvmlDeviceGetMigMode", unsupported),
		ECC:          fact.Missing[gpu.ECC](fact.Denied, "nvml:nvmlDeviceGetTotalEccErrors", "Insufficient Permissions (NVML error 4)"),
		Link: fact.Of(pci.Link{SpeedGTPerSec: 2.5, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16},
			"nvml:nvmlDeviceGetCurrPcieLinkGeneration"),
		NVLinks: fact.Of([]gpu.NVLink{
			{Link: 0, Active: true, Remote: addr(0xc0), RemoteType: "switch"},
			{Link: 1, Active: true, Remote: addr(0xc1), RemoteType: "switch"},
			{Link: 2, Active: true, Remote: addr(0xc2), RemoteType: "switch"},
			{Link: 3},
		}, "nvml:nvmlDeviceGetNvLinkState"),
		Persistence:      fact.Of(true, "nvml:nvmlDeviceGetPersistenceMode"),
		CPUAffinity:      fact.Of("0-31,64", "nvml:nvmlDeviceGetCpuAffinity"),
		ComputeProcesses: fact.Of(0, "nvml:nvmlDeviceGetComputeRunningProcesses"),
		PerformanceState: fact.Of(8, "nvml:nvmlDeviceGetPerformanceState"),
		Topology:         fact.Of([]gpu.NVMLPeer{{Index: 0, Level: "SYS"}}, "nvml:nvmlDeviceGetTopologyCommonAncestor"),
	}
	want.ComputeCap.State = fact.Unsupported
	want.ComputeCap.Source, want.ComputeCap.Reason = absent("nvmlDeviceGetCudaComputeCapability")
	want.RemappedRows.State = fact.Unsupported
	want.RemappedRows.Source, want.RemappedRows.Reason = absent("nvmlDeviceGetRemappedRows")
	want.Fabric.State = fact.Unsupported
	want.Fabric.Source, want.Fabric.Reason = absent("nvmlDeviceGetGpuFabricInfo")
	want.Confidential.State = fact.Unsupported
	want.Confidential.Source, want.Confidential.Reason = absent("nvmlSystemGetConfComputeState")
	want.AddressingMode.State = fact.Unsupported
	want.AddressingMode.Source, want.AddressingMode.Reason = absent("nvmlDeviceGetAddressingMode")
	want.NUMANode.State = fact.Unsupported
	want.NUMANode.Source, want.NUMANode.Reason = absent("nvmlDeviceGetNumaNodeId")
	want.Virtualization.State = fact.Unsupported
	want.Virtualization.Source, want.Virtualization.Reason = absent("nvmlDeviceGetVirtualizationMode")
	want.UtilizationPercent.State = fact.Unsupported
	want.UtilizationPercent.Source, want.UtilizationPercent.Reason = absent("nvmlDeviceGetUtilizationRates")
	want.NUMAAffinity.State = fact.Unsupported
	want.NUMAAffinity.Source, want.NUMAAffinity.Reason = absent("nvmlDeviceGetMemoryAffinity")
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("gpu1 (-want +got):\n%s", d)
	}
}

func TestNVMLBrief(t *testing.T) {
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	recs, err := new(Client).Ask(t.Context(), fact.AskNVML, gpu.Brief)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	d := fact.Decode[gpu.NVMLDevice](recs[2]).V
	if len(d.NVLinks.V) != 4 || d.BAR1.State != fact.Known {
		t.Errorf("brief lacks NVLinks or BAR1: %+v", d)
	}
	if d.Architecture.State != fact.NotCollected || d.Topology.State != fact.NotCollected {
		t.Errorf("brief asked too much: %+v", d)
	}
}

func TestNVMLLoad(t *testing.T) {
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	recs, err := new(Client).Ask(t.Context(), fact.AskNVML, gpu.Load)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	d := fact.Decode[gpu.NVMLDevice](recs[2]).V
	if d.Clocks.V != (gpu.Clocks{SMMHz: 345, SMMaxMHz: 1980}) || d.Link.V.SpeedGTPerSec != 2.5 || d.Link.V.MaxSpeedGTPerSec != 32 || d.PerformanceState.V != 8 {
		t.Errorf("load: %+v", d)
	}
	if d.Name.State != fact.NotCollected || d.BAR1.State != fact.NotCollected {
		t.Errorf("load asked too much: %+v", d)
	}
}

// TestNVMLGarbage: what makes no sense is Failed, field by field.
func TestNVMLGarbage(t *testing.T) {
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	t.Setenv("GDRCHECK_STUB_MODE", "garbage")
	recs, err := new(Client).Ask(t.Context(), fact.AskNVML)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	d := fact.Decode[gpu.NVMLDevice](recs[2]).V
	states := map[string]fact.State{
		"bar1": d.BAR1.State, "architecture": d.Architecture.State, "link": d.Link.State,
		"pstate": d.PerformanceState.State, "processes": d.ComputeProcesses.State,
		"memory": d.Memory.State,
	}
	want := map[string]fact.State{
		"bar1": fact.Failed, "architecture": fact.Failed, "link": fact.Failed,
		"pstate": fact.Failed, "processes": fact.Failed, "memory": fact.Known,
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
	if d.Name.V != "junk[31m" {
		t.Errorf("name %q, want the printable part of it", d.Name.V)
	}
}

// TestNVMLPart: a GPU that hung is still known by its address.
func TestNVMLPart(t *testing.T) {
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml.so"))
	t.Setenv("GDRCHECK_STUB_MODE", "hang-gpu1")
	c := &Client{SubjectTimeout: 300 * time.Millisecond}
	recs, err := c.Ask(t.Context(), fact.AskNVML)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	var d gpu.NVMLDevice
	if err := json.Unmarshal(recs[3].Data, &d); err != nil {
		t.Fatal(err)
	}
	if want := (pci.Address{Bus: 0x30}); d.Addr != want || d.Index != 1 {
		t.Errorf("part %+v, want address %s", d, want)
	}
}

func TestLibraryMissing(t *testing.T) {
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("this machine has an NVIDIA driver")
	}
	for _, ask := range []string{fact.AskNVML, fact.AskCUDA} {
		recs, err := new(Client).Ask(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		check(t, recs, []outcome{{"system", fact.Absent, "cannot open shared object file"}})
	}
}

func TestLibraryBad(t *testing.T) {
	text := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for env, ask := range map[string]string{NVMLLibraryEnv: fact.AskNVML, CUDALibraryEnv: fact.AskCUDA} {
		t.Setenv(env, text)
		recs, err := new(Client).Ask(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		check(t, recs, []outcome{{"double", fact.Known, ""}, {"system", fact.Failed, "file too short"}})
	}
}

// TestOldLibraries: a missing function is never called.
func TestOldLibraries(t *testing.T) {
	t.Setenv(NVMLLibraryEnv, filepath.Join(stubDir, "nvml-old.so"))
	t.Setenv("GDRCHECK_STUB_MODE", "lost-gpu1") // needs words, of which the old library has none
	recs, err := new(Client).Ask(t.Context(), fact.AskNVML)
	if err != nil {
		t.Fatal(err)
	}
	check(t, recs, []outcome{
		{"double", fact.Known, ""}, {"system", fact.Known, ""}, {"gpu0", fact.Known, ""},
		{"gpu1", fact.Failed, "NVML error 15"},
	})
	if m := fact.Decode[gpu.NVMLDevice](recs[2]).V.Memory; m.State != fact.Unsupported {
		t.Errorf("memory is %s, want unsupported", m.State)
	}

	t.Setenv(CUDALibraryEnv, filepath.Join(stubDir, "cuda-old.so"))
	recs, err = new(Client).Ask(t.Context(), fact.AskCUDA)
	if err != nil {
		t.Fatal(err)
	}
	check(t, recs, []outcome{{"double", fact.Known, ""}, {"system", fact.Failed, "has no cuDeviceGetAttribute"}})
}

func TestCUDA(t *testing.T) {
	system := func(state fact.State, reason string) []outcome {
		return []outcome{{"double", fact.Known, ""}, {"system", state, reason}}
	}
	devices := func(a, b outcome) []outcome { return append(system(fact.Known, ""), a, b) }
	tests := []struct {
		mode string
		want []outcome
	}{
		{"", devices(outcome{"gpu0", fact.Known, ""}, outcome{"gpu1", fact.Known, ""})},
		{"crash-gpu1", devices(outcome{"gpu0", fact.Known, ""},
			outcome{"gpu1", fact.Failed, "cuDeviceGetAttribute(110): the worker was ended by SIGSEGV"})},
		{"garbage", devices(outcome{"gpu0", fact.Failed, "bad PCI address"}, outcome{"gpu1", fact.Failed, "bad PCI address"})},
		{"hang-init", system(fact.Failed, "cuInit: no answer within 2s")},
		{"crash-init", system(fact.Failed, "cuInit: the worker was ended by SIGSEGV")},
		{"mismatch", system(fact.Failed, "different versions (CUDA error 803)")},
		{"fabric", system(fact.Failed, "fabric manager has not finished (CUDA error 802)")},
		{"no-device", system(fact.Failed, "CUDA sees no GPU (CUDA error 100)")},
		{"odd", system(fact.Failed, "stub words (CUDA error 31337)")},
		{"absurd-count", system(fact.Failed, "absurd number of devices: -5")},
	}
	t.Setenv(CUDALibraryEnv, filepath.Join(stubDir, "cuda.so"))
	t.Setenv("CUDA_VISIBLE_DEVICES", "1") // must not reach the library: the stub refuses then
	t.Setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
	c := &Client{SubjectTimeout: 2 * time.Second, GateTimeout: 2 * time.Second}
	for _, tt := range tests {
		t.Run("mode="+tt.mode, func(t *testing.T) {
			t.Setenv("GDRCHECK_STUB_MODE", tt.mode)
			recs, err := c.Ask(t.Context(), fact.AskCUDA)
			if err != nil {
				t.Fatal(err)
			}
			check(t, recs, tt.want)
		})
	}
}

func TestCUDAAnswers(t *testing.T) {
	lib := filepath.Join(stubDir, "cuda.so")
	t.Setenv(CUDALibraryEnv, lib)
	t.Setenv("GDRCHECK_STUB_MODE", "old-driver")
	recs, err := new(Client).Ask(t.Context(), fact.AskCUDA)
	if err != nil || len(recs) != 4 {
		t.Fatal(recs, err)
	}
	wantSystem := gpu.CUDASystem{DriverVersion: 13000, DeviceCount: 2, Library: lib, Simulated: true}
	if d := cmp.Diff(wantSystem, fact.Decode[gpu.CUDASystem](recs[1]).V); d != "" {
		t.Error(d)
	}
	attr := func(n int, name string) fact.Value[int] { return fact.Of(n, "cuda:cuDeviceGetAttribute("+name+")") }
	want := gpu.CUDADevice{
		Addr: pci.Address{Bus: 0x30}, RDMAWithVMM: attr(110, "110"), GPUDirectRDMA: attr(116, "116"),
		FlushWritesOptions: attr(117, "117"), WritesOrdering: attr(118, "118"),
		DMABuf: fact.Missing[int](fact.Unsupported, "cuda:cuDeviceGetAttribute(124)", "CUDA error 1"),
	}
	if d := cmp.Diff(want, fact.Decode[gpu.CUDADevice](recs[3]).V); d != "" {
		t.Error(d)
	}
}

func TestLimits(t *testing.T) {
	recs, err := new(Client).Ask(t.Context(), fact.AskLimits)
	if err != nil || len(recs) != 1 {
		t.Fatal(recs, err)
	}
	got := fact.Decode[host.Limits](recs[0]).V
	// The shell's word for it, in KiB.
	out, err := exec.Command("bash", "-c", "ulimit -S -l; ulimit -H -l; grep CapEff /proc/self/status | cut -f2").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(out))
	show := []string{kib(got.MemlockSoft), kib(got.MemlockHard), hex16(got.CapEff)}
	if d := cmp.Diff(want, show); d != "" {
		t.Error(d)
	}
}

func TestGHW(t *testing.T) {
	recs, err := new(Client).Ask(t.Context(), fact.AskGHW)
	if err != nil {
		t.Fatal(err)
	}
	check(t, recs, []outcome{{"system", fact.Known, ""}})
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	n := fact.Decode[host.Names](recs[0]).V
	_, model, _ := strings.Cut(n.Processor, "× ")
	if model == "" || !strings.Contains(string(info), model) {
		t.Errorf("processor %q is not in /proc/cpuinfo", n.Processor)
	}
}

func TestDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	within(t, 1500*time.Millisecond, func() {
		recs, err := new(Client).Ask(ctx, "test", "ok", "hang", "never")
		if err != nil {
			t.Fatal(err)
		}
		check(t, recs, []outcome{
			{"ok", fact.Known, ""}, {"hang", fact.Failed, "sleep: no answer in the time allowed for everything"},
			{"never", fact.NotCollected, "not reached in the time allowed for everything"},
		})
	})
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	within(t, 3*time.Second, func() {
		recs, err := new(Client).Ask(ctx, "test", "hang", "never")
		if err != nil {
			t.Fatal(err)
		}
		check(t, recs, []outcome{
			{"hang", fact.Failed, "no answer in the time allowed"},
			{"never", fact.NotCollected, "not reached"},
		})
	})
	if _, err := new(Client).Ask(ctx, "test", "ok"); err == nil {
		t.Error("a context that is over got an answer")
	}
}
