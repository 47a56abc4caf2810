package pci_test

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// seen is what both hwloc and Collect say of a function.
type seen struct {
	ID     string // vendor:device
	Class  string // base class and subclass
	Parent string
	Node   string  // NUMA node, "" unknown
	GBs    float64 // GB/s of the link now, two decimals, before packet overhead
}

func seenBy(f pci.Function) seen {
	s := seen{ID: f.Vendor.V.String() + ":" + f.Device.V.String(), Class: fmt.Sprintf("%04x", f.Class.V.Sub())}
	if f.Parent != nil {
		s.Parent = f.Parent.String()
	}
	if n, ok := f.NUMANode.Get(); ok {
		s.Node = strconv.Itoa(n)
	}
	if l, ok := f.Link.Get(); ok {
		// The packet overhead vanishes with a payload without end.
		s.GBs, _ = strconv.ParseFloat(fmt.Sprintf("%.2f", pci.UsableBytesPerSec(l.SpeedGTPerSec, l.Width, 1<<40)/1e9), 64)
	}
	return s
}

// TestVectorEngines compares a two-socket machine with PLX switches, VEs and
// ConnectX-4 with the tree, nodes and link speeds that hwloc found there.
func TestVectorEngines(t *testing.T) {
	const name = "sysfs/hwloc-32intel64-2p8co2t+8ve"
	text, err := os.ReadFile(fixture(t, name+"/expected/32intel64-2p8co2t+8ve.console"))
	if err != nil {
		t.Fatal(err)
	}
	src := open(t, filepath.Join(untar(t, name+"/root.tar.gz"), "root"))
	got := collect(t, src, pci.Options{})
	shown := map[string]seen{}
	want := console(string(text))
	for addr := range want { // hwloc leaves out functions of no interest
		s := seenBy(got[addr])
		target, err := src.Readlink(got[addr].Dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Parent != "" && !strings.HasSuffix(filepath.Dir(target), s.Parent) {
			t.Errorf("%s: parent %s, path %s", addr, s.Parent, target)
		}
		for dir := filepath.Dir(target); s.Parent != "" && want[s.Parent].ID == ""; dir = filepath.Dir(dir) {
			s.Parent = filepath.Base(dir)
		}
		shown[addr] = s
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("(-hwloc +collected):\n%s", diff)
	}
	if len(want) != 20 {
		t.Errorf("hwloc shows %d functions, want 20", len(want))
	}
}

// console reads lstopo's text: a function hangs below the bridge that is
// indented less, and belongs to the package that it stands in.
func console(text string) map[string]seen {
	line := regexp.MustCompile(`^( *)(?:PCIBridge|PCI) L#\d+ \(busid=(\S+) id=(\S+) class=(\w{4})\(\w+\)(?: link=([0-9.]+)GB/s)?`)
	numa := regexp.MustCompile(`^ *NUMANode L#\d+ \(P#(\d+)`)
	out := map[string]seen{}
	node := ""
	type open struct {
		indent int
		addr   string
	}
	var above []open
	for l := range strings.Lines(text) {
		if m := numa.FindStringSubmatch(l); m != nil {
			node, above = m[1], nil
		}
		m := line.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= len(m[1]) {
			above = above[:len(above)-1]
		}
		s := seen{ID: m[3], Class: m[4], Node: node}
		if len(above) > 0 {
			s.Parent = above[len(above)-1].addr
		}
		s.GBs, _ = strconv.ParseFloat(m[5], 64)
		out[m[2]] = s
		above = append(above, open{len(m[1]), m[2]})
	}
	return out
}

// object is one of hwloc's XML.
type object struct {
	Type    string   `xml:"type,attr"`
	BusID   string   `xml:"pci_busid,attr"`
	PCIType string   `xml:"pci_type,attr"` // "0200 [14e4:1639] [1028:02d3] 20 00"
	Objects []object `xml:"object"`
}

func (o object) walk(parent string, out map[string]seen) {
	if o.BusID != "" {
		f := strings.Fields(o.PCIType)
		out[o.BusID] = seen{ID: strings.Trim(f[1], "[]"), Class: f[0], Parent: parent}
		parent = o.BusID
	}
	for _, child := range o.Objects {
		child.walk(parent, out)
	}
}

// TestR910 compares ids, classes and tree of a four-socket machine with
// hwloc's XML. Its locality is forced there and not compared, but for what the
// firmware said: no node for host bridge 00, node 2 for the InfiniBand card.
func TestR910(t *testing.T) {
	const name = "sysfs/hwloc-40intel64-2g2n4c+pcilocality"
	text, err := os.ReadFile(fixture(t, name+"/expected/40intel64-2g2n4c+pcilocality.xml"))
	if err != nil {
		t.Fatal(err)
	}
	var top struct {
		Objects []object `xml:"object"`
	}
	if err := xml.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	want := map[string]seen{}
	object{Objects: top.Objects}.walk("", want)
	fns := collect(t, open(t, filepath.Join(untar(t, name+"/root.tar.gz"), "root")), pci.Options{})
	got := map[string]seen{}
	for addr, f := range fns {
		s := seenBy(f)
		got[addr] = seen{ID: s.ID, Class: s.Class, Parent: s.Parent}
		if f.Config.ACS.State != fact.Denied && f.Config.ACS.State != fact.Absent {
			t.Errorf("%s: ACS %v out of a recording of 64 bytes", addr, f.Config.ACS.State)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-hwloc +collected):\n%s", diff)
	}
	if n := fns["0000:43:00.0"].NUMANode; n.V != 2 || n.State != fact.Known {
		t.Errorf("node of 43:00.0: %+v", n)
	}
	if n := fns["0000:00:03.0"].NUMANode; n.State != fact.Absent {
		t.Errorf("node of 00:03.0: %+v", n)
	}
}

// TestRecordedTrees reads trees of which modalias holds the same numbers in
// another form, and one whose functions are plain directories.
func TestRecordedTrees(t *testing.T) {
	modalias := regexp.MustCompile(`^pci:v0000(....)d0000(....)sv........sd........bc(..)sc(..)`)
	for name, count := range map[string]int{
		"ghw-415ee03b8c4d1c4f07ae2e9d8b3d3d6d": 22, "ghw-61797caf7c0b6bca1725ad7975ed4773": 0,
		"ghw-accel": 0, "ghw-accel-nvidia": 0, "hwloc-nvidiagpunumanodes": 6,
	} {
		t.Run(name, func(t *testing.T) {
			src := open(t, filepath.Join(untar(t, "sysfs/"+name+"/root.tar.gz"), "root"))
			entries, err := src.ReadDir(pci.Devices)
			if err != nil {
				t.Fatal(err)
			}
			fns := collect(t, src, pci.Options{})
			if len(fns) != len(entries) || count > 0 && len(fns) < count {
				t.Errorf("%d functions of %d", len(fns), len(entries))
			}
			for addr, f := range fns {
				if f.Class.State != fact.Known {
					t.Errorf("%s: class %+v", addr, f.Class)
				}
				m := modalias.FindStringSubmatch(fact.Text(src, f.Dir, "modalias").V)
				if m == nil {
					continue
				}
				want := strings.ToLower(m[1] + ":" + m[2] + " " + m[3] + m[4])
				if s := seenBy(f); s.ID+" "+s.Class != want {
					t.Errorf("%s: %s %s, modalias %s", addr, s.ID, s.Class, want)
				}
			}
		})
	}
}
