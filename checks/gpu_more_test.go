package checks

import (
	"slices"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func dev(m *topo.Machine) *gpu.NVMLDevice { return &m.GPU.GPUs[0].NVML.V }

// twoGPUs adds GPU1, which is like GPU0.
func twoGPUs(m *topo.Machine) {
	second := m.GPU.GPUs[0]
	second.Index, second.Addr = 1, at("0000:05:00.0")
	m.GPU.GPUs = append(m.GPU.GPUs, second)
	m.PCI = append(m.PCI, function("0000:05:00.0", gpuPort, pci.Class3D<<8, pci.PortEndpoint))
}

func passthrough(m *topo.Machine) { fn(m, gpuAddr).Driver = known("vfio-pci") }

func TestGPUDriver(t *testing.T) {
	version := func(v string) func(*topo.Machine) {
		return func(m *topo.Machine) { m.GPU.NVIDIA.Version.V, m.GPU.NVIDIA.NVML.V.DriverVersion = v, v }
	}
	runCases(t, "gpu-driver", []verdictCase{
		{"current", nil, "node", Pass, "580.95.05", ""},
		{"too old", version("460.106.00"), "node", Warn, "older than 470", "branch 515"},
		{"peermem only", version("470.256.02"), "node", Info, "DMA-BUF needs 515", ""},
		{"old CUDA beside it", func(m *topo.Machine) {
			m.GPU.NVIDIA.CUDA = fact.Of(gpu.CUDASystem{DriverVersion: 11060}, "cuda:cuInit")
		}, "node", Info, "CUDA 11.6: DMA-BUF needs 11.7", ""},
		{"libraries of another", func(m *topo.Machine) {
			m.GPU.NVIDIA.NVML = fact.Of(gpu.NVMLSystem{DriverVersion: "575.57.08"}, "nvml:nvmlSystemGetDriverVersion")
		}, "node", Warn, "the loaded driver is 580.95.05, and the libraries say 575.57.08", "reboot"},
		{"libraries do not start", func(m *topo.Machine) {
			m.GPU.NVIDIA.NVML = fact.Missing[gpu.NVMLSystem](fact.Failed, "nvml:nvmlInit_v2", "Driver/library version mismatch")
		}, "node", Warn, "do not start (Driver/library version mismatch)", "reboot"},
		{"not loaded", func(m *topo.Machine) { m.GPU.NVIDIA.Version = absent[string]() }, "node", NotApplicable, "not loaded", ""},
		{"denied", func(m *topo.Machine) { denied(&m.GPU.NVIDIA.Version) }, "node", Unknown, "may not be read", ""},
		{"the first with DMA-BUF", version("515.43.04"), "node", Pass, "515.43.04", ""},
		{"the first CUDA with DMA-BUF", func(m *topo.Machine) {
			m.GPU.NVIDIA.CUDA = fact.Of(gpu.CUDASystem{DriverVersion: 11070}, "cuda:cuInit")
		}, "node", Pass, "", ""},
		{"libraries of no known version", func(m *topo.Machine) {
			m.GPU.NVIDIA.NVML = fact.Of(gpu.NVMLSystem{}, "nvml:nvmlSystemGetDriverVersion")
		}, "node", Pass, "", ""},
	})
}

func TestGPUPartition(t *testing.T) {
	runCases(t, "gpu-partition", []verdictCase{
		{"whole", nil, "GPU0", Pass, "whole", ""},
		{"MIG", func(m *topo.Machine) { dev(m).MIG.V.Current = true }, "GPU0", Info, "MIG is on", ""},
		{"MIG to come", func(m *topo.Machine) { dev(m).MIG.V.Pending = true }, "GPU0", Info, "next reset", ""},
		{"vGPU", func(m *topo.Machine) { dev(m).Virtualization.V = "vgpu" }, "GPU0", Info, "a vGPU", ""},
		{"no MIG on this GPU", func(m *topo.Machine) {
			dev(m).MIG = fact.Missing[gpu.MIGMode](fact.Unsupported, "nvml:nvmlDeviceGetMigMode", "not supported")
		}, "GPU0", NotApplicable, "not supported", ""},
		{"denied", func(m *topo.Machine) { denied(&dev(m).MIG) }, "GPU0", Unknown, "may not be read", ""},
		{"no MIG mode", func(m *topo.Machine) { dev(m).MIG = absent[gpu.MIGMode]() }, "GPU0", NotApplicable, "no MIG mode", ""},
	})
}

func TestConfidentialComputing(t *testing.T) {
	runCases(t, "confidential-computing", []verdictCase{
		{"off", nil, "GPU0", Pass, "off", ""},
		{"on", func(m *topo.Machine) { dev(m).Confidential.V = true }, "GPU0", Warn, "no GPUDirect RDMA", "--gpu-bdf=" + gpuAddr + " --set-cc-mode=off"},
		{"old library", func(m *topo.Machine) {
			dev(m).Confidential = fact.Missing[bool](fact.Unsupported, "nvml:nvmlSystemGetConfComputeState", "not in this library")
		}, "GPU0", NotApplicable, "not in this library", ""},
		{"no NVML", func(m *topo.Machine) { denied(&m.GPU.GPUs[0].NVML) }, "GPU0", Unknown, "may not be read", ""},
		{"none here", func(m *topo.Machine) { dev(m).Confidential = absent[bool]() }, "GPU0", NotApplicable, "no confidential computing", ""},
	})
}

func TestGPUFabric(t *testing.T) {
	fabric := func(state string, status uint32) func(*topo.Machine) {
		return func(m *topo.Machine) { dev(m).Fabric.V = gpu.Fabric{State: state, Status: status} }
	}
	runCases(t, "gpu-fabric", []verdictCase{
		{"completed", fabric("completed", 0), "GPU0", Pass, "completed", ""},
		{"not started", fabric("not_started", 0), "GPU0", Fail, "fabric state not started", "fabric manager, version 580.95.05"},
		{"in progress in a guest", func(m *topo.Machine) { fabric("in_progress", 0)(m); guest(m) }, "GPU0", Fail, "in progress", "on the host"},
		{"ended badly", fabric("completed", 999), "GPU0", Fail, "status 999", "nvidia-smi -r"},
		{"no NVSwitch", nil, "GPU0", NotApplicable, "no NVSwitch", ""},
		{"old library", func(m *topo.Machine) {
			dev(m).Fabric = fact.Missing[gpu.Fabric](fact.Unsupported, "nvml", "not in this library")
		}, "GPU0", NotApplicable, "", ""},
		{"denied", func(m *topo.Machine) { denied(&dev(m).Fabric) }, "GPU0", Unknown, "may not be read", ""},
	})
	// What was not seen puts a node in doubt only where NVSwitches are; what was
	// seen counts whole.
	other := func(vendor pci.ID, class pci.Class) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.PCI = append(m.PCI, function("0000:09:00.0", rootPort, class, pci.PortEndpoint))
			fn(m, "0000:09:00.0").Vendor = known(vendor)
		}
	}
	lost := func(state fact.State) func(*topo.Machine) {
		return func(m *topo.Machine) { dev(m).Fabric = fact.Missing[gpu.Fabric](state, "nvml", "lost") }
	}
	for name, tc := range map[string]struct {
		change func(*topo.Machine)
		want   Severity
	}{
		"denied":                          {lost(fact.Denied), SeverityWarning},
		"failed":                          {lost(fact.Failed), SeverityWarning},
		"not collected":                   {lost(fact.NotCollected), SeverityWarning},
		"beside an NVSwitch":              {all2(lost(fact.Denied), other(0x10de, 0x068000)), SeverityError},
		"beside another of NVIDIA's":      {all2(lost(fact.Denied), other(0x10de, pci.Class3D<<8)), SeverityWarning},
		"beside another maker's bridge":   {all2(lost(fact.Denied), other(0x8086, 0x068000)), SeverityWarning},
		"seen, and the fabric is not set": {fabric("not_started", 0), SeverityError},
	} {
		m := goodNode()
		tc.change(m)
		if f := findingOf(t, m, gpuFabric, "GPU0"); f.Severity != tc.want {
			t.Errorf("%s: %s of severity %s", name, f.Verdict, f.Severity)
		}
	}
}

func TestIMEX(t *testing.T) {
	domain := func(m *topo.Machine) {
		dev(m).Fabric.V = gpu.Fabric{State: "completed", CliqueID: 3, ClusterUUID: "11111111-0000-4000-8000-000000000001"}
		m.Host.Nodes = append(m.Host.Nodes, host.DeviceNode{Path: "/dev/nvidiactl"})
	}
	channel := func(m *topo.Machine) {
		domain(m)
		m.Host.Nodes = append(m.Host.Nodes, host.DeviceNode{Path: imexChannels + "channel0"})
	}
	runCases(t, "imex", []verdictCase{
		{"channel", channel, "node", Pass, "one domain, 1 channel", ""},
		{"no channel", domain, "node", Warn, "no IMEX channel", "NVreg_CreateImexChannel0=1"},
		{"two cliques", func(m *topo.Machine) {
			channel(m)
			twoGPUs(m)
			m.GPU.GPUs[1].NVML.V.Fabric.V.CliqueID = 4
		}, "node", Warn, "2 NVLink domains", "nvidia-smi -q"},
		{"/dev not seen", func(m *topo.Machine) { domain(m); m.Host.Nodes = nil }, "node", Unknown, "cannot tell", ""},
		{"no domain", nil, "node", NotApplicable, "no multi-node", ""},
		{"HGX has a fabric and no domain", func(m *topo.Machine) {
			dev(m).Fabric.V = gpu.Fabric{State: "completed", ClusterUUID: "00000000-0000-0000-0000-000000000000"}
		}, "node", NotApplicable, "", ""},
		{"not joined yet", func(m *topo.Machine) { domain(m); dev(m).Fabric.V.State = "in_progress" }, "node", NotApplicable, "no multi-node", ""},
		{"fabric not seen", func(m *topo.Machine) { domain(m); denied(&dev(m).Fabric) }, "node", Unknown, "fabric of GPU0 may not be read", ""},
	})
}

func TestGPUMemory(t *testing.T) {
	noECC := func(m *topo.Machine) {
		dev(m).ECC = fact.Missing[gpu.ECC](fact.Unsupported, "nvml:nvmlDeviceGetEccMode", "not supported")
		dev(m).RemappedRows = fact.Missing[gpu.Remapped](fact.Unsupported, "nvml:nvmlDeviceGetRemappedRows", "not supported")
	}
	runCases(t, "gpu-memory", []verdictCase{
		{"good", nil, "GPU0", Pass, "no errors", ""},
		{"pending", func(m *topo.Machine) { dev(m).RemappedRows.V.Pending = true }, "GPU0", Fail, "pending", "nvidia-smi -r -i " + gpuAddr},
		{"failed", func(m *topo.Machine) { dev(m).RemappedRows.V.Failed = true }, "GPU0", Fail, "no spare row", "RMA"},
		{"rows were remapped long ago", func(m *topo.Machine) { dev(m).RemappedRows.V.Correctable = 3 }, "GPU0", Pass, "", ""},
		{"uncorrected", func(m *topo.Machine) { dev(m).ECC.V.UncorrectedVolatile = 1 }, "GPU0", Warn, "1 uncorrected", ""},
		{"ECC off", func(m *topo.Machine) { dev(m).ECC.V.Current = false }, "GPU0", Info, "ECC is off", ""},
		{"no ECC", noECC, "GPU0", NotApplicable, "not supported", ""},
		{"remapping not seen", func(m *topo.Machine) { denied(&dev(m).RemappedRows) }, "GPU0", Unknown, "row remapping may not be read", ""},
		{"ECC not seen", func(m *topo.Machine) { denied(&dev(m).ECC) }, "GPU0", Unknown, "ECC may not be read", ""},
		{"no ECC here", func(m *topo.Machine) { dev(m).ECC, dev(m).RemappedRows = absent[gpu.ECC](), absent[gpu.Remapped]() }, "GPU0", NotApplicable, "no ECC", ""},
	})
}

func TestNVLink(t *testing.T) {
	links := func(n, up int) fact.Value[[]gpu.NVLink] {
		var out []gpu.NVLink
		for i := range n {
			out = append(out, gpu.NVLink{Link: i, Active: i < up})
		}
		return fact.Of(out, "nvml:nvmlDeviceGetNvLinkState")
	}
	both := func(a, b int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			twoGPUs(m)
			m.GPU.GPUs[0].NVML.V.NVLinks, m.GPU.GPUs[1].NVML.V.NVLinks = links(18, a), links(18, b)
		}
	}
	runCases(t, "nvlink", []verdictCase{
		{"all", both(18, 18), "GPU0", Pass, "18 up", ""},
		{"a bridge uses some", both(12, 12), "GPU0", Pass, "12 up", ""},
		{"one lost", both(17, 18), "GPU0", Warn, "17 NVLinks are up, and 18", "nvidia-smi nvlink -s"},
		{"the sibling is good", both(17, 18), "GPU1", Pass, "18 up", ""},
		{"another model says nothing", func(m *topo.Machine) { both(4, 18)(m); m.GPU.GPUs[1].Name = "other" }, "GPU0", Pass, "4 up", ""},
		{"none on any", both(0, 0), "GPU0", Info, "no NVLink is up", ""},
		{"no NVLink", nil, "GPU0", NotApplicable, "no NVLink", ""},
		{"denied", func(m *topo.Machine) { denied(&dev(m).NVLinks) }, "GPU0", Unknown, "may not be read", ""},
		{"none listed", func(m *topo.Machine) { dev(m).NVLinks = known([]gpu.NVLink{}) }, "GPU0", NotApplicable, "has no NVLink", ""},
		{"none here", func(m *topo.Machine) { dev(m).NVLinks = absent[[]gpu.NVLink]() }, "GPU0", NotApplicable, "has no NVLink", ""},
	})
}

func TestPersistence(t *testing.T) {
	runCases(t, "persistence", []verdictCase{
		{"on", nil, "GPU0", Pass, "on", ""},
		{"off", func(m *topo.Machine) { dev(m).Persistence.V = false }, "GPU0", Info, "nvidia-persistenced", ""},
		{"denied", func(m *topo.Machine) { denied(&dev(m).Persistence) }, "GPU0", Unknown, "may not be read", ""},
		{"not there", func(m *topo.Machine) { dev(m).Persistence = absent[bool]() }, "GPU0", NotApplicable, "no persistence", ""},
	})
	check, _ := Lookup("persistence")
	m := goodNode()
	passthrough(m)
	if f := findingOf(t, m, check, "node"); f.Verdict != NotApplicable {
		t.Errorf("a guest's GPU: %+v", f)
	}
}

func TestGPUErrors(t *testing.T) {
	runCases(t, "gpu-errors", []verdictCase{
		{"none", nil, "GPU0", Pass, "none since boot", ""},
		{"off the bus", logs(host.LogXid, gpuAddr, 79), "GPU0", Fail, "Xid 79", "sudo nvidia-smi -r -i " + gpuAddr},
		{"start failed", logs(host.LogInitFailed, gpuAddr, 0), "GPU0", Fail, "RmInitAdapter failed", ""},
		{"NVLink", logs(host.LogXid, gpuAddr, 74), "GPU0", Warn, "Xid 74", "since boot"},
		{"an application's", logs(host.LogXid, gpuAddr, 31), "GPU0", Info, "Xid 31: a restart of the application suffices", ""},
		{"the worst counts", func(m *topo.Machine) {
			for _, code := range []int{13, 79, 74} {
				logs(host.LogXid, gpuAddr, code)(m)
			}
		}, "GPU0", Fail, "Xid 79: it needs", ""},
		{"of another GPU", logs(host.LogXid, "0000:99:00.0", 79), "GPU0", Pass, "", ""},
		{"NVSwitch", logs(host.LogSXid, "0000:b3:00.0", 12028), "0000:b3:00.0", Warn, "SXid 12028", "sudo nvidia-smi -r"},
		{"NVSwitch, fatal", func(m *topo.Machine) {
			logs(host.LogSXid, "0000:b3:00.0", 20034)(m)
			m.Host.KernelLog.V.Events[0].Text = "nvidia-nvswitch0: SXid (PCI:0000:b3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
		}, "0000:b3:00.0", Fail, "SXid 20034", ""},
		{"log is partial", partialLog, "GPU0", Info, "what is left", ""},
		{"denied", deniedLog, "GPU0", Unknown, "may not be read", "sudo"},
		{"no log", noLog, "GPU0", Unknown, "log is not there", ""},
	})
}

func TestDMABufRefused(t *testing.T) {
	alone := func(kind host.LogKind) func(*topo.Machine) {
		return func(m *topo.Machine) { noPeermem(m); logs(kind, "", 0)(m) }
	}
	runCases(t, "dmabuf-refused", []verdictCase{
		{"none", nil, "node", Pass, "none since boot", ""},
		{"topology", alone(host.LogDMABufTopology), "node", Fail, "share no PCIe switch", "GrdmaPciTopoCheckOverride=1 only skips"},
		{"Data Direct", alone(host.LogDMABufDirect), "node", Fail, "one IOMMU group", "NCCL_IB_DATA_DIRECT=0"},
		{"importer", alone(host.LogDMABufImporter), "node", Fail, "peer-to-peer", "mlx5"},
		{"peermem is there", logs(host.LogDMABufTopology, "", 0), "node", Warn, "nvidia-peermem is there", "a registration tells"},
		{"log is partial", partialLog, "node", Info, "what is left", ""},
		{"denied", deniedLog, "node", Unknown, "may not be read", "sudo"},
		{"no log", noLog, "node", Unknown, "log is not there", ""},
		{"no pair", func(m *topo.Machine) { m.RDMA.Devices = nil }, "node", NotApplicable, "no GPU and NIC", ""},
	})
}

// A GPU whose class has no GPUDirect RDMA, and CUDA's word, which outranks the name.
func TestGPUWithoutGPUDirect(t *testing.T) {
	named := func(name string, attr fact.Value[int]) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.GPU.GPUs[0].Name, m.GPU.GPUs[0].CUDA.V.GPUDirectRDMA = name, attr
		}
	}
	noCUDA := absent[int]()
	runCases(t, "gpu-direct-attribute", []verdictCase{
		{"supported", nil, "GPU0", Pass, "on the GPU's side", ""},
		{"GeForce", named("NVIDIA GeForce RTX 4090", known(0)), "GPU0", Fail, "by design", "through the CPU"},
		{"GB10", named("NVIDIA GB10", known(0)), "GPU0", Info, "by design, and needs none", ""},
		{"GB10, CUDA not asked", named("NVIDIA GB10", noCUDA), "GPU0", Info, "by design, and needs none", ""},
		{"CUDA allows a GB10", named("NVIDIA GB10", known(1)), "GPU0", Pass, "", ""},
		{"CUDA allows a GeForce", named("NVIDIA GeForce RTX 9090", known(1)), "GPU0", Pass, "", ""},
		{"GeForce, CUDA not asked", named("NVIDIA GeForce RTX 4090", noCUDA), "GPU0", Warn, "of this class", "could not be asked"},
		{"not for VMM", func(m *topo.Machine) { m.GPU.GPUs[0].CUDA.V.RDMAWithVMM.V = 0 }, "GPU0", Info, "not for that of cuMemCreate", ""},
		{"another, CUDA not asked", named("NVIDIA H100", noCUDA), "GPU0", Unknown, "no CUDA driver library", ""},
	})
}

func TestEFAPeermem(t *testing.T) {
	efa := func(m *topo.Machine) { nic(m).Transport = known(rdma.EFA) }
	runCases(t, "efa-peermem", []verdictCase{
		{"loaded", func(m *topo.Machine) {
			efa(m)
			m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "efa_nv_peermem"})
		}, "mlx5_0", Pass, "loaded", ""},
		{"not loaded", efa, "mlx5_0", Info, "DMA-BUF does without", ""},
		{"another NIC", nil, nodeID, NotApplicable, "nothing", ""},
		{"denied", func(m *topo.Machine) { efa(m); denied(&m.Host.Modules) }, "mlx5_0", Unknown, "cannot tell", ""},
	})
}

// The immediate actions of NVIDIA's Xid catalogue
// (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), all codes of each kind
// that are in use.
func TestXidLists(t *testing.T) {
	n, err := NewNode(goodNode(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	th := n.Thresholds
	for action, codes := range map[string][]int{
		"RESET_GPU":  {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158},
		"RESTART_BM": {79},
		"RESTART_APP": {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94, 96, 97, 98, 99,
			100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139},
		"IGNORE":       {14, 37, 38, 43, 44, 63, 66, 67, 106, 107, 108, 137, 141},
		"ignored, but": {92, 93, 121, 152, 153, 157, 160, 161},  // of hardware
		"WORKFLOW":     {74, 144, 145, 146, 147, 148, 149, 150}, // NVLink: the details decide
		"other":        {54, 78, 142, 151, 154, 159},            // CHECK_MECHANICALS, UPDATE_SWFW, CONTACT_SUPPORT, RESTART_VM, …
	} {
		for _, code := range codes {
			fatal, app := slices.Contains(th.XidFatal, code), slices.Contains(th.XidApplication, code)
			if wantFatal := action == "RESET_GPU" || action == "RESTART_BM"; fatal != wantFatal {
				t.Errorf("Xid %d (%s): fatal %v", code, action, fatal)
			}
			if wantApp := action == "RESTART_APP" || action == "IGNORE"; app != wantApp {
				t.Errorf("Xid %d (%s): the application's %v", code, action, app)
			}
		}
	}
}
