package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// idleNIC is a NIC at the other socket, which no GPU has nearest.
func idleNIC(change func(*rdma.Device)) func(*topo.Machine) {
	return all2(secondNIC(change), func(m *topo.Machine) {
		f := fn(m, "0000:07:00.0")
		f.Parent, f.NUMANode, f.HostBridge = nil, known(1), "pci0000:80"
	})
}

// What a finding means for the node: a check's own severity, or less where the
// subject matters less or the verdict says less.
func TestSeverities(t *testing.T) {
	xid := func(code int) func(*topo.Machine) { return logs(host.LogXid, gpuAddr, code) }
	unknownClass := func(m *topo.Machine) { m.GPU.GPUs[0].CUDA.V.GPUDirectRDMA.V = 0 }
	for _, tc := range []struct {
		check, subject string
		change         func(*topo.Machine)
		verdict        Verdict
		want           Severity
	}{
		{"pcie-link-width", "mlx5_0", func(m *topo.Machine) { setLink(m, 32, 8, nicAddr) }, Fail, SeverityError},
		{"pcie-link-width", "mlx5_1", all2(idleNIC(func(*rdma.Device) {}), func(m *topo.Machine) { setLink(m, 32, 8, "0000:07:00.0") }), Fail, SeverityWarning},
		{"rdma-port-state", "mlx5_0/1", func(m *topo.Machine) { denied(&port(m).State) }, Unknown, SeverityError},
		{"rdma-port-state", "mlx5_1/1", idleNIC(func(d *rdma.Device) { denied(&d.Ports[0].State) }), Unknown, SeverityWarning},
		{"roce-gid", "mlx5_0/1", func(m *topo.Machine) { port(m).GIDs = nil }, Fail, SeverityError},
		{"roce-gid", "mlx5_1/1", idleNIC(func(d *rdma.Device) { d.Ports[0].GIDs = nil }), Fail, SeverityWarning},
		{"rdma-pkey", "mlx5_0/1", all2(infiniband, func(m *topo.Machine) { port(m).PKeys.V = nil }), Fail, SeverityError},
		{"rdma-pkey", "mlx5_1/1", idleNIC(func(d *rdma.Device) { d.Transport.V, d.Ports[0].PKeys.V = rdma.InfiniBand, nil }), Fail, SeverityWarning},
		{"rdma-node-guid", "mlx5_0", func(m *topo.Machine) { nic(m).NodeGUID.V = "0000:0000:0000:0000" }, Fail, SeverityError},
		{"rdma-node-guid", "mlx5_1", idleNIC(func(d *rdma.Device) { d.NodeGUID.V = "0000:0000:0000:0000" }), Fail, SeverityWarning},
		{"rdma-char-device", "mlx5_0", func(m *topo.Machine) { nic(m).Uverbs = nil }, Fail, SeverityError},
		{"rdma-char-device", "mlx5_1", idleNIC(func(d *rdma.Device) { d.Uverbs = nil }), Fail, SeverityWarning},
		{"rdma-char-device", "mlx5_0", func(m *topo.Machine) { nic(m).Software, nic(m).Uverbs = true, nil }, Fail, SeverityWarning},
		{"nic-model", "mlx5_0", func(m *topo.Machine) { nic(m).Model.V.GPUDirect = "none" }, Fail, SeverityError},
		{"nic-model", "mlx5_1", idleNIC(func(d *rdma.Device) { d.Model.V.GPUDirect = "none" }), Fail, SeverityWarning},
		{"nic-model", "mlx5_0", func(m *topo.Machine) { denied(&nic(m).Model); nic(m).Driver.V = "newnic" }, Unknown, SeverityWarning},
		{"nic-model", "mlx5_0", func(m *topo.Machine) { nic(m).Software = true }, Info, SeverityInfo},
		{"bar-assigned", "GPU0", func(m *topo.Machine) { fn(m, gpuAddr).BARs.V[1].Start = 0 }, Fail, SeverityError},
		{"bar-assigned", "GPU0", func(m *topo.Machine) { fn(m, gpuAddr).BARs.V[1].Start = 56 << 40 }, Warn, SeverityWarning},
		{"bar1-size", "GPU0", func(m *topo.Machine) { dev(m).BAR1.V.TotalBytes = 0 }, Fail, SeverityError},
		{"pcie-payload", pair, func(m *topo.Machine) { fn(m, nicPort).Config.MPSBytes.V = 256 }, Fail, SeverityError},
		{"pcie-payload", pair, func(m *topo.Machine) {
			for i := range m.PCI {
				m.PCI[i].Config.MPSBytes.V = 128
			}
		}, Warn, SeverityWarning},
		{"gpu-errors", "GPU0", xid(79), Fail, SeverityError},
		{"gpu-errors", "GPU0", xid(74), Warn, SeverityWarning},
		{"gpu-errors", "GPU0", deniedLog, Unknown, SeverityWarning},
		{"gpu-memory", "GPU0", func(m *topo.Machine) { dev(m).RemappedRows.V.Pending = true }, Fail, SeverityError},
		{"gpu-memory", "GPU0", func(m *topo.Machine) { dev(m).ECC.V.UncorrectedVolatile = 1 }, Warn, SeverityWarning},
		{"gpu-memory", "GPU0", func(m *topo.Machine) { denied(&dev(m).ECC) }, Unknown, SeverityWarning},
		{"gpu-direct-attribute", "GPU0", unknownClass, Fail, SeverityError},
		{"gpu-direct-attribute", "GPU0", noCUDA, Unknown, SeverityWarning},
		{"gpu-direct-attribute", "GPU0", all2(noCUDA, func(m *topo.Machine) { m.GPU.GPUs[0].Name = "NVIDIA GeForce RTX 4090" }), Warn, SeverityError},
		{"dmabuf-refused", "node", all2(noPeermem, logs(host.LogDMABufTopology, "", 0)), Fail, SeverityError},
		{"dmabuf-refused", "node", logs(host.LogDMABufTopology, "", 0), Warn, SeverityWarning},
		{"dmabuf-refused", "node", deniedLog, Unknown, SeverityWarning},
		{"module-signature", "node", all2(noPeermem, func(m *topo.Machine) {
			m.Host.SecureBoot = known(true)
			m.Host.ModuleFiles = []host.ModuleFile{{Name: "nvidia", Path: known("nvidia.ko"), Signed: known(false)}}
		}), Fail, SeverityError},
		{"module-signature", "node", func(m *topo.Machine) {
			m.Host.SecureBoot = known(true)
			m.Host.Modules.V = []host.Module{{Name: "nvidia"}}
			m.Host.ModuleFiles = []host.ModuleFile{{Name: "gdrdrv", Path: known("gdrdrv.ko"), Signed: known(false)}}
		}, Warn, SeverityWarning},
		{"gpu-fabric", "GPU0", func(m *topo.Machine) {
			dev(m).NVLinks = known([]gpu.NVLink{{RemoteType: "switch"}})
			denied(&dev(m).Fabric)
		}, Unknown, SeverityError},
		{"gpu-fabric", "GPU0", func(m *topo.Machine) {
			dev(m).NVLinks = known([]gpu.NVLink{{RemoteType: "gpu"}})
			denied(&dev(m).Fabric)
		}, Unknown, SeverityWarning},
	} {
		m := goodNode()
		tc.change(m)
		check, ok := Lookup(tc.check)
		if !ok {
			t.Fatal(tc.check)
		}
		if f := findingOf(t, m, check, tc.subject); f.Verdict != tc.verdict || f.Severity != tc.want {
			t.Errorf("%s %s: %s of severity %s (%s), want %s of %s", tc.check, tc.subject, f.Verdict, f.Severity, f.Message, tc.verdict, tc.want)
		}
	}
}

// A fix names what helps here, and nothing that does not.
func TestFixesHaveNoMore(t *testing.T) {
	file := func(name string, path fact.Value[string]) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.ModuleFiles = append(m.Host.ModuleFiles, host.ModuleFile{Name: name, Path: path})
		}
	}
	for _, tc := range []struct {
		name, check, subject string
		change               func(*topo.Machine)
		lacks                string
	}{
		{"no modprobe of a module that is not there", "gdr-way", pair, all2(noPeermem, noDMABuf, peerSymbol(true)), "modprobe nvidia-peermem"},
		{"no modprobe of another module's file", "gdr-way", pair, all2(noPeermem, noDMABuf, peerSymbol(true), file("gdrdrv", known("gdrdrv.ko"))), "modprobe nvidia-peermem"},
		{"no modprobe of a file that is missing", "gdr-way", pair, all2(noPeermem, noDMABuf, peerSymbol(true), file("nvidia_peermem", absent[string]())), "modprobe nvidia-peermem"},
		{"no modprobe of what is loaded", "gdr-way", pair, all2(attr124(0), proprietary, file("nvidia_peermem", known("x.ko")), func(m *topo.Machine) { nic(m).Model.V.GPUDirect = "dmabuf" }), "Easiest"},
		{"what is not known of the kernel is not held against it", "gdr-way", pair, all2(noPeermem, noDMABuf), "no peer memory interface"},
		{"a kernel that can is not held against it", "gdr-way", pair, all2(noPeermem, noDMABuf, peerSymbol(true)), "no peer memory interface"},
		{"the kernel is new enough", "gdr-way", pair, all2(noPeermem, noDMABuf), "needs kernel"},
		{"the NIC takes it", "gdr-way", pair, all2(noPeermem, noDMABuf), "update rdma-core"},
		{"the NIC was not asked", "gdr-way", pair, all2(noPeermem, noDMABuf, noProbe), "update rdma-core"},
		{"a model without display modes", "bar1-size", "GPU0", func(m *topo.Machine) { dev(m).BAR1.V.TotalBytes = 256 << 20 }, "displaymodeselector"},
		{"GPUs' holders alone", "module-holders", "node", func(m *topo.Machine) {
			m.Host.Modules.V = []host.Module{{Name: "nvidia", Holders: []string{"gdrdrv"}}}
		}, "DOCA-OFED"},
		{"OFED's holders alone", "module-holders", "node", func(m *topo.Machine) {
			m.Host.Modules.V = []host.Module{{Name: "nvidia"}, {Name: "mlx5_core", Version: known("25.10")}, {Name: "ib_core", Holders: []string{"irdma"}}}
		}, "GPU driver"},
		{"another batch system's service", "memlock", "node", func(m *topo.Machine) {
			m.Host.Services = []host.Service{{Name: "pbs", PID: 9, Memlock: known(uint64(8 << 20))}}
		}, "slurm"},
		{"an empty GID table", "roce-gid", "mlx5_0/1", func(m *topo.Machine) { port(m).GIDs = nil }, "mlxconfig"},
		{"one port a card", "rdma-port-rate", "mlx5_0/1", slowPort, "for each of"},
		{"NICs without a driver of RDMA's", "rdma-device-present", "node", func(m *topo.Machine) {
			m.RDMA.Devices, m.RDMA.Listed = nil, known(0)
			fn(m, nicAddr).Driver = known("e1000e")
		}, "may have RDMA"},
		{"ATS that is on", "acs-redirect", pair, func(m *topo.Machine) {
			vfio(m)
			fn(m, nicAddr).Config.ATS = known(true)
		}, "mlxconfig"},
		{"another GPU's switch", "acs-redirect", pair, all2(func(m *topo.Machine) {
			fn(m, nicPort).Config.ACS.V.Ctl = 0x1d
		}, gpuApart), "0000:00:03.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			tc.change(m)
			check, _ := Lookup(tc.check)
			f := findingOf(t, m, check, tc.subject)
			if text := strings.Join(append(slices.Clone(f.Fix), f.Message), "\n"); f.Verdict == Pass || strings.Contains(text, tc.lacks) {
				t.Errorf("%s: %q has %q", f.Verdict, text, tc.lacks)
			}
		})
	}
}

// gpuApart adds GPU1 and mlx5_9 at another socket, on root ports of their own
// with ACS on: their traffic crosses the root complex in any case.
func gpuApart(m *topo.Machine) {
	second := m.GPU.GPUs[0]
	second.Index, second.Addr = 1, at("0000:0a:00.0")
	m.GPU.GPUs = append(m.GPU.GPUs, second)
	for port, end := range map[string]string{"0000:00:03.0": "0000:0a:00.0", "0000:00:04.0": "0000:0b:00.0"} {
		class := pci.Class(pci.Class3D << 8)
		if end == "0000:0b:00.0" {
			class = pci.ClassEthernet << 8
		}
		m.PCI = append(m.PCI, function(port, "", pci.ClassPCIBridge<<8, pci.PortRoot), function(end, port, class, pci.PortEndpoint))
		fn(m, port).Config.ACS = fact.Of(pci.ACS{Cap: 0x7f, Ctl: 0x1d}, "config")
		for _, a := range []string{port, end} {
			fn(m, a).HostBridge, fn(m, a).NUMANode = "pci0000:80", known(1)
		}
	}
	m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_9", "0000:0b:00.0", "ens9"))
}

// A driver of an Arm server refuses DMA-BUF there and nowhere else.
func TestTopologyRefusal(t *testing.T) {
	apart := func(m *topo.Machine) {
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		fn(m, nicAddr).Parent = new(at("0000:00:02.0"))
	}
	arm := func(m *topo.Machine) { m.Host.CPU.Arch = known("aarch64") }
	for _, tc := range []struct {
		name   string
		change func(*topo.Machine)
		want   Verdict
	}{
		{"x86", apart, Pass},
		{"Arm", all2(arm, apart), Unknown},
		{"Ampere", all2(arm, apart, func(m *topo.Machine) { m.Host.CPU.Vendor = known("Ampere") }), Fail},
		{"Arm, one switch", arm, Pass},
		{"Arm, two switches", all2(arm, deeperNIC), Pass},
		{"Arm, guest", all2(arm, apart, guest), Pass},
		{"Arm, coherent", all2(arm, apart, func(m *topo.Machine) { m.GPU.GPUs[0].Name = "NVIDIA GH200 480GB" }), Pass},
		{"Ampere, GPU of its own switch", all2(arm, func(m *topo.Machine) { m.Host.CPU.Vendor = known("Ampere") }), Pass},
	} {
		m := goodNode()
		all2(noPeermem, tc.change)(m)
		if f := findingOf(t, m, gdrWay, pair); f.Verdict != tc.want {
			t.Errorf("%s: %s %s, want %s", tc.name, f.Verdict, f.Message, tc.want)
		}
	}
}

func TestBoth(t *testing.T) {
	a, sure, n, u := answer{yes, "a"}, answer{state: yes}, answer{no, "n"}, answer{dontKnow, "u"}
	for _, tc := range []struct {
		list []answer
		want answer
	}{
		{[]answer{sure, sure}, sure}, {[]answer{sure, a}, a}, {[]answer{a, sure}, a},
		{[]answer{a, n}, n}, {[]answer{n, a}, n}, {[]answer{u, n}, n}, {[]answer{n, u}, n},
		{[]answer{a, u}, u}, {[]answer{u, a}, u}, {[]answer{u, sure}, u},
		{[]answer{u, {dontKnow, "later"}}, u}, {[]answer{n, {no, "later"}}, n},
	} {
		if got := both(tc.list...); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.list, got, tc.want)
		}
	}
}

// The uplink of a switch that other pairs do not pass is judged by its own.
func TestUplinkOfAnotherPair(t *testing.T) {
	m := goodNode()
	gpuApart(m)
	m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Name: "odd0", PCI: absent[pci.Address]()})
	if f := findingOf(t, m, bridgeLink, uplink); f.Severity != SeverityWarning {
		t.Errorf("severity %s: no pair passes this link", f.Severity)
	}
	for _, tc := range []struct {
		speed float64
		width int
		file  string
	}{{32, 16, "current_link_speed"}, {16, 16, "current_link_speed"}, {32, 8, "current_link_width"}} {
		setLink(m, tc.speed, tc.width, uplink)
		if f := findingOf(t, m, bridgeLink, uplink); !strings.HasSuffix(f.Evidence[0].Source, "/"+tc.file) || f.Evidence[0].Want != "32 GT/s x16" {
			t.Errorf("%v x%d: %+v", tc.speed, tc.width, f.Evidence[0])
		}
	}
}

// Which function stands for a host bridge: device 0, function 0 of its root bus.
func TestHostBridgeOf(t *testing.T) {
	const pair = "GPU0 mlx5_0"
	apart := func(m *topo.Machine) {
		amdGPU(m)
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		fn(m, nicAddr).Parent = new(at("0000:00:02.0"))
	}
	for _, tc := range []struct {
		name   string
		change func(*pci.Function)
		want   Verdict
	}{
		{"the bridge", func(*pci.Function) {}, Pass},
		{"of another root bus", func(f *pci.Function) { f.HostBridge = "pci0000:80" }, Warn},
		{"below a port", func(f *pci.Function) { f.Parent = new(at(rootPort)) }, Warn},
		{"another device", func(f *pci.Function) { f.Address.Device = 5 }, Warn},
		{"another function", func(f *pci.Function) { f.Address.Function = 2 }, Warn},
		{"another class", func(f *pci.Function) { f.Class = known(pci.Class(0x088000)) }, Warn},
		{"class not known", func(f *pci.Function) { denied(&f.Class) }, Warn},
		{"device not read", func(f *pci.Function) { f.Device = fact.Value[pci.ID]{} }, Warn},
	} {
		m := goodNode()
		apart(m)
		f := function("0000:00:00.0", "", pci.ClassHostBridge<<8, pci.PortRoot)
		f.Device = known(pci.ID(0x09a2))
		tc.change(&f)
		m.PCI = append(m.PCI, f)
		if got := findingOf(t, m, p2pHostBridge, pair); got.Verdict != tc.want {
			t.Errorf("%s: %s %s, want %s", tc.name, got.Verdict, got.Message, tc.want)
		}
	}
}
