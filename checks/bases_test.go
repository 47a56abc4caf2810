package checks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// bases are the healthy machines that failures start from.
var bases = map[string]func(*testing.T) *topo.Machine{
	"server":   func(*testing.T) *topo.Machine { return healthyNode() },
	"hgx-h100": hgxH100,
	"vm":       func(*testing.T) *topo.Machine { return virtualNode() },
	"ib":       func(*testing.T) *topo.Machine { return infiniBandNode() },
	"gb200":    func(*testing.T) *topo.Machine { return graceNode() },
	"amd":      func(*testing.T) *topo.Machine { return amdNode() },
}

// healthyNode is goodNode with what a real server has besides: one GPU
// (0000:03:00.0) and mlx5_0 (0000:04:00.0) below the switch at 0000:01:00.0, its
// ports 0000:02:00.0 and 0000:02:01.0, and the root port 0000:00:01.0.
func healthyNode() *topo.Machine {
	m := goodNode()
	healthyHost(m)
	return m
}

func healthyGPU(g *gpu.GPU) {
	d, c := &g.NVML.V, &g.CUDA.V
	d.Addr, c.Addr = g.Addr, g.Addr
	d.Name = fact.Of(g.Name, "nvml:nvmlDeviceGetName")
	d.ComputeCap = fact.Of([2]int{9, 0}, "nvml:nvmlDeviceGetCudaComputeCapability")
	d.MIG = fact.Of(gpu.MIGMode{}, "nvml:nvmlDeviceGetMigMode")
	d.ECC = fact.Of(gpu.ECC{Current: true, Pending: true}, "nvml:nvmlDeviceGetEccMode")
	d.RemappedRows = fact.Of(gpu.Remapped{}, "nvml:nvmlDeviceGetRemappedRows")
	d.Persistence = fact.Of(true, "nvml:nvmlDeviceGetPersistenceMode")
	d.Confidential = fact.Of(false, "nvml:nvmlSystemGetConfComputeState")
	d.Virtualization = fact.Of("none", "nvml:nvmlDeviceGetVirtualizationMode")
	d.Fabric = fact.Of(gpu.Fabric{State: "not_supported"}, "nvml:nvmlDeviceGetGpuFabricInfo")
	d.NVLinks = fact.Missing[[]gpu.NVLink](fact.Unsupported, "nvml:nvmlDeviceGetNvLinkState", "no NVLink")
	d.ComputeProcesses = fact.Of(0, "nvml:nvmlDeviceGetComputeRunningProcesses_v3")
	d.UtilizationPercent = fact.Of(0, "nvml:nvmlDeviceGetUtilizationRates")
	c.RDMAWithVMM = fact.Of(1, "cuda:cuDeviceGetAttribute(110)")
	c.FlushWritesOptions = fact.Of(1, "cuda:cuDeviceGetAttribute(117)")
	c.WritesOrdering = fact.Of(100, "cuda:cuDeviceGetAttribute(118)")
}

func healthyHost(m *topo.Machine) {
	h := &m.Host
	h.KernelConfig = fact.Of(map[string]string{"CONFIG_DMA_SHARED_BUFFER": "y", "CONFIG_PCI_P2PDMA": "y",
		"CONFIG_DMABUF_MOVE_NOTIFY": "y", "CONFIG_INFINIBAND": "m", "CONFIG_INFINIBAND_USER_MEM": "y",
		"CONFIG_INFINIBAND_ON_DEMAND_PAGING": "y", "CONFIG_HSA_AMD_P2P": "y"}, "/boot/config-6.8.0-45-generic")
	h.Modules = fact.Of([]host.Module{
		{Name: "ib_core", RefCount: known(3), Holders: []string{"ib_uverbs", "mlx5_ib"}},
		{Name: "ib_uverbs", RefCount: known(1), Holders: []string{"mlx5_ib"}},
		{Name: "mlx5_core", RefCount: known(1), Holders: []string{"mlx5_ib"}},
		{Name: "mlx5_ib", RefCount: known(0)},
		{Name: "nvidia", Version: known("580.95.05"), Taint: known("OE"), RefCount: known(20), Holders: []string{"nvidia_peermem", "nvidia_uvm"}},
		{Name: "nvidia_peermem", Version: known("580.95.05"), Taint: known("OE"), RefCount: known(0)},
		{Name: "nvidia_uvm", Taint: known("OE"), RefCount: known(4)},
	}, "/proc/modules")
	for _, name := range []string{"ib_core", "mlx5_core", "nvidia", "nvidia_peermem"} {
		h.ModuleFiles = append(h.ModuleFiles, host.ModuleFile{Name: name,
			Path:     known("/lib/modules/6.8.0-45-generic/" + name + ".ko"),
			VerMagic: known("6.8.0-45-generic SMP preempt mod_unload modversions")})
	}
	h.Symbols = map[string]fact.Value[bool]{"ib_register_peer_memory_client": fact.Of(true, "/proc/kallsyms")}
	h.MemoryPeers = fact.Of([]string{"nv_mem"}, "/sys/kernel/mm/memory_peers")
	h.Tainted = fact.Of(uint64(12288), "/proc/sys/kernel/tainted")
	h.SecureBoot = fact.Of(false, "/sys/firmware/efi/efivars")
	h.Lockdown = fact.Of("none", "/sys/kernel/security/lockdown")
	h.NUMABalancing = fact.Of(0, "/proc/sys/kernel/numa_balancing")
	h.CPU = host.CPU{Arch: known("x86_64"), Vendor: known("GenuineIntel"), Family: known(6), ModelNum: known(143),
		Model: known("Intel(R) Xeon(R) Platinum 8480C"), Count: known(64), Governor: known("performance"), Idle: h.CPU.Idle}
	h.DMI.SysVendor, h.DMI.ProductName = known("Example"), known("GPU server")
	h.CharMajors = fact.Of(map[string]int{"nvidia": 195, "infiniband_verbs": 231}, "/proc/devices")
	for i := range m.PCI {
		f := &m.PCI[i]
		f.AER = fact.Of(pci.AERCounts{}, "aer_dev_correctable")
		f.Config.Length = fact.Of(4096, "config")
		f.Config.MRRSBytes = fact.Of(512, "config")
		f.Config.RelaxedOrdering = fact.Of(true, "config")
		f.Config.ExtendedTag = fact.Of(true, "config")
		f.Config.MPSSupportedBytes = fact.Of(512, "config")
		if slices.ContainsFunc(m.RDMA.Devices, func(d rdma.Device) bool { return d.PCI.V == f.Address }) {
			f.Vendor, f.Config.MRRSBytes, f.Driver = known(pci.ID(0x15b3)), fact.Of(4096, "config"), known("mlx5_core")
			f.Config.ATS = fact.Of(false, "config")
		}
	}
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		d.NodeGUID = fact.Of(fmt.Sprintf("0200:00ff:fe00:%04x", i+1), "node_guid")
		d.Firmware = fact.Of("28.43.2566", "fw_ver")
		d.NodeType = fact.Of("1: CA", "node_type")
		p := &d.Ports[0]
		p.ActiveMTU, p.MaxMTU = fact.Of(4096, "verbs:ibv_query_port"), fact.Of(4096, "verbs:ibv_query_port")
		p.PKeys = fact.Of([]rdma.PKey{{Index: 0, Value: 0xffff}}, "ports/1/pkeys")
		p.LID, p.SMLID = fact.Of(0, "ports/1/lid"), fact.Of(0, "ports/1/sm_lid")
	}
	for i := range m.RDMA.NetDevs {
		n := &m.RDMA.NetDevs[i]
		n.MTU, n.OperState, n.Carrier = fact.Of(9000, "mtu"), fact.Of("up", "operstate"), fact.Of(true, "carrier")
		n.SpeedMbps, n.Type = fact.Of(400000, "speed"), fact.Of(1, "type")
	}
	m.RDMA.LibIBVerbs = fact.Of("1.14.50.0", "/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
}

// hgxH100 is render.EightGPU, whose doc gives the addresses: GPU0 0000:13:00.0
// and mlx5_0 0000:14:00.0 below 0000:12:00.0 and 0000:12:01.0, and so on.
func hgxH100(t *testing.T) *topo.Machine {
	t.Helper()
	dir := t.TempDir()
	tree := render.EightGPU()
	tree.RDMA = tree.RDMA[:8]
	tree.NetDevs = tree.NetDevs[:8]
	tree.Functions = slices.DeleteFunc(tree.Functions, func(f render.Function) bool {
		return strings.HasPrefix(f.Addr, "0000:0c:") || strings.HasPrefix(f.Addr, "0000:8c:")
	})
	if err := tree.Write(dir); err != nil {
		t.Fatal(err)
	}
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := goodNode()
	if m.PCI, err = pci.Collect(t.Context(), src, pci.Options{}); err != nil {
		t.Fatal(err)
	}
	good := m.GPU.GPUs[0]
	m.GPU.GPUs = nil
	for i, bus := range []uint8{0x13, 0x15, 0x33, 0x35, 0x73, 0x75, 0x93, 0x95} {
		g := good
		g.Index, g.Addr = i, pci.Address{Bus: bus}
		healthyGPU(&g)
		g.NVML.V.Index = i
		g.NVML.V.Fabric = fact.Of(gpu.Fabric{State: "completed"}, "nvml:nvmlDeviceGetGpuFabricInfo")
		var links []gpu.NVLink
		for n := range 18 {
			links = append(links, gpu.NVLink{Link: n, Active: true, Remote: pci.Address{Bus: uint8(0xb3 + n%4)}, RemoteType: "switch"})
		}
		g.NVML.V.NVLinks = fact.Of(links, "nvml:nvmlDeviceGetNvLinkState")
		m.GPU.GPUs = append(m.GPU.GPUs, g)
	}
	m.RDMA = rdma.Collect(t.Context(), src, m.PCI, rdma.Options{})
	nic := goodNIC("mlx5_0", nicAddr, "eth0")
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		d.Verbs, d.Uverbs = nic.Verbs, nic.Uverbs
		d.Uverbs[0].Name = fmt.Sprintf("uverbs%d", i)
	}
	m.RDMA.RDMACM = goodNode().RDMA.RDMACM
	m.QoS = goodQoS(m.RDMA.Devices)
	addrs := clone(t, m)
	healthyHost(m)
	m.PCI = addrs.PCI // as collected
	return m
}

// virtualNode is a virtual machine with a GPU and a NIC passed through: a flat
// bus, no NUMA nodes, ATS on.
func virtualNode() *topo.Machine {
	m := healthyNode()
	m.PCI = slices.DeleteFunc(m.PCI, func(f pci.Function) bool { return f.Class.V.Sub() == pci.ClassPCIBridge })
	for i := range m.PCI {
		f := &m.PCI[i]
		f.Parent, f.NUMANode = nil, absent[int]()
		f.AER = fact.Missing[pci.AERCounts](fact.Absent, "aer_dev_correctable", "not there")
	}
	fn(m, nicAddr).Config.ATS = fact.Of(true, "config")
	guest(m)
	m.GPU.GPUs[0].NVML.V.Virtualization = fact.Of("passthrough", "nvml:nvmlDeviceGetVirtualizationMode")
	m.Host.NUMA = known([]host.NUMANode{{ID: 0, CPUs: "0-31"}})
	m.Host.CPU.Governor = absent[string]()
	return m
}

// infiniBandNode is healthyNode with its port on an InfiniBand fabric.
func infiniBandNode() *topo.Machine {
	m := healthyNode()
	fn(m, nicAddr).Class = known(pci.Class(pci.ClassInfiniBand << 8))
	nic(m).Transport = known(rdma.InfiniBand)
	p := port(m)
	p.LinkLayer, p.LID, p.SMLID = known("InfiniBand"), fact.Of(12, "ports/1/lid"), fact.Of(1, "ports/1/sm_lid")
	p.NetDev = fact.Of("ib0", "netdev")
	p.GIDs = []rdma.GID{{Index: 0, GID: "fe80:0000:0000:0000:0200:00ff:fe00:0001", Type: known("IB/RoCE v1"), NetDev: absent[string]()}}
	n := &m.RDMA.NetDevs[0]
	n.Name, n.MTU, n.Type = "ib0", fact.Of(4092, "mtu"), fact.Of(32, "type")
	return m
}

// graceNode is an Arm server with a coherent GPU, the NIC behind another root
// port of the same socket.
func graceNode() *topo.Machine {
	m := healthyNode()
	m.PCI = []pci.Function{
		function("0008:00:00.0", "", pci.ClassPCIBridge<<8, pci.PortRoot),
		function("0008:01:00.0", "0008:00:00.0", pci.Class3D<<8, pci.PortEndpoint),
		function("0000:00:00.0", "", pci.ClassPCIBridge<<8, pci.PortRoot),
		function("0000:01:00.0", "0000:00:00.0", pci.ClassEthernet<<8, pci.PortEndpoint),
	}
	slices.SortFunc(m.PCI, func(a, b pci.Function) int { return strings.Compare(a.Address.String(), b.Address.String()) })
	for i := range m.PCI {
		m.PCI[i].HostBridge = "pci" + m.PCI[i].Address.String()[:7]
		m.PCI[i].IOMMUGroup, m.PCI[i].IOMMUGroupType = fact.Of(i, "iommu_group"), fact.Of("identity", "iommu_group/type")
	}
	g := &m.GPU.GPUs[0]
	g.Addr, g.Name = at("0008:01:00.0"), "NVIDIA GB200"
	healthyGPU(g)
	g.NVML.V.Memory = fact.Of(gpu.Memory{TotalBytes: 185 << 30}, "nvml:nvmlDeviceGetMemoryInfo_v2")
	g.NVML.V.BAR1 = fact.Of(gpu.Memory{TotalBytes: 256 << 30}, "nvml:nvmlDeviceGetBAR1MemoryInfo")
	g.NVML.V.ComputeCap = fact.Of([2]int{10, 0}, "nvml:nvmlDeviceGetCudaComputeCapability")
	g.NVML.V.AddressingMode = fact.Of("ATS", "nvml:nvmlDeviceGetAddressingMode")
	g.NVML.V.NUMANode = fact.Of(2, "nvml:nvmlDeviceGetNumaNodeId")
	g.NVML.V.Fabric = fact.Of(gpu.Fabric{State: "completed", CliqueID: 1, ClusterUUID: "00000000-0000-4000-8000-000000000001"}, "nvml:nvmlDeviceGetGpuFabricInfo")
	nic(m).PCI = known(at("0000:01:00.0"))
	m.RDMA.NetDevs[0].PCI = nic(m).PCI
	healthyHost(m)
	m.Host.CPU = host.CPU{Arch: known("aarch64"), Vendor: absent[string](), Count: known(72), Governor: known("performance"), Idle: m.Host.CPU.Idle}
	m.Host.Nodes = []host.DeviceNode{{Path: "/dev/nvidia-caps-imex-channels/channel0", Info: known(fact.Info{}), Access: known(true)}}
	return m
}

// amdNode is healthyNode with an Instinct GPU in place of NVIDIA's.
func amdNode() *topo.Machine {
	m := healthyNode()
	fn(m, gpuAddr).Class, fn(m, gpuAddr).Vendor = known(pci.Class(pci.ClassAccelerator<<8)), known(pci.ID(0x1002))
	m.GPU = gpu.Facts{
		GPUs: []gpu.GPU{{Index: 0, Vendor: gpu.VendorAMD, Addr: at(gpuAddr), Name: "AMD Instinct MI300X",
			KFD: fact.Of(gpu.KFDNode{Node: 2, LocalMemSize: 192 << 30, LargeBAR: true}, "/sys/class/kfd/kfd/topology/nodes/2")}},
		AMD: gpu.AMD{Version: fact.Of("6.8.5", "/sys/module/amdgpu/version"), KFD: known(true)},
	}
	m.Host.Modules = fact.Of([]host.Module{{Name: "amdgpu", RefCount: known(4)}, {Name: "ib_core", RefCount: known(1)}, {Name: "ib_uverbs", RefCount: known(1)},
		{Name: "mlx5_core", RefCount: known(1)}, {Name: "mlx5_ib", RefCount: known(0)}}, "/proc/modules")
	m.Host.ModuleFiles, m.Host.MemoryPeers = nil, fact.Of([]string{}, "/sys/kernel/mm/memory_peers")
	return m
}
