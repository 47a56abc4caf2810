package topo

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// NCCL returns the machine's topology as NCCL would write it. What only NCCL
// itself can tell (ranks, its own GPUDirect decision) is left for it to fill in,
// and so is whatever could not be read.
func (g *Graph) NCCL() *NCCLSystem {
	b := ncclBuilder{g: g, cpus: map[int]*ncclNode{}, pci: map[*pci.Function]*ncclNode{}}
	net := 0
	for i := range g.devices {
		d := &g.devices[i]
		f := g.locality(d)
		switch {
		case f == nil || d.Kind == KindNIC && (d.RDMA == nil || d.RDMA.Software):
			continue
		case d.Kind == KindGPU:
			b.node(f).gpu = g.ncclGPU(d)
		default:
			n := b.node(f)
			for _, p := range d.RDMA.Ports {
				n.nets = append(n.nets, ncclNet(d.RDMA, &p, net))
				net++
			}
		}
	}
	return b.system()
}

// ncclNode is one element while the tree is built.
type ncclNode struct {
	f    *pci.Function
	numa int
	subs []*ncclNode
	gpu  *NCCLGPU
	nets []NCCLNet
}

type ncclBuilder struct {
	g     *Graph
	order []int // NUMA numbers as they come
	cpus  map[int]*ncclNode
	pci   map[*pci.Function]*ncclNode
}

// node returns the element of a function, made with all that is above it.
func (b *ncclBuilder) node(f *pci.Function) *ncclNode {
	if n := b.pci[f]; n != nil {
		return n
	}
	n := &ncclNode{f: f}
	b.pci[f] = n
	var above *ncclNode
	if up := b.g.ncclNodes(f); len(up) > 0 {
		above = b.node(up[0])
	} else {
		numa := f.NUMANode.Or(-1)
		if above = b.cpus[numa]; above == nil {
			above = &ncclNode{numa: numa}
			b.cpus[numa] = above
			b.order = append(b.order, numa)
		}
	}
	above.subs = append(above.subs, n)
	return n
}

func (b *ncclBuilder) system() *NCCLSystem {
	s := &NCCLSystem{Version: "1"}
	for _, numa := range b.order {
		c := b.g.ncclCPUElement(numa)
		c.PCI = b.elements(b.cpus[numa].subs)
		s.CPUs = append(s.CPUs, c)
	}
	return s
}

func (b *ncclBuilder) elements(nodes []*ncclNode) []NCCLPCI {
	slices.SortFunc(nodes, func(x, y *ncclNode) int { return x.f.Address.Compare(y.f.Address) })
	var out []NCCLPCI
	for _, n := range nodes {
		e := b.g.ncclPCI(n.f)
		e.PCI = b.elements(n.subs)
		if n.gpu != nil {
			e.GPUs = []NCCLGPU{*n.gpu}
		}
		if len(n.nets) > 0 {
			e.NICs = []NCCLNIC{{Nets: n.nets}}
		}
		out = append(out, e)
	}
	return out
}

func (g *Graph) ncclCPUElement(numa int) NCCLCPU {
	c := NCCLCPU{NUMAID: strconv.Itoa(numa), Arch: g.m.Host.CPU.Arch.Or("")}
	switch c.Arch { // NCCL's names
	case "aarch64":
		c.Arch = "arm64"
	case "ppc64le":
		c.Arch = "ppc64"
	}
	c.Vendor = g.m.Host.CPU.Vendor.Or("")
	c.FamilyID, c.ModelID = text(g.m.Host.CPU.Family), text(g.m.Host.CPU.ModelNum)
	count := g.m.Host.CPU.Count.Or(0)
	for _, n := range g.m.Host.NUMA.Or(nil) {
		if n.ID == numa {
			c.Affinity = cpuMask(n.CPUs, count)
		}
	}
	return c
}

func (g *Graph) ncclPCI(f *pci.Function) NCCLPCI {
	e := NCCLPCI{BusID: f.Address.String()}
	e.Class = marshalled(f.Class)
	e.Vendor, e.Device = marshalled(f.Vendor), marshalled(f.Device)
	e.SubsystemVendor, e.SubsystemDevice = marshalled(f.SubsystemVendor), marshalled(f.SubsystemDevice)
	if link, ok, _ := g.upwardLink(f); ok && link.MaxSpeedGTPerSec > 0 {
		speed, width := fmt.Sprintf("%.1f GT/s PCIe", link.MaxSpeedGTPerSec), strconv.Itoa(link.MaxWidth)
		e.LinkSpeed, e.LinkWidth = &speed, &width
	}
	return e
}

func (g *Graph) ncclGPU(d *Device) *NCCLGPU {
	e := &NCCLGPU{Dev: strconv.Itoa(d.GPU.Index)}
	nv, _ := d.GPU.NVML.Get()
	if cc, ok := nv.ComputeCap.Get(); ok {
		e.SM = strconv.Itoa(10*cc[0] + cc[1])
	}
	for _, l := range nv.NVLinks.Or(nil) {
		// A guest does not see the switches' addresses; NCCL then looks for itself.
		if !l.Active || l.Remote == (pci.Address{}) {
			continue
		}
		target, class := l.Remote.String(), "0x068000"
		if l.RemoteType == "gpu" {
			class = "0x030200"
		}
		i := slices.IndexFunc(e.NVLinks, func(n NCCLNVLink) bool { return n.Target == target })
		if i < 0 {
			e.NVLinks = append(e.NVLinks, NCCLNVLink{Target: target, Count: "0", TClass: class})
			i = len(e.NVLinks) - 1
		}
		n, _ := strconv.Atoi(e.NVLinks[i].Count)
		e.NVLinks[i].Count = strconv.Itoa(n + 1)
	}
	return e
}

func ncclNet(d *rdma.Device, p *rdma.Port, dev int) NCCLNet {
	e := NCCLNet{Name: d.Name, Dev: strconv.Itoa(dev), Port: strconv.Itoa(p.Number)}
	if rate, ok := p.Rate.Get(); ok {
		e.Speed = strconv.FormatFloat(rate.BitsPerSec/1e6, 'f', 0, 64)
	}
	// NCCL prints the GUID's eight bytes as the machine's own integer.
	if raw, err := hex.DecodeString(strings.ReplaceAll(d.SysGUID.Or(""), ":", "")); err == nil && len(raw) == 8 {
		e.GUID = fmt.Sprintf("0x%x", binary.LittleEndian.Uint64(raw))
	}
	return e
}

// cpuMask turns a CPU list ("0-3,8") into the kernel's mask for count CPUs:
// words of 32 bits, the highest first.
func cpuMask(list string, count int) string {
	const most = 1 << 14 // the kernel's NR_CPUS is at most 8192
	cpus, err := host.ParseList(list)
	if err != nil || len(cpus) == 0 || slices.Max(cpus) >= most {
		return ""
	}
	words := make([]uint32, max((min(count, most)+31)/32, slices.Max(cpus)/32+1))
	for _, cpu := range cpus {
		words[cpu/32] |= 1 << (cpu % 32)
	}
	out := make([]string, len(words))
	for i, w := range words {
		out[len(words)-1-i] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(out, ",")
}

func text(v fact.Value[int]) string {
	if n, ok := v.Get(); ok {
		return strconv.Itoa(n)
	}
	return ""
}

// marshalled is a known value in the kernel's form ("0x10de"), else nothing.
func marshalled[T interface{ MarshalText() ([]byte, error) }](v fact.Value[T]) string {
	x, ok := v.Get()
	if !ok {
		return ""
	}
	b, err := x.MarshalText()
	if err != nil {
		return ""
	}
	return string(b)
}
