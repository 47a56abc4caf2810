package checks

import (
	"math"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// How facts are written: in the units of nvidia-smi, lspci and free.
func TestShow(t *testing.T) {
	for _, tc := range []struct {
		v    any
		want string
	}{
		{"", `""`}, {"x", "x"}, {true, "yes"}, {false, "no"}, {[]string{"a", "b"}, "a, b"}, {7, "7"},
		{pci.Link{SpeedGTPerSec: 32, Width: 16}, "32 GT/s x16"}, {pci.Link{SpeedGTPerSec: 2.5, Width: 1}, "2.5 GT/s x1"},
		{pci.Link{Width: 16}, "link down"}, {pci.Link{SpeedGTPerSec: 32}, "link down"},
		{pci.ACS{Ctl: 0x1d}, "0x1d (SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+)"}, {pci.ACS{}, "0x00 (all off)"},
		{gpu.Memory{TotalBytes: 80 << 30}, "80 GiB"},
		{host.Module{Name: "x", Version: known("1.2")}, "loaded 1.2"}, {host.Module{Name: "x"}, "loaded"},
		{gpu.Remapped{Pending: true}, "pending yes, failed no"},
		{[]rdma.PKey{{Index: 1, Value: 0x7fff}}, "1: 0x7fff"}, {[]rdma.PKey{}, "none"},
		{host.PeerMemory{Imports: true}, "yes"}, {host.PeerMemory{}, "no"},
	} {
		if got := show(tc.v); got != tc.want {
			t.Errorf("%#v: %q, want %q", tc.v, got, tc.want)
		}
	}
	for n, want := range map[uint64]string{
		math.MaxUint64: "unlimited", 1 << 30: "1 GiB", 3 << 29: "1.5 GiB", 1<<30 - 1<<20: "1023 MiB", 1 << 20: "1 MiB", 1<<20 - 1024: "1023 KiB", 65536: "64 KiB",
	} {
		if got := showBytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for speed, want := range map[float64]int{64: 6, 32: 5, 16: 4, 8: 3, 5: 2, 2.5: 1} {
		if got := generation(speed); got != want {
			t.Errorf("%v GT/s: Gen%d, want %d", speed, got, want)
		}
	}
	if got := Verdict(len(verdictNames)).String(); got != "verdict(7)" {
		t.Errorf("a verdict that is none: %s", got)
	}
}

// The evidence row of a fact, whatever became of it.
func TestEvidenceRows(t *testing.T) {
	rows := func(eval func(*Case), s Subject) []Evidence {
		c := Check{ID: "x", Eval: func(c *Case) { eval(c); c.Pass("done") }}
		return judge(&c, &Node{Machine: goodNode()}, s).Evidence
	}
	missing := func(s fact.State, reason string) fact.Value[int] {
		return fact.Missing[int](s, "file", reason)
	}
	for _, tc := range []struct {
		v    fact.Value[int]
		want string
	}{
		{fact.Of(7, "file"), "7"}, {missing(fact.Absent, "no such file"), "absent"}, {missing(fact.Denied, "not for you"), "denied (not for you)"},
		{missing(fact.Failed, ""), "failed"}, {missing(fact.NotCollected, "no time"), "not collected (no time)"},
	} {
		got := rows(func(c *Case) { See(c, "a fact", tc.v, "/dir"); c.Want("%d", 8) }, Subject{})
		if want := (Evidence{Name: "a fact", Got: tc.want, Want: "8", Source: "/dir/file"}); len(got) != 1 || got[0] != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if got := rows(func(c *Case) { c.Want("nothing to want of") }, Subject{}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	nicAt, fnAt := &rdma.Device{Dir: "/sys/class/infiniband/mlx5_0"}, &pci.Function{Dir: "/sys/bus/pci/devices/x"}
	for _, tc := range []struct {
		source  string
		subject Subject
		dir     string
		want    string
	}{
		{"f", Subject{NIC: nicAt, Function: fnAt}, "/other", "/other/f"}, {"f", Subject{NIC: nicAt, Function: fnAt}, "", nicAt.Dir + "/f"},
		{"f", Subject{Function: fnAt}, "", fnAt.Dir + "/f"}, {"f", Subject{}, "", "f"}, {"/abs", Subject{NIC: nicAt}, "", "/abs"},
		{"nvml:x", Subject{NIC: nicAt}, "/dir", "nvml:x"}, {"", Subject{NIC: nicAt}, "", ""},
	} {
		var dir []string
		if tc.dir != "" {
			dir = []string{tc.dir}
		}
		if got := rows(func(c *Case) { See(c, "a fact", fact.Of(1, tc.source), dir...) }, tc.subject); got[0].Source != tc.want {
			t.Errorf("%q: %q, want %q", tc.source, got[0].Source, tc.want)
		}
	}
	if got := culprit([]byte("goroutine 1\npanic(x)\n\ta.go:1\nb()")); got != "" {
		t.Errorf("a stack without a line: %q", got)
	}
}

// Rows that checks add beside those of Need.
func TestRowsOfChecks(t *testing.T) {
	row := func(check, subject, name string, change func(*topo.Machine)) *Evidence {
		t.Helper()
		m := goodNode()
		change(m)
		c, _ := Lookup(check)
		f := findingOf(t, m, c, subject)
		for i := range f.Evidence {
			if f.Evidence[i].Name == name {
				return &f.Evidence[i]
			}
		}
		return nil
	}
	none := func(*topo.Machine) {}
	count := func(changes uint64, errors uint64) func(*topo.Machine) {
		return func(m *topo.Machine) {
			port(m).Counters = []rdma.Counter{{Name: "link_downed", Value: known(errors)}}
			m.RDMA.NetDevs[0].CarrierChanges = known(changes)
		}
	}
	gb10 := func(m *topo.Machine) {
		m.GPU.GPUs[0].Name, m.GPU.GPUs[0].CUDA = "NVIDIA GB10", fact.Value[gpu.CUDADevice]{}
	}
	for _, tc := range []struct {
		check, subject, name string
		change               func(*topo.Machine)
		got, source          string // empty got: no such row
	}{
		{"rdma-link-errors", "mlx5_0/1", "carrier changes of ens1", count(3, 2), "3", "/sys/class/net/ens1/carrier_changes"},
		{"rdma-link-errors", "mlx5_0/1", "carrier changes of ens1", count(2, 2), "", ""},
		{"rdma-link-errors", "mlx5_0/1", "carrier changes of ens1", count(3, 0), "", ""},
		{"rdma-link-errors", "mlx5_0/1", "carrier changes of ens1", all2(count(3, 2), func(m *topo.Machine) { port(m).NetDev = absent[string]() }), "", ""},
		{"rdma-mtu", "mlx5_0/1", "MTU of ens1", none, "9000", "/sys/class/net/ens1/mtu"},
		{"rdma-mtu", "mlx5_0/1", "MTU of ens1", func(m *topo.Machine) { m.RDMA.NetDevs = nil }, "", ""},
		{"gpu-memory", "GPU0", "row remapping", none, "pending no, failed no", "nvml:nvmlDeviceGetRemappedRows"},
		{"gpu-memory", "GPU0", "row remapping", func(m *topo.Machine) { dev(m).RemappedRows = absent[gpu.Remapped]() }, "", ""},
		{"gpu-memory", "GPU0", "uncorrected errors since the driver started", none, "0", "nvml:nvmlDeviceGetEccMode"},
		{"gpu-memory", "GPU0", "uncorrected errors since the driver started", func(m *topo.Machine) { dev(m).ECC = absent[gpu.ECC]() }, "", ""},
		{"gpu-direct-attribute", "GPU0", "model", gb10, "NVIDIA GB10", "nvml:nvmlDeviceGetName"},
		{"gpu-direct-attribute", "GPU0", "model", all2(gb10, func(m *topo.Machine) { denied(&m.GPU.GPUs[0].NVML) }), "NVIDIA GB10", "/proc/driver/nvidia/gpus/" + gpuAddr + "/information"},
	} {
		e := row(tc.check, tc.subject, tc.name, tc.change)
		switch {
		case e == nil && tc.got != "":
			t.Errorf("%s has no row %q", tc.check, tc.name)
		case e != nil && (e.Got != tc.got || e.Source != tc.source):
			t.Errorf("%s: %+v, want %q from %q", tc.check, *e, tc.got, tc.source)
		}
	}
}

// Each bridge and each device is judged once.
func TestSubjectsAreListedOnce(t *testing.T) {
	m := goodNode()
	twoGPUs(m)
	secondNIC(func(*rdma.Device) {})(m)
	n, err := NewNode(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		seen := map[string]bool{}
		for _, s := range c.Subjects(n) {
			if seen[s.ID] {
				t.Errorf("%s judges %s twice", c.ID, s.ID)
			}
			seen[s.ID] = true
		}
	}
	if !strings.Contains(strings.Join(ids(eachChainFunction(n)), " "), rootPort) {
		t.Error("the root port is not in the chain")
	}
}

func ids(list []Subject) (out []string) {
	for _, s := range list {
		out = append(out, s.ID)
	}
	return out
}

func TestMatters(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*topo.Machine)
		nic    int
		want   bool
	}{
		{"a GPU's", func(*topo.Machine) {}, 0, true},
		{"storage", storageNIC, 1, false},
		{"idle", idleNIC(func(*rdma.Device) {}), 1, false},
		{"no GPU", func(m *topo.Machine) { m.GPU.GPUs = nil }, 0, true},
		{"storage, no GPU", all2(storageNIC, func(m *topo.Machine) { m.GPU.GPUs = nil }), 1, false},
	} {
		m := goodNode()
		tc.change(m)
		n, err := NewNode(m, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.matters(&m.RDMA.Devices[tc.nic]); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	// Data Direct counts where its function was seen.
	m := goodNode()
	n, err := NewNode(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	nic(m).DataDirect = known(at(gpuAddr))
	if a, ok := n.pathEnd(nic(m)); !ok || a != at(gpuAddr) {
		t.Errorf("Data Direct: %s %v", a, ok)
	}
	nic(m).DataDirect = known(at("0000:99:00.0"))
	if a, ok := n.pathEnd(nic(m)); !ok || a != at(nicAddr) {
		t.Errorf("Data Direct that was not seen: %s %v", a, ok)
	}
}

func TestMTUFor(t *testing.T) {
	for _, tc := range []struct{ netdev, most, want int }{
		{9000, 4096, 4096}, {4192, 4096, 4096}, {4191, 4096, 2048}, {9000, 2048, 2048}, {1500, 4096, 1024}, {352, 4096, 256}, {351, 4096, 0}, {0, 4096, 0},
	} {
		if got := mtuFor(tc.netdev, tc.most); got != tc.want {
			t.Errorf("%d, %d at most: %d, want %d", tc.netdev, tc.most, got, tc.want)
		}
	}
}

func TestSameOption(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"1", "0x1", true}, {"-1", "4294967295", true}, {`"x"`, "x", true}, {"x", "y", false}, {"0", "x", false}, {"x", "0", false}, {"1", "2", false},
	} {
		if got := sameOption(tc.a, tc.b); got != tc.want {
			t.Errorf("%q, %q: %v", tc.a, tc.b, got)
		}
	}
	first := nvregTable()[0]
	if o, ok := nvregOptionOf(first.Name); !ok || o.Name != first.Name {
		t.Errorf("%s is not found", first.Name)
	}
}

// A measurement says of which end it is a failure and how to look.
func TestFailedMeasurementNamesItsCheck(t *testing.T) {
	for check, want := range map[string]string{"Look at the link": "Look at the link", "": "Measure again"} {
		r := ndr(1)
		r.Failure, r.Faulty = &perftest.Failure{Call: "x", Cause: "y", Check: check}, perftest.Initiator
		o, err := Run(&topo.Machine{}, Options{Only: []string{"perf-data"}, Results: []*perftest.Result{r}})
		if err != nil {
			t.Fatal(err)
		}
		if f := o.Findings[0]; f.Verdict != Fail || !strings.HasPrefix(f.Fix[0], want) {
			t.Errorf("%s: %q, want %q", f.Verdict, f.Fix, want)
		}
	}
}
