package render

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/pci"
)

// Links of the machines below.
var (
	gen5x16 = pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}
	gen4x4  = pci.Link{SpeedGTPerSec: 16, Width: 4, MaxSpeedGTPerSec: 16, MaxWidth: 4}
)

// EightGPU is a two-socket server with eight H100, eight single-port
// ConnectX-7 at 400 Gb/s next to them and two dual-port ones for storage,
// twelve RDMA devices in all. Each of its four switches holds two GPUs, two
// NICs and an SSD below one root port; the storage NICs have root ports of
// their own, one on each socket. ACS is there and off, no IOMMU is active.
//
// Switch k (0 to 3; 2 and 3 are on node 1) has its root port at bus
// b = 0x10, 0x30, 0x70, 0x90, its GPUs at b+3 and b+5, its NICs at b+4 and b+6:
// GPU0 is 0000:13:00.0, mlx5_0 0000:14:00.0. The storage NICs are 0000:0c:00
// (mlx5_8, mlx5_9) and 0000:8c:00 (mlx5_10, mlx5_11).
func EightGPU() Tree {
	t := Tree{
		NUMA: []NUMANode{
			{ID: 0, CPUs: "0-55,112-167", Distances: []int{10, 21}},
			{ID: 1, CPUs: "56-111,168-223", Distances: []int{21, 10}},
		},
		CommandLine: "BOOT_IMAGE=/vmlinuz-6.12.0 root=/dev/sda1 ro iommu=off",
		CPUVendor:   "GenuineIntel", CPUFamily: 6, CPUModel: "Example 56-core server processor",
		Modules: []Module{
			{Name: "nvidia", Version: "580.82.07", Taint: "OE", RefCount: 40, Holders: []string{"nvidia_uvm", "nvidia_peermem"}},
			{Name: "nvidia_uvm", Taint: "OE", RefCount: 8},
			{Name: "nvidia_peermem", Version: "580.82.07", Taint: "OE"},
			{Name: "mlx5_core", RefCount: 1, Holders: []string{"mlx5_ib"}},
			{Name: "mlx5_ib"},
			{Name: "ib_core", RefCount: 3, Holders: []string{"mlx5_ib", "ib_uverbs", "nvidia_peermem"}},
			{Name: "ib_uverbs", RefCount: 1, Holders: []string{"mlx5_ib"}},
		},
	}
	for k := range 4 {
		t.addSwitch(k)
	}
	for socket := range 2 {
		bus := 0x0c + 0x80*socket
		root := fmt.Sprintf("0000:%02x:00.0", bus-4)
		t.Functions = append(t.Functions, rootPort(root, socket))
		for fn := range 2 {
			t.addNIC(fmt.Sprintf("0000:%02x:00.%d", bus, fn), root, socket, "200 Gb/sec (4X HDR)")
		}
	}
	return t
}

// addSwitch hangs switch k with its devices below a root bus of its own.
func (t *Tree) addSwitch(k int) {
	node, base := k/2, 0x10+0x20*k+0x20*(k/2)
	at := func(off int) string { return fmt.Sprintf("0000:%02x:00.0", base+off) }
	up := at(1)
	t.Functions = append(t.Functions, rootPort(at(0), node), Function{
		Addr: up, Parent: at(0), Vendor: 0x1000, Device: 0xc030, Class: 0x060400, Revision: 0xb0, Node: node,
		Driver: "pcieport", Express: &Express{Port: pci.PortUpstream, Link: gen5x16, RelaxedOrdering: true},
	})
	down := func(slot int, link pci.Link) string {
		addr := fmt.Sprintf("0000:%02x:%02x.0", base+2, slot)
		t.Functions = append(t.Functions, Function{
			Addr: addr, Parent: up, Vendor: 0x1000, Device: 0xc030, Class: 0x060400, Revision: 0xb0, Node: node,
			Driver:  "pcieport",
			Express: &Express{Port: pci.PortDownstream, Link: link, RelaxedOrdering: true},
			ACS:     &pci.ACS{Cap: 0x5f},
		})
		return addr
	}
	for i := range 2 {
		t.addGPU(at(3+2*i), down(2*i, gen5x16), node)
		t.addNIC(at(4+2*i), down(2*i+1, gen5x16), node, "400 Gb/sec (4X NDR)")
	}
	t.Functions = append(t.Functions, Function{
		Addr: at(7), Parent: down(4, gen4x4), Vendor: 0x144d, Device: 0xa80a, SubVendor: 0x144d, SubDevice: 0xa801,
		Class: 0x010802, Node: node, Driver: "nvme", Express: &Express{Link: gen4x4},
	})
}

func rootPort(addr string, node int) Function {
	return Function{
		Addr: addr, Vendor: 0x8086, Device: 0x352a, Class: 0x060400, Revision: 4, Node: node, Driver: "pcieport",
		Express: &Express{Port: pci.PortRoot, Link: gen5x16, MPSSupportedBytes: 512},
		ACS:     &pci.ACS{Cap: 0x5f},
	}
}

func (t *Tree) addGPU(addr, parent string, node int) {
	t.Functions = append(t.Functions, Function{
		Addr: addr, Parent: parent, Vendor: 0x10de, Device: 0x2330, SubVendor: 0x10de, SubDevice: 0x16c1,
		Class: 0x030200, Revision: 0xa1, Node: node, Driver: "nvidia",
		Express: &Express{Link: gen5x16, MPSSupportedBytes: 256, RelaxedOrdering: true, ExtendedTag: true},
		BARs: []pci.BAR{
			{Index: 0, Start: 0xa0000000 + uint64(len(t.Functions))<<24, SizeBytes: 16 << 20, Flags: flagMem | flagMem64 | flagPrefetch | 0xc},
			{Index: 2, Start: 0x2000000000 * (1 + uint64(len(t.Functions))), SizeBytes: 128 << 30, Flags: flagMem | flagMem64 | flagPrefetch | 0xc},
		},
		ReBAR: []pci.ReBAR{{BAR: 2, SizeBytes: 128 << 30, SupportedBytes: []uint64{64 << 20, 1 << 30, 64 << 30, 128 << 30}}},
	})
}

func (t *Tree) addNIC(addr, parent string, node int, rate string) {
	n := len(t.RDMA)
	t.Functions = append(t.Functions, Function{
		Addr: addr, Parent: parent, Vendor: 0x15b3, Device: 0x1021, SubVendor: 0x15b3, SubDevice: 0x0041,
		Class: 0x020000, Node: node, Driver: "mlx5_core",
		Express: &Express{Link: gen5x16, RelaxedOrdering: true, ExtendedTag: true, MRRS: 4096},
		ATS:     new(false),
		BARs: []pci.BAR{{Index: 0, Start: 0x80000000 + uint64(len(t.Functions))<<25, SizeBytes: 32 << 20,
			Flags: flagMem | flagMem64 | flagPrefetch | 0xc}},
	})
	dev := fmt.Sprintf("eth%d", n)
	mac := fmt.Sprintf("02:00:00:00:01:%02x", n)
	speed := 400000
	if rate[0] == '2' {
		speed = 200000
	}
	t.NetDevs = append(t.NetDevs, NetDev{Name: dev, PCI: addr, Address: mac, MTU: 9000, SpeedMbps: speed})
	t.RDMA = append(t.RDMA, RDMA{
		Name: fmt.Sprintf("mlx5_%d", n), PCI: addr, NodeGUID: fmt.Sprintf("0200:00ff:fe00:01%02x", n),
		Firmware: "28.43.2566", HWRev: "0", HCAType: "MT4129", PSID: "MT_0000000838",
		Ports: []Port{{
			State: "4: ACTIVE", PhysState: "5: LinkUp", Rate: rate, LinkLayer: "Ethernet", GIDTable: 8,
			GIDs: []GID{
				{0, fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fe00:01%02x", n), "IB/RoCE v1", dev},
				{1, fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fe00:01%02x", n), "RoCE v2", dev},
				{2, fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:01%02x", n), "IB/RoCE v1", dev},
				{3, fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a00:01%02x", n), "RoCE v2", dev},
			},
		}},
	})
}

// AddUncore adds n system peripherals without a link, as server processors
// show hundreds of; at most 1024, from bus 0xfe down.
func (t *Tree) AddUncore(n int) {
	for i := range n {
		t.Functions = append(t.Functions, Function{
			Addr:   fmt.Sprintf("0000:%02x:%02x.%d", 0xfe-i/256, i/8%32, i%8),
			Vendor: 0x8086, Device: 0x324c, Class: 0x088000, Node: i & 1,
			Express: &Express{Port: pci.PortRCIntegratedEP},
		})
	}
}

// Many is a machine of n functions: root ports with 32 SSDs each, 31 of them a
// domain.
func Many(n int) Tree {
	t := Tree{NUMA: []NUMANode{{ID: 0, CPUs: "0-63", Distances: []int{10}}}}
	for domain := 0; len(t.Functions) < n; domain++ {
		for port := 0; port < 31 && len(t.Functions) < n; port++ {
			root := fmt.Sprintf("%04x:00:%02x.0", domain, port)
			t.Functions = append(t.Functions, rootPort(root, 0))
			for dev := 0; dev < 32 && len(t.Functions) < n; dev++ {
				t.Functions = append(t.Functions, Function{
					Addr: fmt.Sprintf("%04x:%02x:%02x.0", domain, port+1, dev), Parent: root,
					Vendor: 0x144d, Device: 0xa80a, Class: 0x010802, Driver: "nvme", Express: &Express{Link: gen4x4},
				})
			}
		}
	}
	return t
}

// Find returns the function at an address for a test to change, or nil.
func (t *Tree) Find(addr string) *Function {
	for i := range t.Functions {
		if t.Functions[i].Addr == addr {
			return &t.Functions[i]
		}
	}
	return nil
}
