package topo

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// Without its link a function's place is not known: that two such have the same
// bus number or NUMA node tells no path.
func TestPlaceUnknown(t *testing.T) {
	at := func(dev uint8) pci.Address { return pci.Address{Bus: 0x13, Device: dev} }
	m := &Machine{
		PCI: []pci.Function{
			{Address: at(0), NUMANode: fact.Of(0, "numa_node")},
			{Address: at(1), NUMANode: fact.Of(0, "numa_node")},
		},
		GPU:  gpu.Facts{GPUs: []gpu.GPU{{Addr: at(0)}}},
		RDMA: rdma.Facts{Devices: []rdma.Device{{Name: "mlx5_0", PCI: fact.Of(at(1), "device")}}},
	}
	if got := New(m).Class("GPU0", "mlx5_0"); got != ClassUnknown {
		t.Errorf("class %s of functions whose place is not known", got)
	}
	m.PCI[0].HostBridge, m.PCI[1].HostBridge = "pci0000:13", "pci0000:13"
	if got := New(m).Class("GPU0", "mlx5_0"); got != ClassPHB {
		t.Errorf("class %s, want PHB below one host bridge", got)
	}
}
