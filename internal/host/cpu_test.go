package host

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestParseCPUInfo(t *testing.T) {
	for _, c := range []struct {
		in, vendor, model, arch string
		family, number          int
	}{
		{x86Guest, "GenuineIntel", "Intel Xeon", "x86_64", 6, 143},
		{armCPU, "ARM", "Neoverse-V2", "aarch64", 8, 0xd4f},
		{powerCPU, "IBM", "POWER10 (architected), altivec supported", "ppc64le", 0, 0},
	} {
		got, err := ParseCPUInfo(c.in)
		if err != nil || got.Vendor.V != c.vendor || got.Model.V != c.model || got.Arch.V != c.arch || got.Family.V != c.family || got.ModelNum.V != c.number {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := ParseCPUInfo("processor : 0\n"); err == nil {
		t.Error("an unknown shape passed")
	}
}

func TestParseList(t *testing.T) {
	for in, want := range map[string][]int{"": nil, "0": {0}, "0-2,8": {0, 1, 2, 8}, "5-5": {5}} {
		got, err := ParseList(in)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", in, err, diff)
		}
	}
	for _, bad := range []string{"x", "3-1", "1,", "-1", "0-99999", "0x1"} {
		if got, err := ParseList(bad); err == nil {
			t.Errorf("ParseList(%q) = %v", bad, got)
		}
	}
}

// hwloc read the same DGX Spark.
func TestRecordedSparkAsHwloc(t *testing.T) {
	b, err := os.ReadFile(facttest.Fixture(t, "sysfs/hwloc-nvidia-dgx-gb10/expected/nvidia-dgx-gb10.xml"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for d := xml.NewDecoder(strings.NewReader(string(b))); ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		e, ok := token.(xml.StartElement)
		attr := map[string]string{}
		if ok {
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
			}
		}
		if ok && e.Name.Local == "info" {
			want[attr["name"]] = attr["value"]
		}
		if attr["type"] == "NUMANode" {
			want["node"] = attr["os_index"] + " " + attr["cpuset"]
		}
	}
	src := facttest.Recorded(t, "hwloc-nvidia-dgx-gb10", "root/", "/",
		"/proc/", "/sys/class/dmi", "/sys/devices/virtual/dmi/id", "/sys/devices/system/cpu/online", "/sys/devices/system/node/node0/")
	f := Collect(t.Context(), src)
	n := f.NUMA.V[0]
	cpus, err := ParseList(n.CPUs)
	if err != nil || len(f.NUMA.V) != 1 {
		t.Fatalf("%+v, %v", f.NUMA, err)
	}
	mask := uint64(0)
	for _, c := range cpus {
		mask |= 1 << c
	}
	for _, c := range []struct{ name, got string }{
		{"DMISysVendor", f.DMI.SysVendor.V}, {"DMIProductName", f.DMI.ProductName.V}, {"DMIBoardVendor", f.DMI.BoardVendor.V},
		{"DMIBoardName", f.DMI.BoardName.V}, {"DMIBIOSVersion", f.DMI.BIOSVersion.V}, {"DMIBIOSDate", f.DMI.BIOSDate.V},
		{"DMIChassisAssetTag", f.DMI.ChassisTag.V}, {"CPUArchitecture", strconv.Itoa(f.CPU.Family.V)},
		{"node", strconv.Itoa(n.ID) + " 0x" + leftPad(strconv.FormatUint(mask, 16), 8)},
	} {
		if want[c.name] == "" || c.got != want[c.name] {
			t.Errorf("%s: got %q, hwloc %q", c.name, c.got, want[c.name])
		}
	}
	if f.CPU.Count.V != 20 || f.Hypervisor.State != fact.Absent || f.CPU.Vendor.V != "ARM" {
		t.Errorf("CPU %+v, hypervisor %+v", f.CPU, f.Hypervisor)
	}
}

func leftPad(s string, n int) string { return strings.Repeat("0", max(0, n-len(s))) + s }

// GPUs that are memory nodes: hwloc lists node numbers up to 255 on this POWER9.
func TestRecordedPOWER9AsHwloc(t *testing.T) {
	b, err := os.ReadFile(facttest.Fixture(t, "sysfs/hwloc-nvidiagpunumanodes/expected/nvidiagpunumanodes-kept.console"))
	if err != nil {
		t.Fatal(err)
	}
	src := facttest.Recorded(t, "hwloc-nvidiagpunumanodes", "root/", "/", "/proc/cpuinfo", "/sys/devices/system/node/node")
	c := cpu(src, text(src, "/proc/cpuinfo"))
	model := regexp.MustCompile(`CPUModel="([^"]*)"`).FindSubmatch(b)
	if c.Model.V != string(model[1]) || c.Arch.V != "ppc64le" || c.Family.State != fact.Absent {
		t.Errorf("%+v, hwloc %s", c, model[1])
	}
	nodes := numa(src)
	var ids []int
	for _, n := range nodes.V {
		ids = append(ids, n.ID)
		if len(n.Distances) != len(nodes.V) || n.Distances[slices.Index(ids, n.ID)] != 10 { // 10: local (ACPI SLIT)
			t.Errorf("node %d: distances %v of %d nodes", n.ID, n.Distances, len(nodes.V))
		}
	}
	found := regexp.MustCompile(`NUMANode\S* L#\d+ \(P#(\d+)`).FindAllSubmatch(b, -1)
	for _, m := range found {
		id, _ := strconv.Atoi(string(m[1]))
		if !slices.Contains(ids, id) {
			t.Errorf("hwloc has node %d, we have %v", id, ids)
		}
	}
	if len(found) < 5 || !slices.IsSorted(ids) {
		t.Errorf("%d nodes of hwloc's, ours %v", len(found), ids)
	}
}

func TestNUMABroken(t *testing.T) {
	src := facttest.Tree(t, map[string]string{
		nodeDir + "/node0/cpulist": "0-3\n", nodeDir + "/node0/distance": "10 21\n",
		nodeDir + "/node10/cpulist": "\n", nodeDir + "/node10/distance": "21 10\n", nodeDir + "/possible": "0-1\n",
	})
	want := []NUMANode{{ID: 0, CPUs: "0-3", Distances: []int{10, 21}}, {ID: 10, Distances: []int{21, 10}}}
	if diff := cmp.Diff(want, numa(src).V); diff != "" {
		t.Error(diff)
	}
	src.Errors[nodeDir+"/node10/cpulist"] = syscall.EIO
	if v := numa(src); v.State != fact.Failed {
		t.Errorf("%+v", v)
	}
}

// This machine, told by other programs.
func TestLive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("Linux only")
	}
	src, err := fact.NewOS("/", nil)
	if err != nil || !src.Live() {
		t.Skipf("no live /sys and /proc here: %v", err)
	}
	f := Collect(t.Context(), src)
	for _, c := range []struct {
		got     string
		command []string
	}{
		{f.KernelRelease.V, []string{"uname", "-r"}},
		{f.CPU.Arch.V, []string{"uname", "-m"}},
		{strconv.Itoa(f.CPU.Count.V), []string{"getconf", "_NPROCESSORS_ONLN"}},
		{strconv.FormatBool(f.Root.V), []string{"sh", "-c", `test "$(id -u)" = 0 && echo true || echo false`}},
		{f.CPU.Vendor.V, []string{"sh", "-c", `lscpu | sed -n 's/^Vendor ID: *//p'`}},
		{strconv.Itoa(len(f.NUMA.V)), []string{"sh", "-c", `lscpu | sed -n 's/^NUMA node(s): *//p'`}},
		{strconv.FormatUint(f.Tainted.V, 10), []string{"sysctl", "-n", "kernel.tainted"}},
	} {
		out, err := exec.CommandContext(t.Context(), c.command[0], c.command[1:]...).Output()
		want := strings.TrimSpace(string(out))
		if err != nil || want == "" {
			t.Logf("%v: no answer to compare with (%v)", c.command, err)
			continue
		}
		if c.got != want {
			t.Errorf("%v says %q, we %q", c.command, want, c.got)
		}
	}
}

func TestAnswers(t *testing.T) {
	src := facttest.Tree(t, nil)
	f := Collect(t.Context(), src)
	if f.Limits.State != fact.NotCollected || f.Names.State != fact.NotCollected || f.Root.State != fact.NotCollected {
		t.Errorf("%+v, %+v, %+v", f.Limits, f.Names, f.Root)
	}
	data, err := json.Marshal(Limits{MemlockSoft: 65536})
	if err != nil {
		t.Fatal(err)
	}
	src.Answers[fact.AskLimits] = []fact.Record{{Subject: "self", State: fact.Known, Source: "getrlimit", Data: data}}
	src.Answers[fact.AskGHW] = nil
	f = Collect(t.Context(), src)
	if f.Limits.V.MemlockSoft != 65536 || f.Limits.Source != "getrlimit" || f.Names.State != fact.Failed {
		t.Errorf("%+v, %+v", f.Limits, f.Names)
	}
}

func FuzzCPUText(f *testing.F) {
	f.Add(x86Guest)
	f.Add(armCPU)
	f.Add(powerCPU)
	f.Add("0-31,64-95")
	f.Add("10 21 31")
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = ParseCPUInfo(s)
		if l, err := ParseList(s); err == nil && len(l) > maxList {
			t.Errorf("%d numbers", len(l))
		}
		_, _ = parseDistances(s)
	})
}

func BenchmarkCollect(b *testing.B) {
	src, err := fact.NewOS("/", nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Collect(context.Background(), src)
	}
}
