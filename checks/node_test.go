package checks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// The addresses of goodNode: a root port, a switch, and below it a GPU and a NIC.
const (
	rootPort = "0000:00:01.0"
	uplink   = "0000:01:00.0"
	gpuPort  = "0000:02:00.0"
	nicPort  = "0000:02:01.0"
	gpuAddr  = "0000:03:00.0"
	nicAddr  = "0000:04:00.0"
)

func at(s string) pci.Address {
	a, err := pci.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func known[T any](v T) fact.Value[T] { return fact.Of(v, "test") }

func absent[T any]() fact.Value[T] { return fact.Missing[T](fact.Absent, "test", "not there") }

func denied[T any](v *fact.Value[T]) {
	*v = fact.Missing[T](fact.Denied, v.Source, "permission denied")
}

func gen5x16() pci.Link {
	return pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}
}

func function(addr, parent string, class pci.Class, port pci.PortType) pci.Function {
	f := pci.Function{
		Address: at(addr), Dir: "/sys/bus/pci/devices/" + addr, HostBridge: "pci0000:00",
		Class: known(class), NUMANode: known(0), Link: fact.Of(gen5x16(), "current_link_speed"),
		IOMMUGroup:     fact.Missing[int](fact.Absent, "iommu_group", "no IOMMU"),
		IOMMUGroupType: fact.Missing[string](fact.Absent, "iommu_group/type", "no IOMMU"),
		PhysFn:         absent[pci.Address](),
		AER:            fact.Of(pci.AERCounts{}, "aer_dev_correctable"),
		Config: pci.Config{PortType: known(port), MPSBytes: fact.Of(512, "config"), MPSSupportedBytes: fact.Of(512, "config"),
			MRRSBytes: fact.Of(4096, "config"), RelaxedOrdering: fact.Of(true, "config"), ACS: absent[pci.ACS](), ReBAR: absent[[]pci.ReBAR](), ATS: absent[bool]()},
	}
	if class.Sub() != pci.ClassPCIBridge {
		f.BARs = fact.Of([]pci.BAR{{Index: 0, Start: 0x80000000, SizeBytes: 32 << 20, Flags: 0x10220c}}, "resource")
	}
	if parent != "" {
		p := at(parent)
		f.Parent = &p
	}
	return f
}

// goodNode is a bare-metal machine on which every check passes: one GPU and one
// RoCE NIC below a switch.
func goodNode() *topo.Machine {
	const bridge, display, ethernet = pci.ClassPCIBridge << 8, pci.Class3D << 8, pci.ClassEthernet << 8
	m := &topo.Machine{Origin: "live", PCI: []pci.Function{
		function(rootPort, "", bridge, pci.PortRoot),
		function(uplink, rootPort, bridge, pci.PortUpstream),
		function(gpuPort, uplink, bridge, pci.PortDownstream),
		function(nicPort, uplink, bridge, pci.PortDownstream),
		function(gpuAddr, gpuPort, display, pci.PortEndpoint),
		function(nicAddr, nicPort, ethernet, pci.PortEndpoint),
	}}
	for _, port := range []string{gpuPort, nicPort} {
		fn(m, port).Config.ACS = fact.Of(pci.ACS{Cap: 0x5f}, "config")
	}
	fn(m, nicAddr).Vendor = known(mellanoxID)
	fn(m, gpuAddr).BARs = fact.Of([]pci.BAR{{Index: 0, Start: 0xa0000000, SizeBytes: 16 << 20, Flags: 0x200}, {Index: 1, Start: 0x200000000000, SizeBytes: 128 << 30, Flags: 0x102200}}, "resource")
	m.GPU = gpu.Facts{
		GPUs: []gpu.GPU{{
			Index: 0, Vendor: gpu.VendorNVIDIA, Addr: at(gpuAddr), Name: "NVIDIA H100 80GB HBM3",
			NVML: fact.Of(gpu.NVMLDevice{
				BAR1:   fact.Of(gpu.Memory{TotalBytes: 128 << 30}, "nvml:nvmlDeviceGetBAR1MemoryInfo"),
				Memory: fact.Of(gpu.Memory{TotalBytes: 80 << 30}, "nvml:nvmlDeviceGetMemoryInfo_v2"),
			}, "nvml:nvmlDeviceGetHandleByIndex"),
			CUDA: fact.Of(gpu.CUDADevice{
				GPUDirectRDMA: fact.Of(1, "cuda:cuDeviceGetAttribute(116)"),
				DMABuf:        fact.Of(1, "cuda:cuDeviceGetAttribute(124)"),
			}, "cuda:cuDeviceGet"),
		}},
		NVIDIA: gpu.NVIDIA{
			Version: fact.Of("580.95.05", "/proc/driver/nvidia/version"),
			Flavour: fact.Of("open", "/proc/driver/nvidia/version"),
			NVML:    fact.Of(gpu.NVMLSystem{DriverVersion: "580.95.05"}, "nvml:nvmlSystemGetDriverVersion"),
			Params: fact.Of(map[string]string{"EnableStreamMemOPs": "0", "DmaRemapPeerMmio": "1", "GrdmaPciTopoCheckOverride": "0",
				"RegistryDwords": `""`, "RmProfilingAdminOnly": "1"}, "/proc/driver/nvidia/params"),
		},
	}
	healthyGPU(&m.GPU.GPUs[0])
	m.RDMA = rdma.Facts{
		Devices: []rdma.Device{goodNIC("mlx5_0", nicAddr, "ens1")},
		Listed:  fact.Of(1, "/sys/class/infiniband"),
		NetDevs: []rdma.NetDev{{Name: "ens1", PCI: known(at(nicAddr)), Carrier: known(true), MTU: known(9000)}},
		RDMACM:  rdma.CharDev{Node: known(fact.Info{}), Access: known(true)},
	}
	m.Host = host.Facts{
		KernelRelease: fact.Of("6.8.0-45-generic", "/proc/sys/kernel/osrelease"),
		CommandLine:   fact.Of("quiet", "/proc/cmdline"),
		KernelConfig:  fact.Of(map[string]string{"CONFIG_DMA_SHARED_BUFFER": "y"}, "/boot/config"),
		Modules:       fact.Of([]host.Module{{Name: "nvidia_peermem", Version: known("580.95.05")}}, "/proc/modules"),
		Modprobe:      fact.Of([]host.ModprobeOption{}, "/etc/modprobe.d"),
		Hypervisor:    absent[string](),
		Container:     absent[string](),
		CPU:           host.CPU{Arch: known("x86_64"), Vendor: known("GenuineIntel")},
		NUMA:          known([]host.NUMANode{{ID: 0, CPUs: "0-31"}, {ID: 1, CPUs: "32-63"}}),
		Limits:        fact.Of(host.Limits{MemlockSoft: 1<<64 - 1, MemlockHard: 1<<64 - 1}, "limits:self"),
		Root:          known(true),
		KernelLog:     fact.Of(host.KernelLog{Events: []host.LogEvent{}, Complete: true, Messages: 2000}, "/dev/kmsg"),
		HugePages:     known(0),
		SecureBoot:    known(false),
		Lockdown:      known("none"),
		NUMABalancing: known(0),
		MemoryPeers:   known([]string{"nv_mem"}),
		UptimeSec:     fact.Of(30.0*24*3600, "/proc/uptime"),
	}
	m.QoS = goodQoS(m.RDMA.Devices)
	m.Host.CPU.Governor, m.Host.CPU.Idle = known("performance"), known([]host.IdleState{{Name: "POLL"}, {Name: "C1", LatencyUs: 2}})
	m.RDMA.LibIBVerbs, m.RDMA.Providers = fact.Of("1.14.50.0", "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"), known([]string{"mlx5"})
	return m
}

// goodQoS are the settings of a lossless RoCE network on every port: priority 3,
// DSCP 26, traffic class 106.
func goodQoS(devices []rdma.Device) qos.Facts {
	f := qos.Facts{Job: fact.Of([]qos.Setting{{Name: "NCCL_IB_TC", Value: "106", Source: "/etc/nccl.conf"}}, "/etc/nccl.conf")}
	for _, d := range devices {
		for _, p := range d.Ports {
			f.Ports = append(f.Ports, goodLeg(d.Name, p.Number, p.NetDev.V, d.PCI))
		}
	}
	return f
}

func goodLeg(device string, number int, netdev string, function fact.Value[pci.Address]) qos.Port {
	dir := "/sys/class/net/" + netdev
	return qos.Port{
		Device: device, Number: number, NetDev: netdev, NetDir: dir, PCI: function, NetDriver: known("mlx5_core"),
		DCB: qos.DCB{
			DCBX:    fact.Of(qos.DCBX{Host: true, IEEE: true}, "netlink:GDCBX"),
			PFC:     fact.Of(qos.PFC{Enabled: 1 << 3, MaxClasses: 8}, "netlink:IEEE_GET"),
			Apps:    fact.Of([]qos.App{{Selector: qos.ByDSCP, Protocol: 26, Priority: 3}}, "netlink:IEEE_GET"),
			Trust:   fact.Of(qos.TrustDSCP, "netlink:IEEE_GET"),
			PeerPFC: fact.Missing[qos.PFC](fact.Unsupported, "netlink:IEEE_GET", "the driver left it out"),
			Buffer:  fact.Of(qos.Buffer{Priority: [8]int{3: 1}, SizeBytes: [8]uint32{130944, 130944}, TotalBytes: 262016}, "netlink:IEEE_GET"),
		},
		ECN: qos.ECN{NP: fact.Of(qos.Priorities(255), "ecn/roce_np/enable"), RP: fact.Of(qos.Priorities(255), "ecn/roce_rp/enable"),
			CNPDSCP: fact.Of(48, "ecn/roce_np/cnp_dscp"), CNPPriority: fact.Of(6, "ecn/roce_np/cnp_802p_prio")},
		ToS: qos.ToS{Forced: fact.Missing[int](fact.Absent, "tc/1/traffic_class", "not set"),
			RDMACM: fact.Of(106, "/sys/kernel/config/rdma_cm"), RDMACMMode: fact.Of("RoCE v2", "/sys/kernel/config/rdma_cm")},
		Link: qos.Link{Up: fact.Of(true, "ethtool:LINKSTATE_GET"), SpeedMbps: fact.Of(400000, "ethtool:LINKMODES_GET"), Lanes: fact.Of(4, "ethtool:LINKMODES_GET"),
			Downs: fact.Of(uint64(1), "ethtool:LINKSTATE_GET")},
		FEC: qos.FEC{Active: fact.Of("RS", "ethtool:FEC_GET"), Uncorrectable: fact.Of(uint64(0), "ethtool:FEC_GET")},
		Module: qos.Module{Type: fact.Of("OSFP", "ethtool:MODULE_EEPROM_GET"), Vendor: fact.Of("Example", "ethtool:MODULE_EEPROM_GET"), Medium: fact.Of("optical", "ethtool:MODULE_EEPROM_GET"),
			State: fact.Of("ModuleReady", "ethtool:MODULE_EEPROM_GET"), PowerMode: fact.Of("high", "ethtool:MODULE_GET"), TemperatureC: fact.Of(51.0, "ethtool:MODULE_EEPROM_GET"), Alarms: fact.Of([]string{}, "ethtool:MODULE_EEPROM_GET")},
		Devlink:  qos.Devlink{Versions: fact.Of([]qos.Version{{Name: "fw.version", Kind: "running", Value: "28.43.2566"}, {Name: "fw.version", Kind: "stored", Value: "28.43.2566"}}, "devlink:INFO_GET")},
		NVConfig: qos.NVConfig{Settings: fact.Of([]qos.NVSetting{{Name: "PCI_WR_ORDERING", Default: "per_mkey(0)", Current: "per_mkey(0)", NextBoot: "per_mkey(0)"}}, "mstconfig")},
		Pause:    qos.Pause{RX: fact.Of(false, "ethtool:PAUSE_GET"), TX: fact.Of(false, "ethtool:PAUSE_GET")},
	}
}

func leg(m *topo.Machine) *qos.Port { return &m.QoS.Ports[0] }

func goodNIC(name, addr, netdev string) rdma.Device {
	return rdma.Device{
		Name: name, Dir: "/sys/class/infiniband/" + name, PCI: known(at(addr)), Driver: fact.Of("mlx5_core", "device/driver"),
		NodeGUID: fact.Of("0200:00ff:fe00:0001", "node_guid"), Firmware: fact.Of("28.43.2566", "fw_ver"),
		DataDirect: absent[pci.Address](), Transport: known(rdma.RoCE), BoardID: known("MT_0000000838"), HCAType: known("MT4129"),
		Model: known(rdma.Model{Name: "ConnectX-7", MaxGbps: 400, GPUDirect: "dmabuf+peermem"}),
		Verbs: fact.Of(rdma.VerbsProbe{DMABufErrno: fact.Of(9, "verbs:ibv_reg_dmabuf_mr")}, "verbs:ibv_open_device"),
		Uverbs: []rdma.CharDev{{Name: "uverbs0", Dev: known("231:192"),
			Node: fact.Of(fact.Info{Mode: 0o666}, "/dev/infiniband/uverbs0"), Access: fact.Of(true, "/dev/infiniband/uverbs0")}},
		Ports: []rdma.Port{{
			Number: 1, State: fact.Of("ACTIVE", "ports/1/state"), PhysState: fact.Of("LinkUp", "ports/1/phys_state"),
			LinkLayer: known("Ethernet"), NetDev: known(netdev),
			Rate: fact.Of(rdma.Rate{BitsPerSec: 400e9, Text: "400 Gb/sec (4X NDR)"}, "ports/1/rate"),
			GIDs: []rdma.GID{
				{Index: 0, GID: "fe80:0000:0000:0000:0000:00ff:fe00:0001", Type: known("IB/RoCE v1"), NetDev: known(netdev)},
				{Index: 3, GID: "0000:0000:0000:0000:0000:ffff:c0a8:0001", Type: known("RoCE v2"), NetDev: known(netdev)},
			},
			GIDTable: known(256), ActiveMTU: known(4096), MaxMTU: known(4096), PKeys: known([]rdma.PKey{{Value: 0xffff}}),
			TrafficClass: fact.Missing[int](fact.Absent, "tc/1/traffic_class", "no such file"),
		}},
	}
}

func fn(m *topo.Machine, addr string) *pci.Function {
	i := slices.IndexFunc(m.PCI, func(f pci.Function) bool { return f.Address == at(addr) })
	return &m.PCI[i]
}

func port(m *topo.Machine) *rdma.Port { return &m.RDMA.Devices[0].Ports[0] }

func nic(m *topo.Machine) *rdma.Device { return &m.RDMA.Devices[0] }

func guest(m *topo.Machine) { m.Host.Hypervisor = known("kvm") }

// verdictCase is one row of a check's table: a change to the good node, and
// what the check must then say of a subject.
type verdictCase struct {
	name    string
	change  func(*topo.Machine)
	subject string
	want    Verdict
	say     string // part of the message
	fix     string // part of a fix line; empty: not looked at
}

func runCases(t *testing.T, id string, cases []verdictCase) {
	t.Helper()
	runCasesOn(t, id, Options{}, cases)
}

func runCasesOn(t *testing.T, id string, opt Options, cases []verdictCase) {
	t.Helper()
	check, ok := Lookup(id)
	if !ok {
		t.Fatalf("no check %s", id)
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			if tc.change != nil {
				tc.change(m)
			}
			f := findingOf(t, m, check, tc.subject, opt)
			if f.Verdict != tc.want || !strings.Contains(f.Message, tc.say) {
				t.Errorf("got %s %q, want %s with %q", f.Verdict, f.Message, tc.want, tc.say)
			}
			fix := strings.Join(append(slices.Clone(f.Fix), f.Unsure), "\n")
			if !strings.Contains(fix, tc.fix) {
				t.Errorf("fix %q lacks %q", fix, tc.fix)
			}
			checkFinding(t, f)
			if troubled(f) {
				neverPassesUnseen(t, m, check, tc.subject, opt)
			}
		})
	}
}

// findingOf runs one check alone, without those it depends on.
func findingOf(t *testing.T, m *topo.Machine, check Check, subject string, opt ...Options) Finding {
	t.Helper()
	n, err := NewNode(m, append(opt, Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	found := runCheck(n, &check, nil)
	for _, f := range found {
		if f.Subject == subject {
			return f
		}
	}
	t.Fatalf("%s has no finding on %q, only %v", check.ID, subject, found)
	return Finding{}
}

// checkFinding holds what is true of every finding, whatever the check.
func checkFinding(t *testing.T, f Finding) {
	t.Helper()
	if f.Message == "" || strings.Contains(f.Message, "%!") || strings.Contains(f.Message, "gdrcheck's own error") {
		t.Errorf("bad message %q", f.Message)
	}
	for _, e := range f.Evidence {
		if e.Name == "" || e.Got == "" || strings.Contains(e.Got, "{") {
			t.Errorf("evidence %+v is not for people", e)
		}
	}
	switch f.Verdict {
	case Warn, Fail:
		if len(f.Fix) == 0 || f.Why == "" || len(f.Refs) == 0 || len(f.Evidence) == 0 {
			t.Errorf("%s without fix, why, refs or evidence: %+v", f.Verdict, f)
		}
	case Unknown:
		if len(f.Fix) == 0 && !strings.Contains(f.Message, "cannot tell") {
			t.Errorf("unknown does not say how to see it: %+v", f)
		}
	case Pass, Info, NotApplicable, Blocked:
	}
	for _, line := range f.Fix {
		if line == "" || strings.Contains(line, "%!") {
			t.Errorf("bad fix line %q", line)
		}
	}
}

// clone copies a machine through JSON, as a recording does.
func clone(t *testing.T, m *topo.Machine) *topo.Machine {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := new(topo.Machine)
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}
