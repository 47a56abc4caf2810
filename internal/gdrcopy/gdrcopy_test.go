package gdrcopy

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/mem"
)

// double builds a test double of a library.
func double(t *testing.T, name, source string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	if b, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-w", "-o", out, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
	return out
}

// In the test's own process, for sanitizers to see; package worker's tests ask
// for more.
func TestProbe(t *testing.T) {
	cuda := double(t, "libcuda.so", "../mem/testdata/libcuda.c")
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID") // as the worker does
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k, err := mem.Open(mem.CUDA, cuda, "0000:10:00.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := Load(double(t, "libgdrapi.so", "testdata/libgdrapi.c")); err != nil {
		t.Fatal(err)
	}
	if p := Probe(k.Ops, k.Device); p.Failed != nil || len(p.Sizes) != 12 {
		t.Errorf("%+v", p)
	}
	t.Setenv("GDR_STUB_GDRAPI", "gdr_map:12")
	if p := Probe(k.Ops, k.Device); p.Failed == nil || p.Failed.Call != "gdr_map" {
		t.Errorf("%+v", p)
	}
}
