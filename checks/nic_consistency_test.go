package checks

import (
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// threeNICs has mlx5_0 to mlx5_2 below the GPU's switch, alike but for what
// change does to the last one's settings.
func threeNICs(change func(*qos.Port)) func(*topo.Machine) {
	return func(m *topo.Machine) {
		secondPort(func(*rdma.Device) {})(m)
		d := m.RDMA.Devices[1]
		const port, addr = "0000:02:03.0", "0000:08:00.0"
		m.PCI = append(m.PCI, function(port, uplink, pci.ClassPCIBridge<<8, pci.PortDownstream),
			function(addr, port, pci.ClassEthernet<<8, pci.PortEndpoint))
		d.Name, d.Dir, d.PCI = "mlx5_2", "/sys/class/infiniband/mlx5_2", known(at(addr))
		m.RDMA.Devices = append(m.RDMA.Devices, d)
		m.QoS.Ports = append(m.QoS.Ports, goodLeg("mlx5_2", 1, "ens3", d.PCI))
		change(&m.QoS.Ports[2])
	}
}

// A mark that most siblings carry losslessly is not to be changed for the sake of
// one NIC, on which all its traffic is lossy.
func TestToSOfOddNIC(t *testing.T) {
	pfc5 := func(l *qos.Port) { l.DCB.PFC.V.Enabled = 1 << 5 }
	mapped := func(l *qos.Port) { l.DCB.Apps.V = []qos.App{{Selector: qos.ByDSCP, Protocol: 26, Priority: 4}} }
	const leave = "Leave jobs as they are"
	runCases(t, "roce-tos", []verdictCase{
		{"PFC on another priority", threeNICs(pfc5), "mlx5_2/1", Warn, "goes by priority 3", leave},
		{"another DSCP map", threeNICs(mapped), "mlx5_2/1", Warn, "goes by priority 4", leave},
		{"rdma_cm's mark alone", threeNICs(func(l *qos.Port) {
			l.DCB.Apps.V, l.ToS.RDMACM.V = append(l.DCB.Apps.V, qos.App{Selector: qos.ByDSCP, Protocol: 27, Priority: 4}), 27<<2
		}), "mlx5_2/1", Warn, "rdma_cm's ToS 108 (default_roce_tos) goes by priority 4", leave},
		{"rdma_cm's mark was not read", threeNICs(func(l *qos.Port) {
			l.ToS.RDMACM = fact.Missing[int](fact.Failed, "/sys/kernel/config/rdma_cm", "input/output error")
		}), "mlx5_2/1", Unknown, "reading ToS of rdma_cm failed", ""},
		{"all NICs", all2(threeNICs(pfc5), func(m *topo.Machine) { pfc5(&m.QoS.Ports[0]); pfc5(&m.QoS.Ports[1]) }), "mlx5_2/1", Warn, "goes by priority 3", "for jobs: NCCL_IB_TC="},
		{"no siblings", all2(pfcOn(1 << 5)), "mlx5_0/1", Warn, "goes by priority 3", "for jobs: NCCL_IB_TC="},
		{"one of two", all2(secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { pfc5(&m.QoS.Ports[1]) }), "mlx5_1/1", Warn, "goes by priority 3", leave},
	})
}

func TestNICConsistency(t *testing.T) {
	alike := func(*qos.Port) {}
	runCases(t, "nic-consistency", []verdictCase{
		{"alike", threeNICs(alike), "mlx5_2", Pass, "settings as on its siblings", ""},
		{"PFC off", threeNICs(func(l *qos.Port) { l.DCB.PFC.V.Enabled = 0 }), "mlx5_2", Fail,
			"PFC priority none, while 2 of 3 have priority 3", "sudo mlnx_qos -i ens3 --pfc 0,0,0,1,0,0,0,0"},
		{"its siblings are not to blame", threeNICs(func(l *qos.Port) { l.DCB.PFC.V.Enabled = 0 }), "mlx5_1", Pass, "", ""},
		{"PFC on where the others have none", all2(threeNICs(alike), func(m *topo.Machine) {
			m.QoS.Ports[0].DCB.PFC.V.Enabled, m.QoS.Ports[1].DCB.PFC.V.Enabled = 0, 0
		}), "mlx5_2", Fail, "PFC priority 3, while 2 of 3 have priority none", "sudo mlnx_qos -i ens3 --pfc 0,0,0,0,0,0,0,0"},
		{"trust", threeNICs(func(l *qos.Port) { l.DCB.Trust.V = qos.TrustPCP }), "mlx5_2", Fail, "trust pcp, while 2 of 3 have dscp", "sudo mlnx_qos -i ens3 --trust dscp"},
		{"DSCP map", threeNICs(func(l *qos.Port) { l.DCB.Apps.V = []qos.App{{Selector: qos.ByDSCP, Protocol: 26, Priority: 4}} }), "mlx5_2", Fail,
			"DSCP map 26:4, while 2 of 3 have dscp>>3", "sudo mlnx_qos -i ens3 --dscp2prio set,26,3"},
		{"forced traffic class", threeNICs(func(l *qos.Port) { l.ToS.Forced = fact.Of(160, "tc/1/traffic_class") }), "mlx5_2", Fail,
			"ToS of NCCL, UCX 160, 160, while 2 of 3 have 106, 106; ToS of rdma_cm 160, while 2 of 3 have 106", ""},
		{"rdma_cm's mark", threeNICs(func(l *qos.Port) { l.ToS.RDMACM.V = 96 }), "mlx5_2", Fail, "ToS of rdma_cm 96, while 2 of 3 have 106", ""},
		{"rdma_cm's mark not shown here", threeNICs(func(l *qos.Port) { unsupported(&l.ToS.RDMACM) }), "mlx5_2", Pass, "", ""},
		{"rdma_cm's mark shown here alone", all2(threeNICs(alike), func(m *topo.Machine) {
			unsupported(&m.QoS.Ports[0].ToS.RDMACM)
			unsupported(&m.QoS.Ports[1].ToS.RDMACM)
		}), "mlx5_2", Pass, "", ""},
		{"no reaction point", threeNICs(func(l *qos.Port) { l.ECN.RP.V = 0 }), "mlx5_2", Fail, "ECN, reaction point none, while 2 of 3 have 0,1,2,3,4,5,6,7", "echo 1 | sudo tee"},
		{"mark of CNPs", threeNICs(func(l *qos.Port) { l.ECN.CNPDSCP.V = 46 }), "mlx5_2", Fail, "DSCP of CNPs 46, while 2 of 3 have 48", "echo 48 | sudo tee /sys/class/net/ens3/ecn/roce_np/cnp_dscp"},
		{"global pause", threeNICs(func(l *qos.Port) { l.Pause.RX.V = true }), "mlx5_2", Fail, "global pause, obeyed yes", "sudo ethtool -A ens3 autoneg off rx off tx off"},
		{"FEC alone", all2(threeNICs(alike), func(m *topo.Machine) {
			for i := range m.QoS.Ports {
				m.QoS.Ports[i].FEC.Active = known([]string{"RS", "RS", "None"}[i])
			}
		}), "mlx5_2", Warn, "forward error correction None, while 2 of 3 have RS", ""},
		{"one and one", all2(secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { m.QoS.Ports[1].DCB.PFC.V.Enabled = 0 }), "mlx5_1", Warn, "while 1 of 2 have priority 3", ""},
		{"its own not seen", threeNICs(func(l *qos.Port) { denied(&l.DCB.PFC) }), "mlx5_2", Unknown, "PFC of mlx5_2/1 may not be read", ""},
		{"its own not seen, and another is odd", threeNICs(func(l *qos.Port) { l.DCB.Trust.V = qos.TrustPCP; denied(&l.DCB.PFC) }), "mlx5_2", Fail, "trust pcp, while 2 of 3 have dscp", ""},
		{"its own cannot be told", threeNICs(func(l *qos.Port) { unsupported(&l.DCB.PFC) }), "mlx5_2", Unknown, "PFC of mlx5_2/1 not supported here", ""},
		{"its interface is elsewhere", threeNICs(func(l *qos.Port) {
			l.DCB = qos.DCB{Trust: fact.Value[qos.Trust]{State: fact.Absent, Source: "netlink:IEEE_GET", Errno: syscall.ENODEV}}
		}), "mlx5_2", Unknown, "cannot tell: the network interface of mlx5_2/1 is not in this network namespace", ""},
		{"no interface in the GID table", threeNICs(func(l *qos.Port) { l.DCB = qos.DCB{Trust: fact.Value[qos.Trust]{State: fact.Absent}} }), "mlx5_2", Unknown, "cannot tell: the network interface of mlx5_2/1", ""},
		{"no FEC, as without a link", threeNICs(func(l *qos.Port) {
			l.FEC.Active = fact.Missing[string](fact.Absent, "ethtool:FEC_GET", "none is active")
		}), "mlx5_2", Warn,
			"forward error correction none, while 2 of 3 have RS", ""},
		{"nobody's seen", all2(threeNICs(alike), func(m *topo.Machine) {
			m.QoS = qos.Facts{}
			for i := range m.RDMA.Devices {
				m.RDMA.Devices[i].Ports[0].Number = 1
			}
		}), "mlx5_2", Unknown, "trust of mlx5_2/1 not collected", ""},
		{"nobody has any, as VFs", all2(threeNICs(alike), func(m *topo.Machine) {
			for i := range m.QoS.Ports {
				l := &m.QoS.Ports[i]
				unsupported(&l.DCB.Trust)
				unsupported(&l.DCB.PFC)
			}
		}), "mlx5_2", Pass, "settings as on its siblings", ""},
		{"alone", nil, "mlx5_0", NotApplicable, "the only NIC", ""},
		{"another model", secondPort(func(d *rdma.Device) { d.Model.V.Name = "ConnectX-6 Dx" }), "mlx5_1", NotApplicable, "the only NIC", ""},
		{"EFA", transport(rdma.EFA), "mlx5_0", NotApplicable, "EFA", ""},
	})
}

// Eight NICs, one of them set otherwise: that one is named, with the majority
// and the command that mends it, and no other.
func TestOneOfEight(t *testing.T) {
	m := hgxH100(t)
	for i := range m.QoS.Ports {
		if l := &m.QoS.Ports[i]; l.Device == "mlx5_5" {
			l.DCB.PFC.V.Enabled = 1 << 5
			l.DCB.Buffer.V.Priority = [8]int{5: 1}
		}
	}
	o := mustRun(t, m, Options{})
	var named []string
	for _, f := range o.Findings {
		if !troubled(f) {
			continue
		}
		named = append(named, f.Check+" "+f.Subject)
		if f.Check == "nic-consistency" && (!strings.Contains(f.Message, "PFC priority 5, while 7 of 8 have priority 3") || f.Fix[0] != "sudo mlnx_qos -i eth5 --pfc 0,0,0,1,0,0,0,0") {
			t.Errorf("%s: %q", f.Message, f.Fix)
		}
	}
	if got := strings.Join(named, ", "); got != "roce-tos mlx5_5/1, nic-consistency mlx5_5" || o.ExitCode != 1 {
		t.Errorf("%s; exit code %d", got, o.ExitCode)
	}
}

// How many settings were compared is how many both this NIC and a sibling have.
func TestSettingsCompared(t *testing.T) {
	unsupportedAll := func(l *qos.Port) {
		l.DCB, l.ECN, l.Pause, l.FEC, l.Devlink = qos.DCB{}, qos.ECN{}, qos.Pause{}, qos.FEC{}, qos.Devlink{}
		unsupported(&l.DCB.Trust)
		unsupported(&l.DCB.PFC)
		l.ToS.Forced = fact.Missing[int](fact.Denied, "tc/1/traffic_class", "permission denied")
	}
	each := func(change func(*qos.Port)) func(*topo.Machine) {
		return all2(threeNICs(func(*qos.Port) {}), func(m *topo.Machine) {
			for i := range m.QoS.Ports {
				change(&m.QoS.Ports[i])
			}
		})
	}
	ib := func(m *topo.Machine) {
		for i := range m.RDMA.Devices {
			m.RDMA.Devices[i].Transport.V = rdma.InfiniBand
		}
	}
	onlyFEC := each(func(l *qos.Port) { unsupportedAll(l); l.FEC.Active = known("RS") })
	last := func(change func(*qos.Port)) func(*topo.Machine) {
		return func(m *topo.Machine) { change(&m.QoS.Ports[2]) }
	}
	runCases(t, "nic-consistency", []verdictCase{
		// goodLeg has every setting of the table but one: it says nothing of the eswitch.
		{"all that they have", threeNICs(func(*qos.Port) {}), "mlx5_2", Pass, "14 settings as", ""},
		{"one not seen here", threeNICs(func(l *qos.Port) { denied(&l.FEC.Active) }), "mlx5_2", Pass, "13 settings as", ""},
		{"one seen here alone", threeNICs(func(l *qos.Port) { l.Devlink.EswitchMode = known("legacy") }), "mlx5_2", Pass, "14 settings as", ""},
		{"none seen", each(unsupportedAll), "mlx5_2", Unknown, "none of the settings was seen", ""},
		{"InfiniBand, one alike", all2(onlyFEC, ib), "mlx5_2", Pass, "1 settings as", ""},
		{"InfiniBand, one not alike", all2(onlyFEC, ib, last(func(l *qos.Port) { l.FEC.Active.V = "None" })), "mlx5_2", Warn, "forward error correction None, while 2 of 3 have RS", ""},
		{"InfiniBand, none", all2(each(unsupportedAll), ib), "mlx5_2", NotApplicable, "subnet manager's", ""},
	})
}
