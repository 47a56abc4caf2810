package checks

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// setLink changes the current state of a function's link at both ends.
func setLink(m *topo.Machine, speed float64, width int, addrs ...string) {
	for _, a := range addrs {
		fn(m, a).Link.V.SpeedGTPerSec, fn(m, a).Link.V.Width = speed, width
	}
}

func TestPCIeLinkWidth(t *testing.T) {
	runCases(t, "pcie-link-width", []verdictCase{
		{"full", nil, "GPU0", Pass, "x16", ""},
		{"NIC full", nil, "mlx5_0", Pass, "x16", ""},
		{"half the lanes", func(m *topo.Machine) { setLink(m, 32, 8, gpuAddr, gpuPort) }, "GPU0", Fail, "8 of 16 PCIe lanes", "lspci -vv -s " + gpuAddr},
		{"narrow slot", func(m *topo.Machine) {
			setLink(m, 32, 8, nicAddr, nicPort)
			fn(m, nicPort).Link.V.MaxWidth = 8
		}, "mlx5_0", Warn, "the slot above it (" + nicPort + ") gives x8", "x16 slot"},
		{"narrow port of a guest is not real", func(m *topo.Machine) {
			guest(m)
			fn(m, gpuPort).Link.V.MaxWidth = 1
		}, "GPU0", Pass, "x16", ""},
		{"down", func(m *topo.Machine) { setLink(m, 0, 0, nicAddr, nicPort) }, "mlx5_0", Fail, "link is down", nicAddr},
		{"VF in a guest", func(m *topo.Machine) { guest(m); setLink(m, 0, 0, nicAddr) }, "mlx5_0", NotApplicable, "as VFs do not", ""},
		{"VF is judged by its PF", func(m *topo.Machine) {
			vf := function("0000:04:00.2", nicPort, pci.ClassEthernet<<8, pci.PortEndpoint)
			vf.PhysFn = known(at(nicAddr))
			vf.Link = fact.Missing[pci.Link](fact.Unsupported, "current_link_speed", "a VF has no link")
			m.PCI = append(m.PCI, vf)
			nic(m).PCI = known(at("0000:04:00.2"))
			setLink(m, 32, 4, nicAddr, nicPort)
		}, "mlx5_0", Fail, "4 of 16", "-s " + nicAddr},
		{"failed", func(m *topo.Machine) {
			fn(m, gpuAddr).Link = fact.Missing[pci.Link](fact.Failed, "current_link_speed", "input/output error")
			fn(m, gpuAddr).Config.Link = fact.Missing[pci.Link](fact.Denied, "config", "64 bytes")
		}, "GPU0", Unknown, "input/output error", "dmesg"},
		{"not express", func(m *topo.Machine) { fn(m, gpuAddr).Link = absent[pci.Link]() }, "GPU0", NotApplicable, "not a PCI Express", ""},
		{"says nothing", func(m *topo.Machine) { fn(m, gpuAddr).Link = known(pci.Link{}) }, "GPU0", NotApplicable, "does not say", ""},
		{"no link", func(m *topo.Machine) { setLink(m, 0, 0, gpuAddr) }, "GPU0", Fail, "link is down", ""},
		{"a VF whose PF is elsewhere", func(m *topo.Machine) { nic(m).Model.V.IsVF = true; setLink(m, 0, 0, nicAddr) }, "mlx5_0", NotApplicable, "as VFs do not", ""},
		{"says nothing of its speed", func(m *topo.Machine) { fn(m, gpuAddr).Link.V.MaxSpeedGTPerSec = 0 }, "GPU0", NotApplicable, "does not say", ""},
		{"says nothing of its lanes", func(m *topo.Machine) { fn(m, gpuAddr).Link.V.MaxWidth = 0 }, "GPU0", NotApplicable, "does not say", ""},
		{"a guest's port is no excuse", func(m *topo.Machine) {
			guest(m)
			setLink(m, 32, 8, gpuAddr)
			fn(m, gpuPort).Link.V.MaxWidth = 8
		}, "GPU0", Fail, "8 of 16", ""},
		{"no port above it was seen", func(m *topo.Machine) { fn(m, gpuAddr).Parent = nil; setLink(m, 32, 8, gpuAddr) }, "GPU0", Fail, "8 of 16", ""},
		{"the port does not say its lanes", func(m *topo.Machine) { fn(m, gpuPort).Link.V.MaxWidth = 0; setLink(m, 32, 8, gpuAddr) }, "GPU0", Fail, "8 of 16", ""},
		{"the port's link is not known", func(m *topo.Machine) { fn(m, gpuPort).Link = absent[pci.Link](); setLink(m, 32, 8, gpuAddr) }, "GPU0", Fail, "8 of 16", ""},
		{"its function was not seen", unseen(gpuAddr), "GPU0", Unknown, gpuAddr + " is not in what was read", ""},
		{"no PCI function", noAddress, "mlx5_0", NotApplicable, "no PCI function", ""},
		{"address not seen", func(m *topo.Machine) { denied(&nic(m).PCI) }, "mlx5_0", Unknown, "PCI function may not be read", ""},
	})
}

// The evidence names the file that tells the lanes, not the speed.
func TestLinkWidthCitesItsFile(t *testing.T) {
	f := one(t, mustRun(t, goodNode(), Options{}), "pcie-link-width", "GPU0")
	if want := "/sys/bus/pci/devices/" + gpuAddr + "/current_link_width"; f.Evidence[0].Source != want {
		t.Errorf("source %s, want %s", f.Evidence[0].Source, want)
	}
	f = one(t, mustRun(t, goodNode(), Options{}), "pcie-link-speed", "GPU0")
	if want := "/sys/bus/pci/devices/" + gpuAddr + "/current_link_speed"; f.Evidence[0].Source != want {
		t.Errorf("source %s, want %s", f.Evidence[0].Source, want)
	}
}

func TestPCIeLinkSpeed(t *testing.T) {
	runCases(t, "pcie-link-speed", []verdictCase{
		{"full", nil, "GPU0", Pass, "Gen5", ""},
		{"idle GPU", func(m *topo.Machine) { setLink(m, 2.5, 16, gpuAddr, gpuPort) }, "GPU0", Warn, "2.5 GT/s (Gen1), not at 32 (Gen5)", "idle GPUs lower their link"},
		{"idle GPU's recheck", func(m *topo.Machine) { setLink(m, 2.5, 16, gpuAddr, gpuPort) }, "GPU0", Warn, "", "nvidia-smi -i " + gpuAddr},
		{"busy GPU", func(m *topo.Machine) {
			setLink(m, 16, 16, gpuAddr, gpuPort)
			m.GPU.GPUs[0].NVML.V.UtilizationPercent = known(97)
		}, "GPU0", Warn, "Gen4", "reseat the card"},
		{"GPU in P0", func(m *topo.Machine) {
			setLink(m, 16, 16, gpuAddr, gpuPort)
			m.GPU.GPUs[0].NVML.V.PerformanceState = known(0)
		}, "GPU0", Warn, "Gen4", "reseat the card"},
		{"NIC does not idle", func(m *topo.Machine) { setLink(m, 8, 16, nicAddr, nicPort) }, "mlx5_0", Warn, "Gen3", "lspci -vv -s " + nicAddr},
		{"slow slot", func(m *topo.Machine) {
			setLink(m, 16, 16, nicAddr, nicPort)
			fn(m, nicPort).Link.V.MaxSpeedGTPerSec = 16
		}, "mlx5_0", Warn, "the port above it (" + nicPort + ") only Gen4", nicPort},
		{"denied", func(m *topo.Machine) { denied(&fn(m, nicAddr).Link) }, "mlx5_0", Unknown, "may not be read", "privileged"},
		{"the port does not say its speed", func(m *topo.Machine) { fn(m, nicPort).Link.V.MaxSpeedGTPerSec = 0; setLink(m, 8, 16, nicAddr) }, "mlx5_0", Warn, "not at 32", ""},
		{"its function was not seen", unseen(gpuAddr), "GPU0", Unknown, "not in what was read", ""},
		{"no PCI function", noAddress, "mlx5_0", NotApplicable, "no PCI function", ""},
	})
	// What a GPU's link was while its memory was measured settles it.
	for speed, want := range map[float64]struct {
		verdict Verdict
		say     string
	}{32: {Pass, "Gen5 under load"}, 8: {Warn, "8 GT/s (Gen3) under load, too"}} {
		m := goodNode()
		setLink(m, 2.5, 16, gpuAddr, gpuPort)
		load := perftest.GPULoad{Addr: at(gpuAddr), Link: pci.Link{SpeedGTPerSec: speed, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}}
		r := &perftest.Result{Load: map[perftest.Side]perftest.GPULoad{perftest.Responder: load}}
		f := one(t, mustRun(t, m, Options{Results: []*perftest.Result{r}}), "pcie-link-speed", "GPU0")
		if f.Verdict != want.verdict || !strings.Contains(f.Message, want.say) || f.Unsure != "" {
			t.Errorf("%g GT/s under load: %s %q, unsure %q", speed, f.Verdict, f.Message, f.Unsure)
		}
	}
	m := goodNode()
	setLink(m, 16, 16, gpuAddr, gpuPort)
	m.GPU.GPUs[0].NVML.V.PerformanceState = known(0)
	if f := findingOf(t, m, pcieLinkSpeed, "GPU0"); f.Unsure != "" {
		t.Errorf("a GPU in its fastest state: unsure %q", f.Unsure)
	}
}

// deeperNIC puts a second switch on the NIC's side, so that its uplink carries
// peer traffic.
func deeperNIC(m *topo.Machine) {
	const usp, dsp = "0000:05:00.0", "0000:06:00.0"
	m.PCI = append(m.PCI, function(usp, nicPort, pci.ClassPCIBridge<<8, pci.PortUpstream),
		function(dsp, usp, pci.ClassPCIBridge<<8, pci.PortDownstream))
	fn(m, nicAddr).Parent = new(at(dsp))
}

func TestBridgeLink(t *testing.T) {
	deeper := deeperNIC
	runCases(t, "bridge-link", []verdictCase{
		{"full", nil, uplink, Pass, "32 GT/s x16", ""},
		{"fewer lanes", func(m *topo.Machine) { setLink(m, 32, 8, uplink, rootPort) }, uplink, Fail, "8 of 16 lanes: it throttles what goes to the host, not what GPU and NIC exchange below it", uplink},
		{"slower", func(m *topo.Machine) { setLink(m, 16, 16, uplink, rootPort) }, uplink, Warn, "Gen4, not Gen5", uplink},
		{"on the path itself", func(m *topo.Machine) { deeper(m); setLink(m, 32, 4, "0000:05:00.0", nicPort) }, "0000:05:00.0", Fail, "to " + nicPort + " runs on 4 of 16 lanes: it throttles every device below it", "Reseat"},
		{"guest", guest, uplink, NotApplicable, "emulated", ""},
		{"denied", func(m *topo.Machine) { denied(&fn(m, uplink).Link) }, uplink, Unknown, "may not be read", ""},
		{"down", func(m *topo.Machine) { setLink(m, 0, 0, uplink, rootPort) }, uplink, Fail, "uplink to " + rootPort + " is down", "LnkSta"},
		{"no lanes", func(m *topo.Machine) { setLink(m, 2.5, 0, uplink, rootPort) }, uplink, Fail, "is down", ""},
		{"no speed", func(m *topo.Machine) { setLink(m, 0, 16, uplink, rootPort) }, uplink, Fail, "is down", ""},
	})
	// Above the bridge where peer traffic turns a fault costs traffic to the host alone.
	m := goodNode()
	deeper(m)
	for addr, want := range map[string]Severity{uplink: SeverityWarning, "0000:05:00.0": SeverityError} {
		if f := findingOf(t, m, bridgeLink, addr); f.Severity != want {
			t.Errorf("%s: severity %s, want %s", addr, f.Severity, want)
		}
	}
}

func vfio(m *topo.Machine) { fn(m, gpuAddr).Driver = known("vfio-pci") }

func TestACSRedirect(t *testing.T) {
	const pair = "GPU0 mlx5_0"
	acs := func(addr string, ctl uint16) func(*topo.Machine) {
		return func(m *topo.Machine) { fn(m, addr).Config.ACS = fact.Of(pci.ACS{Cap: 0x7f, Ctl: ctl}, "config") }
	}
	both := func(list ...func(*topo.Machine)) func(*topo.Machine) {
		return func(m *topo.Machine) {
			for _, f := range list {
				f(m)
			}
		}
	}
	// NIC on a root port of its own.
	apart := func(m *topo.Machine) {
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		p := at("0000:00:02.0")
		fn(m, nicAddr).Parent = &p
	}
	dataDirect := func(gpuCtl, nicCtl, rootCtl uint16) func(*topo.Machine) {
		return func(m *topo.Machine) {
			both(acs(gpuPort, gpuCtl), acs(nicPort, nicCtl), acs(rootPort, rootCtl))(m)
			nic(m).DataDirect = known(at(nicAddr))
		}
	}
	runCases(t, "acs-redirect", []verdictCase{
		{"off", nil, pair, Pass, "2 ports", ""},
		{"request redirect", acs(gpuPort, 0x04), pair, Fail, "redirection on " + gpuPort, "setpci -v -s " + gpuPort + " ECAP_ACS+6.w=0:2c"},
		{"completion redirect", acs(nicPort, 0x08), pair, Fail, nicPort, `disable_acs_redir=\"` + nicPort + `\"`},
		{"egress control", acs(nicPort, 0x20), pair, Fail, nicPort, ""},
		{"both, as the kernel sets them", both(acs(gpuPort, 0x1d), acs(nicPort, 0x1d)), pair, Fail, gpuPort + ", " + nicPort, gpuPort + ";" + nicPort},
		{"source validation and forwarding do not redirect", both(acs(gpuPort, 0x11), acs(nicPort, 0x13)), pair, Pass, "", ""},
		{"above the common bridge does not matter", acs(rootPort, 0x1d), pair, Pass, "", ""},
		{"no ACS capability", func(m *topo.Machine) { fn(m, gpuPort).Config.ACS = absent[pci.ACS]() }, pair, Pass, "", ""},
		{"unreadable", func(m *topo.Machine) { denied(&fn(m, gpuPort).Config.ACS) }, pair, Unknown, "may not be read", "gdrcheck check --only acs-redirect"},
		{"one unreadable, one redirecting", both(acs(nicPort, 0x1d), func(m *topo.Machine) { denied(&fn(m, gpuPort).Config.ACS) }), pair, Fail, nicPort, ""},
		{"no common bridge", both(apart, acs(nicPort, 0x1d), acs(rootPort, 0x1d)), pair, NotApplicable, "crosses the root complex whatever", ""},
		{"not known whether bare metal", both(acs(gpuPort, 0x1d), func(m *topo.Machine) { m.Host.Hypervisor = fact.Value[string]{} }), pair, Warn, gpuPort, "in a guest, leave ACS"},
		{"host of guests", both(acs(nicPort, 0x1d), vfio), pair, Warn, "in a virtual machine", "pci=config_acs=1x111x1@" + nicPort},
		{"host of guests, as it should be", both(acs(nicPort, 0x5d), vfio, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(true) }), pair, Pass, "isolated", ""},
		{"host of guests, ATS off", both(acs(nicPort, 0x5d), vfio, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(false) }), pair, Warn, "half the bandwidth", "mlxconfig -d " + nicAddr + " set ATS_ENABLED=1"},
		{"host of guests, unreadable", both(vfio, func(m *topo.Machine) { denied(&fn(m, nicPort).Config.ACS) }), pair, Unknown, "may not be read", ""},
		{"guest", both(guest, acs(gpuPort, 0x1d), acs(nicPort, 0x1d)), pair, Info, "must not change it", ""},
		{"guest with ATS", both(guest, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(true) }), pair, Pass, "ATS is on", ""},
		{"guest without ATS", both(guest, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(false) }), pair, Warn, "ATS is off", "ATS_ENABLED=1"},
		// The values of rdma-core's rdma_topo: DMA port xx110x1, GPU port xx101x1, root port xx111x0.
		{"Data Direct", dataDirect(0b0010101, 0b0011001, 0b0011100), pair, Pass, "as Data Direct wants it", ""},
		{"Data Direct, isolated", dataDirect(0b0011101, 0b0011101, 0b0011101), pair, Fail, nicPort + ", " + gpuPort, "rdma_topo write-grub-acs"},
		{"Data Direct, all off", dataDirect(0, 0, 0b0011100), pair, Warn, "not as Data Direct wants it", "rdma_topo"},
		{"no PCI function", noAddress, pair, NotApplicable, "no PCI function", ""},
		{"address not seen", func(m *topo.Machine) { denied(&nic(m).PCI) }, pair, Unknown, "may not be read", ""},
		{"the NIC's place was not seen", unseen(nicAddr), pair, Unknown, "where " + nicAddr + " stands", ""},
		{"below one port", func(m *topo.Machine) { fn(m, gpuAddr).Parent = new(at(nicPort)) }, pair, Pass, "no bridge between", ""},
		{"guest, function not seen", both(guest, unseen(nicAddr)), pair, Unknown, "where " + nicAddr + " stands", ""},
		{"host of guests, NIC below the common bridge", both(vfio, func(m *topo.Machine) { fn(m, nicAddr).Parent = new(at(uplink)) }), pair, NotApplicable, "reserved for a virtual machine", ""},
		{"host of guests, no ACS", both(vfio, func(m *topo.Machine) { fn(m, nicPort).Config.ACS = absent[pci.ACS]() }), pair, NotApplicable, "has no ACS", ""},
		{"host of guests, ATS alone", both(acs(nicPort, 0x1d), vfio, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(true) }), pair, Warn, "half the bandwidth", "ECAP_ACS+6.w=5d:5d"},
		{"host of guests, ATS not known", both(acs(nicPort, 0x5d), vfio), pair, Warn, "half the bandwidth", "ATS_ENABLED=1"},
	})
	for name, change := range map[string]func(*topo.Machine){"guest": guest, "guest without ATS": both(guest, func(m *topo.Machine) { fn(m, nicAddr).Config.ATS = known(false) })} {
		m := goodNode()
		both(change, acs(gpuPort, 0x1d))(m)
		for _, line := range findingOf(t, m, acsRedirect, pair).Fix {
			if containsAny(line, "setpci", "disable_acs", "ACS off") {
				t.Errorf("%s: advises to change ACS: %q", name, line)
			}
		}
	}
}

// One kernel option must name the ports of all pairs: the last one wins.
func TestACSFixNamesAllPorts(t *testing.T) {
	m := goodNode()
	secondNIC(func(*rdma.Device) {})(m)
	for _, a := range []string{nicPort, "0000:02:02.0"} {
		fn(m, a).Config.ACS = known(pci.ACS{Cap: 0x7f, Ctl: 0x1d})
	}
	for _, pair := range []string{"GPU0 mlx5_0", "GPU0 mlx5_1"} {
		fix := strings.Join(findingOf(t, m, acsRedirect, pair).Fix, "\n")
		if !strings.Contains(fix, `pci=disable_acs_redir=\"`+nicPort+`;0000:02:02.0\"`) || strings.Count(fix, "setpci") != 1 {
			t.Errorf("%s: %s", pair, fix)
		}
	}
}

func TestIOMMU(t *testing.T) {
	group := func(kind string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			fn(m, gpuAddr).IOMMUGroup = fact.Of(12, "iommu_group")
			fn(m, gpuAddr).IOMMUGroupType = fact.Of(kind, "iommu_group/type")
		}
	}
	runCases(t, "iommu", []verdictCase{
		{"off", nil, "GPU0", Pass, "no IOMMU is active", ""},
		{"identity", group("identity"), "GPU0", Pass, "pass-through", ""},
		{"translating", group("DMA-FQ"), "GPU0", Warn, "translates for it (DMA-FQ)", "'intel_iommu=on iommu=pt'"},
		{"AMD CPU", func(m *topo.Machine) { group("DMA")(m); m.Host.CPU.Vendor = known("AuthenticAMD") }, "GPU0", Warn, "", "'iommu=pt'"},
		{"Arm", func(m *topo.Machine) { group("DMA")(m); m.Host.CPU.Arch = known("aarch64") }, "GPU0", Warn, "", "iommu.passthrough=1"},
		{"asked for in another order", func(m *topo.Machine) {
			group("DMA")(m)
			m.Host.CommandLine = known("iommu=pt quiet intel_iommu=on")
		}, "GPU0", Warn, "", "asks for pass-through already"},
		{"RHEL", group("DMA"), "GPU0", Warn, "", "grubby --update-kernel=ALL --args='intel_iommu=on iommu=pt'"},
		{"asked for and overridden", func(m *topo.Machine) {
			group("DMA")(m)
			m.Host.CommandLine = known("quiet intel_iommu=on iommu=pt")
		}, "GPU0", Warn, "", "SEV"},
		{"guest without", guest, "GPU0", Pass, "this guest", ""},
		{"vfio", func(m *topo.Machine) { group("DMA")(m); fn(m, gpuAddr).Driver = known("vfio-pci") }, "GPU0", NotApplicable, "vfio", ""},
		{"blocked", group("blocked"), "GPU0", Info, "blocked", ""},
		{"old kernel", func(m *topo.Machine) { group("")(m); fn(m, gpuAddr).IOMMUGroupType = absent[string]() }, "GPU0", Unknown, "does not show", "dmesg"},
		{"group unreadable", func(m *topo.Machine) { denied(&fn(m, gpuAddr).IOMMUGroup) }, "GPU0", Unknown, "", ""},
		{"its function was not seen", unseen(gpuAddr), "GPU0", Unknown, "not in what was read", ""},
	})
}

func TestGPUNICPath(t *testing.T) {
	// moved puts the NIC on another host bridge of a NUMA node.
	moved := func(node int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			r := function("0000:80:01.0", "", pci.ClassPCIBridge<<8, pci.PortRoot)
			r.HostBridge, r.NUMANode = "pci0000:80", known(node)
			m.PCI = append(m.PCI, r)
			p := r.Address
			f := fn(m, nicAddr)
			f.Parent, f.HostBridge, f.NUMANode = &p, "pci0000:80", known(node)
		}
	}
	phb := func(m *topo.Machine) {
		m.PCI = append(m.PCI, function("0000:00:02.0", "", pci.ClassPCIBridge<<8, pci.PortRoot))
		p := at("0000:00:02.0")
		fn(m, nicAddr).Parent = &p
	}
	blind := func(m *topo.Machine) {
		moved(1)(m)
		for i := range m.PCI {
			m.PCI[i].NUMANode = absent[int]()
		}
	}
	runCases(t, "gpu-nic-path", []verdictCase{
		{"same switch", nil, "GPU0", Pass, "PIX to mlx5_0", ""},
		{"host bridge", phb, "GPU0", Warn, "PHB to its best NIC", "NCCL_NET_GDR_LEVEL=PHB"},
		{"same NUMA node", moved(0), "GPU0", Warn, "NODE", "below the GPU's switch (" + uplink + ")"},
		{"no switch at all", func(m *topo.Machine) {
			moved(0)(m)
			p := at(rootPort)
			fn(m, gpuAddr).Parent = &p
		}, "GPU0", Warn, "NODE", "No PCIe switch is above this GPU"},
		{"no NIC seen", func(m *topo.Machine) {
			m.RDMA.Devices, m.RDMA.Listed = nil, fact.Missing[int](fact.NotCollected, "/sys/class/infiniband", "not in what was read")
		}, "GPU0", Unknown, "no RDMA NIC could be seen", ""},
		{"other socket", moved(1), "GPU0", Warn, "SYS", "NCCL_NET_GDR_LEVEL=SYS"},
		{"a machine that promises better", func(m *topo.Machine) { phb(m); m.Host.DMI.ProductName = known("DGXH100") }, "GPU0", Fail, "on a dgx-h100", "lspci"},
		{"guest", func(m *topo.Machine) { phb(m); guest(m) }, "GPU0", Info, "the real path is the host's", "NCCL_TOPO_FILE"},
		{"guest that nothing is known of", func(m *topo.Machine) { blind(m); guest(m) }, "GPU0", Info, "unknown to mlx5_0", ""},
		{"nothing known", blind, "GPU0", Unknown, "cannot tell the path", "gdrcheck topo --explain GPU0 mlx5_0"},
		{"coherent", func(m *topo.Machine) { phb(m); m.GPU.GPUs[0].Name = "NVIDIA GH200 480GB" }, "GPU0", Pass, "C2C", ""},
		{"coherent, other socket", func(m *topo.Machine) { moved(1)(m); m.GPU.GPUs[0].Name = "NVIDIA GH200 480GB" }, "GPU0", Warn, "SYS", ""},
		{"software alone", func(m *topo.Machine) { nic(m).Software = true }, "GPU0", Unknown, "none of the RDMA NICs is one for compute", ""},
		{"a promise, and nothing known", func(m *topo.Machine) { blind(m); m.Host.DMI.ProductName = known("DGXH100") }, "GPU0", Unknown, "cannot tell the path", ""},
		{"other socket, where the NIC is", moved(1), "GPU0", Warn, "", "numactl --cpunodebind=1 --membind=1"},
		{"server CPU", all2(phb, func(m *topo.Machine) { m.Host.CPU.Model = known("Intel(R) Xeon(R) Platinum 8480C") }), "GPU0", Warn, "", "some CPUs forward peer traffic"},
		{"desktop CPU", all2(phb, func(m *topo.Machine) { m.Host.CPU.Model = known("13th Gen Intel(R) Core(TM) i9-13900K") }), "GPU0", Warn, "", "CPUs for desktops"},
		{"GB10", all2(phb, func(m *topo.Machine) {
			m.GPU.GPUs[0].Name, m.GPU.GPUs[0].CUDA.V.GPUDirectRDMA = "NVIDIA GB10", known(0)
		}), "GPU0", NotApplicable, "share their memory", ""},
	})
	// A path that cannot be told must not stop a node: a measurement outranks it.
	m := goodNode()
	blind(m)
	if o := mustRun(t, m, Options{}); o.Verdict == Unknown || o.Verdict == Fail {
		t.Errorf("unknown path class: verdict %s", o.Verdict)
	}
}

func TestBAR1Size(t *testing.T) {
	nv := func(change func(*gpu.NVMLDevice)) func(*topo.Machine) {
		return func(m *topo.Machine) { change(&m.GPU.GPUs[0].NVML.V) }
	}
	small := nv(func(d *gpu.NVMLDevice) { d.BAR1.V.TotalBytes = 256 << 20 })
	noNVML := func(m *topo.Machine) {
		m.GPU.GPUs[0].NVML = fact.Missing[gpu.NVMLDevice](fact.Absent, "nvml", "no libnvidia-ml.so.1")
	}
	runCases(t, "bar1-size", []verdictCase{
		{"covers", nil, "GPU0", Pass, "BAR1 128 GiB for 80 GiB", ""},
		{"H200", nv(func(d *gpu.NVMLDevice) {
			d.BAR1.V.TotalBytes, d.Memory.V.TotalBytes = 262144<<20, 143771<<20
		}), "GPU0", Pass, "BAR1 256 GiB", ""},
		{"small", small, "GPU0", Warn, "BAR1 is 256 MiB for 80 GiB", "a newer VBIOS may add it"},
		{"display mode", func(m *topo.Machine) { small(m); m.GPU.GPUs[0].Name = "NVIDIA RTX A6000" }, "GPU0", Warn, "", "displaymodeselector --gpumode physical_display_disabled"},
		{"resizable", func(m *topo.Machine) {
			small(m)
			fn(m, gpuAddr).Config.ReBAR = known([]pci.ReBAR{{BAR: 1, SizeBytes: 256 << 20, SupportedBytes: []uint64{256 << 20, 64 << 30, 32 << 30}}})
		}, "GPU0", Warn, "", "up to 64 GiB"},
		{"none", nv(func(d *gpu.NVMLDevice) { d.BAR1.V.TotalBytes = 0 }), "GPU0", Fail, "no BAR1", "Above 4G"},
		{"by the PCI tree", func(m *topo.Machine) {
			noNVML(m)
			fn(m, gpuAddr).BARs.V[1].SizeBytes = 256 << 20
		}, "GPU0", Warn, "BAR1 is 256 MiB for the GPU's memory", ""},
		{"no window in the PCI tree", func(m *topo.Machine) {
			noNVML(m)
			fn(m, gpuAddr).BARs.V = fn(m, gpuAddr).BARs.V[:1]
			fn(m, gpuAddr).BARs.V[0].Flags = 0x200
		}, "GPU0", Fail, "no BAR1", "Above 4G"},
		{"a tree without the list of windows", func(m *topo.Machine) {
			noNVML(m)
			fn(m, gpuAddr).BARs = absent[[]pci.BAR]()
		}, "GPU0", Unknown, "does not list the GPU's PCI windows", ""},
		{"NVML failed", func(m *topo.Machine) {
			m.GPU.GPUs[0].NVML = fact.Missing[gpu.NVMLDevice](fact.Failed, "nvml", "driver/library version mismatch")
		}, "GPU0", Unknown, "version mismatch", "dmesg"},
		{"nothing seen", func(m *topo.Machine) {
			noNVML(m)
			denied(&fn(m, gpuAddr).BARs)
		}, "GPU0", Unknown, "may not be read", ""},
		{"coherent", func(m *topo.Machine) {
			m.GPU.GPUs[0].Name = "NVIDIA GB10"
			m.GPU.GPUs[0].NVML.V.Memory = fact.Missing[gpu.Memory](fact.Unsupported, "nvml:x", "not supported")
		}, "GPU0", Info, "coherent", ""},
		{"AMD large BAR", func(m *topo.Machine) {
			m.GPU.GPUs[0].Vendor = gpu.VendorAMD
			m.GPU.GPUs[0].KFD = known(gpu.KFDNode{Node: 1, LocalMemSize: 192 << 30, LargeBAR: true})
		}, "GPU0", Pass, "192 GiB", ""},
		{"AMD small BAR", func(m *topo.Machine) {
			m.GPU.GPUs[0].Vendor = gpu.VendorAMD
			m.GPU.GPUs[0].KFD = known(gpu.KFDNode{Node: 1, LocalMemSize: 16 << 30})
		}, "GPU0", Warn, "large BAR", "Resizable BAR"},
		{"just covers", nv(func(d *gpu.NVMLDevice) { d.BAR1.V.TotalBytes = 80 << 30 }), "GPU0", Pass, "BAR1 80 GiB for 80 GiB", ""},
		{"coherent, smaller", func(m *topo.Machine) {
			m.GPU.GPUs[0].Name = "NVIDIA GH200 480GB"
			m.GPU.GPUs[0].NVML.V.BAR1.V.TotalBytes = 64 << 30
		}, "GPU0", Info, "of coherent memory", ""},
		{"as large as it can be", func(m *topo.Machine) {
			small(m)
			fn(m, gpuAddr).Config.ReBAR = known([]pci.ReBAR{{BAR: 1, SizeBytes: 256 << 20, SupportedBytes: []uint64{128 << 20, 256 << 20}}})
		}, "GPU0", Warn, "", "Enable Above 4G Decoding and Resizable BAR"},
		{"capability not seen", func(m *topo.Machine) { small(m); denied(&fn(m, gpuAddr).Config.ReBAR) }, "GPU0", Warn, "", "Enable Above 4G Decoding and Resizable BAR"},
		{"small in a guest", func(m *topo.Machine) { small(m); guest(m); denied(&fn(m, gpuAddr).Config.ReBAR) }, "GPU0", Warn, "", "In the guest's definition"},
		{"the last of its windows", func(m *topo.Machine) {
			noNVML(m)
			fn(m, gpuAddr).BARs.V[1].Index, fn(m, gpuAddr).BARs.V[1].SizeBytes = 5, 256<<20
		}, "GPU0", Warn, "BAR1 is 256 MiB", ""},
		{"neither NVML nor the function", func(m *topo.Machine) { noNVML(m); unseen(gpuAddr)(m) }, "GPU0", Unknown, "neither NVML nor the PCI tree", ""},
		{"AMD, driver not loaded", func(m *topo.Machine) {
			m.GPU.GPUs[0].Vendor, m.GPU.GPUs[0].KFD = gpu.VendorAMD, absent[gpu.KFDNode]()
		}, "GPU0", Unknown, "no compute node", "modprobe amdgpu"},
	})
}
