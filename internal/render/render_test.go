package render_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
)

// recorded reads a recording, or skips where recordings are not there.
func recorded(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("GDRCHECK_FIXTURES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "fixtures")
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		skip(t, "recordings are not here: "+err.Error()+" (set GDRCHECK_FIXTURES)")
	}
	return string(b)
}

func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func lspciTree(t *testing.T, dir string) string {
	t.Helper()
	if _, err := exec.LookPath("lspci"); err != nil {
		skip(t, "lspci is not installed")
	}
	out, err := exec.Command("lspci", "-O", "sysfs.path="+dir+"/sys/bus/pci", "-t").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestTreeComesBack: lspci draws the same tree of what was rendered as it drew
// on the machine itself.
func TestTreeComesBack(t *testing.T) {
	for _, name := range []string{
		"pairs/stelline-esc8000a-e12/asus-esc8000a-e12.md",
		"pairs/stelline-puget-wrx90/puget-threadripper-pro-wrx90.md",
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text := recorded(t, name)
			tree, err := render.FromLspci(text)
			if err != nil {
				t.Fatal(err)
			}
			_, dir := tree.Open(t)
			_, drawn, _ := strings.Cut(text, "lspci -tv\n")
			drawn, _, _ = strings.Cut(drawn, "```")
			drawn = regexp.MustCompile(`(?m) +[A-Z].*$`).ReplaceAllString(drawn, "") // models
			if diff := cmp.Diff(drawn, lspciTree(t, dir)); diff != "" {
				t.Errorf("(-machine +rendered):\n%s", diff)
			}
		})
	}
}

// TestESC8000 holds what can be read off the machine's own text.
func TestESC8000(t *testing.T) {
	tree, err := render.FromLspci(recorded(t, "pairs/stelline-esc8000a-e12/asus-esc8000a-e12.md"))
	if err != nil {
		t.Fatal(err)
	}
	wantNUMA := []render.NUMANode{
		{ID: 0, CPUs: "0-31", Distances: []int{10, 32}}, {ID: 1, CPUs: "32-63", Distances: []int{32, 10}},
	}
	if diff := cmp.Diff(wantNUMA, tree.NUMA); diff != "" {
		t.Errorf("NUMA (-want +got):\n%s", diff)
	}
	gpu := tree.Find("0000:01:00.0")
	want := &render.Express{
		Port: pci.PortLegacyEndpoint, Link: pci.Link{SpeedGTPerSec: 2.5, Width: 16, MaxSpeedGTPerSec: 16, MaxWidth: 16},
		MPSBytes: 256, MPSSupportedBytes: 256, MRRS: 512, RelaxedOrdering: true, ExtendedTag: true,
	}
	if diff := cmp.Diff(want, gpu.Express); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
	if gpu.Vendor != 0x10de || gpu.Device != 0x26b1 || gpu.Class != 0x030000 || gpu.Revision != 0xa1 ||
		gpu.Parent != "0000:00:01.1" || gpu.Driver != "nvidia" || gpu.Node != 0 {
		t.Errorf("GPU %+v", gpu)
	}
	if bar := gpu.BARs[1]; bar.Start != 0x3f000000000 || bar.SizeBytes != 64<<30 || bar.Flags != 0x10220c {
		t.Errorf("BAR %+v", bar)
	}
	var rdma []string
	for _, d := range tree.RDMA {
		rdma = append(rdma, d.Name+" "+d.PCI+" "+d.HCAType)
	}
	wantRDMA := []string{
		"mlx5_0 0000:21:00.0 MT4129", "mlx5_1 0000:21:00.1 MT4129", "mlx5_2 0000:81:00.0 MT4129", "mlx5_3 0000:81:00.1 MT4129",
	}
	if diff := cmp.Diff(wantRDMA, rdma); diff != "" {
		t.Errorf("RDMA (-want +got):\n%s", diff)
	}
	for addr, node := range map[string]int{"0000:00:01.1": 0, "0000:21:00.1": 0, "0000:81:00.1": 1, "0000:e0:01.1": 1, "0000:a5:00.0": 1} {
		if f := tree.Find(addr); f == nil || f.Node != node {
			t.Errorf("%s: %+v, want node %d", addr, f, node)
		}
	}
}

// TestBigMachine draws the shape that EightGPU promises.
func TestBigMachine(t *testing.T) {
	_, dir := render.EightGPU().Open(t)
	got := lspciTree(t, dir)
	for _, want := range []string{
		"[0000:10]---00.0-[11-17]----00.0-[12-17]--+-00.0-[13]----00.0",
		"[0000:90]---00.0-[91-97]----00.0-[92-97]--+-00.0-[93]----00.0",
		"[0000:8",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	for name, want := range map[string]string{
		"sys/class/infiniband/mlx5_0":             "../../devices/pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:01.0/0000:14:00.0/infiniband/mlx5_0",
		"sys/class/infiniband/mlx5_0/device":      "../../../0000:14:00.0",
		"sys/class/net/eth11/device":              "../../../0000:8c:00.1",
		"sys/bus/pci/devices/0000:14:00.0/driver": "../../../../../../bus/pci/drivers/mlx5_core",
		"sys/class/infiniband_verbs/uverbs3":      "../../devices/pci0000:30/0000:30:00.0/0000:31:00.0/0000:32:03.0/0000:36:00.0/infiniband_verbs/uverbs3",
		"sys/module/mlx5_core/holders/mlx5_ib":    "../../mlx5_ib",
		"sys/bus/pci/drivers/nvidia/0000:13:00.0": "../../../../devices/pci0000:10/0000:10:00.0/0000:11:00.0/0000:12:00.0/0000:13:00.0",
	} {
		if got, err := os.Readlink(filepath.Join(dir, name)); got != want {
			t.Errorf("%s -> %q, %v; want %q", name, got, err, want)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"sys/class/infiniband/mlx5_8/ports/1/rate":       "200 Gb/sec (4X HDR)\n",
		"sys/devices/system/node/online":                 "0-1\n",
		"sys/devices/system/cpu/online":                  "0-223\n",
		"sys/bus/pci/devices/0000:73:00.0/local_cpulist": "56-111,168-223\n",
		"sys/bus/pci/devices/0000:73:00.0/numa_node":     "1\n",
		"sys/class/infiniband_mad/umad11/ibdev":          "mlx5_11\n",
		"proc/sys/kernel/osrelease":                      "6.12.0\n",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, tree := range map[string]render.Tree{
		"bad address": {Functions: []render.Function{{Addr: "x"}}},
		"twice":       {Functions: []render.Function{{Addr: "0000:01:00.0"}, {Addr: "0000:01:00.0"}}},
		"no parent":   {Functions: []render.Function{{Addr: "0000:01:00.0", Parent: "0000:00:01.0"}}},
		"circle": {Functions: []render.Function{
			{Addr: "0000:01:00.0", Parent: "0000:02:00.0"}, {Addr: "0000:02:00.0", Parent: "0000:01:00.0"},
		}},
	} {
		if err := tree.Write(render.Dir(t)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMany(t *testing.T) {
	for _, n := range []int{1, 33, 4096} {
		if got := len(render.Many(n).Functions); got != n {
			t.Errorf("Many(%d) has %d functions", n, got)
		}
	}
}

// FuzzFromLspci: whatever the text, no panic, and what is read can be written.
func FuzzFromLspci(f *testing.F) {
	f.Add("-+-[0000:00]-+-01.1-[01]--+-00.0  NVIDIA Corporation Device 2330\n |           |            \\-00.1\n")
	f.Add("-[0000:00]-+-01.1-[01-05]----00.0-[02]--\n           \\-02.0\n")
	f.Add("01:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)\n\tNUMA node: 1\n\tRegion 0: Memory at f8000000 (32-bit, non-prefetchable) [size=16M]\n" +
		"\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n" +
		"\t\tDevCap:\tMaxPayload 512 bytes\n\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n\t\tACSCap:\tSrcValid+\n\t\tACSCtl:\tSrcValid-\n" +
		"\tCapabilities: [bb0 v1] Physical Resizable BAR\n\t\tBAR 1: current size: 64GB, supported: 64MB 64GB\n")
	f.Add("node 0 cpus: 0 1 2\nnode distances:\n  0:  10\nhca_id: mlx5_0\n\tfw_ver: 28\n\tport: 1\n\tstate: PORT_ACTIVE (4)\n")
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := render.FromLspci(text)
		if err != nil {
			return
		}
		for _, fn := range tree.Functions[:min(len(tree.Functions), 50)] {
			if _, err := pci.ParseAddress(fn.Addr); err != nil {
				t.Error(err)
			}
		}
		if len(tree.Functions) < 4 {
			_ = tree.Write(render.Dir(t)) // may refuse, must not panic
		}
	})
}
