package topo_test

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// place is the way from the system to a PCI element: the CPU's number, then bus IDs.
func place(sys *topo.NCCLSystem, busID string) []string {
	var find func(list []topo.NCCLPCI, above []string) []string
	find = func(list []topo.NCCLPCI, above []string) []string {
		for _, p := range list {
			if p.BusID == busID {
				return above
			}
			if at := find(p.PCI, append(slices.Clip(above), p.BusID)); at != nil {
				return at
			}
		}
		return nil
	}
	for _, c := range sys.CPUs {
		if at := find(c.PCI, []string{c.NUMAID}); at != nil {
			return at
		}
	}
	return nil
}

// xmlClass is the class that NCCL's search gives a GPU and a NIC of a file.
func xmlClass(sys *topo.NCCLSystem, a, b string) string {
	x, y := place(sys, a), place(sys, b)
	n := 0
	for n < len(x) && n < len(y) && x[n] == y[n] {
		n++
	}
	switch {
	case len(x) == 0 || len(y) == 0:
		return "unknown"
	case n == 0:
		return "SYS"
	case n == 1:
		return "PHB"
	case n == len(x) && n == len(y):
		return "PIX"
	}
	return "PXB"
}

func readNCCL(t *testing.T, file string) *topo.NCCLSystem {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sys, err := topo.ReadNCCL(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return sys
}

// Real and vendors' files: read, written and read again they are the same, and
// no element or attribute gets lost.
func TestNCCLFiles(t *testing.T) {
	files, err := filepath.Glob(facttest.Fixture(t, "ncclxml") + "/*/*topo*.xml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files (%v), want at least 8", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			sys := readNCCL(t, file)
			if len(sys.CPUs) == 0 {
				t.Fatal("no CPU read")
			}
			var out bytes.Buffer
			if err := sys.Write(&out); err != nil {
				t.Fatal(err)
			}
			again, err := topo.ReadNCCL(bytes.NewReader(out.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(sys, again, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("read again (-first +second):\n%s", d)
			}
			original, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(countXML(t, original), countXML(t, out.Bytes())); d != "" {
				t.Errorf("elements and attributes (-file +written):\n%s", d)
			}
		})
	}
}

// countXML counts elements and attributes with their values.
func countXML(t *testing.T, b []byte) map[string]int {
	t.Helper()
	out := map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		tok, err := d.Token()
		if tok == nil {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok {
			out[e.Name.Local]++
			for _, a := range e.Attr {
				out[e.Name.Local+" "+a.Name.Local+"="+a.Value]++
			}
		}
	}
}

func TestNCCLFilesSay(t *testing.T) {
	for _, tt := range []struct{ file, gpu, nic, want string }{
		{"azure/ndv5-topo.xml", "0001:00:00.0", "0101:00:00.0", "PIX"},
		{"azure/ndv5-topo.xml", "0001:00:00.0", "0102:00:00.0", "PHB"},
		{"azure/ndv5-topo.xml", "0001:00:00.0", "0105:00:00.0", "SYS"},
		{"aws/p4d-24xl-topo.xml", "0000:10:1c.0", "0000:10:1b.0", "PIX"},
		{"aws/p4d-24xl-topo.xml", "0000:10:1c.0", "0000:90:1b.0", "SYS"},
	} {
		sys := readNCCL(t, facttest.Fixture(t, "ncclxml/"+tt.file))
		if got := xmlClass(sys, tt.gpu, tt.nic); got != tt.want {
			t.Errorf("%s: %s to %s is %s, want %s", tt.file, tt.gpu, tt.nic, got, tt.want)
		}
	}
}

// The file that is written leads NCCL to the class that the pairs say.
func TestNCCLClassFromWrittenFile(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(60) {
		g := topo.New(newForest(seed, true))
		var out bytes.Buffer
		if err := g.NCCL().Write(&out); err != nil {
			t.Fatal(err)
		}
		sys, err := topo.ReadNCCL(&out)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range g.Pairs() {
			x, _ := g.Device(p.GPU)
			n, _ := g.Device(p.NIC)
			got := xmlClass(sys, x.Addr.String(), n.Addr.String())
			seen[got]++
			if got != p.NCCL {
				t.Fatalf("seed %d: %s %s is %s in the file, %s by the pair\n%s", seed, p.GPU, p.NIC, got, p.NCCL, out.String())
			}
		}
	}
	for _, c := range []string{"PIX", "PXB", "PHB", "SYS"} {
		if seen[c] == 0 {
			t.Errorf("no pair of class %s: %v", c, seen)
		}
	}
}

func TestNCCLElements(t *testing.T) {
	m := topotest.NUMANodes(topotest.Machine(t, `
pci0000:00 numa=0
  00:01.0 root link=32x16
    01:00.0 up link=32x16 id=1000:c030 sub=1000:0004
      02:00.0 down link=32x16
        03:00.0 gpu link=16x16/32x16 id=10de:2330 sub=10de:16c1
      02:01.0 down link=32x8
        04:00.0 nic=mlx5_0 link=32x8/32x16 id=15b3:1021 sub=15b3:0041
    01:00.1 fn
  00:02.0 root
    05:00.0 nic=rxe0 soft
`), 2)
	nvlink := func(n int, peer, kind string) gpu.NVLink {
		l := gpu.NVLink{Link: n, Active: true, RemoteType: kind}
		if peer != "" {
			l.Remote = address(t, peer)
		}
		return l
	}
	m.GPU.GPUs[0].NVML = fact.Of(gpu.NVMLDevice{
		ComputeCap: fact.Of([2]int{9, 0}, "nvml"),
		NVLinks: fact.Of([]gpu.NVLink{nvlink(0, "0000:a0:00.0", "switch"), nvlink(1, "0000:a0:00.0", "switch"),
			nvlink(2, "0000:a1:00.0", "gpu"), nvlink(3, "", "switch"), {Link: 4}}, "nvml"),
	}, "nvml")
	d := &m.RDMA.Devices[0]
	d.SysGUID = fact.Of("b83f:d203:0004:073c", "sys_image_guid")
	d.Ports = []rdma.Port{{Number: 1, Rate: fact.Of(rdma.Rate{BitsPerSec: 400e9}, "rate")}}
	m.Host.CPU.Arch, m.Host.CPU.Vendor = fact.Of("x86_64", "uname"), fact.Of("GenuineIntel", "/proc/cpuinfo")
	m.Host.CPU.Family, m.Host.CPU.ModelNum, m.Host.CPU.Count = fact.Of(6, ""), fact.Of(143, ""), fact.Of(40, "")

	var out bytes.Buffer
	if err := topo.New(m).NCCL().Write(&out); err != nil {
		t.Fatal(err)
	}
	// The GUID as NCCL prints it is from a real file's mlx5_bond_0.
	want := `<system version="1">
  <cpu numaid="0" affinity="00000000,000000ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0004" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:03:00.0" class="0x030200" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90">
          <nvlink target="0000:a0:00.0" count="2" tclass="0x068000"></nvlink>
          <nvlink target="0000:a1:00.0" count="1" tclass="0x030200"></nvlink>
        </gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" vendor="0x15b3" device="0x1021" subsystem_vendor="0x15b3" subsystem_device="0x0041" link_speed="32.0 GT/s PCIe" link_width="8">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x3c07040003d23fb8"></net>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("file (-want +got):\n%s", d)
	}
}

func FuzzReadNCCL(f *testing.F) {
	f.Add(`<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x060400" link_speed="" link_width="0"><gpu dev="0"/><nic><net name="a" dev="0"/></nic></pci></cpu></system>`)
	f.Add(`<system version="1" x="y"><cpu numaid="-1"><nic/></cpu></system>`)
	f.Fuzz(func(t *testing.T, text string) {
		sys, err := topo.ReadNCCL(strings.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := sys.Write(&out); err != nil {
			t.Skip() // names that XML reads and does not write
		}
		if _, err := topo.ReadNCCL(&out); err != nil {
			t.Errorf("what was written cannot be read: %v\n%s", err, out.String())
		}
	})
}
