package checks

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func all2(list ...func(*topo.Machine)) func(*topo.Machine) {
	return func(m *topo.Machine) {
		for _, f := range list {
			f(m)
		}
	}
}

func noPeermem(m *topo.Machine) { m.Host.Modules = fact.Of([]host.Module{}, "/proc/modules") }

func attr124(n int) func(*topo.Machine) {
	return func(m *topo.Machine) { m.GPU.GPUs[0].CUDA.V.DMABuf = fact.Of(n, "cuda:cuDeviceGetAttribute(124)") }
}

func noCUDA(m *topo.Machine) {
	m.GPU.GPUs[0].CUDA = fact.Missing[gpu.CUDADevice](fact.Absent, "cuda:libcuda.so.1", "no such library")
}

func proprietary(m *topo.Machine) { m.GPU.NVIDIA.Flavour.V = "proprietary" }

func probe(errno int) func(*topo.Machine) {
	return func(m *topo.Machine) { nic(m).Verbs.V.DMABufErrno.V = errno }
}

func noProbe(m *topo.Machine) {
	nic(m).Verbs = fact.Missing[rdma.VerbsProbe](fact.NotCollected, "verbs", "only a live machine can answer")
}

func kernel(release string) func(*topo.Machine) {
	return func(m *topo.Machine) { m.Host.KernelRelease.V = release }
}

func TestGDRWay(t *testing.T) {
	const pair = "GPU0 mlx5_0"
	amd := func(conf map[string]string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.GPU.GPUs[0].Vendor = gpu.VendorAMD
			m.Host.KernelConfig.V = conf
			m.Host.MemoryPeers = absent[[]string]()
		}
	}
	full := map[string]string{"CONFIG_PCI_P2PDMA": "y", "CONFIG_DMABUF_MOVE_NOTIFY": "y", "CONFIG_HSA_AMD_P2P": "y"}
	lacking := map[string]string{"CONFIG_PCI_P2PDMA": "n", "CONFIG_DMABUF_MOVE_NOTIFY": "y", "CONFIG_HSA_AMD_P2P": "y"}
	peermemFile := func(m *topo.Machine) {
		m.Host.ModuleFiles = []host.ModuleFile{{Name: "nvidia_peermem", Path: known("/lib/modules/x/nvidia-peermem.ko")}}
	}
	symbol := func(has bool) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Symbols = map[string]fact.Value[bool]{"ib_register_peer_memory_client": known(has)}
		}
	}
	runCases(t, "gdr-way", []verdictCase{
		{"both ways", nil, pair, Pass, "DMA-BUF and nvidia_peermem", ""},
		{"DMA-BUF alone", noPeermem, pair, Pass, "DMA-BUF", ""},
		{"peermem alone", all2(attr124(0), proprietary), pair, Pass, "nvidia_peermem (no DMA-BUF:", ""},
		{"the old module", all2(attr124(0), func(m *topo.Machine) { m.Host.Modules.V[0].Name = "nv_peer_mem" }), pair, Pass, "nv_peer_mem", ""},
		{"open flavour without CUDA's answer", all2(noPeermem, noCUDA), pair, Pass, "DMA-BUF", ""},
		{"none: proprietary", all2(noPeermem, noCUDA, proprietary), pair, Fail, "the proprietary GPU driver does not export it", "nvidia-open"},
		{"none: the module is there", all2(noPeermem, noCUDA, proprietary, peermemFile, symbol(true)), pair, Fail, "nvidia_peermem is not loaded", "sudo modprobe nvidia-peermem"},
		{"none: the module cannot load", all2(noPeermem, noCUDA, proprietary, peermemFile, symbol(false)), pair, Fail, "", "no peer memory interface"},
		{"none: attribute 124 is 0", all2(noPeermem, attr124(0)), pair, Fail, "attribute 124 is 0", ""},
		{"none: the NIC's driver refuses", all2(noPeermem, probe(95)), pair, Fail, "EOPNOTSUPP", "update rdma-core and the driver of mlx5_0"},
		{"none: the kernel is too old for the method", all2(noPeermem, probe(93)), pair, Fail, "EPROTONOSUPPORT", ""},
		{"none: old kernel", all2(noPeermem, noProbe, kernel("5.4.0-150-generic")), pair, Fail, "kernel 5.4.0-150-generic is older than 5.12", "5.12 or newer"},
		{"none: confidential computing", all2(noPeermem, func(m *topo.Machine) { m.GPU.GPUs[0].NVML.V.Confidential = known(true) }), pair, Fail, "confidential", ""},
		{"none: driver not loaded", all2(noPeermem, noCUDA, func(m *topo.Machine) { m.GPU.NVIDIA.Flavour = absent[string]() }), pair, Fail, "not loaded", "modprobe nvidia"},
		{"none: nouveau has the GPU", all2(noPeermem, noCUDA, func(m *topo.Machine) {
			m.GPU.NVIDIA.Flavour = absent[string]()
			fn(m, gpuAddr).Driver = known("nouveau")
		}), pair, Fail, "the NVIDIA driver is not loaded: nothing can register", "blacklist nouveau"},
		{"a driver is bound whose files were not seen", all2(noPeermem, noCUDA, func(m *topo.Machine) {
			m.GPU.NVIDIA.Flavour = absent[string]()
			fn(m, gpuAddr).Driver = known("nvidia")
		}), pair, Unknown, "is bound to the GPU", ""},
		{"kernel and driver table instead of the probe", all2(noPeermem, noProbe), pair, Pass, "DMA-BUF (by kernel and driver; libibverbs was not asked)", ""},
		{"a driver without the function", all2(noPeermem, noProbe, func(m *topo.Machine) { nic(m).Driver.V = "mlx4_core" }), pair, Fail, "mlx4_core does not take it", ""},
		{"a driver that is newer than the kernel", all2(noPeermem, noProbe, kernel("6.2.0"), func(m *topo.Machine) { nic(m).Driver.V = "bnxt_en" }), pair, Fail, "from kernel 6.6 on", ""},
		{"a vendor's driver on an old kernel", all2(noProbe, kernel("6.2.0"), func(m *topo.Machine) {
			nic(m).Driver.V = "bnxt_en"
			m.Host.Modules.V = []host.Module{{Name: "bnxt_en", Version: known("1.10.3")}}
		}), pair, Unknown, "not the kernel's own", "sudo gdrcheck"},
		{"a driver that nobody knows", all2(noPeermem, noProbe, func(m *topo.Machine) { nic(m).Driver.V = "newnic" }), pair, Unknown, "newnic", ""},
		{"modules not seen, no DMA-BUF", all2(attr124(0), func(m *topo.Machine) { denied(&m.Host.Modules) }), pair, Unknown, "modules could not be seen", ""},
		{"modules not seen, DMA-BUF there", func(m *topo.Machine) { denied(&m.Host.Modules) }, pair, Pass, "DMA-BUF", ""},
		{"flavour not seen", all2(noPeermem, noCUDA, func(m *topo.Machine) { denied(&m.GPU.NVIDIA.Flavour) }), pair, Unknown, "flavour could not be seen", ""},
		{"peermem does not serve the NIC", all2(attr124(0), func(m *topo.Machine) { nic(m).Model.V.GPUDirect = "dmabuf" }), pair, Fail, "does not serve this NIC", ""},
		{"host of guests", vfio, pair, NotApplicable, "the guest's", ""},
		{"AMD with all options", amd(full), pair, Pass, "DMA-BUF", ""},
		{"AMD without P2PDMA", amd(lacking), pair, Fail, "CONFIG_PCI_P2PDMA", "amdgpu-dkms"},
		{"AMD, configuration not seen", amd(nil), pair, Unknown, "configuration", ""},
		{"AMD with a peer memory client", all2(amd(lacking), func(m *topo.Machine) { m.Host.MemoryPeers = known([]string{"amdkfd"}) }), pair, Pass, "peer memory client", ""},
		{"peermem, DMA-BUF not known", all2(noProbe, func(m *topo.Machine) { nic(m).Driver.V = "newnic" }), pair, Pass, "nvidia_peermem (whether DMA-BUF works too is not known: not known for the NIC driver newnic)", ""},
		{"driver not loaded, modules not seen", all2(noCUDA, func(m *topo.Machine) {
			m.GPU.NVIDIA.Flavour = absent[string]()
			denied(&m.Host.Modules)
		}), pair, Unknown, "modules could not be seen", ""},
		{"open driver before DMA-BUF", all2(noPeermem, noCUDA, func(m *topo.Machine) { m.GPU.NVIDIA.Version.V = "510.108.03" }), pair, Fail, "510.108.03 is older than 515", ""},
		{"the first with DMA-BUF", all2(noPeermem, noCUDA, func(m *topo.Machine) { m.GPU.NVIDIA.Version.V = "515.43.04" }), pair, Pass, "DMA-BUF", ""},
		{"open driver of no known version", all2(noPeermem, noCUDA, func(m *topo.Machine) { denied(&m.GPU.NVIDIA.Version) }), pair, Pass, "DMA-BUF", ""},
		{"the kernel has no dma-buf", all2(noPeermem, noCUDA, func(m *topo.Machine) { m.Host.KernelConfig.V["CONFIG_DMA_SHARED_BUFFER"] = "n" }), pair, Fail, "without CONFIG_DMA_SHARED_BUFFER", ""},
		{"AWS G6e", func(m *topo.Machine) { m.Host.DMI.ProductName = known("g6e.48xlarge") }, pair, Fail, "no GPUDirect RDMA", "p5"},
	})
}

// Arm servers whose CPUs do not forward peer traffic: the driver refuses there.
func TestGDRWayOnArmWithoutSwitch(t *testing.T) {
	m := goodNode()
	all2(noPeermem, func(m *topo.Machine) {
		m.Host.CPU.Arch = known("aarch64")
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		p := at("0000:00:02.0")
		fn(m, nicAddr).Parent = &p
	})(m)
	if f := findingOf(t, m, gdrWay, "GPU0 mlx5_0"); f.Verdict != Unknown || !strings.Contains(f.Message, "Arm") {
		t.Errorf("%s %s", f.Verdict, f.Message)
	}
	m.GPU.NVIDIA.Params.V["GrdmaPciTopoCheckOverride"] = "1"
	if f := findingOf(t, m, gdrWay, "GPU0 mlx5_0"); f.Verdict != Pass {
		t.Errorf("overridden: %s %s", f.Verdict, f.Message)
	}
}

func TestGPUDirectAttribute(t *testing.T) {
	runCases(t, "gpu-direct-attribute", []verdictCase{
		{"supported", nil, "GPU0", Pass, "supported", ""},
		{"not supported", func(m *topo.Machine) {
			m.GPU.GPUs[0].Name, m.GPU.GPUs[0].CUDA.V.GPUDirectRDMA.V = "NVIDIA GeForce RTX 4090", 0
		}, "GPU0", Fail, "GeForce RTX 4090 does not support", "workstation GPU"},
		{"no library", noCUDA, "GPU0", Unknown, "no CUDA driver library", "libcuda.so.1"},
		{"failed", func(m *topo.Machine) {
			m.GPU.GPUs[0].CUDA = fact.Missing[gpu.CUDADevice](fact.Failed, "cuda:cuInit", "CUDA error 802: system not yet initialized")
		}, "GPU0", Unknown, "802", ""},
		{"AMD", func(m *topo.Machine) { m.GPU.GPUs[0].Vendor = gpu.VendorAMD }, "GPU0", NotApplicable, "AMD", ""},
		{"host of guests", vfio, "GPU0", NotApplicable, "reserved for a virtual machine", ""},
	})
}

func TestNICModel(t *testing.T) {
	runCases(t, "nic-model", []verdictCase{
		{"ConnectX-7", nil, "mlx5_0", Pass, "ConnectX-7, by DMA-BUF or peermem", ""},
		{"none", func(m *topo.Machine) {
			nic(m).Model = known(rdma.Model{Name: "gVNIC", GPUDirect: "none", Note: "no RDMA"})
		}, "mlx5_0", Fail, "gVNIC cannot", "ConnectX"},
		{"software", func(m *topo.Machine) { nic(m).Software = true }, "mlx5_0", Info, "the CPU moves the data", ""},
		{"not in the table, known driver", func(m *topo.Machine) { nic(m).Model = absent[rdma.Model]() }, "mlx5_0", Pass, "mlx5_core registers DMA-BUF", ""},
		{"driver without", func(m *topo.Machine) {
			nic(m).Model = absent[rdma.Model]()
			nic(m).Driver.V = "cxgb4"
		}, "mlx5_0", Warn, "cxgb4", "peer memory client"},
		{"nothing known", func(m *topo.Machine) {
			nic(m).Model = absent[rdma.Model]()
			nic(m).Driver.V = "newnic"
		}, "mlx5_0", Info, "not known", ""},
		{"model not seen", func(m *topo.Machine) { denied(&nic(m).Model); nic(m).Driver.V = "newnic" }, "mlx5_0", Unknown, "may not be read", ""},
		{"a model of which nobody knows", func(m *topo.Machine) { nic(m).Model.V.GPUDirect, nic(m).Driver.V = "unknown", "newnic" }, "mlx5_0", Info, "not known", ""},
	})
}

func TestNVregOptions(t *testing.T) {
	option := func(name, value string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Modprobe.V = append(m.Host.Modprobe.V, host.ModprobeOption{Module: "nvidia", Name: name, Value: value, File: "/etc/modprobe.d/nvidia.conf", Line: 3})
		}
	}
	live := func(name, value string) func(*topo.Machine) {
		return func(m *topo.Machine) { m.GPU.NVIDIA.Params.V[name] = value }
	}
	runCases(t, "nvreg-options", []verdictCase{
		{"none set", nil, "node", Pass, "in force", ""},
		{"set and in force", all2(option("NVreg_EnableStreamMemOPs", "0x1"), live("EnableStreamMemOPs", "1")), "node", Pass, "", ""},
		{"set twice, the last counts", all2(option("NVreg_EnableStreamMemOPs", "1"), option("NVreg_EnableStreamMemOPs", "0")), "node", Pass, "", ""},
		{"another name in force", option("NVreg_RestrictProfilingToAdminUsers", "1"), "node", Pass, "", ""},
		{"waits for a reboot", option("NVreg_EnableStreamMemOPs", "1"), "node", Warn, "NVreg_EnableStreamMemOPs=1 waits for a reboot: in force is 0", "update-initramfs"},
		{"text waits for a reboot", option("NVreg_RegistryDwords", `"PeerMappingOverride=1;"`), "node", Warn, "waits for a reboot", "reboot"},
		{"does not exist", option("NVreg_EnableGPUReset", "1"), "node", Warn, "does not exist in the driver", "/etc/modprobe.d/nvidia.conf:3"},
		{"not shown", option("NVreg_SomethingNew", "1"), "node", Info, "may have no effect", ""},
		{"newer than the driver", all2(option("NVreg_CoherentGPUMemoryMode", "driver"), func(m *topo.Machine) { m.GPU.NVIDIA.Version.V = "570.124.06" }), "node", Warn, "came with driver R580", "Remove NVreg_CoherentGPUMemoryMode"},
		{"removed from the driver", all2(option("NVreg_GrdmaPciTopoCheckOverride", "1"), func(m *topo.Machine) {
			m.GPU.NVIDIA.Version.V = "595.45.04"
			delete(m.GPU.NVIDIA.Params.V, "GrdmaPciTopoCheckOverride")
		}), "node", Warn, "was removed with driver R595", "/etc/modprobe.d/nvidia.conf:3"},
		{"of other drivers", option("NVreg_TCEBypassMode", "1"), "node", Warn, "an option of other drivers", "Remove"},
		{"not shown by any", option("NVreg_RegisterForACPIEvents", "1"), "node", Pass, "", ""},
		{"weakens security", live("RmProfilingAdminOnly", "0"), "node", Info, "NVreg_RestrictProfilingToAdminUsers=0 weakens security", ""},
		{"weakens security more", live("InitializeSystemMemoryAllocations", "0"), "node", Info, "what others left", ""},
		{"PeerMappingOverride", live("RegistryDwords", `"PeerMappingOverride=1;"`), "node", Info, "IBGDA", ""},
		{"topology check overridden", live("GrdmaPciTopoCheckOverride", "1"), "node", Info, "skips", ""},
		{"topology check refuses", live("GrdmaPciTopoCheckOverride", "2"), "node", Warn, "refuses every DMA-BUF", "reboot"},
		{"DmaRemapPeerMmio", live("DmaRemapPeerMmio", "0"), "node", Info, "dangerous", ""},
		{"DmaRemapPeerMmio under translation", all2(live("DmaRemapPeerMmio", "0"), func(m *topo.Machine) {
			fn(m, gpuAddr).IOMMUGroupType = known("DMA-FQ")
		}), "node", Warn, "transfers get lost", "reboot"},
		{"modprobe.d unreadable", func(m *topo.Machine) { denied(&m.Host.Modprobe) }, "node", Unknown, "may not be read", ""},
		{"no driver", func(m *topo.Machine) { m.GPU.NVIDIA.Params = absent[map[string]string]() }, "node", NotApplicable, "not loaded", ""},
		{"the module's other name", func(m *topo.Machine) {
			option("NVreg_EnableStreamMemOPs", "1")(m)
			m.Host.Modprobe.V[0].Module = "nvidia-current"
		}, "node", Warn, "waits for a reboot", ""},
		{"another module's", func(m *topo.Machine) {
			option("NVreg_EnableStreamMemOPs", "1")(m)
			m.Host.Modprobe.V[0].Module = "nvidia_drm"
		}, "node", Pass, "", ""},
		{"of another kind", option("EnableStreamMemOPs", "1"), "node", Pass, "", ""},
	})
}

func gdrdrvFile(flavour, vermagic string) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.Host.ModuleFiles = []host.ModuleFile{{Name: "gdrdrv", Path: known("/lib/modules/x/gdrdrv.ko"), Version: known("2.5"), VerMagic: known(vermagic),
			Description: known("GDRCopy kernel-mode driver built for " + flavour + " NVIDIA driver")}}
	}
}

func TestGDRDrv(t *testing.T) {
	loaded := func(version string, number int, node fact.Value[fact.Info]) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "gdrdrv", Version: known(version)})
			m.Host.CharMajors = fact.Of(map[string]int{}, "/proc/devices")
			if number > 0 {
				m.Host.CharMajors.V["gdrdrv"] = number
			}
			m.Host.Nodes = []host.DeviceNode{{Path: "/dev/nvidiactl", Info: known(fact.Info{})}}
			if node.State == fact.Known {
				m.Host.Nodes = append(m.Host.Nodes, host.DeviceNode{Path: "/dev/gdrdrv", Info: node, Access: known(true)})
			}
		}
	}
	there := fact.Of(fact.Info{Mode: 0o666}, "/dev/gdrdrv")
	runCases(t, "gdrdrv", []verdictCase{
		{"not loaded", nil, "node", Info, "not loaded", ""},
		{"good", loaded("2.5", 239, there), "node", Pass, "loaded 2.5", ""},
		{"no node", loaded("2.5", 239, fact.Missing[fact.Info](fact.Absent, "/dev/gdrdrv", "no such file")), "node", Warn, "/dev/gdrdrv is missing", "mknod -m 666 /dev/gdrdrv c 239 0"},
		{"no node in a container", all2(loaded("2.5", 239, absent[fact.Info]()), func(m *topo.Machine) { m.Host.Container = known("docker") }), "node", Warn, "missing", "--device=/dev/gdrdrv"},
		{"no number", loaded("2.5", 0, there), "node", Warn, "no device number", "rmmod gdrdrv"},
		{"too old for the driver", loaded("2.4.1", 239, there), "node", Warn, "fails on GPU drivers from R560 on", "2.4.2"},
		{"old driver with it", all2(loaded("2.4.1", 239, there), func(m *topo.Machine) { m.GPU.NVIDIA.Version.V = "550.54.15" }), "node", Pass, "", ""},
		{"built for the open driver", all2(proprietary, gdrdrvFile("opensource", "6.8.0-45-generic SMP")), "node", Warn, "built for the open GPU driver", "dkms build gdrdrv/2.5 --force"},
		{"built for the open driver, on it", gdrdrvFile("opensource", "6.8.0-45-generic SMP"), "node", Info, "not loaded", ""},
		{"built for the proprietary one", all2(proprietary, gdrdrvFile("proprietary", "6.8.0-45-generic SMP")), "node", Info, "not loaded", ""},
		{"built for another kernel", gdrdrvFile("opensource", "6.8.0-31-generic SMP"), "node", Warn, "built for kernel 6.8.0-31-generic", "dkms"},
		{"modules not seen", func(m *topo.Machine) { denied(&m.Host.Modules) }, "node", Unknown, "may not be read", ""},
		{"nodes not seen", all2(loaded("2.5", 239, there), func(m *topo.Machine) { m.Host.Nodes = nil }), "node", Unknown, "no device nodes were seen", ""},
		{"too old, on the first driver that it fails on", all2(loaded("2.4.1", 239, there), func(m *topo.Machine) { m.GPU.NVIDIA.Version.V = "560.28.03" }), "node", Warn, "fails on GPU drivers", ""},
		{"version not known", all2(loaded("2.4.1", 239, there), func(m *topo.Machine) { m.Host.Modules.V[len(m.Host.Modules.V)-1].Version = absent[string]() }), "node", Pass, "", ""},
		{"may not be opened", all2(loaded("2.5", 239, there), func(m *topo.Machine) { m.Host.Nodes[1].Access.V = false }), "node", Warn, "may not be opened", "chmod 666 /dev/gdrdrv"},
		{"whether it may be opened is not known", all2(loaded("2.5", 239, there), func(m *topo.Machine) { denied(&m.Host.Nodes[1].Access) }), "node", Unknown, "may not be read", ""},
		{"built for the open driver, flavour not known", all2(gdrdrvFile("opensource", "6.8.0-45-generic SMP"), func(m *topo.Machine) { denied(&m.GPU.NVIDIA.Flavour) }), "node", Info, "not loaded", ""},
	})
}

func TestMemlock(t *testing.T) {
	limit := func(soft, hard, caps uint64) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Limits.V = host.Limits{MemlockSoft: soft, MemlockHard: hard, CapEff: caps}
		}
	}
	const unlimited = 1<<64 - 1
	service := func(name string, bytes uint64) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Host.Services = []host.Service{{Name: name, PID: 812, Memlock: known(bytes)}}
		}
	}
	runCases(t, "memlock", []verdictCase{
		{"unlimited", nil, "node", Pass, "unlimited", ""},
		{"slurmd's is low", service("slurmd", 8<<20), "node", Warn, "slurmd, which hands its limits to its jobs, may lock only 8 MiB", "slurmd.service.d/memlock.conf"},
		{"slurmd's is unlimited", service("slurmd", unlimited), "node", Pass, "unlimited", ""},
		{"each container has its own", service("containerd", 8<<20), "node", Pass, "unlimited", ""},
		{"enough", limit(64<<30, 64<<30, 0), "node", Pass, "64 GiB", ""},
		{"the usual default", limit(8<<20, 8<<20, 0), "node", Warn, "only 8 MiB", "limits.d"},
		{"may be raised", limit(8<<20, unlimited, 0), "node", Warn, "only 8 MiB", "ulimit -l unlimited"},
		{"container", all2(limit(64<<10, 64<<10, 0), func(m *topo.Machine) { m.Host.Container = known("docker") }), "node", Warn, "only 64 KiB", "--ulimit memlock=-1:-1"},
		{"root is not bound", limit(8<<20, 8<<20, 1<<14), "node", Info, "CAP_IPC_LOCK", ""},
		{"not collected", func(m *topo.Machine) {
			m.Host.Limits = fact.Missing[host.Limits](fact.NotCollected, "limits:self", "only a live machine can answer")
		}, "node", Unknown, "only a live machine", ""},
		{"just enough", limit(16<<30, 16<<30, 0), "node", Pass, "16 GiB", ""},
		{"slurmd's just suffices", service("slurmd", 16<<30), "node", Pass, "unlimited", ""},
		{"slurmd's, in its own words", service("slurmd", 8<<20), "node", Warn, "", "PropagateResourceLimitsExcept=MEMLOCK"},
		{"may be raised far enough", limit(8<<20, 16<<30, 0), "node", Warn, "only 8 MiB", "ulimit -l hard"},
		{"none to read", func(m *topo.Machine) { m.Host.Limits = absent[host.Limits]() }, "node", Unknown, "no memlock limit", ""},
	})
}
