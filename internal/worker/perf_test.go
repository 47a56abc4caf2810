package worker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// provider builds the double of libibverbs whose data moves within a process.
func provider(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "provider.so")
	const dir = "../../rdma/verbs/testdata/"
	parts, err := filepath.Glob(dir + "provider*.c")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cc", append([]string{"-shared", "-fPIC", "-o", out, "-Wl,--version-script=" + dir + "provider.map"}, parts...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
	return out
}

func perfOpen(ctx context.Context, e *Perf) (perftest.Endpoint, error) {
	p := perftest.NewPlan(perftest.Write, perftest.Bandwidth)
	p.FootprintBytes = 1 << 20
	return e.Open(ctx, p, perftest.NewLocal("stub0"), perftest.Initiator)
}

func TestPerfOpen(t *testing.T) {
	lib := provider(t)
	t.Setenv(VerbsLibraryEnv, lib)
	e := &Perf{}
	defer e.Close()
	got, err := perfOpen(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if got.Double != lib || got.GIDIndex != 2 || got.GIDType != "RoCE v2" || got.MTUBytes != 4096 || len(got.QPs) != 1 || got.Bytes < 1<<20 || got.Address == 0 {
		t.Errorf("%+v", got)
	}
	if got.CPU < 0 {
		t.Errorf("not pinned: %+v", got)
	}
	if _, err := perfOpen(t.Context(), e); err == nil {
		t.Error("opened twice")
	}
}

// Whatever the driver does, the caller gets an answer that names it, in time.
func TestPerfBadDays(t *testing.T) {
	lib := provider(t)
	for name, tt := range map[string]struct {
		fault, lib string
		words      string
		canceled   bool
	}{
		"memlock":    {"memlock", lib, "ulimit -l", false},
		"crash":      {"crash", lib, "SIGABRT", false},
		"hang":       {"hang", lib, "", true},
		"no library": {"", "/nowhere/libibverbs.so.1", "/nowhere/libibverbs.so.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(VerbsLibraryEnv, tt.lib)
			t.Setenv("GDR_STUB_FAULT", tt.fault)
			limit := 20 * time.Second
			if tt.canceled {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			e := &Perf{}
			within(t, limit+2*time.Second, func() {
				_, err := perfOpen(ctx, e)
				if tt.canceled != errors.Is(err, context.DeadlineExceeded) || !tt.canceled && (err == nil || !strings.Contains(err.Error(), tt.words)) {
					t.Errorf("got %v, want %q", err, tt.words)
				}
				e.Close()
			})
		})
	}
}

// A run that the driver does not return from ends when its caller says so.
func TestPerfRunCancelled(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	t.Setenv("GDR_STUB_FAULT", "stop")
	e := &Perf{}
	defer e.Close()
	self, err := perfOpen(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	// Connected to itself: as a responder's its memory would be laid out otherwise.
	self.Bytes *= 2
	if err := e.Connect(t.Context(), self); err != nil {
		t.Fatal(err)
	}
	const size = perftest.DefaultBandwidthSize
	if err := e.Prepare(t.Context(), size); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	within(t, 3*time.Second, func() {
		if _, err := e.Run(ctx, size, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		e.Close()
	})
}

// What the device reports during a run reaches the caller, that of a run that does
// not come back, too.
func TestPerfEvents(t *testing.T) {
	t.Setenv(VerbsLibraryEnv, provider(t))
	for fault, comesBack := range map[string]bool{
		"event:20:18": true,  // IBV_EVENT_GID_CHANGE
		"event:20:8":  false, // IBV_EVENT_DEVICE_FATAL
	} {
		t.Setenv("GDR_STUB_FAULT", fault)
		e := &Perf{}
		self, err := perfOpen(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		self.Bytes *= 2
		if err := e.Connect(t.Context(), self); err != nil {
			t.Fatal(err)
		}
		if err := e.Prepare(t.Context(), perftest.DefaultBandwidthSize); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if comesBack {
			ctx = t.Context()
		}
		_, err = e.Run(ctx, perftest.DefaultBandwidthSize, nil)
		cancel()
		if (err == nil) != comesBack {
			t.Errorf("%s: %v", fault, err)
		}
		if r := e.Events(t.Context()); len(r.Events) != 1 || r.Events[0].SizeBytes != perftest.DefaultBandwidthSize || r.MoreEvents != 0 {
			t.Errorf("%s: reported %+v", fault, r)
		}
		e.Close()
	}
}

func TestParseCPUList(t *testing.T) {
	for text, want := range map[string][]int{
		"0-3,8": {0, 1, 2, 3, 8}, "5": {5}, "": nil, "3-1": nil, "x": nil, "0-99999999": nil, "-1": nil,
	} {
		if diff := cmp.Diff(want, ParseCPUList(text)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, s string) {
		if got := ParseCPUList(s); slices.ContainsFunc(got, func(c int) bool { return c < 0 || c >= 1<<16 }) {
			t.Errorf("%q: %v", s, got)
		}
	})
}

func TestChooseCPU(t *testing.T) {
	n := nearby{node: 1, cpus: []int{4, 5, 6, 7}}
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, tt := range []struct {
		n       nearby
		allowed []int
		place   int
		want    int
	}{
		{n, all, 0, 7},
		{n, all, 1, 6},
		{n, all, 4, 3},                // the node is used up
		{n, all, 8, 7},                // everything is
		{n, []int{0, 4}, 0, 4},        // a container's share
		{n, []int{0, 1}, 0, 1},        // nothing near
		{nearby{node: -1}, all, 1, 6}, // nothing known
		{n, nil, 0, -1},
	} {
		if got := tt.n.choose(tt.allowed, tt.place); got != tt.want {
			t.Errorf("choose(%v, %d) = %d, want %d", tt.allowed, tt.place, got, tt.want)
		}
	}
}

// Where an end is: beside its NIC, beside what Soft-RoCE runs on, beside the GPU of an
// end that has no NIC. Files as Documentation/ABI/testing/sysfs-bus-pci and
// sysfs-devices-node name them.
func TestNodeOf(t *testing.T) {
	sys := t.TempDir()
	for path, text := range map[string]string{
		"class/infiniband/mlx5_0/device/numa_node": "1",
		"class/infiniband/mlx5_1/device/numa_node": "-1", // a machine of one node
		"class/infiniband/rxe0/parent":             "eth0",
		"class/net/eth0/device/numa_node":          "0",
		"bus/pci/devices/0000:30:00.0/numa_node":   "1",
		"devices/system/node/node0/cpulist":        "0-1,4",
		"devices/system/node/node1/cpulist":        "2-3",
	} {
		path = filepath.Join(sys, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	gpuAt := func(bus uint8) *perftest.GPU { return &perftest.GPU{Addr: pci.Address{Bus: bus}} }
	first, second := []int{0, 1, 4}, []int{2, 3}
	for _, tt := range []struct {
		device string
		gpu    *perftest.GPU
		want   nearby
	}{
		{"mlx5_0", nil, nearby{"NIC", 1, second}},
		{"mlx5_1", gpuAt(0x30), nearby{"NIC", -1, nil}},
		{"mlx5_9", nil, nearby{"NIC", -1, nil}},
		{"rxe0", gpuAt(0x30), nearby{"NIC", 0, first}},
		{"", gpuAt(0x30), nearby{"GPU", 1, second}},
		{"", gpuAt(0x31), nearby{"GPU", -1, nil}},
		{"", nil, nearby{"NIC", -1, nil}},
	} {
		got := nodeOf(sys, &perftest.Local{Device: tt.device, GPU: tt.gpu})
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(nearby{})); diff != "" {
			t.Errorf("%q %v: %s", tt.device, tt.gpu, diff)
		}
	}
}

// A limit of this very process is called that, with what raises it.
func TestNotStarted(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := (&Perf{}).Open(t.Context(), perftest.NewPlan(perftest.Write, perftest.Bandwidth), perftest.NewLocal("stub0"), perftest.Initiator)
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); restored != nil {
		t.Fatal(restored)
	}
	f := perftest.AsFailure(err)
	if f.Call != perftest.CallStart || syscall.Errno(f.Errno) != syscall.EMFILE || !strings.Contains(f.Error(), "too many open files; let gdrcheck open more files: ulimit -n") {
		t.Errorf("%+v", f)
	}
}
