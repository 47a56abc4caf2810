package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// secondNIC adds mlx5_1, like mlx5_0 but for change, below the same switch.
func secondNIC(change func(*rdma.Device)) func(*topo.Machine) {
	return func(m *topo.Machine) {
		const port, addr = "0000:02:02.0", "0000:07:00.0"
		m.PCI = append(m.PCI, function(port, uplink, pci.ClassPCIBridge<<8, pci.PortDownstream),
			function(addr, port, pci.ClassEthernet<<8, pci.PortEndpoint))
		d := goodNIC("mlx5_1", addr, "ens2")
		change(&d)
		m.RDMA.Devices = append(m.RDMA.Devices, d)
		m.QoS.Ports = append(m.QoS.Ports, goodLeg(d.Name, 1, "ens2", d.PCI))
	}
}

// thirdNIC adds mlx5_2, like mlx5_0, below the same switch.
func thirdNIC(m *topo.Machine) {
	const port, addr = "0000:02:03.0", "0000:08:00.0"
	m.PCI = append(m.PCI, function(port, uplink, pci.ClassPCIBridge<<8, pci.PortDownstream),
		function(addr, port, pci.ClassEthernet<<8, pci.PortEndpoint))
	m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_2", addr, "ens3"))
}

func infiniband(m *topo.Machine) {
	nic(m).Transport = known(rdma.InfiniBand)
	port(m).LinkLayer, port(m).NetDev = known("InfiniBand"), absent[string]()
}

func TestPresence(t *testing.T) {
	runCases(t, "gpu-present", []verdictCase{
		{"one", nil, "node", Pass, "1 x NVIDIA H100", ""},
		{"none", func(m *topo.Machine) { m.GPU.GPUs = nil }, "node", Fail, "GPUDirect RDMA cannot work here", "lspci -d 10de:"},
		{"lost", func(m *topo.Machine) {
			m.GPU.GPUs = nil
			m.Problems = []topo.Problem{{Part: "pci", Reason: "input/output error"}}
		}, "node", Unknown, "input/output error", ""},
	})
	runCases(t, "rdma-device-present", []verdictCase{
		{"one", nil, "node", Pass, "1 RDMA NIC", ""},
		{"core not loaded", func(m *topo.Machine) {
			m.RDMA.Devices, m.RDMA.Listed = nil, absent[int]()
			m.RDMA.NetDevs = nil
		}, "node", Fail, "no RDMA NIC", "lspci"},
		{"driver without its RDMA part", func(m *topo.Machine) {
			m.RDMA.Devices, m.RDMA.Listed = nil, known(0)
			fn(m, nicAddr).Driver = known("mlx5_core")
		}, "node", Fail, "no RDMA NIC", "ens1 (" + nicAddr + ", driver mlx5_core) may have RDMA: sudo modprobe mlx5_ib"},
		{"software", func(m *topo.Machine) { nic(m).Software = true }, "node", Fail, "the CPU moves the data", ""},
		{"denied", func(m *topo.Machine) {
			m.RDMA.Devices = nil
			m.RDMA.Listed = fact.Missing[int](fact.Denied, "/sys/class/infiniband", "permission denied")
		}, "node", Unknown, "may not be read", ""},
		{"a part was lost", func(m *topo.Machine) {
			m.RDMA.Devices = nil
			m.Problems = []topo.Problem{{Part: "rdma", Reason: "timeout"}}
		}, "node", Unknown, "timeout", ""},
	})
}

func TestRDMACharDevice(t *testing.T) {
	uverbs := func(change func(*rdma.CharDev)) func(*topo.Machine) {
		return func(m *topo.Machine) { change(&nic(m).Uverbs[0]) }
	}
	missing := uverbs(func(c *rdma.CharDev) { c.Node = fact.Missing[fact.Info](fact.Absent, c.Node.Source, "no such file") })
	runCases(t, "rdma-char-device", []verdictCase{
		{"good", nil, "mlx5_0", Pass, "/dev/infiniband/uverbs0 can be opened", ""},
		{"nobody tried", noProbe, "mlx5_0", Info, "whether it opens was not tried", ""},
		{"rdma_cm not seen", func(m *topo.Machine) { denied(&m.RDMA.RDMACM.Node) }, "mlx5_0", Unknown, "/dev/infiniband/rdma_cm may not be read", ""},
		{"not loaded", func(m *topo.Machine) { nic(m).Uverbs = nil }, "mlx5_0", Fail, "ib_uverbs is not loaded", "modprobe ib_uverbs"},
		{"loaded, and no device all the same", func(m *topo.Machine) {
			nic(m).Uverbs = nil
			m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "ib_uverbs"})
		}, "mlx5_0", Fail, "although ib_uverbs is loaded", "dmesg"},
		{"a tree without modules", func(m *topo.Machine) {
			nic(m).Uverbs, m.Origin = nil, "tree"
			m.Host.Modules = fact.Missing[[]host.Module](fact.NotCollected, "/proc/modules", "not in what was read")
		}, "mlx5_0", Unknown, "neither uverbs devices nor the loaded modules", "live node"},
		{"missing", missing, "mlx5_0", Fail, "/dev/infiniband/uverbs0 is missing", "mknod -m 666 /dev/infiniband/uverbs0 c 231 192"},
		{"missing in a tree without /dev", all2(missing, func(m *topo.Machine) { m.Origin = "tree" }), "mlx5_0", Unknown, "holds no device nodes", "live node"},
		{"missing in a container", all2(missing, func(m *topo.Machine) { m.Host.Container = known("docker") }), "mlx5_0", Fail, "is missing", "--device=/dev/infiniband/uverbs0"},
		{"not accessible", uverbs(func(c *rdma.CharDev) { c.Access.V = false }), "mlx5_0", Fail, "may not be opened", "chmod 666 /dev/infiniband/uverbs0"},
		{"cgroup refuses", all2(func(m *topo.Machine) { denied(&nic(m).Verbs) }, func(m *topo.Machine) { m.Host.Container = known("docker") }), "mlx5_0", Fail, "device cgroup", "--device=/dev/infiniband/uverbs0"},
		{"a job's cgroup refuses", func(m *topo.Machine) { denied(&nic(m).Verbs) }, "mlx5_0", Fail, "device cgroup", "ConstrainDevices"},
		{"libibverbs fails", func(m *topo.Machine) {
			nic(m).Verbs = fact.Missing[rdma.VerbsProbe](fact.Failed, "verbs:ibv_open_device", "no answer within 5s")
		}, "mlx5_0", Warn, "could not open the device (no answer within 5s)", "ibv_devinfo -d mlx5_0"},
		{"no rdma_cm", func(m *topo.Machine) { m.RDMA.RDMACM.Node = absent[fact.Info]() }, "mlx5_0", Warn, "rdma_cm is missing", "rdma_ucm"},
		{"not collected", uverbs(func(c *rdma.CharDev) { c.Node = fact.Value[fact.Info]{} }), "mlx5_0", Unknown, "not collected", ""},
		{"modules not seen", func(m *topo.Machine) { nic(m).Uverbs = nil; denied(&m.Host.Modules) }, "mlx5_0", Fail, "whether ib_uverbs is loaded could not be seen", "lsmod"},
		{"a tree whose modules are known", func(m *topo.Machine) { nic(m).Uverbs, m.Origin = nil, "tree" }, "mlx5_0", Fail, "ib_uverbs is not loaded", ""},
		{"not accessible in a container", all2(uverbs(func(c *rdma.CharDev) { c.Access.V = false }), func(m *topo.Machine) { m.Host.Container = known("docker") }), "mlx5_0", Fail, "may not be opened", "--device=/dev/infiniband/uverbs0"},
	})
}

func TestRDMAPortState(t *testing.T) {
	state := func(s, phys string) func(*topo.Machine) {
		return func(m *topo.Machine) { port(m).State.V, port(m).PhysState.V = s, phys }
	}
	runCases(t, "rdma-port-state", []verdictCase{
		{"active", nil, "mlx5_0/1", Pass, "ACTIVE", ""},
		{"down", state("DOWN", "Disabled"), "mlx5_0/1", Fail, "DOWN (Disabled)", "sudo ip link set ens1 up"},
		{"no carrier", all2(state("DOWN", "Polling"), func(m *topo.Machine) { m.RDMA.NetDevs[0].Carrier = known(false) }), "mlx5_0/1", Fail, "DOWN", "ens1 has no carrier"},
		{"no subnet manager", all2(infiniband, state("INIT", "LinkUp")), "mlx5_0/1", Fail, "INIT", "sminfo -C mlx5_0 -P 1"},
		{"InfiniBand cable", all2(infiniband, state("DOWN", "Polling")), "mlx5_0/1", Fail, "DOWN", "mlxlink -d " + nicAddr + " -p 1"},
		{"InfiniBand disabled", all2(infiniband, state("DOWN", "Disabled")), "mlx5_0/1", Fail, "DOWN", "ibportstate -C mlx5_0"},
		{"other port active", all2(state("DOWN", "Polling"), func(m *topo.Machine) {
			p := *port(m)
			p.Number, p.State = 2, known("ACTIVE")
			nic(m).Ports = append(nic(m).Ports, p)
		}), "mlx5_0/1", Info, "port 2 of the same NIC", ""},
		{"storage NIC", secondNIC(func(d *rdma.Device) {
			d.Model.V = rdma.Model{Name: "ConnectX-6 Lx", MaxGbps: 50, GPUDirect: "dmabuf+peermem"}
			d.Ports[0].State.V = "DOWN"
		}), "mlx5_1/1", Info, "no GPU depends on this NIC", ""},
		{"idle NIC on another socket", all2(secondNIC(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" }), func(m *topo.Machine) {
			fn(m, "0000:07:00.0").Parent, fn(m, "0000:07:00.0").NUMANode = nil, known(1)
			fn(m, "0000:07:00.0").HostBridge = "pci0000:80"
		}), "mlx5_1/1", Info, "no GPU depends on this NIC", ""},
		{"failed", func(m *topo.Machine) {
			port(m).State = fact.Missing[string](fact.Failed, "ports/1/state", "input/output error")
		}, "mlx5_0/1", Unknown, "input/output error", "dmesg"},
		{"both ports down", all2(state("DOWN", "Polling"), func(m *topo.Machine) {
			p := *port(m)
			p.Number = 2
			nic(m).Ports = append(nic(m).Ports, p)
		}), "mlx5_0/1", Fail, "DOWN", ""},
		{"another interface has no carrier", all2(state("DOWN", "Disabled"), func(m *topo.Machine) {
			m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: "ens9", Carrier: known(false)})
		}), "mlx5_0/1", Fail, "DOWN", "Bring the interface up: sudo ip link set ens1 up"},
		{"no state", func(m *topo.Machine) { port(m).State = absent[string]() }, "mlx5_0/1", Unknown, "shows no state", ""},
	})
}

func TestRDMAPortRate(t *testing.T) {
	slow := func(d *rdma.Device) { d.Ports[0].Rate.V = rdma.Rate{BitsPerSec: 200e9, Text: "200 Gb/sec (2X NDR)"} }
	runCases(t, "rdma-port-rate", []verdictCase{
		{"full", nil, "mlx5_0/1", Pass, "400 Gb/sec (4X NDR)", ""},
		{"below a sibling", secondNIC(slow), "mlx5_1/1", Warn, "200 Gb/s, while mlx5_0/1 of the same model runs at 400 Gb/s", "ethtool ens2"},
		{"below the model", func(m *topo.Machine) { slow(nic(m)) }, "mlx5_0/1", Warn, "a ConnectX-7 can do 400 Gb/s", "several rates"},
		{"all below the model", all2(func(m *topo.Machine) { slow(nic(m)) }, secondNIC(slow)), "mlx5_0/1", Info, "so do all others of its model", ""},
		{"another board may be slower", all2(func(m *topo.Machine) { nic(m).Model.V.MaxGbps = 0 }, secondNIC(func(d *rdma.Device) {
			slow(d)
			d.Model.V.MaxGbps, d.BoardID = 0, known("MT_0000000891")
		})), "mlx5_1/1", Unknown, "link modes not collected", ""},
		{"two ports share the card", func(m *topo.Machine) {
			d := goodNIC("mlx5_1", "0000:04:00.1", "ens1f1")
			m.PCI = append(m.PCI, function("0000:04:00.1", nicPort, pci.ClassEthernet<<8, pci.PortEndpoint))
			m.RDMA.Devices = append(m.RDMA.Devices, d)
			slow(&m.RDMA.Devices[0])
			slow(&m.RDMA.Devices[1])
		}, "mlx5_0/1", Pass, "200 Gb/sec", ""},
		{"EFA", func(m *topo.Machine) { slow(nic(m)); nic(m).Transport = known(rdma.EFA) }, "mlx5_0/1", NotApplicable, "EFA", ""},
		{"software", func(m *topo.Machine) { slow(nic(m)); nic(m).Software = true }, "mlx5_0/1", NotApplicable, "software", ""},
		{"down", func(m *topo.Machine) { slow(nic(m)); port(m).State.V = "DOWN" }, "mlx5_0/1", NotApplicable, "DOWN", ""},
		{"unreadable", func(m *topo.Machine) { denied(&port(m).Rate) }, "mlx5_0/1", Unknown, "may not be read", ""},
		{"no rate", func(m *topo.Machine) { port(m).Rate = absent[rdma.Rate]() }, "mlx5_0/1", Unknown, "shows no rate", ""},
		{"a faster sibling that is down", all2(func(m *topo.Machine) { nic(m).Model.V.MaxGbps = 200; slow(nic(m)) }, secondNIC(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" })), "mlx5_0/1", Pass, "200", ""},
		{"below two siblings", all2(secondNIC(func(*rdma.Device) {}), thirdNIC, func(m *topo.Machine) { slow(nic(m)) }), "mlx5_0/1", Warn, "while mlx5_1/1 of the same model", ""},
		{"below the model, above a sibling", all2(func(m *topo.Machine) { slow(nic(m)) }, secondNIC(func(d *rdma.Device) { d.Ports[0].Rate.V.BitsPerSec = 100e9 })), "mlx5_0/1", Warn, "a ConnectX-7 can do 400 Gb/s", ""},
		{"boards that do not name themselves", all2(func(m *topo.Machine) {
			nic(m).Model = absent[rdma.Model]()
			slow(nic(m))
			nic(m).BoardID, nic(m).HCAType = absent[string](), absent[string]()
		}, secondNIC(func(d *rdma.Device) { d.BoardID, d.HCAType = absent[string](), absent[string]() })), "mlx5_0/1", Unknown, "link modes not collected", ""},
		{"a board without a PSID", all2(secondNIC(func(d *rdma.Device) { slow(d); d.BoardID.V = "" }), func(m *topo.Machine) { nic(m).BoardID.V = "" }), "mlx5_1/1", Warn, "of the same model", ""},
		{"a board whose PSID is not known", secondNIC(func(d *rdma.Device) { slow(d); d.BoardID = absent[string]() }), "mlx5_1/1", Warn, "of the same model", ""},
		{"two slow ports of a card", func(m *topo.Machine) {
			d := goodNIC("mlx5_1", "0000:04:00.1", "ens1f1")
			m.PCI = append(m.PCI, function("0000:04:00.1", nicPort, pci.ClassEthernet<<8, pci.PortEndpoint))
			d.BoardID.V = "MT_9"
			m.RDMA.Devices = append(m.RDMA.Devices, d)
			m.RDMA.Devices[0].Ports[0].Rate.V.BitsPerSec = 100e9
		}, "mlx5_0/1", Warn, "a ConnectX-7 can do 200 Gb/s for each of 2 ports", ""},
		{"at its best beside a second port whose function was not seen", func(m *topo.Machine) {
			m.RDMA.Devices = append(m.RDMA.Devices, goodNIC("mlx5_1", "0000:04:00.1", "ens1f1"))
		}, "mlx5_0/1", Pass, "400", ""},
		{"a second port whose function was not seen", func(m *topo.Machine) {
			d := goodNIC("mlx5_1", "0000:04:00.1", "ens1f1")
			m.RDMA.Devices = append(m.RDMA.Devices, d)
			slow(&m.RDMA.Devices[0])
			slow(&m.RDMA.Devices[1])
		}, "mlx5_0/1", Unknown, "whether all of it is this port's was not seen", ""},
		{"a VF repeats its PF's port", func(m *topo.Machine) {
			d := goodNIC("mlx5_1", "0000:04:00.1", "ens1v0")
			f := function("0000:04:00.1", nicPort, pci.ClassEthernet<<8, pci.PortEndpoint)
			f.PhysFn = known(at(nicAddr))
			m.PCI = append(m.PCI, f)
			m.RDMA.Devices = append(m.RDMA.Devices, d)
			slow(&m.RDMA.Devices[0])
			slow(&m.RDMA.Devices[1])
			m.RDMA.Devices[1].BoardID.V = "MT_9"
		}, "mlx5_0/1", Warn, "a ConnectX-7 can do 400 Gb/s", ""},
		{"InfiniBand with an interface", all2(infiniband, func(m *topo.Machine) { slow(nic(m)); port(m).NetDev = known("ib0") }), "mlx5_0/1", Warn, "", "ibportstate -C mlx5_0 -P 1"},
	})
}

func TestRoCEGID(t *testing.T) {
	gids := func(list ...rdma.GID) func(*topo.Machine) {
		return func(m *topo.Machine) { port(m).GIDs = list }
	}
	gid := func(i int, addr, kind string) rdma.GID {
		return rdma.GID{Index: i, GID: addr, Type: known(kind), NetDev: known("ens1")}
	}
	const (
		v4 = "0000:0000:0000:0000:0000:ffff:c0a8:0001"
		v6 = "2001:0db8:0000:0000:0000:0000:0000:0001"
		ll = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
	)
	homeless := gid(3, v4, "RoCE v2")
	homeless.NetDev = absent[string]()
	unreadable := gid(3, v4, "")
	unreadable.Type = fact.Missing[string](fact.Failed, "ports/1/gid_attrs/types/3", "input/output error")
	runCases(t, "roce-gid", []verdictCase{
		{"IPv4", nil, "mlx5_0/1", Pass, "IPv4 at GID index 3", ""},
		{"IPv6", gids(gid(0, ll, "RoCE v2"), gid(5, v6, "RoCE v2")), "mlx5_0/1", Pass, "IPv6 at GID index 5", ""},
		{"link-local alone", gids(gid(0, ll, "IB/RoCE v1"), gid(1, ll, "RoCE v2")), "mlx5_0/1", Fail, "all RoCE v2 entries are link-local", "ip addr add ADDRESS/PREFIX dev ens1"},
		{"v1 alone", gids(gid(0, ll, "IB/RoCE v1"), gid(2, v4, "IB/RoCE v1")), "mlx5_0/1", Fail, "all entries are RoCE v1", "roce"},
		{"empty", gids(), "mlx5_0/1", Fail, "the GID table is empty", "ens1"},
		{"a tree without the table", all2(gids(), func(m *topo.Machine) {
			m.Origin, port(m).GIDTable = "tree", absent[int]()
		}), "mlx5_0/1", Unknown, "holds no GID table", "live node"},
		{"another namespace", gids(homeless), "mlx5_0/1", Fail, "not in this network namespace", "--net=host"},
		{"type unreadable", gids(gid(0, ll, "RoCE v2"), unreadable), "mlx5_0/1", Unknown, "input/output error", "dmesg"},
		{"table unreadable", all2(gids(), func(m *topo.Machine) { denied(&port(m).GIDTable) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "InfiniBand has no RoCE", ""},
		{"transport not known", func(m *topo.Machine) { denied(&nic(m).Transport) }, "mlx5_0/1", Unknown, "may not be read", ""},
		{"two of IPv6", gids(gid(5, v6, "RoCE v2"), gid(7, v6, "RoCE v2")), "mlx5_0/1", Pass, "IPv6 at GID index 5", ""},
		{"two of IPv4", gids(gid(3, v4, "RoCE v2"), gid(5, v4, "RoCE v2")), "mlx5_0/1", Pass, "IPv4 at GID index 3", ""},
		{"an interface without a name", gids(func() rdma.GID { g := gid(3, v4, "RoCE v2"); g.NetDev = known(""); return g }()), "mlx5_0/1", Fail, "not in this network namespace", ""},
		{"interface not seen", gids(func() rdma.GID { g := gid(3, v4, "RoCE v2"); denied(&g.NetDev); return g }()), "mlx5_0/1", Unknown, "its interface may not be read", ""},
		{"entries are there, the table's size is not", func(m *topo.Machine) { denied(&port(m).GIDTable) }, "mlx5_0/1", Pass, "index 3", ""},
		{"a tree with entries", func(m *topo.Machine) { m.Origin, port(m).GIDTable = "tree", absent[int]() }, "mlx5_0/1", Pass, "index 3", ""},
		{"a tree with an empty table", all2(gids(), func(m *topo.Machine) { m.Origin = "tree" }), "mlx5_0/1", Fail, "the GID table is empty", ""},
		{"a machine without a table", all2(gids(), func(m *topo.Machine) { port(m).GIDTable = absent[int]() }), "mlx5_0/1", Fail, "the GID table is empty", ""},
	})
}

func TestLibIBVerbsInATree(t *testing.T) {
	gone := func(m *topo.Machine) { m.RDMA.LibIBVerbs = absent[string]() }
	partial := func(m *topo.Machine) {
		gone(m)
		m.Origin, m.RDMA.Providers = "tree", fact.Missing[[]string](fact.NotCollected, "libibverbs", "not in what was read")
	}
	runCases(t, "libibverbs", []verdictCase{
		{"there", nil, "node", Pass, "1.14.50.0", ""},
		{"not installed", gone, "node", Warn, "none of the usual folders", "sudo apt install libibverbs1"},
		{"not in the tree", partial, "node", Unknown, "holds no libraries of RDMA", ""},
	})
}
