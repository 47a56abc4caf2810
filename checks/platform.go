package checks

import (
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
}

func derivePlatform(m *topo.Machine) Platform {
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
