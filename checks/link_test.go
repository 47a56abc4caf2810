package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

func software(m *topo.Machine) { nic(m).Software = true }

func TestRDMALinkFlaps(t *testing.T) {
	downs := func(n uint64, days float64) func(*topo.Machine) {
		return func(m *topo.Machine) { leg(m).Link.Downs.V, m.Host.UptimeSec.V = n, days*24*3600 }
	}
	changes := func(n uint64) func(*topo.Machine) {
		return func(m *topo.Machine) {
			unsupported(&leg(m).Link.Downs)
			m.RDMA.NetDevs[0].CarrierChanges = fact.Of(n, "carrier_changes")
		}
	}
	runCases(t, "rdma-link-flaps", []verdictCase{
		{"once in a month", nil, "mlx5_0/1", Pass, "lost 1 times in 30 days", ""},
		{"never", downs(0, 30), "mlx5_0/1", Pass, "never", ""},
		{"every day", downs(30, 30), "mlx5_0/1", Pass, "30 times in 30 days", ""},
		{"more", downs(95, 30), "mlx5_0/1", Warn, "went down 95 times in 30 days", "sudo ethtool -m ens1"},
		{"twice in an hour", downs(2, 0.04), "mlx5_0/1", Warn, "2 times in 1 days", ""},
		{"changes of carrier at boot", changes(2), "mlx5_0/1", Pass, "never", ""},
		{"changes of carrier", changes(200), "mlx5_0/1", Warn, "went down 99 times", ""},
		{"uptime not seen", all2(downs(5, 1), func(m *topo.Machine) { denied(&m.Host.UptimeSec) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"software", software, "mlx5_0/1", NotApplicable, "", ""},
	})
}

func TestRDMALinkFEC(t *testing.T) {
	fec := func(active string, mbps, lanes int) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.FEC.Active.V, l.Link.SpeedMbps.V, l.Link.Lanes.V = active, mbps, lanes })
	}
	runCases(t, "rdma-link-fec", []verdictCase{
		{"RS", nil, "mlx5_0/1", Pass, "RS, all blocks corrected", ""},
		{"none on a slow link", fec("None", 100000, 4), "mlx5_0/1", Pass, "None", ""},
		{"none on a fast one", fec("None", 200000, 4), "mlx5_0/1", Warn, "no FEC on a link with 50 Gb/s a lane", "sudo ethtool --set-fec ens1 encoding rs"},
		{"blocks lost", set(func(l *qos.Port) { l.FEC.Uncorrectable.V = 7 }), "mlx5_0/1", Info, "7 blocks could not be corrected", ""},
		{"not counted", set(func(l *qos.Port) { unsupported(&l.FEC.Uncorrectable) }), "mlx5_0/1", Pass, "RS", ""},
		{"a VF", set(func(l *qos.Port) { unsupported(&l.FEC.Active) }), "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.FEC.Active) }), "mlx5_0/1", Unknown, "may not be read", ""},
	})
}

func TestRDMAModule(t *testing.T) {
	module := func(change func(*qos.Module)) func(*topo.Machine) {
		return set(func(l *qos.Port) { change(&l.Module) })
	}
	runCases(t, "rdma-module", []verdictCase{
		{"ready", nil, "mlx5_0/1", Pass, "OSFP Example optical, 51 °C", ""},
		{"alarm", module(func(m *qos.Module) { m.Alarms.V = []string{"high temperature alarm", "rx low power alarm lane 3"} }), "mlx5_0/1", Warn, "high temperature alarm, rx low power alarm lane 3", "sudo ethtool -m ens1"},
		{"fault", module(func(m *qos.Module) { m.State.V = "ModuleFault" }), "mlx5_0/1", Warn, "state ModuleFault", "plug it in again"},
		{"low power", module(func(m *qos.Module) { m.PowerMode = known("low") }), "mlx5_0/1", Warn, "low power mode", "power-mode-policy high"},
		{"a copper cable without a monitor", module(func(m *qos.Module) {
			m.TemperatureC, m.Alarms, m.State = absent[float64](), absent[[]string](), absent[string]()
		}), "mlx5_0/1", Pass, "OSFP Example optical", ""},
		{"none", module(func(m *qos.Module) { m.Type = absent[string]() }), "mlx5_0/1", NotApplicable, "no module", ""},
		{"a VF", module(func(m *qos.Module) { unsupported(&m.Type) }), "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", module(func(m *qos.Module) { denied(&m.Type) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"alarms not seen", module(func(m *qos.Module) { denied(&m.Alarms) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"nobody asked", module(func(m *qos.Module) { *m = qos.Module{} }), "mlx5_0/1", NotApplicable, "check --module", ""},
	})
}

func TestNICNeighbour(t *testing.T) {
	heard := func(system, port string) func(*topo.Machine) {
		return set(func(l *qos.Port) {
			l.Neighbour = qos.Neighbour{System: fact.Of(system, "lldp"), Port: fact.Of(port, "lldp")}
		})
	}
	infiniBand := func(m *topo.Machine) { nic(m).Transport = known(rdma.InfiniBand) }
	policy := Options{Policy: &Policy{Network: &Network{Neighbours: map[string]string{"mlx5_0": "leaf1 Ethernet12", "mlx5_1": "leaf2"}}}}
	runCasesOn(t, "nic-neighbour", policy, []verdictCase{
		{"right", heard("leaf1", "Ethernet12"), "mlx5_0/1", Pass, "leaf1 Ethernet12", ""},
		{"another switch", heard("leaf9", "Ethernet12"), "mlx5_0/1", Fail, "cabled to leaf9 Ethernet12, expected leaf1 Ethernet12", "Plug the cable of ens1 into leaf1 Ethernet12"},
		{"a longer number", heard("leaf1", "Ethernet123"), "mlx5_0/1", Fail, "cabled to leaf1 Ethernet123", ""},
		{"another longer number", heard("xleaf1", "Ethernet12"), "mlx5_0/1", Pass, "", ""},
		{"exchanged with a longer number", heard("leaf22", "1"), "mlx5_0/1", Fail, "cabled to leaf22 1, expected", "write leaf22 into the policy"},
		{"InfiniBand", all2(infiniBand, heard("MF0;leaf9:MQM9700/U1", "7")), "mlx5_0/1", Fail, "cabled to MF0;leaf9:MQM9700/U1 7", "smpquery -C mlx5_0 -P 1 -D nodedesc 0,1"},
		{"InfiniBand, not asked", all2(infiniBand, set(func(l *qos.Port) {
			l.Neighbour.System = fact.Missing[string](fact.NotCollected, "", "asked with --neighbour only")
		})), "mlx5_0/1", Unknown, "on demand and by root only", "sudo gdrcheck check --neighbour"},
		{"InfiniBand, without root", all2(infiniBand, set(func(l *qos.Port) { denied(&l.Neighbour.System) })), "mlx5_0/1", Unknown, "on demand and by root only", "sudo gdrcheck check --neighbour"},
		{"InfiniBand, silent", all2(infiniBand, set(func(l *qos.Port) {
			l.Neighbour.System = fact.Missing[string](fact.Failed, "smp:NodeInfo", "no answer: nobody is there")
		})), "mlx5_0/1", Unknown, "no answer: nobody is there", ""},
		{"exchanged", heard("leaf2", "Ethernet12"), "mlx5_0/1", Fail, "", "the neighbour of mlx5_1: the two cables may be exchanged"},
		{"another port", heard("leaf1", "Ethernet13"), "mlx5_0/1", Fail, "cabled to leaf1 Ethernet13", ""},
		{"nobody heard", set(func(l *qos.Port) { l.Neighbour.System = absent[string]() }), "mlx5_0/1", Unknown, "nobody was heard", "lldpcli show neighbors"},
		{"InfiniBand, nobody there", all2(infiniBand, set(func(l *qos.Port) {
			l.Neighbour.System = fact.Missing[string](fact.Absent, "smp:NodeInfo", "the port is not cabled")
		})), "mlx5_0/1", Unknown, "cannot tell: the port is not cabled", ""},
		{"not asked", nil, "mlx5_0/1", Unknown, "not collected", ""},
		{"a NIC that the policy does not name", func(m *topo.Machine) { nic(m).Name = "mlx5_7" }, "mlx5_7/1", NotApplicable, "no policy names", ""},
	})
	runCases(t, "nic-neighbour", []verdictCase{
		{"without a policy", heard("leaf9", "Ethernet12"), "mlx5_0/1", NotApplicable, "no policy names", ""},
	})
}

func TestNICPending(t *testing.T) {
	stored := func(v string) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.Devlink.Versions.V[1].Value = v })
	}
	runCases(t, "nic-pending", []verdictCase{
		{"none", nil, "mlx5_0/1", Pass, "nothing waits", ""},
		{"firmware", stored("28.45.1200"), "mlx5_0/1", Warn, "fw.version 28.45.1200 (running: 28.43.2566)", "mlxfwreset -d 0000:04:00.0 reset"},
		{"firmware of Broadcom's", all2(stored("28.45.1200"), func(m *topo.Machine) { nic(m).Driver.V = "bnxt_en" }), "mlx5_0/1", Warn, "", "sudo devlink dev reload pci/0000:04:00.0 action fw_activate"},
		{"a setting", set(func(l *qos.Port) {
			l.NVConfig.Settings = known([]qos.NVSetting{{Name: "ATS_ENABLED", Default: "False(0)", Current: "False(0)", NextBoot: "True(1)"}, {Name: "LINK_TYPE_P1", Current: "ETH(2)", NextBoot: "ETH(2)"}})
		}), "mlx5_0/1", Warn, "ATS_ENABLED=True(1) (now: False(0))", ""},
		{"no devlink", set(func(l *qos.Port) { unsupported(&l.Devlink.Versions) }), "mlx5_0/1", Pass, "nothing waits", ""},
		{"no devlink, settings not asked for", set(func(l *qos.Port) { unsupported(&l.Devlink.Versions); l.NVConfig = qos.NVConfig{} }), "mlx5_0/1", NotApplicable, "no stored versions", ""},
		{"neither", set(func(l *qos.Port) { unsupported(&l.Devlink.Versions); unsupported(&l.NVConfig.Settings) }), "mlx5_0/1", NotApplicable, "no stored versions", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.Devlink.Versions) }), "mlx5_0/1", Unknown, "firmware versions may not be read", ""},
		{"settings not asked for", set(func(l *qos.Port) { l.NVConfig = qos.NVConfig{} }), "mlx5_0/1", Info, "no firmware waits; settings were not seen", ""},
		{"settings not seen", set(func(l *qos.Port) { denied(&l.NVConfig.Settings) }), "mlx5_0/1", Unknown, "settings may not be read", ""},
		{"settings not seen, firmware waits", all2(stored("28.45.1200"), set(func(l *qos.Port) { denied(&l.NVConfig.Settings) })), "mlx5_0/1", Warn, "fw.version 28.45.1200", ""},
		{"firmware not seen, a setting waits", set(func(l *qos.Port) {
			denied(&l.Devlink.Versions)
			l.NVConfig.Settings = known([]qos.NVSetting{{Name: "SRIOV_EN", Current: "False(0)", NextBoot: "True(1)"}})
		}), "mlx5_0/1", Warn, "SRIOV_EN=True(1)", ""},
		{"no mstconfig", set(func(l *qos.Port) { unsupported(&l.NVConfig.Settings) }), "mlx5_0/1", Info, "settings were not seen", ""},
		{"another NIC's", all2(secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { m.QoS.Ports[1].Devlink.Versions.V[1].Value = "1" }), "mlx5_0/1", Pass, "", ""},
	})
}

// A part is found where it stands as it is written, and not inside a longer number.
func TestNeighbourPart(t *testing.T) {
	for _, tc := range []struct {
		have, part string
		want       bool
	}{
		{"leaf1 Ethernet1", "leaf1 Ethernet1", true}, {"leaf1 Ethernet12", "leaf1 Ethernet1", false}, {"leaf10", "leaf1", false}, {"leaf19", "leaf1", false},
		{"leaf1/", "leaf1", true}, {"leaf1:", "leaf1", true}, {"swp12", "12", true}, {"swp112", "12", false}, {"swp012", "12", false}, {"swp912", "12", false},
		{"swp/12", "12", true}, {"swp:12", "12", true}, {"12", "12", true}, {"112 12", "12", true}, {"leaf1", "", false}, {"leaf1", "leaf2", false}, {"xleaf1", "leaf1", true}, {"1leaf1", "leaf1", true},
	} {
		if got := hasPart(tc.have, tc.part); got != tc.want {
			t.Errorf("%q in %q: %v", tc.part, tc.have, got)
		}
	}
}

func TestNICSettings(t *testing.T) {
	is := func(settings ...string) func(*topo.Machine) {
		var list []qos.NVSetting
		for i := 0; i < len(settings); i += 2 {
			list = append(list, qos.NVSetting{Name: settings[i], Current: settings[i+1], NextBoot: settings[i+1]})
		}
		return set(func(l *qos.Port) { l.NVConfig.Settings = known(list) })
	}
	const order, engine = "PCI_WR_ORDERING", "INTERNAL_CPU_OFFLOAD_ENGINE"
	runCases(t, "nic-settings", []verdictCase{
		{"as shipped", is(order, "per_mkey(0)", "ATS_ENABLED", "True(1)"), "mlx5_0/1", Pass, "writes keep the order", ""},
		{"a BlueField as NIC", is(order, "per_mkey(0)", engine, "DISABLED(1)"), "mlx5_0/1", Pass, "", ""},
		{"relaxed by force", is(order, "force_relax(1)"), "mlx5_0/1", Fail, "reorders all its writes", "sudo mlxconfig -d 0000:04:00.0 set PCI_WR_ORDERING=0"},
		{"relaxed by force on a DPU", is(engine, "ENABLED(0)", order, "force_relax(1)"), "mlx5_0/1", Fail, "reorders all its writes", "set INTERNAL_CPU_OFFLOAD_ENGINE=1"},
		{"a BlueField as DPU", is(engine, "ENABLED(0)", order, "per_mkey(0)"), "mlx5_0/1", Warn, "DPU mode", "sudo mlxconfig -d 0000:04:00.0 set INTERNAL_CPU_OFFLOAD_ENGINE=1"},
		{"a DPU of which no order is shown", is(engine, "ENABLED(0)"), "mlx5_0/1", Warn, "DPU mode", ""},
		{"no order shown", is("ATS_ENABLED", "True(1)"), "mlx5_0/1", NotApplicable, "has no PCI_WR_ORDERING", ""},
		{"not asked", set(func(l *qos.Port) { l.NVConfig = qos.NVConfig{} }), "mlx5_0/1", NotApplicable, "gdrcheck check --mst", ""},
		{"no mstconfig", set(func(l *qos.Port) { unsupported(&l.NVConfig.Settings) }), "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.NVConfig.Settings) }), "mlx5_0/1", Unknown, "settings may not be read", ""},
		{"software", all2(is(order, "force_relax(1)"), func(m *topo.Machine) { nic(m).Software = true }), "mlx5_0/1", NotApplicable, "software RDMA", ""},
	})
}
