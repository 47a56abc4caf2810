package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// unloaded has nvidia_peermem's and the RDMA core's files, and none loaded.
func unloaded(change ...func(map[string]*host.ModuleFile)) func(*topo.Machine) {
	return func(m *topo.Machine) {
		all2(noPeermem, peerSymbol(true))(m)
		const dir = "/lib/modules/6.8.0-45-generic/"
		files := map[string]*host.ModuleFile{}
		m.Host.ModuleFiles = []host.ModuleFile{
			{Name: "nvidia_peermem", Path: known(dir + "updates/dkms/nvidia-peermem.ko"), VerMagic: known("6.8.0-45-generic SMP mod_unload"),
				Version: known("580.95.05"), Signed: known(true), PeerMemory: known(host.PeerMemory{Imports: true, CRC: 7})},
			{Name: "ib_core", Path: known(dir + "ib_core.ko"), PeerMemory: known(host.PeerMemory{})},
			{Name: "ib_uverbs", Path: known(dir + "updates/ib_uverbs.ko"), PeerMemory: known(host.PeerMemory{Exports: true, CRC: 7})},
		}
		for i := range m.Host.ModuleFiles {
			files[m.Host.ModuleFiles[i].Name] = &m.Host.ModuleFiles[i]
		}
		for _, f := range change {
			f(files)
		}
	}
}

func logged(kind host.LogKind, text, module string) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.Host.KernelLog.V.Events = append(m.Host.KernelLog.V.Events, host.LogEvent{Kind: kind, Text: text, Module: module, Count: 1, SinceBootSec: 60})
	}
}

func noDMABuf(m *topo.Machine) { all2(noCUDA, proprietary)(m) }

func peerSymbol(has bool) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.Host.Symbols = map[string]fact.Value[bool]{"ib_register_peer_memory_client": fact.Of(has, "/proc/kallsyms")}
	}
}

func noSymbols(m *topo.Machine) { m.Host.Symbols = nil }

func TestPeermemLoad(t *testing.T) {
	type files = map[string]*host.ModuleFile
	inbox := func(f files) { f["ib_uverbs"].PeerMemory.V = host.PeerMemory{} }
	without := func(f files) { f["nvidia_peermem"].PeerMemory.V = host.PeerMemory{} }
	crc := func(f files) { f["ib_uverbs"].PeerMemory.V.CRC = 8 }
	packed := func(f files) {
		for _, x := range f {
			x.PeerMemory = fact.Missing[host.PeerMemory](fact.Unsupported, x.Path.V, "compressed")
		}
	}
	noFile := func(f files) { f["nvidia_peermem"].Path = absent[string]() }
	runCases(t, "peermem-load", []verdictCase{
		{"loaded", nil, "node", Pass, "loaded 580.95.05", ""},
		{"can be loaded", unloaded(), "node", Pass, "nothing keeps it", ""},
		{"no versions of symbols", unloaded(func(f files) { f["ib_uverbs"].PeerMemory.V.CRC = 0 }), "node", Pass, "nothing keeps it", ""},
		{"built without, DMA-BUF works", unloaded(without), "node", Info, "DMA-BUF does its work", ""},
		{"built without, no DMA-BUF", all2(unloaded(without), noDMABuf), "node", Fail, "Invalid argument", "DOCA-OFED"},
		{"other versions", all2(unloaded(crc), noDMABuf), "node", Fail, "disagrees about version", "dkms build nvidia/580.95.05 -k 6.8.0-45-generic --force"},
		{"other versions, DMA-BUF works", unloaded(crc), "node", Warn, "disagrees about version", "dkms"},
		{"the core in files exports none", all2(unloaded(inbox), noDMABuf, noSymbols), "node", Fail, "Unknown symbol", "reinstall DOCA-OFED"},
		{"the core that is loaded has none", all2(unloaded(), noDMABuf, peerSymbol(false)), "node", Fail, "though its file has", "openibd restart"},
		{"other kernel", all2(unloaded(func(f files) { f["nvidia_peermem"].VerMagic.V = "6.8.0-31-generic SMP" }), noDMABuf), "node", Fail, "built for kernel 6.8.0-31-generic", "depmod"},
		{"other driver", all2(unloaded(func(f files) { f["nvidia_peermem"].Version.V = "570.1" }), noDMABuf), "node", Fail, "of driver 570.1, while 580.95.05 is loaded", "reboot"},
		{"no file", all2(unloaded(noFile), noDMABuf), "node", Fail, "no such module for kernel 6.8.0-45-generic", "FORCE_REINSTALL"},
		{"no file, DMA-BUF works", unloaded(noFile), "node", Info, "no such module", ""},
		{"packed, the kernel has no symbol", all2(unloaded(packed), noDMABuf, peerSymbol(false)), "node", Fail, "no peer memory interface", "doca-ofed"},
		{"packed, the kernel has the symbol", all2(unloaded(packed), peerSymbol(true)), "node", Unknown, "compressed", ""},
		{"packed, the kernel has said it", all2(unloaded(packed), noDMABuf, peerSymbol(true), logged(host.LogSymbolVersion, "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", "nvidia_peermem")), "node", Fail, "disagrees about version", "after DOCA-OFED"},
		{"packed, the kernel has said it of another", all2(unloaded(packed), peerSymbol(true), logged(host.LogSymbolVersion, "mlx5_ib: disagrees", "mlx5_ib")), "node", Unknown, "compressed", ""},
		{"the core's files unread, the kernel has it", all2(unloaded(func(f files) {
			f["ib_core"].PeerMemory, f["ib_uverbs"].PeerMemory = fact.Value[host.PeerMemory]{}, fact.Value[host.PeerMemory]{}
		}), peerSymbol(true)), "node", Pass, "nothing keeps it", ""},
		{"DMA-BUF not sure", all2(unloaded(crc), noProbe, func(m *topo.Machine) { nic(m).Driver.V = "newnic" }), "node", Warn, "not sure", "dkms"},
		{"the forerunner", func(m *topo.Machine) { m.Host.Modules.V[0].Name = "nv_peer_mem" }, "node", NotApplicable, "in its place", ""},
		{"EFA", all2(unloaded(without), func(m *topo.Machine) { nic(m).Model.V.GPUDirect = "dmabuf" }), "node", NotApplicable, "no NIC here", ""},
		{"modules not seen", func(m *topo.Machine) { denied(&m.Host.Modules) }, "node", Unknown, "may not be read", ""},
		{"files not seen", func(m *topo.Machine) { noPeermem(m) }, "node", Unknown, "not collected", ""},
		{"packed in a way that nobody knows", unloaded(func(f files) { f["nvidia_peermem"].PeerMemory = absent[host.PeerMemory]() }), "node", Unknown, "cannot tell what nvidia-peermem's file needs", ""},
		{"exported by its file, kernel not seen", all2(unloaded(), noSymbols), "node", Unknown, "the kernel has ib_register_peer_memory_client not collected", ""},
		{"the core's files unread, the kernel has none", all2(unloaded(func(f files) {
			f["ib_core"].PeerMemory, f["ib_uverbs"].PeerMemory = fact.Value[host.PeerMemory]{}, fact.Value[host.PeerMemory]{}
		}), noDMABuf, peerSymbol(false)), "node", Fail, "exports no ib_register_peer_memory_client", ""},
		{"neither the core's files nor the kernel's symbols seen", all2(unloaded(func(f files) {
			f["ib_core"].PeerMemory, f["ib_uverbs"].PeerMemory = fact.Value[host.PeerMemory]{}, fact.Value[host.PeerMemory]{}
		}), noSymbols), "node", Unknown, "not collected", ""},
	})
}

func TestPeermemLegacy(t *testing.T) {
	load := func(version, ofed string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Modules.V = []host.Module{{Name: "nv_peer_mem", Version: known(version)}}
			if ofed != "" {
				m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "mlx5_core", Version: known(ofed)})
			}
		}
	}
	runCases(t, "peermem-legacy", []verdictCase{
		{"not loaded", nil, "node", Pass, "not loaded", ""},
		{"both", func(m *topo.Machine) { m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "nv_peer_mem"}) }, "node", Warn, "conflict", "rmmod nv_peer_mem"},
		{"old on a new OFED", load("1.1-0", "5.4-1.0.3"), "node", Fail, "deadlocks in registration on MLNX_OFED 5.4-1.0.3", "modprobe nvidia-peermem"},
		{"old, at the very release", load("1.1", "5.1"), "node", Fail, "deadlocks", ""},
		{"old on an old OFED", load("1.1-0", "4.9-0.1.7"), "node", Info, "on which it works", ""},
		{"old, just before the release", load("1.1", "5.0-2.1.8"), "node", Info, "on which it works", ""},
		{"old, OFED not known", load("1.1-0", ""), "node", Warn, "deadlocks", "ofed_info"},
		{"new enough", load("1.2-0", "5.4-1.0.3"), "node", Info, "has replaced it", ""},
		{"version not known", func(m *topo.Machine) { m.Host.Modules.V = []host.Module{{Name: "nv_peer_mem"}} }, "node", Warn, "version is not known", "dpkg"},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.Modules) }, "node", Unknown, "may not be read", ""},
	})
}

func TestPeermemVisible(t *testing.T) {
	gone := func(m *topo.Machine) { m.Host.MemoryPeers = absent[[]string]() }
	runCases(t, "peermem-visible", []verdictCase{
		{"shown", nil, "node", Pass, "nvidia_peermem", ""},
		{"not there, DMA-BUF works", gone, "node", Info, "DMA-BUF works", ""},
		{"not there", all2(gone, noDMABuf), "node", Warn, "GDR disabled", "NCCL"},
		{"not registered", func(m *topo.Machine) { m.Host.MemoryPeers.V = []string{"amdkfd"} }, "node", Warn, "not among those registered (amdkfd)", "rmmod nvidia_peermem"},
		{"no module", noPeermem, "node", NotApplicable, "no peer memory module", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.MemoryPeers) }, "node", Unknown, "may not be read", ""},
	})
}

func TestModuleHolders(t *testing.T) {
	load := func(list ...host.Module) func(*topo.Machine) {
		return func(m *topo.Machine) { m.Host.Modules.V = list }
	}
	held := host.Module{Name: "nvidia", Holders: []string{"gdrdrv", "nvidia_modeset", "nvidia_uvm"}}
	ofed := host.Module{Name: "mlx5_core", Version: known("25.10-1.2.8")}
	runCases(t, "module-holders", []verdictCase{
		{"its own parts alone", load(host.Module{Name: "nvidia", Holders: []string{"nvidia_uvm"}}), "node", Pass, "no module outside", ""},
		{"GDRCopy", load(held), "node", Info, "unload first: gdrdrv", ""},
		{"irdma holds a vendor's core", load(host.Module{Name: "nvidia"}, ofed, host.Module{Name: "ib_core", Holders: []string{"ib_uverbs", "irdma"}}), "node", Info, "to reload DOCA-OFED, unload first: irdma", ""},
		{"irdma on the kernel's own core", load(host.Module{Name: "nvidia"}, host.Module{Name: "ib_core", Holders: []string{"irdma"}}), "node", Pass, "", ""},
		{"no driver", load(), "node", NotApplicable, "not loaded", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.Modules) }, "node", Unknown, "may not be read", ""},
	})
}

func TestModuleSignature(t *testing.T) {
	boot := func(loaded bool, signed fact.Value[bool]) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.SecureBoot = known(true)
			m.Host.Modules.V = []host.Module{}
			if loaded {
				m.Host.Modules.V = []host.Module{{Name: "nvidia"}}
			}
			m.Host.ModuleFiles = []host.ModuleFile{{Name: "nvidia", Path: known("/lib/modules/x/nvidia.ko"), Signed: signed},
				{Name: "gdrdrv", Path: known("/lib/modules/x/gdrdrv.ko"), Signed: signed}}
		}
	}
	runCases(t, "module-signature", []verdictCase{
		{"off", nil, "node", Pass, "off", ""},
		{"no EFI", func(m *topo.Machine) { m.Host.SecureBoot = absent[bool]() }, "node", Pass, "off", ""},
		{"on, all signed", boot(true, known(true)), "node", Pass, "loaded or signed", ""},
		{"GPU driver unsigned", boot(false, known(false)), "node", Fail, "not signed (nvidia, gdrdrv)", "mokutil --import"},
		{"another unsigned", boot(true, known(false)), "node", Warn, "gdrdrv cannot be loaded", "mokutil"},
		{"signed and not loaded", boot(false, known(true)), "node", Warn, "may not be enrolled", "Key was rejected"},
		{"refused, says the kernel", all2(boot(false, known(true)), logged(host.LogUnsigned, "Loading of module with unavailable key is rejected", "")), "node", Fail, "has refused a module", "mokutil"},
		{"too large to open", boot(false, fact.Missing[bool](fact.Unsupported, "nvidia.ko", "too large")), "node", Warn, "may not be enrolled", ""},
		{"one that is loaded, its file not seen", all2(boot(true, known(true)), func(m *topo.Machine) { denied(&m.Host.ModuleFiles[0].Path) }), "node", Pass, "", ""},
		{"one that nobody asks for, its file not seen", all2(boot(true, known(true)), func(m *topo.Machine) {
			m.Host.ModuleFiles[1].Name = "ib_core"
			denied(&m.Host.ModuleFiles[1].Path)
		}), "node", Pass, "", ""},
		{"one that is not loaded, its file not seen", all2(boot(true, known(true)), func(m *topo.Machine) { denied(&m.Host.ModuleFiles[1].Path) }), "node", Unknown, "file of gdrdrv may not be read", ""},
		{"one that is not loaded, its signature not seen", all2(boot(true, known(true)), func(m *topo.Machine) { denied(&m.Host.ModuleFiles[1].Signed) }), "node", Unknown, "signature of gdrdrv may not be read", ""},
		{"modules not seen", all2(boot(true, known(true)), func(m *topo.Machine) { denied(&m.Host.Modules) }), "node", Unknown, "may not be read", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.SecureBoot) }, "node", Unknown, "may not be read", ""},
		{"refused another time, and loaded now", all2(boot(true, known(true)), logged(host.LogUnsigned, "Loading of module is rejected", "")), "node", Pass, "loaded or signed", ""},
	})
}

func TestNVIDIAFS(t *testing.T) {
	load := func(majors map[string]int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "nvidia_fs", Version: known("2.25")})
			m.Host.CharMajors = fact.Of(majors, "/proc/devices")
		}
	}
	runCases(t, "nvidia-fs", []verdictCase{
		{"not loaded", nil, "node", NotApplicable, "does not need it", ""},
		{"loaded", load(map[string]int{"nvidia-fs": 234}), "node", Pass, "loaded 2.25", ""},
		{"no number", load(map[string]int{"nvidia": 195}), "node", Warn, "no device number", "modprobe"},
		{"not seen", all2(load(nil), func(m *topo.Machine) { denied(&m.Host.CharMajors) }), "node", Unknown, "may not be read", ""},
	})
}

func amdGPU(m *topo.Machine) {
	m.GPU.GPUs[0].Vendor = gpu.VendorAMD
	m.Host.MemoryPeers, m.Host.Modules.V = known([]string{}), nil
}

func options(pairs ...string) func(*topo.Machine) {
	return func(m *topo.Machine) {
		for i := 0; i < len(pairs); i += 2 {
			m.Host.KernelConfig.V[pairs[i]] = pairs[i+1]
		}
	}
}

func TestKernelDMABuf(t *testing.T) {
	amd := options("CONFIG_PCI_P2PDMA", "y", "CONFIG_DMABUF_MOVE_NOTIFY", "y", "CONFIG_HSA_AMD_P2P", "y")
	mlx5 := options("CONFIG_INFINIBAND_USER_MEM", "y", "CONFIG_INFINIBAND_ON_DEMAND_PAGING", "n")
	runCases(t, "kernel-dmabuf", []verdictCase{
		{"there", nil, "node", Pass, "CONFIG_DMA_SHARED_BUFFER", ""},
		{"NVIDIA needs no P2PDMA", options("CONFIG_PCI_P2PDMA", "n"), "node", Pass, "", ""},
		{"the probe proves mlx5's", mlx5, "node", Pass, "", ""},
		{"no paging on demand", all2(mlx5, noProbe, noPeermem), "node", Fail, "built without CONFIG_INFINIBAND_ON_DEMAND_PAGING", "6.8.0-45-generic"},
		{"no paging on demand, peermem loaded", all2(mlx5, noProbe), "node", Info, "a peer memory module is loaded", ""},
		{"OFED brings its own", all2(mlx5, noProbe, func(m *topo.Machine) {
			m.Host.Modules.V = []host.Module{{Name: "mlx5_core", Version: known("25.10")}}
		}), "node", Pass, "", ""},
		{"no framework", all2(options("CONFIG_DMA_SHARED_BUFFER", "n"), noPeermem), "node", Fail, "CONFIG_DMA_SHARED_BUFFER", ""},
		{"AMD", all2(amdGPU, amd), "node", Pass, "CONFIG_HSA_AMD_P2P", ""},
		{"AMD without P2PDMA", all2(amdGPU, amd, options("CONFIG_PCI_P2PDMA", "n")), "node", Fail, "CONFIG_PCI_P2PDMA", "no other way"},
		{"AMD without P2PDMA on an older kernel", all2(amdGPU, amd, options("CONFIG_PCI_P2PDMA", "n"), kernel("6.2.0")), "node", Fail, "CONFIG_PCI_P2PDMA", "amdgpu-dkms"},
		{"AMD without, with a client", all2(amdGPU, amd, options("CONFIG_PCI_P2PDMA", "n"), func(m *topo.Machine) { m.Host.MemoryPeers = known([]string{"amdkfd"}) }), "node", Info, "a peer memory module", ""},
		{"old kernel", kernel("5.4.0"), "node", NotApplicable, "too old", ""},
		{"no pair", func(m *topo.Machine) { m.GPU.GPUs = nil }, "node", NotApplicable, "no GPU and NIC", ""},
		{"no configuration", func(m *topo.Machine) { m.Host.KernelConfig = absent[map[string]string]() }, "node", Unknown, "not on this machine", "/boot/config-6.8.0-45-generic"},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.KernelConfig) }, "node", Unknown, "may not be read", ""},
	})
}

func TestP2PHostBridge(t *testing.T) {
	const pair = "GPU0 mlx5_0"
	apart := func(m *topo.Machine) {
		amdGPU(m)
		const port = "0000:00:02.0"
		m.PCI = append(m.PCI, function(port, "", pci.ClassPCIBridge<<8, pci.PortRoot))
		p := at(port)
		fn(m, nicAddr).Parent = &p
	}
	cpu := func(vendor string, family int) func(*topo.Machine) {
		return func(m *topo.Machine) { m.Host.CPU.Vendor, m.Host.CPU.Family = known(vendor), known(family) }
	}
	bridge := func(id pci.ID) func(*topo.Machine) {
		return func(m *topo.Machine) {
			f := function("0000:00:00.0", "", pci.ClassHostBridge<<8, pci.PortRoot)
			f.Device = known(id)
			m.PCI = append(m.PCI, f)
		}
	}
	other := func(m *topo.Machine) { fn(m, nicAddr).HostBridge = "pci0000:80" }
	runCases(t, "p2p-host-bridge", []verdictCase{
		{"one switch", amdGPU, pair, Pass, "share a switch (PIX)", ""},
		{"Zen", all2(apart, cpu("AuthenticAMD", 0x19)), pair, Pass, "Zen", ""},
		{"the first Zen", all2(apart, cpu("AuthenticAMD", 0x17)), pair, Pass, "Zen", ""},
		{"before Zen", all2(apart, cpu("AuthenticAMD", 0x16)), pair, Fail, "not on the kernel's P2PDMA list", "gdrcheck topo"},
		{"Ice Lake", all2(apart, bridge(0x09a2)), pair, Pass, "on the kernel's list", ""},
		{"Haswell, one bridge", all2(apart, bridge(0x2f00)), pair, Pass, "on the kernel's list", ""},
		{"Haswell, two bridges", all2(apart, bridge(0x2f00), other), pair, Fail, "not on", ""},
		{"Intel's desktop", all2(apart, bridge(0x4660)), pair, Fail, "not on", ""},
		{"Intel's, bridge not seen", apart, pair, Warn, "not on", "a registration"},
		{"with a client", all2(apart, func(m *topo.Machine) { m.Host.MemoryPeers.V = []string{"amdkfd"} }), pair, NotApplicable, "client", ""},
		{"NVIDIA", nil, "node", NotApplicable, "nothing that the check judges", ""},
		{"CPU not seen", all2(apart, func(m *topo.Machine) { denied(&m.Host.CPU.Vendor) }), pair, Unknown, "may not be read", ""},
		{"two switches", all2(amdGPU, deeperNIC), pair, Pass, "share a switch (PXB)", ""},
		{"the NIC's place was not seen", all2(apart, bridge(0x2f00), unseen(nicAddr)), pair, Unknown, "where " + nicAddr + " stands", ""},
	})
}

func TestIBGDA(t *testing.T) {
	dwords := func(s string) func(*topo.Machine) {
		return func(m *topo.Machine) { m.GPU.NVIDIA.Params.V["RegistryDwords"] = s }
	}
	memops := func(m *topo.Machine) { m.GPU.NVIDIA.Params.V["EnableStreamMemOPs"] = "1" }
	runCases(t, "ibgda", []verdictCase{
		{"the default", nil, "node", Info, "for root", ""},
		{"not root", func(m *topo.Machine) { m.Host.Root.V = false }, "node", Info, "not for this user", ""},
		{"another number", dwords(`"PeerMappingOverride=10"`), "node", Info, "for root", ""},
		{"open to all", all2(dwords(`"RMForceStaticBar1=1; PeerMappingOverride=0x1;"`), memops), "node", Pass, "every user", ""},
		{"without memory operations", dwords(`"PeerMappingOverride=1"`), "node", Info, "NVreg_EnableStreamMemOPs=1", ""},
		{"Broadcom", func(m *topo.Machine) { nic(m).Driver.V = "bnxt_en" }, "node", Info, "mlx5 NICs alone", ""},
		{"container", all2(func(m *topo.Machine) { m.Host.Container = known("docker") }, dwords(`"PeerMappingOverride=1"`)), "node", Info, "CAP_SYS_ADMIN", ""},
		{"container, privileged", all2(func(m *topo.Machine) { m.Host.Container, m.Host.Limits.V.CapEff = known("docker"), 1<<21 }, dwords(`"PeerMappingOverride=1"`), memops), "node", Pass, "", ""},
		{"no driver", func(m *topo.Machine) { m.GPU.NVIDIA.Params = absent[map[string]string]() }, "node", NotApplicable, "not loaded", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.GPU.NVIDIA.Params) }, "node", Unknown, "may not be read", ""},
		{"NIC driver not seen", func(m *topo.Machine) { denied(&nic(m).Driver) }, "node", Unknown, "may not be read", ""},
		{"software alone", func(m *topo.Machine) { nic(m).Software = true }, "node", NotApplicable, "no RDMA NIC for GPUs", ""},
		{"mlx5 for storage alone", all2(storageNIC, func(m *topo.Machine) { nic(m).Driver.V = "bnxt_en" }), "node", Info, "mlx5 NICs alone", ""},
	})
}

func TestNVRegTable(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range nvregTable() {
		if o.Name == "" || seen[o.Name] {
			t.Errorf("%q: without a name, or twice", o.Name)
		}
		seen[o.Name] = true
	}
	for _, tc := range []struct {
		name   string
		branch int
		lacks  bool
	}{
		{"CoherentGPUMemoryMode", 570, true}, {"CoherentGPUMemoryMode", 580, false}, {"CoherentGPUMemoryMode", 0, false},
		{"GrdmaPciTopoCheckOverride", 590, false}, {"GrdmaPciTopoCheckOverride", 595, true}, {"EnableGPUReset", 0, true}, {"EnableMSI", 580, false},
	} {
		if o, ok := nvregOptionOf(tc.name); !ok || (o.lacking(tc.branch) != "") != tc.lacks {
			t.Errorf("%s on R%d: %q", tc.name, tc.branch, o.lacking(tc.branch))
		}
	}
}

// Of a NIC whose DMA-BUF is proven and one whose is not, nothing is said of all.
func TestDMABufAll(t *testing.T) {
	m := goodNode()
	secondNIC(func(d *rdma.Device) { d.Verbs.V.DMABufErrno.V = 95 })(m)
	m.GPU.GPUs = append(m.GPU.GPUs, m.GPU.GPUs[0])
	n, err := NewNode(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := (&Case{Node: n, check: &peermemLoad}).dmabufAll(); got != dontKnow {
		t.Errorf("got %d", got)
	}
}

func TestPeermemContexts(t *testing.T) {
	runCases(t, "peermem-contexts", []verdictCase{
		{"none", nil, "node", Pass, "no such message", ""},
		{"some", logged(host.LogPeermemContext, "nv_get_p2p_free_callback: detected invalid context, skipping further processing", ""), "node", Info, "harmless", ""},
		{"not loaded", noPeermem, "node", NotApplicable, "not loaded", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.KernelLog) }, "node", Unknown, "may not be read", ""},
		{"no log", noLog, "node", Unknown, "log is not there", ""},
	})
}

// In a container that has neither the host's modules nor its kernel's
// configuration, what explains a missing way is not seen; that there is a way is.
func TestContainerIsNotUndetermined(t *testing.T) {
	m := goodNode()
	m.Host.Container = known("docker")
	denied(&m.Host.KernelConfig)
	denied(&m.Host.SecureBoot)
	noPeermem(m)
	o := mustRun(t, m, Options{})
	if f := one(t, o, "peermem-load", "node"); f.Verdict != Unknown || f.Severity != SeverityWarning {
		t.Errorf("%+v", f)
	}
	if f := one(t, o, "gdr-way", "GPU0 mlx5_0"); f.Verdict != Pass {
		t.Errorf("%+v", f)
	}
	if o.Verdict != Pass || o.ExitCode != 0 {
		t.Errorf("%s %d", o.Verdict, o.ExitCode)
	}
	for _, s := range o.Ladders[0].Steps {
		if s.Rung == RungWay && s.Verdict != Pass {
			t.Errorf("%+v", s)
		}
	}
}
