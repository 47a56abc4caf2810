package report

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func TestNodeLine(t *testing.T) {
	listed := rdma.Facts{Listed: fact.Of(0, "/sys/class/infiniband")}
	addr := pci.Address{Bus: 1}
	for _, tt := range []struct {
		name string
		m    topo.Machine
		want string
	}{
		{"nothing was collected", topo.Machine{Problems: []topo.Problem{{Part: "pci"}, {Part: "rdma"}}}, "GPUs unknown, RDMA NICs unknown"},
		{"the RDMA list could not be read", topo.Machine{RDMA: rdma.Facts{Listed: fact.Missing[int](fact.Denied, "", "")}}, "no GPU, RDMA NICs unknown"},
		{"the kernel has no RDMA", topo.Machine{RDMA: rdma.Facts{Listed: fact.Missing[int](fact.Absent, "", "")}}, "no GPU, no RDMA NIC"},
		{"software RDMA is no NIC", topo.Machine{RDMA: rdma.Facts{
			Listed: fact.Of(1, ""), Devices: []rdma.Device{{Name: "rxe0", Software: true}},
		}}, "no GPU, no RDMA NIC, 1 software RDMA (no GPUDirect)"},
		{"names from where they are", topo.Machine{
			PCI: []pci.Function{{Address: addr, DeviceName: "MT2910 Family [ConnectX-7]"}},
			RDMA: rdma.Facts{Listed: fact.Of(3, ""), Devices: []rdma.Device{
				{Name: "mlx5_0", PCI: fact.Of(addr, "")},
				{Name: "x0", HCAType: fact.Of("MT4129", "")},
				{Name: "x1", Driver: fact.Of("irdma", "")},
				{Name: "x2"},
			}},
		}, "no GPU, 1 x MT2910 Family [ConnectX-7], 1 x MT4129, 1 x irdma NIC, 1 x RDMA NIC"},
		{"AMD", topo.Machine{RDMA: listed, GPU: gpu.Facts{
			GPUs: []gpu.GPU{{Vendor: gpu.VendorAMD}, {Vendor: gpu.VendorAMD}},
			AMD:  gpu.AMD{Version: fact.Of("6.12.12", "")},
		}}, "2 x AMD GPU, no RDMA NIC; amdgpu 6.12.12"},
		{"a guest, from a container", func() topo.Machine {
			m := topo.Machine{RDMA: listed}
			m.Host.Hypervisor = fact.Of("kvm", "")
			m.Host.Container = fact.Of("docker", "")
			m.Host.KernelRelease = fact.Of("6.18.5", "")
			return m
		}(), "no GPU, no RDMA NIC; kernel 6.18.5; kvm guest, seen from a docker container"},
		{"a guest of something, a vendor named twice", func() topo.Machine {
			m := topo.Machine{RDMA: listed}
			m.Host.Hypervisor = fact.Of("unknown", "")
			m.Host.DMI.SysVendor, m.Host.DMI.ProductName = fact.Of("NVIDIA", ""), fact.Of("NVIDIA_DGX_Spark", "")
			return m
		}(), "no GPU, no RDMA NIC; NVIDIA_DGX_Spark, virtual machine"},
		{"whether it is a guest was not seen", func() topo.Machine {
			m := topo.Machine{RDMA: listed}
			m.Host.Hypervisor = fact.Missing[string](fact.Failed, "", "")
			return m
		}(), "no GPU, no RDMA NIC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := nodeLine(&tt.m); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
