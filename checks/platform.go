package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Virt says what the kernel that was asked runs on.
type Virt string

// What a kernel runs on.
const (
	VirtUnknown Virt = "unknown"
	BareMetal   Virt = "bare metal"
	Guest       Virt = "guest"
)

// Platform is what kind of machine this is, as far as rules differ by it.
type Platform struct {
	Virt       Virt
	Hypervisor string // "kvm", …; empty: none or not known
	Container  string // "docker", …; empty: none seen
	Arch       string // x86_64, aarch64, ppc64le; empty: not known
	Product    string // DMI product name; empty: not known
	Preset     string // name of the preset that holds here; empty: none
	// Coherent: GPU memory is cache-coherent with the CPU (Grace), so that a
	// NIC reaches it through the CPU's own fabric as well as through BAR1.
	Coherent bool
	// DataDirect: a NIC has a PCI function of its own beside the GPU for its DMA.
	DataDirect bool
	// SharedSwitch: some GPU and its NIC sit below one PCIe switch.
	SharedSwitch bool
}

func derivePlatform(m *topo.Machine, g *topo.Graph) Platform {
	p := Platform{
		Virt:      VirtUnknown,
		Container: m.Host.Container.Or(""),
		Arch:      m.Host.CPU.Arch.Or(""),
		Product:   m.Host.DMI.ProductName.Or(""),
	}
	switch m.Host.Hypervisor.State {
	case fact.Known:
		p.Virt, p.Hypervisor = Guest, m.Host.Hypervisor.V
	case fact.Absent:
		p.Virt = BareMetal
	case fact.NotCollected, fact.Unsupported, fact.Denied, fact.Failed:
	}
	for i := range m.GPU.GPUs {
		p.Coherent = p.Coherent || coherent(&m.GPU.GPUs[i])
	}
	for i := range m.RDMA.Devices {
		p.DataDirect = p.DataDirect || m.RDMA.Devices[i].DataDirect.State == fact.Known
	}
	p.SharedSwitch = slices.ContainsFunc(g.Pairs(), func(q topo.Pair) bool {
		return q.Path == topo.ClassPIX || q.Path == topo.ClassPXB
	})
	return p
}

// coherentName knows the coherent GPUs by name, for machines whose NVML could
// not be asked: Grace Hopper, Grace Blackwell and GB10.
func coherentName(name string) bool {
	for _, s := range []string{"GH200", "GB200", "GB300", "GB10"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}
