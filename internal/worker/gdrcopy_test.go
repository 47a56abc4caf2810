package worker

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

// gdrapi builds the double of libgdrapi.
func gdrapi(t *testing.T, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "libgdrapi.so")
	args := append([]string{"-shared", "-fPIC", "-o", out, "../gdrcopy/testdata/libgdrapi.c"}, flags...)
	if b, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
	return out
}

func askGDRCopies(t *testing.T, library string) fact.Value[gpu.GDRCopyProbe] {
	t.Helper()
	cuda := filepath.Join(stubDir, "cuda.so")
	t.Setenv(CUDALibraryEnv, cuda)
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
	t.Setenv(GDRCopyLibraryEnv, library)
	c := &Client{GateTimeout: 20 * time.Second}
	recs, err := c.Ask(t.Context(), fact.AskGDRCopy, "0000:30:00.0")
	if err != nil || len(recs) != 2 || recs[0].Subject != gpu.SubjectDouble {
		t.Fatalf("%v, %+v", err, recs)
	}
	return fact.Decode[gpu.GDRCopyProbe](recs[1])
}

func TestGDRCopy(t *testing.T) {
	v := askGDRCopies(t, gdrapi(t))
	p, ok := v.Get()
	if !ok || p.Failed != nil || p.Library != "2.5" || p.Driver != "2.4" || p.Mapping != "write-combining" || p.PinNs <= 0 || p.MapNs <= 0 {
		t.Fatalf("%+v", v)
	}
	bytes := 4
	for _, s := range p.Sizes {
		if s.Bytes != bytes || s.ToNs <= 0 || s.FromNs <= 0 || s.CUDAToNs <= 0 || s.CUDAFromNs <= 0 || s.WrongTo || s.WrongFrom {
			t.Errorf("%+v", s)
		}
		bytes *= 4
	}
	if len(p.Sizes) != 12 || p.Sizes[11].Bytes != 16<<20 {
		t.Errorf("%d sizes", len(p.Sizes))
	}
	if p := askGDRCopies(t, gdrapi(t, "-DOLD")).V; p.Failed != nil || p.Mapping != "" || len(p.Sizes) != 12 {
		t.Errorf("an old library: %+v", p)
	}
}

// Each call that can fail is named, with its errno; nothing stays pinned, or the
// double ends the worker.
func TestGDRCopyFails(t *testing.T) {
	library := gdrapi(t)
	for _, tt := range []struct {
		fault, call string
		errno       syscall.Errno
	}{
		{"gdr_open:13", "gdr_open", syscall.EACCES},
		{"gdr_driver_get_version:22", "gdr_driver_get_version", syscall.EINVAL},
		{"gdr_pin_buffer:22", "gdr_pin_buffer", syscall.EINVAL},
		{"gdr_map:12", "gdr_map", syscall.ENOMEM},
		{"gdr_get_info:14", "gdr_get_info", syscall.EFAULT},
	} {
		t.Setenv("GDR_STUB_GDRAPI", tt.fault)
		p, ok := askGDRCopies(t, library).Get()
		if !ok || p.Failed == nil || p.Failed.Call != tt.call || syscall.Errno(p.Failed.Errno) != tt.errno || len(p.Sizes) > 0 {
			t.Errorf("%s: %+v", tt.fault, p)
		}
	}
	t.Setenv("GDR_STUB_GDRAPI", "")
	t.Setenv("GDR_STUB_CUDA", "cuMemAlloc_v2:2")
	if p := askGDRCopies(t, library).V; p.Failed == nil || p.Failed.Call != "cuMemAlloc_v2" || !strings.Contains(p.Failed.Text, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("%+v", p)
	}
}

func TestGDRCopyWrong(t *testing.T) {
	library := gdrapi(t)
	t.Setenv("GDR_STUB_GDRAPI", "flip-to:1")
	if p := askGDRCopies(t, library).V; len(p.Sizes) != 12 || !p.Sizes[0].WrongTo || p.Sizes[0].WrongFrom || p.Sizes[1].WrongTo {
		t.Errorf("%+v", p)
	}
	t.Setenv("GDR_STUB_GDRAPI", "flip-from:1")
	if p := askGDRCopies(t, library).V; len(p.Sizes) != 12 || p.Sizes[0].WrongTo || !p.Sizes[0].WrongFrom {
		t.Errorf("%+v", p)
	}
}

func TestGDRCopyNoLibrary(t *testing.T) {
	if v := askGDRCopies(t, "/nowhere/libgdrapi.so.2"); v.State != fact.Absent {
		t.Errorf("%+v", v)
	}
	if v := askGDRCopies(t, filepath.Join(stubDir, "cuda.so")); v.State != fact.Failed || !strings.Contains(v.Reason, "has no gdr_open") {
		t.Errorf("%+v", v)
	}
}
