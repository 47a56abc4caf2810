// Package topotest draws machines for tests: a PCIe tree as indented text
// becomes a topo.Machine.
package topotest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Machine builds a machine from a drawing. Each line is a root bus or a
// function, indented below its parent:
//
//	pci0000:00 numa=0
//	  00:01.0 root link=32x16 mps=512 acs=0x1d
//	    01:00.0 up link=32x16
//	      02:00.0 down
//	        03:00.0 gpu link=16x16/32x16
//	      02:01.0 down
//	        04:00.0 nic=mlx5_0
//
// Kinds: root, up, down, bridge (type not readable), topcie, gpu, nic=NAME, dd=NAME
// (Data Direct of an RDMA device drawn before), eth, fn. GPUs are numbered as
// they come, or as gpu=N says. link is now/max, speed x width, max equal to now by default. numa
// is inherited; numa=- is the kernel's -1. Other keys: vf=ADDR, id=VVVV:DDDD,
// sub=VVVV:DDDD, gbps=N (the NIC model's), soft, nvlink=N (to switches).
func Machine(t testing.TB, drawing string) *topo.Machine {
	t.Helper()
	b := builder{t: t, m: &topo.Machine{Origin: "tree"}}
	for line := range strings.Lines(drawing) {
		if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
			b.line(len(line)-len(strings.TrimLeft(line, " \t")), strings.Fields(text))
		}
	}
	slices.SortFunc(b.m.PCI, func(x, y pci.Function) int { return x.Address.Compare(y.Address) })
	return b.m
}

// NUMANodes gives the machine n NUMA nodes of eight CPUs.
func NUMANodes(m *topo.Machine, n int) *topo.Machine {
	var nodes []host.NUMANode
	for i := range n {
		nodes = append(nodes, host.NUMANode{ID: i, CPUs: fmt.Sprintf("%d-%d", 8*i, 8*i+7)})
	}
	m.Host.NUMA = fact.Of(nodes, "/sys/devices/system/node")
	return m
}

type level struct {
	indent int
	addr   *pci.Address
	numa   fact.Value[int]
}

type builder struct {
	t    testing.TB
	m    *topo.Machine
	root string
	path []level
}

func (b *builder) line(indent int, words []string) {
	b.t.Helper()
	for len(b.path) > 0 && b.path[len(b.path)-1].indent >= indent {
		b.path = b.path[:len(b.path)-1]
	}
	at := level{indent: indent, numa: fact.Missing[int](fact.Absent, "numa_node", "-1")}
	if len(b.path) > 0 {
		at.numa = b.path[len(b.path)-1].numa
	}
	keys := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		keys[k] = v
	}
	if v, ok := keys["numa"]; ok && v == "-" {
		at.numa = fact.Missing[int](fact.Absent, "numa_node", "-1")
	} else if ok {
		at.numa = fact.Of(b.int(v), "numa_node")
	}
	if strings.HasPrefix(words[0], "pci") {
		b.root = words[0]
		b.path = []level{at}
		return
	}
	addr, err := pci.ParseAddress(words[0])
	if err != nil {
		b.t.Fatal(err)
	}
	f := pci.Function{Address: addr, Dir: "/sys/bus/pci/devices/" + addr.String(), HostBridge: b.root, NUMANode: at.numa}
	if len(b.path) > 0 {
		f.Parent = b.path[len(b.path)-1].addr
	}
	b.function(&f, keys)
	b.m.PCI = append(b.m.PCI, f)
	at.addr = &f.Address
	b.path = append(b.path, at)
}

func (b *builder) function(f *pci.Function, keys map[string]string) {
	f.Class = fact.Of(pci.Class(0xff0000), "class")
	f.Link = fact.Missing[pci.Link](fact.Absent, "current_link_speed", "no such file or directory")
	for k, v := range keys {
		switch k {
		case "root":
			b.bridge(f, pci.PortRoot)
		case "up":
			b.bridge(f, pci.PortUpstream)
		case "down":
			b.bridge(f, pci.PortDownstream)
		case "topcie":
			b.bridge(f, pci.PortPCIeToPCI)
		case "bridge":
			f.Class = fact.Of(pci.Class(0x060400), "class")
			f.Config.PortType = fact.Missing[pci.PortType](fact.Denied, "config", "only 64 bytes")
		case "gpu":
			f.Class = fact.Of(pci.Class(0x030200), "class")
			b.gpu(f, keys)
		case "nic":
			f.Class = fact.Of(pci.Class(0x020700), "class")
			b.nic(f, v, keys)
		case "dd":
			f.Class = fact.Of(pci.Class(0x088000), "class")
			b.dataDirect(f, v)
		case "eth":
			f.Class = fact.Of(pci.Class(0x020000), "class")
			if v != "" {
				b.m.RDMA.NetDevs = append(b.m.RDMA.NetDevs, rdma.NetDev{Name: v, PCI: fact.Of(f.Address, "device")})
			}
		case "link":
			f.Link = fact.Of(b.link(v), "current_link_speed")
		case "mps":
			f.Config.MPSBytes = fact.Of(b.int(v), "config")
		case "acs":
			f.Config.ACS = fact.Of(pci.ACS{Cap: 0x5f, Ctl: uint16(b.int(v))}, "config")
		case "vf":
			f.PhysFn = fact.Of(b.addr(v), "physfn")
		case "id":
			f.Vendor, f.Device = b.ids(v)
		case "sub":
			f.SubsystemVendor, f.SubsystemDevice = b.ids(v)
		case "fn", "numa", "gbps", "soft", "nvlink", "coherent":
		default:
			b.t.Fatalf("unknown word %q", k)
		}
	}
}

func (b *builder) bridge(f *pci.Function, t pci.PortType) {
	f.Class = fact.Of(pci.Class(0x060400), "class")
	f.Config.PortType = fact.Of(t, "config")
}

func (b *builder) gpu(f *pci.Function, keys map[string]string) {
	index := len(b.m.GPU.GPUs)
	if n := keys["gpu"]; n != "" {
		index = b.int(n)
	}
	g := gpu.GPU{Index: index, Vendor: gpu.VendorNVIDIA, Addr: f.Address, Name: "Test GPU"}
	nv := gpu.NVMLDevice{Index: g.Index, Addr: f.Address}
	if v, ok := keys["nvlink"]; ok {
		var links []gpu.NVLink
		for i := range b.int(v) {
			links = append(links, gpu.NVLink{Link: i, Active: true, RemoteType: "switch"})
		}
		nv.NVLinks = fact.Of(links, "nvml")
		g.NVML = fact.Of(nv, "nvml")
	}
	if _, ok := keys["coherent"]; ok {
		nv.AddressingMode = fact.Of("ATS", "nvml")
		g.NVML = fact.Of(nv, "nvml")
	}
	b.m.GPU.GPUs = append(b.m.GPU.GPUs, g)
}

func (b *builder) nic(f *pci.Function, name string, keys map[string]string) {
	d := rdma.Device{Name: name, Dir: "/sys/class/infiniband/" + name, PCI: fact.Of(f.Address, "device")}
	_, d.Software = keys["soft"]
	if v, ok := keys["gbps"]; ok {
		d.Model = fact.Of(rdma.Model{Name: "Test NIC", MaxGbps: float64(b.int(v))}, "table")
	}
	b.m.RDMA.Devices = append(b.m.RDMA.Devices, d)
}

func (b *builder) dataDirect(f *pci.Function, nic string) {
	for i := range b.m.RDMA.Devices {
		if d := &b.m.RDMA.Devices[i]; d.Name == nic {
			d.DataDirect = fact.Of(f.Address, "vpd")
			return
		}
	}
	b.t.Fatalf("no NIC %s drawn before its Data Direct function", nic)
}

func (b *builder) link(s string) pci.Link {
	half := func(s string) (float64, int) {
		speed, width, _ := strings.Cut(s, "x")
		x, err := strconv.ParseFloat(speed, 64)
		if err != nil {
			b.t.Fatalf("bad link %q: %v", s, err)
		}
		return x, b.int(width)
	}
	now, most, ok := strings.Cut(s, "/")
	if !ok {
		most = now
	}
	var l pci.Link
	l.SpeedGTPerSec, l.Width = half(now)
	l.MaxSpeedGTPerSec, l.MaxWidth = half(most)
	return l
}

func (b *builder) ids(s string) (vendor, device fact.Value[pci.ID]) {
	v, d, _ := strings.Cut(s, ":")
	return fact.Of(pci.ID(b.int("0x"+v)), "vendor"), fact.Of(pci.ID(b.int("0x"+d)), "device")
}

func (b *builder) addr(s string) pci.Address {
	a, err := pci.ParseAddress(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *builder) int(s string) int {
	n, err := strconv.ParseInt(s, 0, 32)
	if err != nil {
		b.t.Fatalf("bad number %q: %v", s, err)
	}
	return int(n)
}
