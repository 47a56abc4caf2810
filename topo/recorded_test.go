package topo_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// matrix is what nvidia-smi topo -m printed, by row and column. NICs that a
// legend names have that name.
type matrix struct {
	ids    []string
	cells  map[string]map[string]topo.Class
	places map[string][]string // CPU, NUMA affinity, GPU NUMA ID
}

func readMatrix(t *testing.T, text string) matrix {
	t.Helper()
	m := matrix{cells: map[string]map[string]topo.Class{}, places: map[string][]string{}}
	names := map[string]string{}
	for line := range strings.Lines(text) {
		if nic, name, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && strings.HasPrefix(nic, "NIC") {
			names[nic] = strings.TrimSpace(name)
		}
	}
	name := func(id string) string {
		if names[id] != "" {
			return names[id]
		}
		return id
	}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 && len(m.ids) > 0 && len(m.cells) == len(m.ids):
			return m
		case len(words) == 0:
			continue
		case words[0] == "GPU0" && len(m.ids) == 0:
			for _, w := range words {
				if w == "CPU" {
					break
				}
				m.ids = append(m.ids, name(w))
			}
		case len(m.ids) > 0 && slices.Contains(m.ids, name(words[0])) && len(words) > len(m.ids):
			row := map[string]topo.Class{}
			for i, id := range m.ids {
				row[id] = topo.Class(words[1+i])
			}
			m.cells[name(words[0])], m.places[name(words[0])] = row, words[1+len(m.ids):]
		}
	}
	if len(m.cells) == 0 || len(m.cells) != len(m.ids) {
		t.Fatalf("no whole matrix: %d columns, %d rows", len(m.ids), len(m.cells))
	}
	return m
}

// compare checks each cell off the diagonal and returns how many there were.
func compare(t *testing.T, want matrix, g *topo.Graph) int {
	t.Helper()
	cells := 0
	for _, a := range want.ids {
		for _, b := range want.ids {
			if a == b {
				continue
			}
			cells++
			if got := g.Class(a, b); got != want.cells[a][b] {
				t.Errorf("%s to %s is %s, nvidia-smi says %s", a, b, got, want.cells[a][b])
			}
		}
	}
	return cells
}

// collected reads a rendered or recorded tree as the product does. GPUs are the
// functions that isGPU takes, numbered by address as NVML does.
func collected(t *testing.T, src fact.Source, isGPU func(*pci.Function) bool) *topo.Machine {
	t.Helper()
	fns, err := pci.Collect(t.Context(), src, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &topo.Machine{Origin: "tree", PCI: fns, RDMA: rdma.Collect(t.Context(), src, fns, rdma.Options{}), Host: host.Collect(t.Context(), src)}
	for i := range fns {
		if isGPU(&fns[i]) {
			m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Index: len(m.GPU.GPUs), Addr: fns[i].Address})
		}
	}
	return m
}

// The same host's lspci text in, its nvidia-smi topo -m out.
func TestMatrixFromLspci(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		file  string
		cells int
	}{
		{"pairs/stelline-esc8000a-e12/asus-esc8000a-e12.md", 56},
		{"pairs/stelline-puget-wrx90/puget-threadripper-pro-wrx90.md", 12},
	} {
		t.Run(tt.file, func(t *testing.T) {
			text, err := os.ReadFile(facttest.Fixture(t, tt.file))
			if err != nil {
				t.Fatal(err)
			}
			_, smi, ok := strings.Cut(string(text), "nvidia-smi topo -m")
			if !ok {
				t.Fatal("no matrix in the file")
			}
			tree, err := render.FromLspci(string(text))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := tree.Write(dir); err != nil {
				t.Fatal(err)
			}
			src, err := fact.NewOS(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			m := collected(t, src, func(f *pci.Function) bool {
				return f.Vendor.Or(0) == 0x10de && f.Class.Or(0).Base() == pci.ClassDisplay
			})
			want, g := readMatrix(t, smi), topo.New(m)
			if n := compare(t, want, g); n != tt.cells {
				t.Errorf("%d cells compared, want %d", n, tt.cells)
			}
			for _, d := range g.GPUs() {
				a := g.AffinityOf(d.ID)
				if d := cmp.Diff(want.places[d.ID], []string{a.CPUs, a.NUMANodes, or(a.GPUNode, "N/A")}); d != "" {
					t.Errorf("affinity (-nvidia-smi +got):\n%s", d)
				}
			}
		})
	}
}

// A guest with a virtual switch for each four devices. Its GPUs' addresses and
// NUMA nodes are the recording's; the switches are those of the same instance
// type's NCCL file (upstream port 21, endpoints 23 to 26).
func TestMatrixOfGuestWithSwitches(t *testing.T) {
	text, err := os.ReadFile(facttest.Fixture(t, "matrices/a800-vm-mlx5_bond/topo-m.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i, bus := range []int{0x20, 0x40, 0x80, 0xc0} {
		fmt.Fprintf(&b, "pci0000:%02x numa=%d\n  %02x:00.0 root\n    %02x:00.0 up\n", bus, i/2, bus, bus+1)
		for j, kind := range []string{"gpu", "gpu", "nic", "nic"} {
			if kind == "nic" {
				kind = fmt.Sprintf("nic=mlx5_bond_%d", 2*i+j-2)
			} else {
				kind += " nvlink=8"
			}
			fmt.Fprintf(&b, "      %02x:%02x.0 down\n        %02x:00.0 %s\n", bus+2, j, bus+3+j, kind)
		}
	}
	want := readMatrix(t, string(text))
	for i, id := range want.ids {
		if n, ok := strings.CutPrefix(id, "NIC"); ok {
			want.ids[i] = "mlx5_bond_" + n
			want.cells["mlx5_bond_"+n] = want.cells[id]
		}
	}
	for _, row := range want.cells {
		for id, c := range row {
			if n, ok := strings.CutPrefix(id, "NIC"); ok {
				row["mlx5_bond_"+n] = c
			}
		}
	}
	if n := compare(t, want, topo.New(topotest.NUMANodes(topotest.Machine(t, b.String()), 2))); n != 240 {
		t.Errorf("%d cells compared, want 240", n)
	}
}

// Each passed-through device has a domain of its own; nvidia-smi said NODE and
// SYS there, whatever the vendor's topology file draws.
func TestGuestOfDomains(t *testing.T) {
	f, err := os.Open(facttest.Fixture(t, "pairs/azure-ndv5-h100/ndv5-topo.xml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sys, err := topo.ReadNCCL(f)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	nic := 0
	for _, cpu := range sys.CPUs {
		for _, sw := range cpu.PCI {
			for _, p := range sw.PCI {
				kind := "gpu"
				if strings.HasPrefix(p.Class, "0x02") {
					kind = fmt.Sprintf("nic=mlx5_%d", nic)
					nic++
				}
				fmt.Fprintf(&b, "pci%s numa=%s\n  %s %s\n", p.BusID[:7], cpu.NUMAID, p.BusID, kind)
			}
		}
	}
	g := topo.New(topotest.NUMANodes(topotest.Machine(t, b.String()), 2))
	if len(g.GPUs()) != 8 || len(g.NICs()) != 8 {
		t.Fatalf("%d GPUs and %d NICs, want 8 and 8", len(g.GPUs()), len(g.NICs()))
	}
	for x := range 4 {
		for n := range 8 {
			want := topo.ClassNODE
			if n >= 4 {
				want = topo.ClassSYS
			}
			if got := g.Class(fmt.Sprintf("GPU%d", x), fmt.Sprintf("mlx5_%d", n)); got != want {
				t.Errorf("GPU%d to mlx5_%d is %s, want %s", x, n, got, want)
			}
		}
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// hwlocTree is lstopo's drawing: the ancestors of each PCI device, outermost first.
func hwlocTree(text string) map[string][]string {
	out := map[string][]string{}
	type level struct {
		indent int
		name   string
	}
	var path []level
	for line := range strings.Lines(text) {
		word := strings.TrimLeft(line, " ")
		indent := len(line) - len(word)
		for len(path) > 0 && path[len(path)-1].indent >= indent {
			path = path[:len(path)-1]
		}
		name := strings.TrimSpace(word)
		if i := strings.Index(name, "busid="); i >= 0 && strings.HasPrefix(name, "PCI ") {
			var above []string
			for _, l := range path {
				above = append(above, l.name)
			}
			out[name[i+6:i+6+12]] = above
		}
		path = append(path, level{indent, name})
	}
	return out
}

// hwlocClass is the class that lstopo's drawing gives: by the innermost object
// around both, and the bridges between it and either.
func hwlocClass(a, b []string) topo.Class {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	switch common := a[n-1]; {
	case strings.HasPrefix(common, "PCIBridge"):
		if len(a)-n <= 1 && len(b)-n <= 1 {
			return topo.ClassPIX
		}
		return topo.ClassPXB
	case strings.HasPrefix(common, "HostBridge"):
		return topo.ClassPHB
	case strings.HasPrefix(common, "Package"):
		return topo.ClassNODE
	}
	return topo.ClassSYS
}

// A two-socket machine with eight accelerators and two HCAs behind switches:
// its sysfs in, what lstopo drew of the same machine out.
func TestClassesAsLstopo(t *testing.T) {
	t.Parallel()
	const dir = "sysfs/hwloc-32intel64-2p8co2t+8ve"
	text, err := os.ReadFile(facttest.Fixture(t, dir+"/expected/32intel64-2p8co2t+8ve.console"))
	if err != nil {
		t.Fatal(err)
	}
	want := hwlocTree(string(text))
	src := facttest.Recorded(t, "hwloc-32intel64-2p8co2t+8ve", "root/sys/", "/sys")
	ids := map[string]string{}
	m := collected(t, src, func(f *pci.Function) bool { return want[f.Address.String()] != nil })
	m.RDMA = rdma.Facts{} // every endpoint is a "GPU" here
	for _, x := range m.GPU.GPUs {
		ids[x.Addr.String()] = fmt.Sprintf("GPU%d", x.Index)
	}
	g := topo.New(m)
	seen := map[topo.Class]int{}
	for a := range want {
		for b := range want {
			if a == b {
				continue
			}
			class := hwlocClass(want[a], want[b])
			seen[class]++
			if got := g.Class(ids[a], ids[b]); got != class {
				t.Errorf("%s to %s is %s, lstopo's drawing says %s", a, b, got, class)
			}
		}
	}
	if d := cmp.Diff(map[topo.Class]int{topo.ClassPIX: 42, topo.ClassNODE: 90}, seen); d != "" {
		t.Errorf("classes on the machine (-want +got):\n%s", d)
	}
}

// hwlocObject is one object of hwloc's XML.
type hwlocObject struct {
	Type       string        `xml:"type,attr"`
	BusID      string        `xml:"pci_busid,attr"`
	BridgeType string        `xml:"bridge_type,attr"`
	Index      string        `xml:"os_index,attr"`
	Buses      string        `xml:"bridge_pci,attr"` // below a bridge: "0000:[40-43]"
	Objects    []hwlocObject `xml:"object"`
}

func (o *hwlocObject) walk(above []string, out map[string][]string) {
	name := o.Type + " " + o.Index
	if o.Type == "Bridge" {
		name = map[string]string{"0-1": "HostBridge", "1-1": "PCIBridge"}[o.BridgeType] + " " + o.Buses
	}
	if o.Type == "PCIDev" {
		out[o.BusID] = above
	}
	above = append(slices.Clip(above), name)
	for i := range o.Objects {
		o.Objects[i].walk(above, out)
	}
}

// A four-socket machine whose firmware gives one root bus no NUMA node: hwloc
// guesses a place for it, gdrcheck says that it cannot tell.
func TestClassesAsHwlocXML(t *testing.T) {
	t.Parallel()
	const name = "hwloc-40intel64-2g2n4c+pcilocality"
	b, err := os.ReadFile(facttest.Fixture(t, "sysfs/"+name+"/expected/40intel64-2g2n4c+pcilocality.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Object hwlocObject `xml:"object"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	doc.Object.walk(nil, want)
	m := collected(t, facttest.Recorded(t, name, "root/sys/", "/sys"), func(f *pci.Function) bool { return want[f.Address.String()] != nil })
	m.RDMA = rdma.Facts{}
	g := topo.New(m)
	if len(m.GPU.GPUs) < 2 {
		t.Fatalf("%d of hwloc's %d PCI devices found", len(m.GPU.GPUs), len(want))
	}
	structural, unknown := 0, 0
	for _, a := range m.GPU.GPUs {
		for _, b := range m.GPU.GPUs {
			if a.Addr == b.Addr {
				continue
			}
			class := hwlocClass(want[a.Addr.String()], want[b.Addr.String()])
			got := g.Class(fmt.Sprintf("GPU%d", a.Index), fmt.Sprintf("GPU%d", b.Index))
			_, numaA := g.Function(a.Addr).NUMANode.Get()
			_, numaB := g.Function(b.Addr).NUMANode.Get()
			card := func(x pci.Address) string { return x.String()[:10] }
			switch {
			case card(a.Addr) == card(b.Addr):
				class = topo.ClassPIX
			case class == topo.ClassNODE || class == topo.ClassSYS:
				if !numaA || !numaB {
					class = topo.ClassUnknown
					unknown++
				}
			default:
				structural++
			}
			if got != class {
				t.Errorf("%s to %s is %s, hwloc's tree says %s", a.Addr, b.Addr, got, class)
			}
		}
	}
	if structural == 0 || unknown == 0 {
		t.Errorf("%d pairs below one host bridge, %d without a NUMA node: the machine has both", structural, unknown)
	}
}

func TestReadMatrix(t *testing.T) {
	m := readMatrix(t, "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nNIC0\tPIX\t X \n\nNIC Legend:\n\n  NIC0: mlx5_4\n")
	want := map[string]map[string]topo.Class{"GPU0": {"GPU0": "X", "mlx5_4": "PIX"}, "mlx5_4": {"GPU0": "PIX", "mlx5_4": "X"}}
	if d := cmp.Diff(want, m.cells); d != "" {
		t.Errorf("matrix (-want +got):\n%s", d)
	}
}

// Matrices alone: a machine drawn from one must give it back. What the classes
// say of switches, host bridges and NUMA nodes has to fit into one tree for that.
func TestMatricesFitATree(t *testing.T) {
	for _, name := range []string{
		"a100-pcie-2gpu-2nic", "a100-sxm4-4gpu-1nic", "a800-vm-mlx5_bond", "dgx-1-mp", "h20-8gpu-8nic",
		"vm-2gpu-1nic-phb",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(facttest.Fixture(t, "matrices/"+name+"/topo-m.txt"))
			if err != nil {
				t.Fatal(err)
			}
			want := readMatrix(t, string(text))
			g := topo.New(topotest.NUMANodes(topotest.Machine(t, drawTree(want)), 2))
			cells := 0
			for _, a := range want.ids {
				for _, b := range want.ids {
					// NVLinks hide the path between GPUs.
					if c := want.cells[a][b]; a != b && !strings.HasPrefix(string(c), "NV") {
						cells++
						if got := g.Class(a, b); got != c {
							t.Errorf("%s to %s is %s, nvidia-smi says %s", a, b, got, c)
						}
					}
				}
			}
			if cells == 0 {
				t.Error("nothing compared")
			}
		})
	}
}

// drawTree draws the tree that a matrix describes: NUMA nodes, in them host
// bridges, in them switches (PXB), in them single switches (PIX).
func drawTree(m matrix) string {
	var b strings.Builder
	bus := 0
	line := func(indent int, format string, args ...any) {
		b.WriteString(strings.Repeat("  ", indent) + fmt.Sprintf(format, args...) + "\n")
	}
	next := func() int { bus++; return bus }
	leaf := func(indent int, switchBus, dev int, id string) {
		kind := "nic=" + id
		if strings.HasPrefix(id, "GPU") {
			kind = "gpu=" + id[3:]
		}
		line(indent, "%02x:%02x.0 down", switchBus, dev)
		line(indent+1, "%02x:00.0 %s", next(), kind)
	}
	leaves := func(indent int, ids []string) {
		line(indent, "%02x:00.0 up", next())
		sw := next()
		for dev, id := range ids {
			leaf(indent+1, sw, dev, id)
		}
	}
	for node, ids := range groups(m, m.ids, topo.ClassNODE) {
		for _, ids := range groups(m, ids, topo.ClassPHB) {
			root := next()
			line(0, "pci0000:%02x numa=%d", root, node)
			for dev, ids := range groups(m, ids, topo.ClassPXB) {
				line(1, "%02x:%02x.0 root", root, dev)
				single := groups(m, ids, topo.ClassPIX)
				if len(single) == 1 {
					leaves(2, ids)
					continue
				}
				line(2, "%02x:00.0 up", next())
				sw := next()
				for dev, ids := range single {
					line(3, "%02x:%02x.0 down", sw, dev)
					leaves(4, ids)
				}
			}
		}
	}
	return b.String()
}

// groups splits IDs into those joined by paths of at most a class.
func groups(m matrix, ids []string, most topo.Class) [][]string {
	joined := func(a, b string) bool {
		c := m.cells[a][b]
		return !strings.HasPrefix(string(c), "NV") && c.Rank() <= most.Rank()
	}
	var out [][]string
	for _, id := range ids {
		group := []string{id}
		var rest [][]string
		for _, other := range out {
			if slices.ContainsFunc(other, func(o string) bool { return joined(id, o) }) {
				group = append(other, group...)
			} else {
				rest = append(rest, other)
			}
		}
		out = append(rest, group)
	}
	return out
}
