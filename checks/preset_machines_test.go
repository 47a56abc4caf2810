package checks

import (
	"fmt"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// presetMachine is a healthy machine that a preset describes: as many GPUs and
// NICs as it expects, on bare metal each GPU below a switch with its NICs, in a
// cloud's guest all on a flat bus.
func presetMachine(t *testing.T, p Preset) *topo.Machine {
	t.Helper()
	m := healthyNode()
	first := func(list []string, def string) string {
		if len(list) == 0 {
			return def
		}
		return list[0]
	}
	cloud := first(p.Match.Vendor, "")
	m.Host.DMI.SysVendor, m.Host.DMI.ProductName = known(cloud), known(first(p.Match.Product, "Server"))
	m.Host.DMI.ChassisTag = known(first(p.Match.ChassisTag, ""))
	inGuest := cloud == "Amazon EC2" || cloud == "Microsoft Corporation"
	if inGuest {
		m = virtualNode()
		m.Host.DMI.SysVendor, m.Host.DMI.ProductName = known(cloud), known(first(p.Match.Product, "Server"))
	}
	gpus, nics := max(p.Expect.GPUs.Min, 1), p.Expect.NICs.Min
	if nics == 0 {
		nics = gpus
	}
	g, d, functions := m.GPU.GPUs[0], m.RDMA.Devices[0], map[string]pci.Function{}
	for _, f := range m.PCI {
		functions[f.Address.String()] = f
	}
	g.Name = first(p.Match.GPU, "NVIDIA A100-SXM4-80GB")
	if p.Expect.GPUs.Model != "" {
		g.Name = "NVIDIA " + p.Expect.GPUs.Model
	}
	m.PCI, m.GPU.GPUs, m.RDMA.Devices, m.RDMA.NetDevs, m.QoS.Ports = nil, nil, nil, nil, nil
	moved := func(from string, bus int, parent string) pci.Address {
		f, a := functions[from], at(from)
		a.Bus = uint8(bus)
		f.Address, f.Dir, f.Parent, f.HostBridge = a, "/sys/bus/pci/devices/"+a.String(), nil, fmt.Sprintf("pci0000:%02x", bus&0xf0)
		if parent != "" && !inGuest {
			f.Parent = new(at(parent))
		}
		m.PCI = append(m.PCI, f)
		return a
	}
	leg0 := goodNode().QoS.Ports[0]
	for i := range gpus {
		base := i * 16
		var up, gp string
		if !inGuest {
			root := moved(rootPort, base, "").String()
			up = moved(uplink, base+1, root).String()
			gp = moved(gpuPort, base+2, up).String()
		}
		x := g
		x.Index, x.Addr = i, moved(gpuAddr, base+3, gp)
		healthyGPU(&x)
		if p.Match.PCI != nil {
			x.NVML.V.Fabric = fact.Of(gpu.Fabric{State: "completed"}, "nvml:nvmlDeviceGetGpuFabricInfo")
		}
		m.GPU.GPUs = append(m.GPU.GPUs, x)
		for j := range (nics + gpus - 1) / gpus {
			if len(m.RDMA.Devices) == nics {
				break
			}
			n := len(m.RDMA.Devices)
			var np string
			if !inGuest {
				f := functions[nicPort]
				f.Address, f.Parent = pci.Address{Bus: uint8(base + 2), Device: uint8(1 + j)}, new(at(up))
				f.HostBridge = fmt.Sprintf("pci0000:%02x", base)
				np = f.Address.String()
				m.PCI = append(m.PCI, f)
			}
			y := d
			y.Name, y.PCI = fmt.Sprintf("mlx5_%d", n), known(moved(nicAddr, base+4+j, np))
			y.NodeGUID = fact.Of(fmt.Sprintf("0200:00ff:fe00:%04x", n+1), "node_guid")
			y.Ports = []rdma.Port{d.Ports[0]}
			y.Ports[0].NetDev = known(fmt.Sprintf("ens%d", n))
			if p.Expect.NICs.Model == "EFA" {
				y.Transport, y.Driver = known(rdma.EFA), known("efa")
				y.Model = known(rdma.Model{Name: "EFA", MaxGbps: 100, GPUDirect: "dmabuf"})
			}
			m.RDMA.Devices = append(m.RDMA.Devices, y)
			m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: y.Ports[0].NetDev.V, PCI: y.PCI, Carrier: known(true), MTU: known(9000)})
			l := leg0
			l.Device, l.NetDev = y.Name, y.Ports[0].NetDev.V
			m.QoS.Ports = append(m.QoS.Ports, l)
		}
	}
	if p.Match.PCI != nil {
		f := function("0000:f0:00.0", "", 0x068000, pci.PortEndpoint)
		f.Vendor, f.Device = known(pci.ID(0x10de)), known(map[string]pci.ID{"10de:22a3": 0x22a3, "10de:1af1": 0x1af1}[p.Match.PCI[0]])
		m.PCI = append(m.PCI, f)
	}
	if p.Expect.NICs.Model == "EFA" {
		noPeermem(m)
	}
	m.RDMA.Listed = known(len(m.RDMA.Devices))
	return m
}

// On a healthy machine of each platform nothing is held against it.
func TestPresetMachinesAreHealthy(t *testing.T) {
	list, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		t.Run(p.Name, func(t *testing.T) {
			m := presetMachine(t, p)
			o := mustRun(t, m, Options{})
			if o.Rules.Preset != p.Name {
				t.Fatalf("taken for %q (%s)", o.Rules.Preset, o.Rules.Note)
			}
			for _, f := range o.Findings {
				if troubled(f) || f.Verdict == Unknown && f.Severity == SeverityError {
					t.Errorf("%s %s: %s: %s", f.Check, f.Subject, f.Verdict, f.Message)
				}
			}
			if o.Verdict != Pass || o.ExitCode != 0 {
				t.Errorf("the node: %s, exit code %d", o.Verdict, o.ExitCode)
			}
		})
	}
}
