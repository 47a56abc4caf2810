package pci_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
)

func open(t *testing.T, dir string) *fact.OS {
	t.Helper()
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func collect(t *testing.T, src fact.Source, opt pci.Options) map[string]pci.Function {
	t.Helper()
	fns, err := pci.Collect(t.Context(), src, opt)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(fns, func(a, b pci.Function) int { return a.Address.Compare(b.Address) }) {
		t.Error("functions are not sorted by address")
	}
	out := map[string]pci.Function{}
	for _, f := range fns {
		out[f.Address.String()] = f
	}
	return out
}

// TestCollectAgainstLspci lets lspci read the same sysfs trees: two real
// machines' and one made here, with switches.
func TestCollectAgainstLspci(t *testing.T) {
	trees := map[string]func(t *testing.T) render.Tree{
		"eight GPUs": func(*testing.T) render.Tree { return render.EightGPU() },
		"esc8000a-e12": func(t *testing.T) render.Tree {
			return fromText(t, "pairs/stelline-esc8000a-e12/asus-esc8000a-e12.md")
		},
		"xe9680": func(t *testing.T) render.Tree { return fromText(t, "lspci/gpud-xe9680-h100/lspci-vvv") },
	}
	for name, tree := range trees {
		t.Run(name, func(t *testing.T) {
			src, dir := tree(t).Open(t)
			sysfs := "sysfs.path=" + dir + "/sys/bus/pci"
			want, err := render.FromLspci(lspci(t, "-O", sysfs, "-tv") + lspci(t, "-O", sysfs, "-D", "-vvv"))
			if err != nil {
				t.Fatal(err)
			}
			got := collect(t, src, pci.Options{})
			if len(got) != len(want.Functions) {
				t.Errorf("%d functions, lspci sees %d", len(got), len(want.Functions))
			}
			for _, f := range want.Functions {
				compareConfig(t, f, got[f.Addr].Config, 4096)
				compareSysfs(t, f, got[f.Addr])
			}
		})
	}
}

func fromText(t *testing.T, name string) render.Tree {
	t.Helper()
	text, err := os.ReadFile(fixture(t, name))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := render.FromLspci(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func compareSysfs(t *testing.T, want render.Function, got pci.Function) {
	t.Helper()
	type place struct {
		Parent, Driver string
		Class          pci.Class
		Node           int
		Link           pci.Link
		BARs           int
	}
	w := place{want.Parent, want.Driver, want.Class, want.Node, pci.Link{}, 0}
	if e := want.Express; e != nil {
		w.Link = e.Link
	}
	for _, b := range want.BARs {
		if b.Index < 6 {
			w.BARs++
		}
	}
	g := place{"", got.Driver.V, got.Class.V, got.NUMANode.Or(-1), got.Link.V, 0}
	if got.Parent != nil {
		g.Parent = got.Parent.String()
	}
	for _, b := range got.BARs.V {
		if b.Index < 6 {
			g.BARs++
		}
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s (-lspci +collected):\n%s", want.Addr, diff)
	}
}

// TestACSOfXE9680 counts what the machine's own lspci printed: 55 registers of
// which six are set.
func TestACSOfXE9680(t *testing.T) {
	text, err := os.ReadFile(fixture(t, "lspci/gpud-xe9680-h100/lspci-vvv"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	addr := ""
	for line := range strings.Lines(string(text)) {
		if first, _, _ := strings.Cut(line, " "); line[0] != '\t' {
			addr = "0000:" + first
		}
		if _, ctl, ok := strings.Cut(strings.TrimSpace(line), "ACSCtl:\t"); ok {
			want[addr] = ctl
		}
	}
	src, _ := fromText(t, "lspci/gpud-xe9680-h100/lspci-vvv").Open(t)
	got := map[string]string{}
	set := 0
	for addr, f := range collect(t, src, pci.Options{}) {
		if acs, ok := f.Config.ACS.Get(); ok {
			got[addr] = pci.ACSString(acs.Ctl)
			if acs.Ctl != 0 {
				set++
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ACSCtl (-lspci +collected):\n%s", diff)
	}
	if len(got) != 55 || set != 6 {
		t.Errorf("%d registers, %d set; want 55 and 6", len(got), set)
	}
}

// TestCollectPlaces has a root bus behind a VMD, a wide domain, and a VF.
func TestCollectPlaces(t *testing.T) {
	x4 := pci.Link{SpeedGTPerSec: 16, Width: 4, MaxSpeedGTPerSec: 16, MaxWidth: 4}
	src, _ := render.Tree{Functions: []render.Function{
		{Addr: "0000:c9:00.5", Vendor: 0x8086, Device: 0x28c0, Class: 0x010400, Driver: "vmd", IOMMUGroup: new(7), IOMMUType: "identity"},
		{
			Addr: "10000:00:01.0", Parent: "0000:c9:00.5", RootBus: "pci10000:00", Class: 0x060400, Node: -1,
			Express: &render.Express{Port: pci.PortRoot, Link: pci.Link{MaxSpeedGTPerSec: 16, MaxWidth: 4}},
		},
		{Addr: "10000:01:00.0", Parent: "10000:00:01.0", Class: 0x010802, ConfigBytes: 64, Express: &render.Express{Link: x4}},
		{Addr: "0000:3b:00.0", Vendor: 0x15b3, Device: 0x1021, Class: 0x020000, Express: &render.Express{Link: x4, MRRS: 4096}},
		{Addr: "0000:3b:00.1", Vendor: 0x15b3, Device: 0x101e, Class: 0x020000, PhysFn: "0000:3b:00.0", ATS: new(true), Express: &render.Express{Link: x4}},
		{Addr: "0000:3b:00.2", Vendor: 0x15b3, Device: 0x101e, Class: 0x020000, PhysFn: "0000:3b:00.0", Express: &render.Express{Link: x4}},
		{
			Addr: "0000:00:00.0", Class: 0x088000, Express: &render.Express{Port: pci.PortRCIntegratedEP},
			AER: &pci.AERCounts{Correctable: map[string]uint64{"RxErr": 4}, Fatal: map[string]uint64{"DLP": 1}},
		},
	}}.Open(t)
	got := collect(t, src, pci.Options{})
	vmd, root, ssd := got["0000:c9:00.5"], got["10000:00:01.0"], got["10000:01:00.0"]
	pf, vf, rc := got["0000:3b:00.0"], got["0000:3b:00.1"], got["0000:00:00.0"]

	for _, p := range []struct {
		fn     pci.Function
		parent *pci.Address
		bridge string
	}{
		{vmd, nil, "pci0000:c9"}, {root, &vmd.Address, "pci0000:c9"}, {ssd, &root.Address, "pci0000:c9"}, {pf, nil, "pci0000:3b"},
	} {
		if diff := cmp.Diff(p.parent, p.fn.Parent); diff != "" || p.fn.HostBridge != p.bridge {
			t.Errorf("%s: below %q, want %q; parent (-want +got):\n%s", p.fn.Address, p.fn.HostBridge, p.bridge, diff)
		}
	}
	states := map[string]struct{ got, want fact.State }{
		"no node is absent":                  {root.NUMANode.State, fact.Absent},
		"no group is absent":                 {root.IOMMUGroup.State, fact.Absent},
		"no driver is absent":                {root.Driver.State, fact.Absent},
		"64 bytes deny ACS":                  {ssd.Config.ACS.State, fact.Denied},
		"64 bytes deny MPS":                  {ssd.Config.MPSBytes.State, fact.Denied},
		"a PF's link":                        {pf.Link.State, fact.Known},
		"a VF's link is its PF's":            {vf.Link.State, fact.Unsupported},
		"a VF's link register":               {vf.Config.Link.State, fact.Unsupported},
		"a VF's MRRS is its PF's":            {vf.Config.MRRSBytes.State, fact.Unsupported},
		"a VF's relaxed ordering":            {vf.Config.RelaxedOrdering.State, fact.Unsupported},
		"a VF has its own ATS":               {vf.Config.ATS.State, fact.Known},
		"no physfn on a PF":                  {pf.PhysFn.State, fact.Absent},
		"an integrated function has no link": {rc.Link.State, fact.Absent},
		"nor in its registers":               {rc.Config.Link.State, fact.Absent},
		"a conventional one has no AER":      {vmd.AER.State, fact.Absent},
	}
	for name, s := range states {
		if s.got != s.want {
			t.Errorf("%s: %v, want %v", name, s.got, s.want)
		}
	}
	if diff := cmp.Diff(fact.Of(pci.Link{MaxSpeedGTPerSec: 16, MaxWidth: 4}, "current_link_speed"), root.Link); diff != "" {
		t.Errorf("a link that is down (-want +got):\n%s", diff)
	}
	if vmd.IOMMUGroup.V != 7 || vmd.IOMMUGroupType.V != "identity" {
		t.Errorf("IOMMU group %+v %+v, want 7 identity", vmd.IOMMUGroup, vmd.IOMMUGroupType)
	}
	if diff := cmp.Diff([]pci.Address{vf.Address, got["0000:3b:00.2"].Address}, pf.VirtFns); diff != "" || vf.PhysFn.V != pf.Address {
		t.Errorf("physfn %v, virtfns (-want +got):\n%s", vf.PhysFn.V, diff)
	}
	wantAER := pci.AERCounts{Correctable: map[string]uint64{"RxErr": 4}, Fatal: map[string]uint64{"DLP": 1}}
	if diff := cmp.Diff(wantAER, rc.AER.V); diff != "" {
		t.Errorf("AER (-want +got):\n%s", diff)
	}
	if pf.VendorName != "Mellanox Technologies" || pf.DeviceName != "MT2910 Family [ConnectX-7]" {
		t.Errorf("names %q %q", pf.VendorName, pf.DeviceName)
	}
}

func TestCollectScopes(t *testing.T) {
	src, _ := render.EightGPU().Open(t)
	const ssd, gpu, port = "0000:17:00.0", "0000:13:00.0", "0000:10:00.0"
	for scope, want := range map[pci.ConfigScope][3]fact.State{ // of the SSD, a GPU and the root port above both
		pci.ConfigAll:   {fact.Known, fact.Known, fact.Known},
		pci.ConfigPaths: {fact.NotCollected, fact.Known, fact.Known},
		pci.ConfigNone:  {fact.NotCollected, fact.NotCollected, fact.NotCollected},
	} {
		got := collect(t, src, pci.Options{Config: scope, NoNames: true})
		states := [3]fact.State{got[ssd].Config.Length.State, got[gpu].Config.Length.State, got[port].Config.Length.State}
		if states != want {
			t.Errorf("scope %d: %v, want %v", scope, states, want)
		}
		if got[gpu].VendorName != "" {
			t.Errorf("NoNames gave %q", got[gpu].VendorName)
		}
	}
}

// TestBrokenFunction: a device directory that is gone, garbage and a loop each
// cost only themselves.
func TestBrokenFunction(t *testing.T) {
	src, dir := render.EightGPU().Open(t)
	devices := filepath.Join(dir, "sys/bus/pci/devices")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unplugged, err := filepath.EvalSymlinks(filepath.Join(devices, "0000:13:00.0"))
	must(err)
	must(os.RemoveAll(unplugged))
	must(os.Symlink("0000:fe:00.1", filepath.Join(devices, "0000:fe:00.1")))
	must(os.WriteFile(filepath.Join(devices, "not a function"), nil, 0o644))
	must(os.WriteFile(filepath.Join(devices, "0000:14:00.0/uevent"), []byte("PCI_ID=?"), 0o644))
	must(os.WriteFile(filepath.Join(devices, "0000:14:00.0/vendor"), []byte("garbage\n"), 0o644))
	must(os.WriteFile(filepath.Join(devices, "0000:14:00.0/numa_node"), []byte("-7\n"), 0o644))
	must(os.WriteFile(filepath.Join(devices, "0000:14:00.0/current_link_speed"), []byte("fast\n"), 0o644))
	must(os.WriteFile(filepath.Join(devices, "0000:14:00.0/config"), []byte("short"), 0o644))
	got := collect(t, src, pci.Options{})
	if len(got) != len(render.EightGPU().Functions)+1 {
		t.Errorf("%d functions", len(got))
	}
	for _, tt := range []struct {
		what   string
		state  fact.State
		reason string
		want   fact.State
		cause  string
	}{
		{"gone: vendor", got["0000:13:00.0"].Vendor.State, got["0000:13:00.0"].Vendor.Reason, fact.Absent, "no such file"},
		{"gone: config", got["0000:13:00.0"].Config.ACS.State, got["0000:13:00.0"].Config.ACS.Reason, fact.NotCollected, "not in what was read"},
		{"loop: class", got["0000:fe:00.1"].Class.State, got["0000:fe:00.1"].Class.Reason, fact.Failed, "too many levels"},
		{"loop: config", got["0000:fe:00.1"].Config.MPSBytes.State, got["0000:fe:00.1"].Config.MPSBytes.Reason, fact.Failed, "too many levels"},
		{"vendor", got["0000:14:00.0"].Vendor.State, got["0000:14:00.0"].Vendor.Reason, fact.Failed, `"garbage"`},
		{"device beside it", got["0000:14:00.0"].Device.State, "", fact.Known, ""},
		{"node", got["0000:14:00.0"].NUMANode.State, got["0000:14:00.0"].NUMANode.Reason, fact.Failed, "bad node -7"},
		{"link", got["0000:14:00.0"].Link.State, got["0000:14:00.0"].Link.Reason, fact.Failed, `"fast"`},
		{"config", got["0000:14:00.0"].Config.ACS.State, got["0000:14:00.0"].Config.ACS.Reason, fact.Failed, "only 5 bytes"},
		{"neighbour", got["0000:15:00.0"].Config.Link.State, "", fact.Known, ""},
	} {
		if tt.state != tt.want || !strings.Contains(tt.reason, tt.cause) {
			t.Errorf("%s: %v %q, want %v %q", tt.what, tt.state, tt.reason, tt.want, tt.cause)
		}
	}
}

// stuck wraps a Source whose answers can be withheld.
type stuck struct {
	fact.Source
	hang func(name string) bool
	gate chan struct{}
	ask  func(args []string) ([]fact.Record, error)
}

func (s stuck) ReadFile(name string) ([]byte, error) {
	if s.hang != nil && s.hang(name) {
		<-s.gate
	}
	return s.Source.ReadFile(name)
}

func (s stuck) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	if s.ask != nil {
		return s.ask(args)
	}
	return s.Source.Ask(ctx, name, args...)
}

// TestCollectHangs: a read that never comes back costs one function, and
// Collect ends with its context.
func TestCollectHangs(t *testing.T) {
	src, _ := render.EightGPU().Open(t)
	gate := make(chan struct{})
	defer close(gate)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("deadline of the test"))
	defer cancel()
	start := time.Now()
	fns, err := pci.Collect(ctx, stuck{Source: src, gate: gate, hang: func(name string) bool {
		return strings.HasSuffix(name, "0000:13:00.0/current_link_speed")
	}}, pci.Options{})
	if err != nil || time.Since(start) > 5*time.Second {
		t.Fatalf("%v after %v", err, time.Since(start))
	}
	for _, f := range fns {
		want := fact.Known
		if f.Address.String() == "0000:13:00.0" {
			want = fact.Failed
			if !strings.Contains(f.Link.Reason, "deadline of the test") {
				t.Errorf("reason %q", f.Link.Reason)
			}
		}
		if f.Vendor.State != want || f.NUMANode.State != want {
			t.Errorf("%s: %v, want %v", f.Address, f.Vendor.State, want)
		}
		if f.HostBridge == "" {
			t.Errorf("%s: lost its place", f.Address)
		}
	}
}

// TestConfigAnswers: what the worker says of a function stands for it alone.
func TestConfigAnswers(t *testing.T) {
	src, _ := render.EightGPU().Open(t)
	first := ""
	got := collect(t, stuck{Source: src, ask: func(args []string) ([]fact.Record, error) {
		first = args[0]
		return []fact.Record{
			{Subject: args[0], State: fact.Failed, Reason: "hung for 2s"},
			{Subject: args[1], State: fact.Denied, Errno: int(syscall.EPERM), Reason: "operation not permitted"},
			{Subject: "/never/asked", State: fact.Known},
		}, errors.New("worker died")
	}}, pci.Options{})
	states := map[fact.State]int{}
	for addr, f := range got {
		states[f.Config.ACS.State]++
		if strings.Contains(first, addr) && f.Config.ACS.Reason != "hung for 2s" {
			t.Errorf("%s: %q", addr, f.Config.ACS.Reason)
		}
	}
	if want := map[fact.State]int{fact.Failed: len(got) - 1, fact.Denied: 1}; !cmp.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}

	got = collect(t, stuck{Source: src, ask: func([]string) ([]fact.Record, error) {
		return nil, fact.ErrNotCollected
	}}, pci.Options{})
	for addr, f := range got {
		if f.Config.Length.State != fact.NotCollected || f.Config.ATS.Reason == "" {
			t.Fatalf("%s: %+v", addr, f.Config.Length)
		}
	}
}

func TestCollectWithoutPCI(t *testing.T) {
	if _, err := pci.Collect(t.Context(), open(t, t.TempDir()), pci.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want fs.ErrNotExist", err)
	}
}

func TestCollectMany(t *testing.T) {
	src, _ := render.Many(4096).Open(t)
	start := time.Now()
	got := collect(t, src, pci.Options{})
	if len(got) != 4096 {
		t.Errorf("%d functions", len(got))
	}
	for addr, f := range got {
		if f.Link.State != fact.Known || f.Config.PortType.State != fact.Known {
			t.Fatalf("%s: %+v", addr, f.Link)
		}
	}
	if d := time.Since(start); d > 20*time.Second { // a quarter of a second where nothing else runs
		t.Errorf("took %v", d)
	}
}

// TestThisMachine compares with lspci on the machine that runs the test.
func TestThisMachine(t *testing.T) {
	if _, err := os.Stat(pci.Devices); err != nil {
		t.Skip("no PCI here: ", err)
	}
	got := collect(t, open(t, "/"), pci.Options{})
	numbers := map[string]string{}
	for line := range strings.Lines(lspci(t, "-D", "-n")) { // 0000:00:01.0 0200: 1af4:1041 (rev 01)
		f := strings.Fields(line)
		numbers[f[0]] = f[1] + " " + f[2]
	}
	shown := map[string]string{}
	for addr, f := range got {
		s := seenBy(f)
		shown[addr] = s.Class + ": " + s.ID
	}
	if diff := cmp.Diff(numbers, shown); diff != "" {
		t.Errorf("(-lspci +collected):\n%s", diff)
	}
	if len(got) == 0 {
		t.Skip("no PCI function here")
	}
	want, err := render.FromLspci(lspci(t, "-D", "-vvv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range want.Functions {
		compareConfig(t, f, got[f.Addr].Config, got[f.Addr].Config.Length.V)
	}
}
