package verbs

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// stub builds the test double of libibverbs.
func stub(t *testing.T, dmabuf bool) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "libibverbs-stub.so")
	args := []string{"-shared", "-fPIC", "-o", out, "testdata/stub.c", "-Wl,--version-script=testdata/stub.map"}
	if dmabuf {
		args = append(args, "-DWITH_DMABUF", "-Wl,--version-script=testdata/stub-dmabuf.map")
	}
	if b, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
	return out
}

func TestProbeStub(t *testing.T) {
	const source = "verbs:ibv_reg_dmabuf_mr"
	tests := map[string]struct {
		dmabuf bool
		want   fact.Value[int]
	}{
		"supported":   {true, fact.Of(int(syscall.EBADF), source)},
		"old library": {false, fact.Missing[int](fact.Unsupported, source, "this libibverbs has no ibv_reg_dmabuf_mr (it came with IBVERBS_1.12)")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table, err := load(stub(t, tt.dmabuf))
			if err != nil {
				t.Fatal(err)
			}
			want := rdma.VerbsProbe{
				Firmware: "28.39.1002",
				Ports: []rdma.VerbsPort{
					{Number: 1, State: "PORT_ACTIVE", ActiveMTUBytes: 4096, MaxMTUBytes: 4096},
					{Number: 2, State: "PORT_DOWN", ActiveMTUBytes: 1024, MaxMTUBytes: 4096},
				},
				DMABufErrno: tt.want,
			}
			// Twice: the stub refuses a device that the first probe left open.
			for range 2 {
				got, err := probe(table, "stub0")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
			if _, err := probe(table, "stub1"); !errors.Is(err, syscall.ENODEV) {
				t.Errorf("a device that is not there: %v, want ENODEV", err)
			}
		})
	}
}

func TestLoadErrors(t *testing.T) {
	if _, err := load("libgdrcheck-nowhere.so.1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing library: %v, want fs.ErrNotExist", err)
	}
	_, err := load("libc.so.6")
	if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "ibv_get_device_list") {
		t.Errorf("another library: %v, want the missing function's name", err)
	}
}

// Values of enum ibv_mtu and enum ibv_port_state in infiniband/verbs.h.
func TestNames(t *testing.T) {
	for m, want := range []int{0, 256, 512, 1024, 2048, 4096, 0} {
		if got := mtuBytes(m); got != want {
			t.Errorf("mtuBytes(%d) = %d, want %d", m, got, want)
		}
	}
	for s, want := range map[int]string{1: "PORT_DOWN", 2: "PORT_INIT", 3: "PORT_ARMED", 4: "PORT_ACTIVE", 9: "PORT_STATE_9", -1: "PORT_STATE_-1"} {
		if got := portState(s); got != want {
			t.Errorf("portState(%d) = %q, want %q", s, got, want)
		}
	}
}
