package checks

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// secondPort has a second NIC for the GPU, with its interface ens2.
func secondPort(change func(*rdma.Device)) func(*topo.Machine) {
	return func(m *topo.Machine) {
		secondNIC(change)(m)
		n := m.RDMA.NetDevs[0]
		n.Name, n.PCI = "ens2", m.RDMA.Devices[1].PCI
		m.RDMA.NetDevs = append(m.RDMA.NetDevs, n)
	}
}

func TestLibIBVerbs(t *testing.T) {
	version := func(v string) func(*topo.Machine) { return func(m *topo.Machine) { m.RDMA.LibIBVerbs.V = v } }
	docker := func(m *topo.Machine) { m.Host.Container = known("docker") }
	none := func(m *topo.Machine) { m.RDMA.LibIBVerbs = absent[string]() }
	copies := func(list ...rdma.Library) func(*topo.Machine) {
		return func(m *topo.Machine) { m.RDMA.LibCopies = list }
	}
	const usr, local = "/usr/lib64/libibverbs.so.1", "/usr/local/lib/libibverbs.so.1"
	runCases(t, "libibverbs", []verdictCase{
		{"good", nil, "node", Pass, "1.14.50.0", ""},
		{"nobody tried to open the NIC", noProbe, "node", Info, "1.14.50.0; whether it opens mlx5_0 was not seen", ""},
		{"drivers not seen, but it opens", func(m *topo.Machine) { denied(&m.RDMA.Providers); denied(&nic(m).Driver) }, "node", Pass, "", ""},
		{"drivers not seen", all2(noProbe, func(m *topo.Machine) { denied(&m.RDMA.Providers) }), "node", Unknown, "drivers of libibverbs may not be read", ""},
		{"the NIC's driver not seen", all2(noProbe, func(m *topo.Machine) { denied(&nic(m).Driver) }), "node", Unknown, "driver of mlx5_0 may not be read", ""},
		{"none", none, "node", Warn, "none of the usual folders", "apt install libibverbs1"},
		{"none in a container", all2(none, docker), "node", Warn, "", "In an image of Debian or Ubuntu: apt install libibverbs1"},
		{"too old for DMA-BUF", version("1.11.32.1"), "node", Warn, "libibverbs 1.11.32.1 has no ibv_reg_dmabuf_mr", "rdma-core"},
		{"the first with DMA-BUF", version("1.12.34.0"), "node", Pass, "", ""},
		{"old in a container on OFED", all2(version("1.8.28.0"), docker, func(m *topo.Machine) {
			m.Host.Modules.V = append(m.Host.Modules.V, module("mlx5_core", "25.10-1.2.8"))
		}), "node", Warn, "older than the host's OFED 25.10-1.2.8", "same DOCA-OFED"},
		{"two copies", copies(rdma.Library{File: usr, Version: "1.14.50.0"}, rdma.Library{File: local, Version: "1.8.28.0"}), "node", Warn, local + " (1.8.28.0)", "ldconfig -p"},
		{"two of one version", copies(rdma.Library{File: usr, Version: "1.14.50.0"}, rdma.Library{File: local, Version: "1.14.50.0"}), "node", Pass, "", ""},
		{"no provider", all2(noProbe, func(m *topo.Machine) { m.RDMA.Providers = known([]string{"bnxt_re"}) }), "node", Warn, "no driver mlx5 for mlx5_0", "ibverbs-providers"},
		{"no provider in the list, but it works", func(m *topo.Machine) { m.RDMA.Providers = known([]string{}) }, "node", Pass, "", ""},
		{"not listed", func(m *topo.Machine) {
			nic(m).Verbs = fact.Value[rdma.VerbsProbe]{State: fact.Absent, Source: "verbs", Errno: syscall.ENODEV, Reason: "no such device"}
		}, "node", Warn, "does not list mlx5_0", "ibv_devices"},
		{"software alone", func(m *topo.Machine) { nic(m).Software = true }, "node", NotApplicable, "no RDMA NIC", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.RDMA.LibIBVerbs) }, "node", Unknown, "may not be read", ""},
		{"a tree with the library, without its drivers", func(m *topo.Machine) {
			m.Origin, m.RDMA.Providers = "tree", fact.Missing[[]string](fact.NotCollected, "libibverbs", "not in what was read")
		}, "node", Pass, "", ""},
		{"old in a container, no OFED", all2(version("1.8.28.0"), docker), "node", Warn, "has no ibv_reg_dmabuf_mr", ""},
		{"old on OFED, in no container", all2(version("1.8.28.0"), func(m *topo.Machine) {
			m.Host.Modules.V = append(m.Host.Modules.V, module("mlx5_core", "25.10-1.2.8"))
		}), "node", Warn, "has no ibv_reg_dmabuf_mr", ""},
		{"not opened for another reason", func(m *topo.Machine) {
			nic(m).Verbs = fact.Value[rdma.VerbsProbe]{State: fact.Absent, Source: "verbs", Errno: syscall.ENOENT, Reason: "no library"}
		}, "node", Pass, "", ""},
	})
}

func TestRDMANodeGUID(t *testing.T) {
	guid := func(s string) func(*topo.Machine) { return func(m *topo.Machine) { nic(m).NodeGUID.V = s } }
	zero := guid("0000:0000:0000:0000")
	runCases(t, "rdma-node-guid", []verdictCase{
		{"set", nil, "mlx5_0", Pass, "0200:00ff:fe00:0001", ""},
		{"zero", zero, "mlx5_0", Fail, "its node GUID is zero", "ip link set PF vf N node_guid"},
		{"zero on a VF of a known PF", all2(zero, func(m *topo.Machine) {
			fn(m, nicAddr).PhysFn = known(at("0000:04:00.1"))
			m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: "ens1f1", PCI: known(at("0000:04:00.1"))})
		}), "mlx5_0", Fail, "", "ip link set ens1f1 vf N node_guid"},
		{"EFA has none", all2(zero, func(m *topo.Machine) { nic(m).Transport.V = rdma.EFA }), "mlx5_0", NotApplicable, "", ""},
		{"software", all2(zero, func(m *topo.Machine) { nic(m).Software = true }), "mlx5_0", NotApplicable, "", ""},
		{"not seen", func(m *topo.Machine) { denied(&nic(m).NodeGUID) }, "mlx5_0", Unknown, "may not be read", ""},
		{"not there", func(m *topo.Machine) { nic(m).NodeGUID = absent[string]() }, "mlx5_0", Unknown, "shows no node GUID", ""},
		{"zero on a VF, another interface first", all2(zero, func(m *topo.Machine) {
			fn(m, nicAddr).PhysFn = known(at("0000:04:00.1"))
			m.RDMA.NetDevs = []rdma.NetDev{{Name: "ens1f1", PCI: known(at("0000:04:00.1"))}, {Name: "ens9", PCI: known(at("0000:09:00.0"))}, {Name: "br0"}}
		}), "mlx5_0", Fail, "", "ip link set ens1f1 vf N node_guid"},
	})
}

func TestRDMAPKey(t *testing.T) {
	keys := func(list ...rdma.PKey) func(*topo.Machine) {
		return all2(infiniband, func(m *topo.Machine) { port(m).PKeys = fact.Of(list, "ports/1/pkeys") })
	}
	runCases(t, "rdma-pkey", []verdictCase{
		{"full member", infiniband, "mlx5_0/1", Pass, "0xffff at index 0", ""},
		{"limited at 0, full later", keys(rdma.PKey{Index: 0, Value: 0x7fff}, rdma.PKey{Index: 2, Value: 0x8012}), "mlx5_0/1", Fail, "a full member only at index 2", "NCCL_IB_PKEY=2; UCX: UCX_IB_PKEY=0x12"},
		{"empty at 0, full later", keys(rdma.PKey{Index: 1, Value: 0x8012}), "mlx5_0/1", Fail, "index 0 holds 0x0000", "NCCL_IB_PKEY=1"},
		{"limited alone", keys(rdma.PKey{Index: 0, Value: 0x7fff}), "mlx5_0/1", Fail, "a full member of no partition", "smpquery pkeys -C mlx5_0"},
		{"empty", keys(), "mlx5_0/1", Fail, "no partition", ""},
		{"RoCE", nil, "mlx5_0/1", NotApplicable, "RoCE", ""},
		{"not up", all2(infiniband, func(m *topo.Machine) { port(m).State.V = "INIT" }), "mlx5_0/1", NotApplicable, "INIT", ""},
		{"not seen", all2(infiniband, func(m *topo.Machine) { denied(&port(m).PKeys) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"full twice", keys(rdma.PKey{Index: 0, Value: 0x7fff}, rdma.PKey{Index: 1, Value: 0x8012}, rdma.PKey{Index: 2, Value: 0x8013}), "mlx5_0/1", Fail, "a full member only at index 1", "UCX_IB_PKEY=0x12"},
		{"none shown", all2(infiniband, func(m *topo.Machine) { port(m).PKeys = absent[[]rdma.PKey]() }), "mlx5_0/1", Unknown, "shows no P_Keys", ""},
	})
}

func TestRDMAMTU(t *testing.T) {
	mtu := func(active, netdev int) func(*topo.Machine) {
		return func(m *topo.Machine) { port(m).ActiveMTU.V, m.RDMA.NetDevs[0].MTU = active, known(netdev) }
	}
	runCases(t, "rdma-mtu", []verdictCase{
		{"full", mtu(4096, 4200), "mlx5_0/1", Pass, "4096", ""},
		{"full, its own limit not seen", func(m *topo.Machine) { denied(&port(m).MaxMTU) }, "mlx5_0/1", Pass, "4096", ""},
		{"not full, its own limit not seen", all2(mtu(2048, 9000), func(m *topo.Machine) { denied(&port(m).MaxMTU) }), "mlx5_0/1", Unknown, "largest RDMA MTU may not be read", ""},
		{"jumbo", mtu(4096, 9000), "mlx5_0/1", Pass, "4096", ""},
		{"small on all", mtu(1024, 1500), "mlx5_0/1", Info, "ip link set ens1 mtu 9000", ""},
		{"not enough for 4096", mtu(2048, 4150), "mlx5_0/1", Info, "2048 on all alike", ""},
		{"as its sibling", all2(mtu(4096, 9000), secondPort(func(*rdma.Device) {})), "mlx5_0/1", Pass, "4096", ""},
		{"changed without the port", mtu(1024, 9000), "mlx5_0/1", Warn, "allows 4096", "ip link set ens1 down"},
		{"the NIC can do no more", all2(mtu(2048, 9000), func(m *topo.Machine) { port(m).MaxMTU.V = 2048 }), "mlx5_0/1", Pass, "2048", ""},
		{"below a sibling", all2(mtu(4096, 9000), secondPort(func(d *rdma.Device) { d.Ports[0].ActiveMTU.V = 1024 }), func(m *topo.Machine) { m.RDMA.NetDevs[1].MTU = known(1500) }), "mlx5_1/1", Warn, "1024, while mlx5_0/1 has 4096", "ip link set ens2 mtu 9000"},
		{"above a sibling", all2(mtu(4096, 9000), secondPort(func(d *rdma.Device) { d.Ports[0].ActiveMTU.V = 1024 })), "mlx5_0/1", Pass, "4096", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "InfiniBand", ""},
		{"down", func(m *topo.Machine) { port(m).State.V = "DOWN" }, "mlx5_0/1", NotApplicable, "DOWN", ""},
		{"not seen", func(m *topo.Machine) { denied(&port(m).ActiveMTU) }, "mlx5_0/1", Unknown, "may not be read", ""},
		{"just enough for 4096", mtu(4096, 4192), "mlx5_0/1", Pass, "4096", ""},
		{"enough, and the NIC can do no more", all2(mtu(2048, 4200), func(m *topo.Machine) { port(m).MaxMTU.V = 2048 }), "mlx5_0/1", Pass, "2048", ""},
		{"interface's MTU not known", all2(mtu(1024, 0), func(m *topo.Machine) { m.RDMA.NetDevs[0].MTU = absent[int]() }), "mlx5_0/1", Pass, "1024", ""},
		{"software", func(m *topo.Machine) { nic(m).Software = true }, "mlx5_0/1", NotApplicable, "software", ""},
		{"none shown", func(m *topo.Machine) { port(m).ActiveMTU = absent[int]() }, "mlx5_0/1", Unknown, "no active MTU", ""},
		{"below two siblings", all2(mtu(1024, 1500), secondPort(func(*rdma.Device) {}), thirdNIC), "mlx5_0/1", Warn, "while mlx5_1/1 has 4096", ""},
		{"a sibling that is software", all2(mtu(1024, 1500), secondPort(func(d *rdma.Device) { d.Software = true })), "mlx5_0/1", Info, "", ""},
		{"a sibling on InfiniBand", all2(mtu(1024, 1500), secondPort(func(d *rdma.Device) { d.Transport.V = rdma.InfiniBand })), "mlx5_0/1", Info, "", ""},
		{"a sibling that is down", all2(mtu(1024, 1500), secondPort(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" })), "mlx5_0/1", Info, "", ""},
		{"a storage NIC beside it", all2(mtu(1024, 1500), storageNIC), "mlx5_0/1", Info, "", ""},
	})
}

func TestRDMALinkLayer(t *testing.T) {
	odd := secondPort(func(d *rdma.Device) { d.Transport.V = rdma.InfiniBand })
	runCases(t, "rdma-link-layer", []verdictCase{
		{"alike", secondPort(func(*rdma.Device) {}), "node", Pass, "2 alike", ""},
		{"one of a model is Ethernet", all2(odd, thirdNIC, func(m *topo.Machine) {
			nic(m).Transport.V = rdma.InfiniBand
			m.RDMA.Devices[1].Transport.V = rdma.RoCE
			m.RDMA.Devices[2].Transport.V = rdma.InfiniBand
		}), "node", Warn, "mlx5_1 is Ethernet, 2 others are not", "mlxconfig -d 0000:07:00.0 set LINK_TYPE_P1=IB"},
		{"of different models", secondPort(func(d *rdma.Device) { d.Transport.V, d.BoardID.V = rdma.InfiniBand, "MT_9" }), "node", Warn, "mixed: mlx5_0 is Ethernet, 1 others are not", "NCCL_IB_HCA=="},
		{"storage is not asked", secondNIC(func(d *rdma.Device) {
			d.Transport.V, d.Model.V = rdma.InfiniBand, rdma.Model{Name: "ConnectX-6 Lx", MaxGbps: 50, GPUDirect: "dmabuf+peermem"}
		}), "node", NotApplicable, "fewer than two", ""},
		{"one", nil, "node", NotApplicable, "fewer than two", ""},
		{"not seen", all2(secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { denied(&m.RDMA.Devices[1].Transport) }), "node", Unknown, "may not be read", ""},
		{"one does not say", all2(secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { m.RDMA.Devices[1].Transport = absent[rdma.Transport]() }), "node", Unknown, "cannot tell what mlx5_1 is", ""},
	})
}

func TestNICFirmware(t *testing.T) {
	runs := func(v string) func(*topo.Machine) {
		return secondNIC(func(d *rdma.Device) { d.Firmware.V = v })
	}
	runCases(t, "nic-firmware", []verdictCase{
		{"one", nil, "mlx5_0", Pass, "28.43.2566", ""},
		{"alike", runs("28.43.2566"), "mlx5_1", Pass, "", ""},
		{"older", runs("28.39.1002"), "mlx5_1", Warn, "28.39.1002, while mlx5_0 of the same board runs 28.43.2566", "mlxfwmanager -d 0000:07:00.0"},
		{"newer", runs("28.43.3000"), "mlx5_1", Pass, "28.43.3000", ""},
		{"another board", secondNIC(func(d *rdma.Device) { d.Firmware.V, d.BoardID.V = "28.39.1002", "MT_9" }), "mlx5_1", Pass, "", ""},
		{"EFA", func(m *topo.Machine) { nic(m).Transport.V = rdma.EFA }, "mlx5_0", NotApplicable, "", ""},
		{"driver shows none", func(m *topo.Machine) { nic(m).Firmware = absent[string]() }, "mlx5_0", NotApplicable, "", ""},
		{"not seen", func(m *topo.Machine) { denied(&nic(m).Firmware) }, "mlx5_0", Unknown, "may not be read", ""},
	})
}

// Each maker's NIC is updated by its maker's tool and by no other's. The commands
// are as the makers' documents have them; firmwareTools names those.
func TestFirmwareTools(t *testing.T) {
	check, _ := Lookup("nic-firmware")
	all := []string{"mlxfwmanager", "mlxfwreset", "flint", "niccli", "nicctl", "nvmupdate64e", "ethtool -f", "devlink"}
	for driver, tt := range map[string]struct {
		want  []string // lines
		tools []string // of all
	}{
		"mlx5_core":    {[]string{"mlxfwmanager of DOCA-OFED: sudo mlxfwmanager -d 0000:07:00.0 --online -u", "sudo mlxfwreset -d 0000:07:00.0 reset"}, []string{"mlxfwmanager", "mlxfwreset", "flint"}},
		"mlx5_core.sf": {[]string{"sudo mlxfwmanager -d 0000:07:00.0 --online -u"}, []string{"mlxfwmanager", "mlxfwreset", "flint"}},
		"bnxt_en":      {[]string{"sudo niccli --list", "sudo niccli --dev N install FILE.pkg", "sudo devlink dev flash pci/0000:07:00.0 file FILE.pkg"}, []string{"niccli", "devlink"}},
		"ionic":        {[]string{"sudo nicctl show card", "sudo nicctl update firmware -i ainic_fw_salina.tar -c UUID", "sudo nicctl reset card -c UUID"}, []string{"nicctl"}},
		"ice":          {[]string{"sudo ./nvmupdate64e"}, []string{"nvmupdate64e"}},
		"cxgb4":        {[]string{"sudo ethtool -f ens2 FILE.bin"}, []string{"ethtool -f"}},
		"hns3":         {[]string{"of the driver hns3 no command is known here", "sudo devlink dev info pci/0000:07:00.0"}, []string{"devlink"}},
	} {
		m := goodNode()
		secondNIC(func(d *rdma.Device) { d.Firmware.V, d.Driver.V, d.Ports[0].NetDev.V = "28.39.1002", driver, "ens2" })(m)
		fix := strings.Join(findingOf(t, m, check, "mlx5_1").Fix, "\n")
		for _, line := range tt.want {
			if !strings.Contains(fix+"\n", line+"\n") {
				t.Errorf("%s: %q lacks %q", driver, fix, line)
			}
		}
		for _, tool := range all {
			if strings.Contains(fix, tool) != slices.Contains(tt.tools, tool) {
				t.Errorf("%s: %s in %q", driver, tool, fix)
			}
		}
		if strings.ContainsAny(fix, "{}") {
			t.Errorf("%s: %q", driver, fix)
		}
	}
}

func TestRDMALAG(t *testing.T) {
	bond := func(mode string, addrs ...string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			b := rdma.NetDev{Name: "bond0", BondMode: fact.Of(mode, "bonding/mode")}
			m.RDMA.NetDevs = nil
			for i, a := range addrs {
				name := []string{"ens1f0", "ens1f1"}[i]
				b.Slaves = append(b.Slaves, name)
				m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: name, PCI: known(at(a)), Master: known("bond0")})
			}
			m.RDMA.NetDevs = append(m.RDMA.NetDevs, b)
			port(m).NetDev.V = "bond0"
		}
	}
	const second = "0000:04:00.1"
	runCases(t, "rdma-lag", []verdictCase{
		{"none", nil, "mlx5_0/1", Pass, "no bond", ""},
		{"LACP", bond("802.3ad", nicAddr, second), "mlx5_0/1", Info, "NCCL_IB_QPS_PER_CONNECTION=2", ""},
		{"active-backup", bond("active-backup", nicAddr, second), "mlx5_0/1", Info, "the other waits", ""},
		{"round robin", bond("balance-rr", nicAddr, second), "mlx5_0/1", Warn, "balance-rr, which the NIC cannot offload", "type bond mode 802.3ad"},
		{"two cards", bond("802.3ad", nicAddr, "0000:07:00.0"), "mlx5_0/1", Warn, "ports of 2 cards", "each card's RDMA device"},
		{"not bundled", all2(bond("802.3ad", nicAddr, second), func(m *topo.Machine) { port(m).NetDev.V = "ens1f0" }), "mlx5_0/1", Info, "does not bundle", ""},
		{"in a bridge", func(m *topo.Machine) { m.RDMA.NetDevs[0].Master = known("br0") }, "mlx5_0/1", Pass, "no bond", ""},
		{"no interface", func(m *topo.Machine) { port(m).NetDev = absent[string]() }, "mlx5_0/1", NotApplicable, "no network interface", ""},
		{"mode not seen", all2(bond("", nicAddr, second), func(m *topo.Machine) { denied(&m.RDMA.NetDevs[2].BondMode) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"in a bridge that was seen", func(m *topo.Machine) {
			m.RDMA.NetDevs[0].Master = known("br0")
			m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: "br0"})
		}, "mlx5_0/1", Pass, "no bond", ""},
		{"no mode", all2(bond("", nicAddr, second), func(m *topo.Machine) { m.RDMA.NetDevs[2].BondMode = absent[string]() }), "mlx5_0/1", Unknown, "bond0 shows no mode", ""},
	})
}

func TestRDMALinkErrors(t *testing.T) {
	count := func(name string, v fact.Value[uint64]) func(*topo.Machine) {
		return func(m *topo.Machine) { port(m).Counters = append(port(m).Counters, rdma.Counter{Name: name, Value: v}) }
	}
	clean := count("link_downed", known(uint64(0)))
	runCases(t, "rdma-link-errors", []verdictCase{
		{"none", clean, "mlx5_0/1", Pass, "no errors", ""},
		{"link lost", all2(clean, count("symbol_error", known(uint64(12)))), "mlx5_0/1", Info, "symbol_error 12", ""},
		{"lost once, at boot", count("link_downed", known(uint64(1))), "mlx5_0/1", Pass, "", ""},
		{"lost as the interface counts it", all2(clean, func(m *topo.Machine) {
			leg(m).Stats = fact.Of([]qos.Stat{{Name: "rx_crc_errors_phy", Value: 6}, {Name: "rx_prio3_bytes", Value: 9}}, "ethtool:GSTATS")
		}), "mlx5_0/1", Info, "rx_crc_errors_phy 6", ""},
		{"lost so often that the counter is full", all2(clean, func(m *topo.Machine) { port(m).Counters[0].Value.V = 255 }), "mlx5_0/1", Info, "link_downed 255 or more", ""},
		{"traffic is no error", all2(clean, count("port_xmit_data", known(uint64(12)))), "mlx5_0/1", Pass, "", ""},
		{"not kept", count("link_downed", fact.Missing[uint64](fact.Unsupported, "counters/link_downed", "no")), "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", all2(clean, count("symbol_error", fact.Missing[uint64](fact.Failed, "counters/symbol_error", "input/output error"))), "mlx5_0/1", Unknown, "input/output error", ""},
		{"not read", all2(clean, count("symbol_error", fact.Missing[uint64](fact.NotCollected, "counters/symbol_error", "ran out of time"))), "mlx5_0/1", Unknown, "not collected", ""},
	})
}

func TestRDMATrafficClass(t *testing.T) {
	set := func(n int) func(*topo.Machine) { return func(m *topo.Machine) { port(m).TrafficClass = known(n) } }
	runCases(t, "rdma-traffic-class", []verdictCase{
		{"none", nil, "mlx5_0/1", Pass, "none set", ""},
		{"set", set(236), "mlx5_0/1", Info, "236 (DSCP 59)", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", func(m *topo.Machine) { denied(&port(m).TrafficClass) }, "mlx5_0/1", Unknown, "may not be read", ""},
	})
}

func TestNICFirmwareFault(t *testing.T) {
	runs := func(driver, version string) func(*topo.Machine) {
		return func(m *topo.Machine) { nic(m).Driver.V, nic(m).Firmware.V = driver, version }
	}
	runCases(t, "nic-firmware-fault", []verdictCase{
		{"none known", nil, "mlx5_0", Pass, "28.43.2566: no fault known", ""},
		{"the last with it", runs("mlx5_core", "22.31.2006"), "mlx5_0", Warn, "has a known fault: firmware can use memory", "Update it to 22.40.1000 or newer with mlxfwmanager of DOCA-OFED: sudo mlxfwmanager -d 0000:04:00.0 --online -u"},
		{"older", runs("mlx5_core", "22.28.1002"), "mlx5_0", Warn, "", ""},
		{"mended", runs("mlx5_core", "22.40.1000"), "mlx5_0", Pass, "", ""},
		{"another generation", runs("mlx5_core", "20.31.2006"), "mlx5_0", Pass, "", ""},
		{"for IBGDA alone", runs("bnxt_en", "231.2.63.0"), "mlx5_0", Info, "for GPU-initiated RDMA (IBGDA)", ""},
		{"the next one", runs("bnxt_en", "232.0.0.0"), "mlx5_0", Pass, "", ""},
		{"the GA release of it", runs("mlx5_core", "32.39.2048"), "mlx5_0", Warn, "congestion control can malfunction", "Update it to 32.41.1000"},
		{"the last GA release of it", runs("mlx5_core", "32.40.1000"), "mlx5_0", Warn, "congestion control can malfunction", ""},
		{"a long-term branch, of which nobody tells", runs("mlx5_core", "32.39.3560"), "mlx5_0", Pass, "", ""},
		{"found in", runs("mlx5_core", "32.38.1002"), "mlx5_0", Info, "for RoCE with selective repeat", ""},
		{"before it was found", runs("mlx5_core", "32.37.1306"), "mlx5_0", Pass, "", ""},
		{"mended in both", runs("mlx5_core", "32.41.1000"), "mlx5_0", Pass, "", ""},
		{"another NIC of that release", runs("mlx5_core", "28.39.2048"), "mlx5_0", Pass, "", ""},
		{"with letters", runs("ionic", "1.117.1-a-63"), "mlx5_0", Info, "IBGDA", ""},
		{"a later branch", runs("ionic", "1.117.5-a-45"), "mlx5_0", Pass, "", ""},
		{"EFA", transport(rdma.EFA), "mlx5_0", NotApplicable, "", ""},
		{"not shown", func(m *topo.Machine) { nic(m).Firmware = absent[string]() }, "mlx5_0", NotApplicable, "", ""},
		{"not seen", func(m *topo.Machine) { denied(&nic(m).Firmware) }, "mlx5_0", Unknown, "may not be read", ""},
	})
	for _, f := range firmwareFaults() {
		if len(f.Drivers) == 0 || f.From == "" || f.Until == "" || f.Name == "" || f.Fault == "" || f.Mended == "" || !strings.HasPrefix(f.Source, "https://") || older(f.Until, f.From) {
			t.Errorf("%+v", f)
		}
		if f.covers(f.Drivers[0], f.Mended) || !f.covers(f.Drivers[0], f.Until) {
			t.Errorf("%s: covers what mends it, or not its own end", f.Name)
		}
	}
}

// The cases are those of NCCL's documentation of NCCL_IB_HCA.
func TestNCCLTakes(t *testing.T) {
	for _, c := range []struct {
		spec, device string
		port         int
		want         bool
	}{
		{"", "mlx5_0", 1, true}, {"mlx5", "mlx5_0", 1, true}, {"mlx5", "ibp0", 1, false},
		{"=mlx5_0:1,mlx5_1:1", "mlx5_0", 1, true}, {"=mlx5_0:1,mlx5_1:1", "mlx5_0", 2, false}, {"=mlx5_1", "mlx5_10", 1, false},
		{"mlx5_1", "mlx5_10", 1, true}, {"^mlx5_3,mlx5_4", "mlx5_3", 1, false}, {"^mlx5_3", "mlx5_0", 1, true}, {"^=mlx5_1", "mlx5_10", 1, true},
	} {
		if got := ncclTakes(c.spec, c.device, c.port); got != c.want {
			t.Errorf("NCCL_IB_HCA=%s takes %s:%d: %v", c.spec, c.device, c.port, got)
		}
	}
}

func TestRDMAOtherNICs(t *testing.T) {
	storage := func(change func(*rdma.Device)) func(*topo.Machine) {
		return secondNIC(func(d *rdma.Device) {
			d.Model.V = rdma.Model{Name: "ConnectX-6 Lx", MaxGbps: 25, GPUDirect: "dmabuf+peermem"}
			d.Ports[0].Rate.V = rdma.Rate{BitsPerSec: 25e9, Text: "25 Gb/sec"}
			change(d)
		})
	}
	hca := func(spec string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.QoS.Job.V = append(m.QoS.Job.V, qos.Setting{Name: "NCCL_IB_HCA", Value: spec, Source: "/etc/nccl.conf"})
		}
	}
	runCases(t, "rdma-other-nics", []verdictCase{
		{"none", nil, "node", Pass, "every active NIC", ""},
		{"storage", storage(func(*rdma.Device) {}), "node", Info, "mlx5_1 (25 Gb/s); name those for GPUs: NCCL_IB_HCA==mlx5_0", ""},
		{"a job names its own", all2(storage(func(*rdma.Device) {}), hca("=mlx5_0")), "node", Pass, "NCCL_IB_HCA==mlx5_0 (/etc/nccl.conf) names those for GPUs", ""},
		{"a job takes all", all2(storage(func(*rdma.Device) {}), hca("mlx5")), "node", Warn, "takes in mlx5_1 (25 Gb/s), which is no GPU's", "NCCL_IB_HCA==mlx5_0"},
		{"a job leaves out a GPU's", all2(storage(func(*rdma.Device) {}), hca("=mlx5_1")), "node", Warn, "leaves out mlx5_0", ""},
		{"storage, down", storage(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" }), "node", Pass, "", ""},
		{"no NIC of a GPU's", func(m *topo.Machine) { m.RDMA.Devices = nil }, "node", NotApplicable, "", ""},
		{"not seen", storage(func(d *rdma.Device) { denied(&d.Ports[0].State) }), "node", Unknown, "may not be read", ""},
	})
}

func TestRDMATransport(t *testing.T) {
	is := func(tr rdma.Transport, driver string) func(*topo.Machine) {
		return func(m *topo.Machine) { nic(m).Transport.V, nic(m).Driver.V = tr, driver }
	}
	runCases(t, "rdma-transport", []verdictCase{
		{"RoCE", nil, "mlx5_0", Pass, "RoCE", ""},
		{"InfiniBand", infiniband, "mlx5_0", Pass, "InfiniBand", ""},
		{"E810 in iWARP", is(rdma.IWARP, "ice"), "mlx5_0", Warn, "iWARP", "devlink dev param set pci/0000:04:00.0 name enable_roce value true"},
		{"Chelsio", is(rdma.IWARP, "cxgb4"), "mlx5_0", Warn, "iWARP", "rdma_cm"},
		{"EFA", is(rdma.EFA, "efa"), "mlx5_0", Info, "aws-ofi-nccl", ""},
		{"usNIC", is(rdma.Other, "usnic"), "mlx5_0", Info, "other", ""},
		{"software", func(m *topo.Machine) { nic(m).Software = true }, "mlx5_0", NotApplicable, "", ""},
		{"not seen", func(m *topo.Machine) { denied(&nic(m).Transport) }, "mlx5_0", Unknown, "may not be read", ""},
		{"no port says", func(m *topo.Machine) { nic(m).Transport = absent[rdma.Transport]() }, "mlx5_0", Unknown, "no port says", ""},
	})
}
