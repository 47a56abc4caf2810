package checks

import (
	"slices"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

const pair = "GPU0 mlx5_0"

// apart puts the NIC below a root port of its own, at the other socket.
func apart(m *topo.Machine) {
	fn(m, nicAddr).Parent = nil
	fn(m, nicAddr).HostBridge = "pci0000:80"
	fn(m, nicAddr).NUMANode = known(1)
}

func logs(kind host.LogKind, device string, code int) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.Host.KernelLog.V.Events = append(m.Host.KernelLog.V.Events,
			host.LogEvent{Kind: kind, Device: device, Code: code, Count: 1, SinceBootSec: 60, Text: "text"})
	}
}

func deniedLog(m *topo.Machine)  { denied(&m.Host.KernelLog) }
func noLog(m *topo.Machine)      { m.Host.KernelLog = absent[host.KernelLog]() }
func partialLog(m *topo.Machine) { m.Host.KernelLog.V.Complete = false }

// unseen takes a function out of what was read.
func unseen(addr string) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.PCI = slices.DeleteFunc(m.PCI, func(f pci.Function) bool { return f.Address == at(addr) })
	}
}

// noAddress makes the NIC one that is no PCI function.
func noAddress(m *topo.Machine) { nic(m).PCI = absent[pci.Address]() }

func storageNIC(m *topo.Machine) {
	d := goodNIC("mlx5_1", "0000:05:00.0", "ens2")
	d.Ports[0].Rate.V.BitsPerSec = 25e9
	d.Model.V.MaxGbps = 25
	f := function("0000:05:00.0", rootPort, pci.ClassEthernet<<8, pci.PortEndpoint)
	f.Vendor = known(mellanoxID)
	m.PCI = append(m.PCI, f)
	m.RDMA.Devices = append(m.RDMA.Devices, d)
}

func TestPCIePayload(t *testing.T) {
	mps := func(addr string, size int) func(*topo.Machine) {
		return func(m *topo.Machine) { fn(m, addr).Config.MPSBytes.V = size }
	}
	all := func(size int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			for i := range m.PCI {
				m.PCI[i].Config.MPSBytes.V = size
			}
		}
	}
	runCases(t, "pcie-payload", []verdictCase{
		{"equal", nil, pair, Pass, "512 bytes", ""},
		{"port takes less", mps(nicPort, 256), pair, Fail, nicAddr + " sends packets of up to 512 bytes, and " + nicPort, "pci=pcie_bus_safe"},
		{"the common port takes less", mps(uplink, 256), pair, Fail, uplink + " on the path takes 256", "MaxPayload"},
		{"GPU takes less than the NIC writes", mps(gpuAddr, 256), pair, Fail, nicAddr + " sends", ""},
		{"GPU answers with more than the NIC takes", mps(nicAddr, 256), pair, Fail, gpuAddr + " sends", ""},
		{"ports may take more", func(m *topo.Machine) { mps(gpuAddr, 256)(m); mps(nicAddr, 256)(m) }, pair, Pass, "256", ""},
		{"the root port is not on the path", mps(rootPort, 128), pair, Pass, "512", ""},
		{"small everywhere", all(128), pair, Warn, "128 bytes where all of the path take 512", "pcie_bus_safe"},
		{"no more is possible", func(m *topo.Machine) {
			all(128)(m)
			fn(m, nicPort).Config.MPSSupportedBytes.V = 128
		}, pair, Pass, "128", ""},
		{"no shared switch", func(m *topo.Machine) { apart(m); mps(gpuAddr, 256)(m) }, pair, NotApplicable, "root complex", ""},
		{"guest", func(m *topo.Machine) { guest(m); mps(gpuAddr, 256)(m) }, pair, NotApplicable, "host", ""},
		{"VF is judged by its PF", func(m *topo.Machine) {
			vf := function("0000:04:00.2", nicPort, pci.ClassEthernet<<8, pci.PortEndpoint)
			vf.PhysFn, vf.Config.MPSBytes = known(at(nicAddr)), fact.Missing[int](fact.Unsupported, "config", "reserved in a VF")
			m.PCI = append(m.PCI, vf)
			nic(m).PCI = known(at("0000:04:00.2"))
		}, pair, Pass, "512", ""},
		{"denied", func(m *topo.Machine) { denied(&fn(m, gpuPort).Config.MPSBytes) }, pair, Unknown, "may not be read", "sudo"},
		{"no PCI function", noAddress, pair, NotApplicable, "no PCI function", ""},
		{"not express", func(m *topo.Machine) { fn(m, gpuPort).Config.MPSBytes = absent[int]() }, pair, NotApplicable, gpuPort + " is not a PCI Express device", ""},
		{"two ports take less", all2(mps(gpuPort, 256), mps(nicPort, 256)), pair, Fail, gpuPort + " on the path takes 256", ""},
		{"what one supports is not known", all2(all(128), func(m *topo.Machine) { denied(&fn(m, gpuAddr).Config.MPSSupportedBytes) }), pair, Unknown, "may not be read", ""},
		{"sizes differ on purpose", all2(mps(nicPort, 256), func(m *topo.Machine) { m.Host.CommandLine = known("quiet pci=pcie_bus_perf") }), pair, Fail, "", "Replace pci=pcie_bus_perf"},
	})
}

func TestPCIeReadRequest(t *testing.T) {
	small := func(m *topo.Machine) { fn(m, nicAddr).Config.MRRSBytes.V = 2048 }
	runCases(t, "pcie-read-request", []verdictCase{
		{"large", nil, "mlx5_0", Pass, "4096", ""},
		{"small", small, "mlx5_0", Warn, "2048 bytes; 4096", "sudo setpci -s " + nicAddr + " CAP_EXP+8.w=5000:7000"},
		{"another maker", func(m *topo.Machine) { small(m); fn(m, nicAddr).Vendor = known(pci.ID(0x14e4)) }, "mlx5_0", NotApplicable, "no size is recommended", ""},
		{"storage", func(m *topo.Machine) { storageNIC(m); fn(m, "0000:05:00.0").Config.MRRSBytes.V = 512 }, "mlx5_1", NotApplicable, "not a NIC", ""},
		{"guest", func(m *topo.Machine) { small(m); guest(m) }, "mlx5_0", NotApplicable, "host sets it", ""},
		{"denied", func(m *topo.Machine) { denied(&fn(m, nicAddr).Config.MRRSBytes) }, "mlx5_0", Unknown, "may not be read", "sudo"},
		{"no PCI function", all2(noAddress, func(m *topo.Machine) { m.GPU.GPUs = nil }), "mlx5_0", NotApplicable, "no PCI function", ""},
		{"not express", func(m *topo.Machine) { fn(m, nicAddr).Config.MRRSBytes = absent[int]() }, "mlx5_0", NotApplicable, "not a PCI Express device", ""},
	})
	for bytes, want := range map[int]int{128: 0, 256: 0x1000, 512: 0x2000, 4096: 0x5000} {
		if got := readRequestCode(bytes); got != want {
			t.Errorf("%d: %#x, want %#x", bytes, got, want)
		}
	}
}

func TestRelaxedOrdering(t *testing.T) {
	off := func(vendor string, model int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			fn(m, nicAddr).Config.RelaxedOrdering.V = false
			m.Host.CPU.Vendor, m.Host.CPU.ModelNum = known(vendor), known(model)
		}
	}
	runCases(t, "relaxed-ordering", []verdictCase{
		{"allowed", nil, "mlx5_0", Pass, "allowed", ""},
		{"EPYC", off("AuthenticAMD", 17), "mlx5_0", Warn, "needs it", "sudo setpci -s " + nicAddr + " CAP_EXP+8.w=10:10"},
		{"Emerald Rapids", off("GenuineIntel", 207), "mlx5_0", Warn, "needs it", "PCI_WR_ORDERING"},
		{"Ice Lake", off("GenuineIntel", 106), "mlx5_0", Info, "little difference", ""},
		{"Arm", func(m *topo.Machine) { off("ARM", 0xd40)(m); m.Host.CPU.Arch = known("aarch64") }, "mlx5_0", Warn, "needs it", ""},
		{"CPU not seen", func(m *topo.Machine) {
			off("", 0)(m)
			m.Host.CPU.Vendor = fact.Missing[string](fact.NotCollected, "", "")
		}, "mlx5_0", Unknown, "cannot tell", ""},
		{"guest", func(m *topo.Machine) { off("AuthenticAMD", 17)(m); guest(m) }, "mlx5_0", NotApplicable, "emulated", ""},
		{"denied", func(m *topo.Machine) { denied(&fn(m, nicAddr).Config.RelaxedOrdering) }, "mlx5_0", Unknown, "may not be read", "sudo"},
		{"no PCI function", noAddress, "mlx5_0", NotApplicable, "no PCI function", ""},
		{"storage", func(m *topo.Machine) { storageNIC(m); fn(m, "0000:05:00.0").Config.RelaxedOrdering.V = false }, "mlx5_1", NotApplicable, "not a NIC", ""},
		{"not express", func(m *topo.Machine) { fn(m, nicAddr).Config.RelaxedOrdering = absent[bool]() }, "mlx5_0", NotApplicable, "not a PCI Express device", ""},
		{"Arm that does not name itself", func(m *topo.Machine) {
			off("", 0)(m)
			m.Host.CPU.Vendor, m.Host.CPU.Arch = absent[string](), known("aarch64")
		}, "mlx5_0", Warn, "needs it", ""},
		{"another maker's CPU", off("CentaurHauls", 143), "mlx5_0", Info, "little difference", ""},
		{"model not seen", func(m *topo.Machine) { off("GenuineIntel", 143)(m); denied(&m.Host.CPU.ModelNum) }, "mlx5_0", Unknown, "cannot tell", ""},
	})
}

func TestPCIeErrors(t *testing.T) {
	counts := func(addr string, a pci.AERCounts) func(*topo.Machine) {
		return func(m *topo.Machine) { fn(m, addr).AER.V = a }
	}
	runCases(t, "pcie-errors", []verdictCase{
		{"none", nil, "GPU0", Pass, "no errors", ""},
		{"none above", nil, rootPort, Pass, "no errors", ""},
		{"fatal above", counts(rootPort, pci.AERCounts{Fatal: map[string]uint64{"SDES": 1}}), rootPort, Warn, "1 uncorrected", "since boot"},
		{"non-fatal", counts(nicAddr, pci.AERCounts{NonFatal: map[string]uint64{"CmpltTO": 2}}), "mlx5_0", Warn, "2 uncorrected", "aer_dev_"},
		{"many corrected", counts(gpuAddr, pci.AERCounts{Correctable: map[string]uint64{"BadTLP": 99, "RxErr": 1}}), "GPU0", Warn, "100 corrected", ""},
		{"few corrected", counts(gpuAddr, pci.AERCounts{Correctable: map[string]uint64{"BadTLP": 99}}), "GPU0", Info, "99 corrected", ""},
		{"what probing raises", counts(gpuAddr, pci.AERCounts{NonFatal: map[string]uint64{"UnsupReq": 7}, Correctable: map[string]uint64{"AdvNonFatalErr": 700}}), "GPU0", Pass, "no errors", ""},
		{"no AER", func(m *topo.Machine) { fn(m, gpuAddr).AER = absent[pci.AERCounts]() }, "GPU0", NotApplicable, "no AER", ""},
		{"failed", func(m *topo.Machine) {
			fn(m, gpuAddr).AER = fact.Missing[pci.AERCounts](fact.Failed, "aer_dev_fatal", "input/output error")
		}, "GPU0", Unknown, "input/output error", "dmesg"},
	})
}

func TestBARAssigned(t *testing.T) {
	window := func(start, flags uint64) func(*topo.Machine) {
		return func(m *topo.Machine) {
			fn(m, gpuAddr).BARs.V[1] = pci.BAR{Index: 1, Start: start, SizeBytes: 128 << 30, Flags: flags}
		}
	}
	const mem = 0x102200
	runCases(t, "bar-assigned", []verdictCase{
		{"assigned", nil, "GPU0", Pass, "all have addresses", ""},
		{"no address", window(0, mem), "GPU0", Fail, "window 1 (128 GiB) has no address", "Above 4G Decoding"},
		{"marked as unset", window(0x1000, mem|0x20000000), "GPU0", Fail, "no address", "lspci -v -s " + gpuAddr},
		{"guest", func(m *topo.Machine) { guest(m); window(0, mem)(m) }, "GPU0", Fail, "no address", "64-bit MMIO window"},
		{"NIC", func(m *topo.Machine) { fn(m, nicAddr).BARs.V[0].Start = 0 }, "mlx5_0", Fail, "window 0 (32 MiB)", ""},
		{"a ROM without address is usual", func(m *topo.Machine) {
			fn(m, gpuAddr).BARs.V = append(fn(m, gpuAddr).BARs.V, pci.BAR{Index: 6, SizeBytes: 1 << 20, Flags: 0x200})
		}, "GPU0", Pass, "", ""},
		{"an I/O window, too", window(0, 0x100), "GPU0", Pass, "", ""},
		{"below the limit", window(56<<40-128<<30, mem), "GPU0", Pass, "", ""},
		{"out of reach", window(56<<40, mem), "GPU0", Warn, "above 56 TiB", "MMIO High Base"},
		{"not collected", func(m *topo.Machine) { fn(m, gpuAddr).BARs = fact.Value[[]pci.BAR]{} }, "GPU0", Unknown, "not collected", ""},
		{"no function", func(m *topo.Machine) { m.GPU.GPUs[0].Addr = at("0000:0f:00.0") }, "GPU0", Unknown, "its PCI function 0000:0f:00.0 is not in what was read", ""},
		{"its last window", func(m *topo.Machine) { window(0, mem)(m); fn(m, gpuAddr).BARs.V[1].Index = 5 }, "GPU0", Fail, "window 5", ""},
		{"no windows", func(m *topo.Machine) { fn(m, gpuAddr).BARs = absent[[]pci.BAR]() }, "GPU0", NotApplicable, "no windows", ""},
	})
}

func TestNICAffinity(t *testing.T) {
	runCases(t, "nic-affinity", []verdictCase{
		{"its own", nil, "mlx5_0", Pass, "nearest to GPU0", ""},
		{"shared", func(m *topo.Machine) {
			second := m.GPU.GPUs[0]
			second.Index, second.Addr = 1, at("0000:05:00.0")
			m.GPU.GPUs = append(m.GPU.GPUs, second)
			m.PCI = append(m.PCI, function("0000:05:00.0", gpuPort, pci.Class3D<<8, pci.PortEndpoint))
		}, "mlx5_0", Info, "shared by GPU0, GPU1", ""},
		{"two for two", func(m *topo.Machine) {
			twoGPUs(m)
			m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_1", "0000:06:00.0", "ens2"))
			m.PCI = append(m.PCI, function("0000:06:00.0", gpuPort, pci.ClassEthernet<<8, pci.PortEndpoint))
			fn(m, nicAddr).Parent = new(at(gpuPort))
		}, "mlx5_1", Pass, "nearest to GPU0, GPU1", ""},
		{"idle", func(m *topo.Machine) {
			m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_1", "0000:05:00.0", "ens2"))
			m.PCI = append(m.PCI, function("0000:05:00.0", "", pci.ClassEthernet<<8, pci.PortEndpoint))
		}, "mlx5_1", Info, "idle", ""},
		{"storage", storageNIC, "mlx5_1", NotApplicable, "not a NIC for compute", ""},
		{"no GPU", func(m *topo.Machine) { m.GPU.GPUs = nil }, "mlx5_0", NotApplicable, "no GPU", ""},
	})
}

func TestNUMANode(t *testing.T) {
	none := func(m *topo.Machine) { fn(m, gpuAddr).NUMANode = absent[int]() }
	runCases(t, "numa-node", []verdictCase{
		{"known", nil, "GPU0", Pass, "node 0", ""},
		{"none", none, "GPU0", Info, "the kernel knows no NUMA node", ""},
		{"guest", func(m *topo.Machine) { none(m); guest(m) }, "GPU0", Info, "the guest gives it", ""},
		{"one node", func(m *topo.Machine) { none(m); m.Host.NUMA = known([]host.NUMANode{{}}) }, "GPU0", NotApplicable, "one NUMA node", ""},
		{"failed", func(m *topo.Machine) { fn(m, gpuAddr).NUMANode = fact.Missing[int](fact.Failed, "numa_node", "x") }, "GPU0", Unknown, "failed", "dmesg"},
	})
}

func TestDataDirectGroup(t *testing.T) {
	groups := func(gpu, nicGroup int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			nic(m).DataDirect = known(at(nicAddr))
			for a, g := range map[string]int{gpuAddr: gpu, nicAddr: nicGroup} {
				if g != 0 {
					fn(m, a).IOMMUGroup = fact.Of(g, "iommu_group")
				}
			}
		}
	}
	override := func(v string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			groups(3, 4)(m)
			m.GPU.NVIDIA.Params.V["GrdmaPciTopoCheckOverride"] = v
		}
	}
	runCases(t, "data-direct-group", []verdictCase{
		{"one group", groups(3, 3), pair, Pass, "both in group 3", ""},
		{"no IOMMU", groups(0, 0), pair, Pass, "no IOMMU", ""},
		{"two groups", groups(3, 4), pair, Fail, "group 3", "rdma_topo write-grub-acs"},
		{"one has none", groups(3, 0), pair, Fail, "in none", ""},
		{"check off", override("1"), pair, Info, "switched off", ""},
		{"refuse all", override("2"), pair, Fail, "refuses", "modprobe.d"},
		{"no Data Direct", nil, nodeID, NotApplicable, "nothing", ""},
		{"denied", func(m *topo.Machine) { groups(3, 3)(m); denied(&fn(m, nicAddr).IOMMUGroup) }, pair, Unknown, "may not be read", ""},
		{"guest", all2(groups(3, 4), guest), pair, NotApplicable, "not in sight", ""},
		{"the GPU's function was not seen", all2(groups(3, 4), unseen(gpuAddr)), pair, NotApplicable, "not in sight", ""},
		{"group 0 and none", func(m *topo.Machine) {
			groups(0, 0)(m)
			fn(m, gpuAddr).IOMMUGroup = fact.Of(0, "iommu_group")
		}, pair, Fail, "group 0", ""},
	})
}

func TestNICPower(t *testing.T) {
	runCases(t, "nic-power", []verdictCase{
		{"quiet", nil, "mlx5_0", Pass, "no complaint", ""},
		{"complaint", logs(host.LogPower, nicAddr, 27), "mlx5_0", Warn, "27 W", "bandwidth test"},
		{"of another", logs(host.LogPower, "0000:99:00.0", 27), "mlx5_0", Pass, "", ""},
		{"log is partial", partialLog, "mlx5_0", Info, "what is left", ""},
		{"denied", deniedLog, "mlx5_0", Unknown, "may not be read", "sudo"},
		{"another driver", func(m *topo.Machine) { nic(m).Driver = known("bnxt_en") }, "mlx5_0", NotApplicable, "does not say", ""},
		{"no log", noLog, "mlx5_0", Unknown, "log is not there", ""},
	})
}

func TestIOMMUFault(t *testing.T) {
	translating := func(m *topo.Machine) {
		fn(m, nicAddr).IOMMUGroup, fn(m, nicAddr).IOMMUGroupType = known(1), known("DMA")
	}
	check, _ := Lookup("iommu")
	m := goodNode()
	translating(m)
	logs(host.LogIOMMUFault, nicAddr, 0)(m)
	if f := findingOf(t, m, check, "mlx5_0"); f.Verdict != Warn || f.Unsure != "" {
		t.Errorf("%+v", f)
	}
	m = goodNode()
	translating(m)
	logs(host.LogIOMMUFault, "0000:99:00.0", 0)(m)
	if f := findingOf(t, m, check, "mlx5_0"); f.Verdict != Warn || f.Unsure == "" {
		t.Errorf("%+v", f)
	}
}

// Software RDMA and NICs of no PCI function have nothing that PCIe checks judge.
func TestSoftwareNICHasNoPCIe(t *testing.T) {
	m := goodNode()
	nic(m).Software, nic(m).PCI = true, fact.Missing[pci.Address](fact.Absent, "device", "none")
	m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Name: "odd0", PCI: absent[pci.Address]()})
	for _, f := range mustRun(t, m, Options{Only: []string{"pcie-read-request", "relaxed-ordering", "pcie-errors", "bar-assigned", "numa-node"}}).Findings {
		if f.Subject == "mlx5_0" || f.Subject == "odd0" && f.Verdict != NotApplicable {
			t.Errorf("%s %s: %s %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
	}
}
