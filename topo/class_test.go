package topo_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Answers follow nvidia-smi's own definitions ("at most a single PCIe bridge",
// "multiple PCIe bridges", …) and, for NCCL, src/graph/xml.cc and paths.cc.
func TestClass(t *testing.T) {
	for _, tt := range []struct {
		name, tree string
		nodes      int
		want       topo.Class
		nccl       string
	}{
		{"one switch", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
      02:01.0 down
        04:00.0 nic=mlx5_0`, 2, topo.ClassPIX, "PIX"},
		{"one switch, port types not readable", `
pci0000:00 numa=0
  00:01.0 bridge
    01:00.0 bridge
      02:00.0 bridge
        03:00.0 gpu
      02:01.0 bridge
        04:00.0 nic=mlx5_0`, 2, topo.ClassPIX, "PIX"},
		{"cascaded switches", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 up
          04:00.0 down
            05:00.0 gpu
      02:01.0 down
        06:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PXB"},
		{"cascaded switches, port types not readable", `
pci0000:00 numa=0
  00:01.0 bridge
    01:00.0 bridge
      02:00.0 bridge
        03:00.0 bridge
          04:00.0 bridge
            05:00.0 gpu
      02:01.0 bridge
        06:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PXB"},
		{"lower of two cascaded switches holds both", `
pci0000:00 numa=0
  00:01.0 bridge
    01:00.0 bridge
      02:00.0 bridge
        03:00.0 bridge
          04:00.0 bridge
            05:00.0 gpu
          04:01.0 bridge
            06:00.0 nic=mlx5_0`, 2, topo.ClassPIX, "PIX"},
		{"five levels", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 up
          04:00.0 down
            05:00.0 up
              06:00.0 down
                07:00.0 up
                  08:00.0 down
                    09:00.0 up
                      0a:00.0 down
                        0b:00.0 gpu
      02:01.0 down
        0c:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PXB"},
		{"two root ports", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 gpu
  00:02.0 root
    02:00.0 nic=mlx5_0`, 2, topo.ClassPHB, "PHB"},
		{"switches on two root ports", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
  00:02.0 root
    05:00.0 up
      06:00.0 down
        07:00.0 nic=mlx5_0`, 2, topo.ClassPHB, "PHB"},
		{"flat guest without NUMA", `
pci0000:00
  00:06.0 gpu link=32x16
  00:07.0 nic=mlx5_0 link=32x16`, 0, topo.ClassPHB, "PHB"},
		{"two root buses, one NUMA node", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 gpu
pci0000:20 numa=0
  20:01.0 root
    21:00.0 nic=mlx5_0`, 2, topo.ClassNODE, "PHB"},
		{"two NUMA nodes", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 gpu
pci0000:80 numa=1
  80:01.0 root
    81:00.0 nic=mlx5_0`, 2, topo.ClassSYS, "SYS"},
		{"root buses without NUMA on a machine of two nodes", `
pci0000:00
  00:01.0 root
    01:00.0 gpu
pci0000:80
  80:01.0 root
    81:00.0 nic=mlx5_0`, 2, topo.ClassUnknown, "PHB"},
		{"one side without NUMA", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 gpu
pci0000:80
  80:01.0 root
    81:00.0 nic=mlx5_0`, 2, topo.ClassUnknown, "SYS"},
		{"root buses without NUMA on a machine of one node", `
pci0000:00
  00:01.0 root
    01:00.0 gpu
pci0000:80
  80:01.0 root
    81:00.0 nic=mlx5_0`, 1, topo.ClassNODE, "PHB"},
		{"functions of one device below a root port", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 gpu
    01:00.1 nic=mlx5_0`, 2, topo.ClassPIX, "PHB"},
		{"functions of one device on a root bus", `
pci0000:00
  00:05.0 gpu
  00:05.1 nic=mlx5_0`, 2, topo.ClassPIX, "PHB"},
		{"device inside the switch", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 nic=mlx5_0
      02:01.0 down
        03:00.0 gpu`, 2, topo.ClassPIX, "PHB"}, // NCCL: the root port for the one, the switch for the other
		{"two switches of one card below a root port", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
    01:00.1 up
      04:00.0 down
        05:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PHB"},
		{"PCI bus behind a PCIe-to-PCI bridge", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 topcie
      02:00.0 gpu
      02:01.0 nic=mlx5_0`, 2, topo.ClassPIX, "PIX"}, // NCCL: the root port for both
		{"two PCI bridges behind a PCIe-to-PCI bridge", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 topcie
      02:00.0 bridge
        03:00.0 gpu
      02:01.0 bridge
        04:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PIX"},
		{"both in one VMD domain", `
pci10000:00 numa=0
  10000:00:02.0 root
    10000:01:00.0 gpu
  10000:00:03.0 root
    10000:02:00.0 nic=mlx5_0`, 2, topo.ClassPHB, "PHB"},
		{"a switch in a VMD domain, whose addresses NCCL cannot read", `
pci10000:00 numa=0
  10000:00:02.0 root
    10000:01:00.0 up
      10000:02:00.0 down
        10000:03:00.0 gpu
      10000:02:01.0 down
        10000:04:00.0 nic=mlx5_0`, 2, topo.ClassPIX, "PHB"},
		{"one in a VMD domain", `
pci10000:00 numa=0
  10000:00:02.0 root
    10000:01:00.0 gpu
pci0000:60 numa=0
  60:01.0 root
    61:00.0 nic=mlx5_0`, 2, topo.ClassNODE, "PHB"},
		{"a domain for each passed-through device", `
pci0001:00 numa=0
  0001:00:00.0 gpu
pci0101:00 numa=0
  0101:00:00.0 nic=mlx5_0`, 2, topo.ClassNODE, "PHB"},
		{"virtual function behind the switch", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
      02:01.0 down
        04:00.0 eth=ens1
        04:08.2 nic=mlx5_2 vf=04:00.0`, 2, topo.ClassPIX, "PIX"},
		{"Data Direct beside the GPU, NIC elsewhere", `
pci0000:80 numa=1
  80:01.0 root
    81:00.0 nic=mlx5_0
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
      02:01.0 down
        04:00.0 dd=mlx5_0`, 2, topo.ClassPIX, "PIX"},
		{"coherent GPU, NIC of the same CPU", `
pci0008:00 numa=0
  0008:00:00.0 root
    0008:01:00.0 gpu coherent
pci0000:00 numa=0
  00:00.0 root
    01:00.0 nic=mlx5_0`, 2, topo.ClassNODE, "P2C"},
		{"coherent GPU, NIC of the other CPU", `
pci0008:00 numa=0
  0008:00:00.0 root
    0008:01:00.0 gpu coherent
pci0010:00 numa=1
  0010:00:00.0 root
    0010:01:00.0 nic=mlx5_0`, 2, topo.ClassSYS, "SYS"},
		{"Broadcom Gen4, two levels of one switch", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up id=1000:c010 sub=1000:a096
      02:00.0 down id=1000:c010 sub=1000:a096
        03:00.0 up id=1000:c010 sub=1000:a096
          04:00.0 down id=1000:c010 sub=1000:a096
            05:00.0 gpu
      02:01.0 down id=1000:c010 sub=1000:a096
        06:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PIX"},
		{"Broadcom Gen5, two levels of one switch", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up id=1000:c030 sub=1000:0004
      02:00.0 down id=1000:c030 sub=1000:0004
        03:00.0 up id=1000:c030 sub=1000:1004
          04:00.0 down id=1000:c030 sub=1000:1004
            05:00.0 gpu
      02:01.0 down id=1000:c030 sub=1000:0004
        07:00.0 up id=1000:c030 sub=1000:1004
          08:00.0 down id=1000:c030 sub=1000:1004
            09:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PIX"},
		{"Broadcom Gen5 of another subsystem vendor is not flattened", `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up id=1000:c030 sub=15d9:1d2a
      02:00.0 down
        03:00.0 up id=1000:c030 sub=15d9:1d2a
          04:00.0 down
            05:00.0 gpu
      02:01.0 down
        06:00.0 nic=mlx5_0`, 2, topo.ClassPXB, "PXB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := topo.New(topotest.NUMANodes(topotest.Machine(t, tt.tree), tt.nodes))
			nic := g.NICs()[0].ID
			if got := g.Class("GPU0", nic); got != tt.want {
				t.Errorf("class %s, want %s", got, tt.want)
			}
			if got := g.Class(nic, "GPU0"); got != tt.want {
				t.Errorf("class the other way %s, want %s", got, tt.want)
			}
			p, ok := g.Pair("GPU0", nic)
			if !ok {
				t.Fatalf("no pair GPU0 %s", nic)
			}
			if p.NCCL != tt.nccl {
				t.Errorf("NCCL's class %s, want %s", p.NCCL, tt.nccl)
			}
		})
	}
}

func TestClassOfUnknownAndSelf(t *testing.T) {
	g := topo.New(topotest.Machine(t, "pci0000:00\n  00:06.0 gpu"))
	for _, tt := range []struct {
		a, b string
		want topo.Class
	}{{"GPU0", "GPU0", "X"}, {"GPU0", "GPU9", "unknown"}, {"", "", "unknown"}} {
		if got := g.Class(tt.a, tt.b); got != tt.want {
			t.Errorf("Class(%q, %q) = %s, want %s", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestNVLinkClass(t *testing.T) {
	to := func(peer string, n int) []gpu.NVLink {
		var links []gpu.NVLink
		for i := range n {
			l := gpu.NVLink{Link: i, Active: true, RemoteType: "switch"}
			if peer != "switch" {
				l.RemoteType = "gpu"
				l.Remote, _ = pci.ParseAddress(peer)
			}
			links = append(links, l)
		}
		return links
	}
	down := gpu.NVLink{Link: 9, RemoteType: "switch"}
	const a, b = "0000:00:06.0", "0000:00:07.0"
	for _, tt := range []struct {
		name     string
		a, b     fact.Value[[]gpu.NVLink]
		want     topo.Class
		noNVMLOn int
	}{
		{"switches, 18 each", fact.Of(to("switch", 18), ""), fact.Of(to("switch", 18), ""), "NV18", 0},
		{"switches, a link down on one side", fact.Of(to("switch", 18), ""), fact.Of(append(to("switch", 17), down), ""), "NV17", 0},
		{"direct", fact.Of(to(b, 4), ""), fact.Of(to(a, 4), ""), "NV4", 0},
		{"direct, other side not readable", fact.Of(to(b, 4), ""), fact.Missing[[]gpu.NVLink](fact.Failed, "", "x"), "NV4", 0},
		{"links to other GPUs only", fact.Of(to("0000:00:08.0", 4), ""), fact.Of(to("0000:00:08.0", 4), ""), "PHB", 0},
		{"one side to switches, the other direct", fact.Of(to("switch", 4), ""), fact.Of(to("0000:00:08.0", 4), ""), "PHB", 0},
		{"no NVLink", fact.Missing[[]gpu.NVLink](fact.Unsupported, "", ""), fact.Missing[[]gpu.NVLink](fact.Unsupported, "", ""), "PHB", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := topotest.Machine(t, "pci0000:00\n  00:06.0 gpu\n  00:07.0 gpu")
			m.GPU.GPUs[0].NVML = fact.Of(gpu.NVMLDevice{NVLinks: tt.a}, "nvml")
			m.GPU.GPUs[1].NVML = fact.Of(gpu.NVMLDevice{NVLinks: tt.b}, "nvml")
			g := topo.New(m)
			if got := [2]topo.Class{g.Class("GPU0", "GPU1"), g.Class("GPU1", "GPU0")}; got != [2]topo.Class{tt.want, tt.want} {
				t.Errorf("classes %v, want %s", got, tt.want)
			}
		})
	}
}

func TestBridges(t *testing.T) {
	g := topo.New(topotest.Machine(t, `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
      02:01.0 down
        04:00.0 nic=mlx5_0
  00:02.0 root
    05:00.0 nic=mlx5_1`))
	for _, tt := range []struct {
		a, b   string
		want   []string
		common string
	}{
		{"03:00.0", "04:00.0", []string{"0000:02:00.0", "0000:02:01.0"}, "0000:01:00.0"},
		{"04:00.0", "03:00.0", []string{"0000:02:01.0", "0000:02:00.0"}, "0000:01:00.0"},
		{"03:00.0", "05:00.0", []string{"0000:02:00.0", "0000:01:00.0", "0000:00:01.0", "0000:00:02.0"}, ""},
		{"03:00.0", "ff:00.0", []string{"0000:02:00.0", "0000:01:00.0", "0000:00:01.0"}, ""},
	} {
		a, b := address(t, tt.a), address(t, tt.b)
		var got []string
		for _, f := range g.Bridges(a, b) {
			got = append(got, f.Address.String())
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("bridges of %s and %s (-want +got):\n%s", tt.a, tt.b, d)
		}
		common := ""
		if f := g.Common(a, b); f != nil {
			common = f.Address.String()
		}
		if common != tt.common {
			t.Errorf("common bridge of %s and %s is %q, want %q", tt.a, tt.b, common, tt.common)
		}
	}
}

func TestLoopInTreeEnds(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:01.0 root
    01:00.0 up
      02:00.0 gpu
  00:02.0 root
    03:00.0 nic=mlx5_0`)
	loop := address(t, "01:00.0")
	for i := range m.PCI {
		if m.PCI[i].Address == address(t, "00:01.0") {
			m.PCI[i].Parent = &loop
		}
	}
	if got := len(topo.New(m).Upstream(address(t, "02:00.0"))); got != 2 {
		t.Errorf("%d bridges above the GPU, want 2", got)
	}
}

func address(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
