package checks

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// set changes one of the good node's settings of its RoCE port.
func set(change func(*qos.Port)) func(*topo.Machine) {
	return func(m *topo.Machine) { change(leg(m)) }
}

func pfcOn(p qos.Priorities) func(*topo.Machine) {
	return set(func(l *qos.Port) { l.DCB.PFC.V.Enabled = p })
}

func trustPCP(m *topo.Machine) {
	leg(m).DCB.Trust.V, leg(m).DCB.Apps.V = qos.TrustPCP, nil
}

// noMarks: nobody says what packets are marked with.
func noMarks(m *topo.Machine) {
	m.QoS.Job, leg(m).ToS.RDMACM = fact.Of([]qos.Setting{}, "environment"), fact.Missing[int](fact.Absent, "/sys/kernel/config/rdma_cm", "no such file")
}

// vf is a port of which DCB cannot be asked: a VF, as in a guest.
func vf(m *topo.Machine) {
	l := leg(m)
	l.IsVF = true
	l.DCB = qos.DCB{}
	unsupported(&l.DCB.PFC)
	unsupported(&l.DCB.Trust)
	unsupported(&l.DCB.Apps)
	unsupported(&l.DCB.Buffer)
	unsupported(&l.DCB.DCBX)
	unsupported(&l.Pause.RX)
	unsupported(&l.Pause.TX)
	unsupported(&l.ECN.NP)
	unsupported(&l.ECN.RP)
}

// noInterface: the leg is as l names it, and its flow control is absent for the reason of no.
func noInterface(l qos.Port, no syscall.Errno) func(*topo.Machine) {
	return set(func(leg *qos.Port) {
		leg.NetDev, leg.DCB = l.NetDev, qos.DCB{PFC: fact.Value[qos.PFC]{State: fact.Absent, Source: "netlink:IEEE_GET", Errno: no}}
	})
}

func unsupported[T any](v *fact.Value[T]) {
	*v = fact.Missing[T](fact.Unsupported, "netlink:IEEE_GET", "operation not supported")
}

func transport(tr rdma.Transport) func(*topo.Machine) {
	return func(m *topo.Machine) { nic(m).Transport.V = tr }
}

func network(t *testing.T, text string) Options {
	t.Helper()
	n, err := ParseNetwork(text)
	if err != nil {
		t.Fatal(err)
	}
	return Options{Network: n}
}

func TestRoCETrust(t *testing.T) {
	vlan := func(m *topo.Machine) {
		trustPCP(m)
		port(m).GIDs[1].NetDev = known("ens1.100")
	}
	runCases(t, "roce-trust", []verdictCase{
		{"dscp", nil, "mlx5_0/1", Pass, "dscp", ""},
		{"dscp before pcp", set(func(l *qos.Port) { l.DCB.Trust.V = qos.TrustBoth }), "mlx5_0/1", Pass, "dscp pcp", ""},
		{"pcp", trustPCP, "mlx5_0/1", Warn, "untagged packets go by priority 0", "sudo mlnx_qos -i ens1 --trust dscp"},
		{"pcp, without mlnx-tools", trustPCP, "mlx5_0/1", Warn, "", "sudo dcb app add dev ens1 dscp-prio 26:3"},
		{"pcp, on a VLAN", vlan, "mlx5_0/1", Info, "on the VLAN ens1.100", ""},
		{"pcp on Broadcom", all2(trustPCP, set(func(l *qos.Port) { l.NetDriver.V = "bnxt_en" })), "mlx5_0/1", Warn, "", "bnxt_setupcc.sh -d mlx5_0 -i ens1 -m 3 -s 26 -p 48 -r 3 -c 6"},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF has no such settings", "On the host: sudo gdrcheck rdma qos"},
		{"not collected", func(m *topo.Machine) { m.QoS = qos.Facts{} }, "mlx5_0/1", Unknown, "not collected", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "credits", ""},
		{"EFA", transport(rdma.EFA), "mlx5_0/1", NotApplicable, "SRD", ""},
		{"iWARP", transport(rdma.IWARP), "mlx5_0/1", NotApplicable, "TCP", ""},
		{"software", func(m *topo.Machine) { nic(m).Software = true }, "mlx5_0/1", NotApplicable, "software", ""},
	})
	runCasesOn(t, "roce-trust", network(t, "spectrum-x"), []verdictCase{
		{"dscp", nil, "mlx5_0/1", Pass, "dscp", ""},
		{"pcp", trustPCP, "mlx5_0/1", Fail, "untagged packets", ""},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
	})
}

func TestRoCEPFC(t *testing.T) {
	peer := func(p qos.Priorities) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.DCB.PeerPFC = fact.Of(qos.PFC{Enabled: p}, "netlink:IEEE_GET") })
	}
	sibling5 := all2(pfcOn(0), secondPort(func(*rdma.Device) {}), func(m *topo.Machine) { m.QoS.Ports[1].DCB.PFC.V.Enabled = 1 << 5 })
	runCases(t, "roce-pfc", []verdictCase{
		{"RoCE's alone", nil, "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"another, and nobody marks", all2(noMarks, pfcOn(1<<5)), "mlx5_0/1", Pass, "on for priority 5 alone", ""},
		{"another than marks lead to", pfcOn(1 << 5), "mlx5_0/1", Info, "on for priority 5 alone, but programs' marks lead to 3", ""},
		{"marks are not looked at", trustPCP, "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"its interface is elsewhere", noInterface(qos.Port{NetDev: "ens1"}, syscall.ENODEV), "mlx5_0/1", Unknown, "the port's network interface ens1 is not in this network namespace", "--net=host"},
		{"no interface in the GID table", noInterface(qos.Port{}, 0), "mlx5_0/1", Unknown, "the port's network interface is not in this network namespace", "--net=host"},
		{"its interface has none", noInterface(qos.Port{NetDev: "ens1"}, 0), "mlx5_0/1", Unknown, "the NIC shows no PFC settings", ""},
		{"off", pfcOn(0), "mlx5_0/1", Warn, "PFC is off for all priorities", "sudo mlnx_qos -i ens1 --pfc 0,0,0,1,0,0,0,0"},
		{"off, and the network may be lossy", pfcOn(0), "mlx5_0/1", Warn, "", "--network lossy"},
		{"off, its sibling has 5", all2(noMarks, sibling5), "mlx5_0/1", Warn, "", "sudo dcb pfc set dev ens1 prio-pfc all:off 5:on"},
		{"two", pfcOn(1<<3 | 1<<4), "mlx5_0/1", Warn, "on for 2 priorities (3,4)", "--pfc 0,0,0,1,0,0,0,0"},
		{"the switch agrees", peer(1 << 3), "mlx5_0/1", Pass, "", ""},
		{"the switch has another", peer(1 << 4), "mlx5_0/1", Warn, "priority 3 here and for 4 on the switch", "--pfc 0,0,0,0,1,0,0,0"},
		{"Broadcom's zero in host mode", set(func(l *qos.Port) {
			l.DCB.PFC = fact.Missing[qos.PFC](fact.Unsupported, "netlink:IEEE_GET", "0 in host mode says nothing")
		}), "mlx5_0/1", Unknown, "says nothing", ""},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "", ""},
	})
	runCasesOn(t, "roce-pfc", network(t, "lossless"), []verdictCase{
		{"on", nil, "mlx5_0/1", Pass, "", ""},
		{"off", pfcOn(0), "mlx5_0/1", Fail, "PFC is off", "mlnx_qos"},
		{"two", pfcOn(3), "mlx5_0/1", Warn, "on for 2 priorities (0,1)", ""},
		{"not collected", func(m *topo.Machine) { m.QoS = qos.Facts{} }, "mlx5_0/1", Unknown, "", ""},
	})
	runCasesOn(t, "roce-pfc", network(t, "priority=3"), []verdictCase{
		{"on", nil, "mlx5_0/1", Pass, "", ""},
		{"on for another", pfcOn(1 << 5), "mlx5_0/1", Fail, "PFC is on for priority 5, but RoCE goes by 3 (the network's)", "--pfc 0,0,0,1,0,0,0,0"},
		{"a VF", vf, "mlx5_0/1", Unknown, "", ""},
	})
	runCasesOn(t, "roce-pfc", network(t, "lossy"), []verdictCase{
		{"off", pfcOn(0), "mlx5_0/1", Pass, "as on a lossy network", ""},
		{"on", nil, "mlx5_0/1", Info, "although the network is lossy", ""},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
	})
	runCasesOn(t, "roce-pfc", network(t, "dscp=40,cnp_dscp=48"), []verdictCase{
		{"where the DSCP leads", pfcOn(1 << 5), "mlx5_0/1", Pass, "on for priority 5 alone", ""},
		{"elsewhere", nil, "mlx5_0/1", Fail, "RoCE goes by 5 (where the network's DSCP 40 leads)", "--pfc 0,0,0,0,0,1,0,0"},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
	})
}

// What bnxt_en answers where firmware decides is zero until the host sets it: the
// command to set it is for a host that may, on a network that needs it.
func TestPFCThatFirmwareKeeps(t *testing.T) {
	const command = "sudo dcb pfc set dev ens1 prio-pfc all:off 3:on"
	unseen := set(func(l *qos.Port) { l.NetDriver.V = "bnxt_en"; unsupported(&l.DCB.PFC) })
	for name, tt := range map[string]struct {
		network string
		change  func(*topo.Machine)
		command bool
	}{
		"by the host":  {"lossless", unseen, true},
		"lossy":        {"lossy", unseen, false},
		"by firmware":  {"lossless", all2(unseen, set(func(l *qos.Port) { l.DCB.DCBX.V.Host = false })), false},
		"a VF":         {"lossless", all2(unseen, set(func(l *qos.Port) { l.IsVF = true })), false},
		"denied":       {"lossless", all2(unseen, set(func(l *qos.Port) { denied(&l.DCB.PFC) })), false},
		"a guest's VF": {"lossless", all2(unseen, func(m *topo.Machine) { nic(m).Model.V.IsVF = true }), false},
	} {
		m := goodNode()
		tt.change(m)
		f := findingOf(t, m, rocePFC, "mlx5_0/1", network(t, tt.network))
		if got := strings.Contains(strings.Join(f.Fix, "\n"), command); got != tt.command || f.Verdict != Unknown {
			t.Errorf("%s: %s %q %q", name, f.Verdict, f.Message, f.Fix)
		}
	}
}

func TestRoCEToS(t *testing.T) {
	forced := func(tos int) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.ToS.Forced = fact.Of(tos, "tc/1/traffic_class") })
	}
	runCases(t, "roce-tos", []verdictCase{
		{"marked", nil, "mlx5_0/1", Pass, "NCCL's ToS 106, UCX's ToS 106, rdma_cm's ToS 106 lead to lossless priority 3", ""},
		{"nobody marks", noMarks, "mlx5_0/1", Info, "NCCL's ToS 0 goes by priority 0, rdma_cm's ToS 0 goes by priority 0 where a job sets nothing, while 3 is lossless: set NCCL_IB_TC=106 UCX_IB_TRAFFIC_CLASS=106", ""},
		{"marked for a lossy one", forced(41), "mlx5_0/1", Warn, "NCCL's ToS 41 (the port's own traffic class) goes by priority 1", "echo 106 | sudo tee /sys/class/infiniband/mlx5_0/tc/1/traffic_class"},
		{"a job's", func(m *topo.Machine) { m.QoS.Job.V[0].Value = "160" }, "mlx5_0/1", Warn, "NCCL's ToS 160 (NCCL_IB_TC) goes by priority 5", "Where 3 is the network's lossless priority, for jobs: NCCL_IB_TC=106"},
		{"UCX reads no hexadecimal", func(m *topo.Machine) {
			m.QoS.Job.V = append(m.QoS.Job.V, qos.Setting{Name: "UCX_IB_TRAFFIC_CLASS", Value: "0x6a", Source: "environment"})
		}, "mlx5_0/1", Warn, `UCX's ToS 0 (UCX_IB_TRAFFIC_CLASS="0x6a", of which UCX makes 0) goes by priority 0`, "UCX_IB_TRAFFIC_CLASS=106"},
		{"UCX takes no text", func(m *topo.Machine) {
			m.QoS.Job.V = append(m.QoS.Job.V, qos.Setting{Name: "UCX_IB_TRAFFIC_CLASS", Value: "lossless", Source: "/etc/ucx/ucx.conf"})
		}, "mlx5_0/1", Warn, `UCX does not take UCX_IB_TRAFFIC_CLASS="lossless"`, "UCX_IB_TRAFFIC_CLASS=106"},
		{"PFC on another", pfcOn(1 << 5), "mlx5_0/1", Warn, "NCCL's ToS 106 (NCCL_IB_TC) goes by priority 3; rdma_cm's ToS 106 (default_roce_tos) goes by priority 3, while 5 is lossless", "Where it is 3: sudo mlnx_qos -i ens1 --pfc 0,0,0,1,0,0,0,0"},
		{"rdma_cm's", set(func(l *qos.Port) { l.ToS.RDMACM.V = 32 }), "mlx5_0/1", Warn, "rdma_cm's ToS 32 (default_roce_tos) goes by priority 1", "sudo cma_roce_tos -d mlx5_0 -p 1 -t 106"},
		{"mapped", all2(forced(41), set(func(l *qos.Port) { l.DCB.Apps.V = []qos.App{{Selector: qos.ByDSCP, Protocol: 10, Priority: 3}} })), "mlx5_0/1", Pass, "ToS 41", ""},
		{"nothing lossless", pfcOn(0), "mlx5_0/1", NotApplicable, "no priority is lossless", ""},
		{"marks are not looked at", trustPCP, "mlx5_0/1", NotApplicable, "trust is pcp", ""},
		{"table not seen", set(func(l *qos.Port) { denied(&l.DCB.Apps) }), "mlx5_0/1", Unknown, "DSCP table may not be read", ""},
		{"forced not seen", set(func(l *qos.Port) { denied(&l.ToS.Forced) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
	})
	runCasesOn(t, "roce-tos", network(t, "dscp=10,priority=3"), []verdictCase{
		{"the NIC's table has it", all2(forced(41), set(func(l *qos.Port) { l.DCB.Apps.V = []qos.App{{Selector: qos.ByDSCP, Protocol: 10, Priority: 3}} })), "mlx5_0/1", Pass, "", ""},
		{"it does not", forced(41), "mlx5_0/1", Fail, "the network's DSCP 10 leads to priority 1, not to the lossless 3", "sudo mlnx_qos -i ens1 --dscp2prio set,10,3"},
		{"marked with another", set(func(l *qos.Port) { l.DCB.Apps.V = []qos.App{{Selector: qos.ByDSCP, Protocol: 10, Priority: 3}} }), "mlx5_0/1", Fail, "NCCL's ToS 106", "NCCL_IB_TC=42"},
		{"a VF", vf, "mlx5_0/1", Unknown, "a VF", ""},
	})
}

func TestRoCEECN(t *testing.T) {
	ecn := func(np, rp qos.Priorities) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.ECN.NP.V, l.ECN.RP.V = np, rp })
	}
	inbox := set(func(l *qos.Port) {
		l.ECN.NP = fact.Missing[qos.Priorities](fact.Unsupported, "ecn/roce_np/enable", "the inbox driver shows none")
	})
	runCases(t, "roce-ecn", []verdictCase{
		{"on", nil, "mlx5_0/1", Pass, "on for priority 3", ""},
		{"on for RoCE alone", ecn(8, 8), "mlx5_0/1", Pass, "on for priority 3", ""},
		{"no answer to marks", ecn(0, 255), "mlx5_0/1", Warn, "notification point off for priority 3", "echo 1 | sudo tee /sys/class/net/ens1/ecn/roce_np/enable/3"},
		{"on for another", ecn(32, 32), "mlx5_0/1", Warn, "notification point off for priority 3, reaction point off for priority 3", "mlxconfig -d 0000:04:00.0 set ROCE_CC_PRIO_MASK_P1=255"},
		{"inbox driver", inbox, "mlx5_0/1", Unknown, "inbox driver", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "", ""},
	})
	runCasesOn(t, "roce-ecn", network(t, "lossy"), []verdictCase{
		{"on", pfcOn(0), "mlx5_0/1", Pass, "", ""},
		{"off", all2(noMarks, pfcOn(0), ecn(0, 0)), "mlx5_0/1", Warn, "off for priority 0 to 7", ""},
		{"inbox driver", inbox, "mlx5_0/1", Unknown, "", ""},
	})
	f := findingOf(t, goodNode(), roceECN, "mlx5_0/1", network(t, "spectrum-x"))
	if f.Verdict != NotApplicable {
		t.Errorf("Spectrum-X: %s %s", f.Verdict, f.Message)
	}
}

func TestRoCECNP(t *testing.T) {
	cnp := func(dscp, priority int) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.ECN.CNPDSCP.V, l.ECN.CNPPriority.V = dscp, priority })
	}
	runCases(t, "roce-cnp", []verdictCase{
		{"apart", nil, "mlx5_0/1", Pass, "DSCP 48, priority 6", ""},
		{"on the lossless priority", cnp(48, 3), "mlx5_0/1", Warn, "go by priority 3, which is lossless", "echo 6 | sudo tee /sys/class/net/ens1/ecn/roce_np/cnp_802p_prio"},
		{"on a lossless priority beside RoCE's", pfcOn(1<<3 | 1<<6), "mlx5_0/1", Warn, "go by priority 6, which is lossless", "--pfc 0,0,0,1,0,0,0,0"},
		{"on the only lossless priority, not RoCE's", pfcOn(1 << 6), "mlx5_0/1", Warn, "go by priority 6, which is lossless", "echo 7 | sudo tee /sys/class/net/ens1/ecn/roce_np/cnp_802p_prio"},
		{"marked for it, on the second port", all2(cnp(26, 6), set(func(l *qos.Port) { l.PCI.V.Function = 1 })), "mlx5_0/1", Warn, "DSCP 26", "sudo mlxconfig -d 0000:04:00.1 set CNP_802P_PRIO_P2=6 CNP_DSCP_P2=48"},
		{"marked for it", cnp(26, 6), "mlx5_0/1", Warn, "DSCP 26, which leads to priority 3", "CNP_DSCP_P1=48"},
		{"not shown", set(func(l *qos.Port) { denied(&l.ECN.CNPDSCP) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"InfiniBand", infiniband, "mlx5_0/1", NotApplicable, "", ""},
	})
	runCasesOn(t, "roce-cnp", network(t, "lossless,cnp_dscp=46,cnp_priority=7"), []verdictCase{
		{"the network's", cnp(46, 7), "mlx5_0/1", Pass, "", ""},
		{"others", nil, "mlx5_0/1", Fail, "DSCP 48 and priority 6, the network has 46 and 7", "echo 46 | sudo tee"},
		{"not shown", set(func(l *qos.Port) { denied(&l.ECN.CNPDSCP) }), "mlx5_0/1", Unknown, "may not be read", ""},
	})
}

func TestRoCEGlobalPause(t *testing.T) {
	pause := set(func(l *qos.Port) { l.Pause.RX.V, l.Pause.TX.V = true, true })
	runCases(t, "roce-global-pause", []verdictCase{
		{"off", nil, "mlx5_0/1", Pass, "off", ""},
		{"beside PFC", pause, "mlx5_0/1", Fail, "beside PFC (priority 3)", "sudo ethtool -A ens1 autoneg off rx off tx off"},
		{"without PFC", all2(pause, pfcOn(0)), "mlx5_0/1", Info, "all traffic of the port stops", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.Pause.RX) }), "mlx5_0/1", Unknown, "may not be read", ""},
		{"EFA", transport(rdma.EFA), "mlx5_0/1", NotApplicable, "", ""},
	})
}

func TestRoCEBuffer(t *testing.T) {
	buffers := func(change func(*qos.Buffer)) func(*topo.Machine) {
		return set(func(l *qos.Port) { change(&l.DCB.Buffer.V) })
	}
	runCases(t, "roce-buffer", []verdictCase{
		{"its own", nil, "mlx5_0/1", Pass, "of priorities 0 to 7: 0,0,0,1,0,0,0,0 (buffer 0: 127 KiB, buffer 1: 127 KiB)", ""},
		{"shared", buffers(func(b *qos.Buffer) { b.Priority[3] = 0 }), "mlx5_0/1", Warn, "lossless priority 3 shares buffer 0 with lossy priority 0", "sudo dcb buffer set dev ens1 prio-buffer all:0 3:1"},
		{"empty", buffers(func(b *qos.Buffer) { b.SizeBytes[1] = 0 }), "mlx5_0/1", Warn, "buffer 1 of lossless priority 3 has no size", "sudo dcb buffer set dev ens1 buffer-size all:0 0:64512 1:64512 prio-buffer all:0 3:1"},
		{"shared, and no other has a size", buffers(func(b *qos.Buffer) { *b = qos.Buffer{SizeBytes: [8]uint32{262016}, TotalBytes: 262016} }), "mlx5_0/1", Warn, "shares buffer 0", "sudo mlnx_qos -i ens1 --prio2buffer=0,0,0,1,0,0,0,0 --buffer_size=130048,130048,0,0,0,0,0,0"},
		{"nothing lossless", pfcOn(0), "mlx5_0/1", NotApplicable, "no priority", ""},
		{"PFC on another than RoCE's", all2(pfcOn(1<<5), buffers(func(b *qos.Buffer) { b.Priority = [8]int{} })), "mlx5_0/1", NotApplicable, "RoCE goes by priority 3, and 5 is lossless", ""},
		{"shared by one too many", all2(pfcOn(1<<3|1<<5), buffers(func(b *qos.Buffer) { b.Priority = [8]int{3: 1} })), "mlx5_0/1", Pass, "", ""},
		{"nobody marks, shared", all2(noMarks, pfcOn(1<<5), buffers(func(b *qos.Buffer) { b.Priority = [8]int{} })), "mlx5_0/1", Warn, "lossless priority 5 shares", "5:1"},
		{"the driver has none", set(func(l *qos.Port) {
			l.DCB.Buffer = fact.Missing[qos.Buffer](fact.Unsupported, "netlink:IEEE_GET", "left out")
		}), "mlx5_0/1", NotApplicable, "not supported", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.DCB.Buffer) }), "mlx5_0/1", Unknown, "may not be read", ""},
	})
	runCasesOn(t, "roce-buffer", network(t, "lossless"), []verdictCase{
		{"shared", buffers(func(b *qos.Buffer) { b.Priority[3] = 0 }), "mlx5_0/1", Fail, "shares buffer 0", ""},
		{"empty", buffers(func(b *qos.Buffer) { b.SizeBytes[1] = 0 }), "mlx5_0/1", Fail, "has no size", ""},
	})
}

func TestRoCEDCBX(t *testing.T) {
	runCases(t, "roce-dcbx", []verdictCase{
		{"host", nil, "mlx5_0/1", Pass, "by the host, IEEE", ""},
		{"firmware", set(func(l *qos.Port) { l.DCB.DCBX.V = qos.DCBX{LLDManaged: true, CEE: true} }), "mlx5_0/1", Info, "by firmware, LLD managed, CEE: switch or firmware decide", "LLDP_NB_DCBX_P1=0"},
		{"none", set(func(l *qos.Port) {
			l.DCB.DCBX = fact.Missing[qos.DCBX](fact.Unsupported, "netlink:GDCBX", "operation not supported")
		}), "mlx5_0/1", NotApplicable, "", ""},
		{"not seen", set(func(l *qos.Port) { denied(&l.DCB.DCBX) }), "mlx5_0/1", Unknown, "may not be read", ""},
	})
}

// A node of which nobody said that its network is lossless does not fail for
// what it cannot show, nor a VM for what its host decides.
func TestUnseenQoSDoesNotFail(t *testing.T) {
	for name, change := range map[string]func(*topo.Machine){
		"VF":         vf,
		"nothing":    func(m *topo.Machine) { m.QoS = qos.Facts{} },
		"InfiniBand": all2(infiniband, func(m *topo.Machine) { m.QoS = qos.Facts{} }),
	} {
		m := goodNode()
		change(m)
		o := mustRun(t, m, Options{})
		if o.ExitCode != 0 {
			t.Errorf("%s: exit code %d", name, o.ExitCode)
		}
		for _, f := range o.Findings {
			if strings.HasPrefix(f.Check, "roce-") && !strings.HasPrefix(f.Check, "roce-gid") && f.Verdict == Pass {
				t.Errorf("%s: %s passes: %s", name, f.Check, f.Message)
			}
		}
	}
	m := goodNode()
	m.QoS = qos.Facts{}
	if o := mustRun(t, m, network(t, "lossless")); o.ExitCode != 3 {
		t.Errorf("a lossless network that was asked for and not seen: exit code %d", o.ExitCode)
	}
}

// Each template names nothing that a finding has no value for, and all drivers
// know how to switch flow control.
func TestQoSFixes(t *testing.T) {
	m := goodNode()
	n, err := NewNode(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Case{Node: n, Subject: EachLeg(n)[0], check: &rocePFC}
	for driver, settings := range qosFixes() {
		for _, needed := range []string{"trust", "trust_pcp", "pfc", "no_pfc", "dscp", "pause", "dcbx", "tos", "keep"} {
			if len(settings[needed]) == 0 {
				t.Errorf("%s: nothing for %s", driver, needed)
			}
		}
		leg(m).NetDriver.V = driver
		for setting, lines := range settings {
			got := c.qosFix(leg(m), setting, 3)
			if want := len(lines) + len(settings["keep"]); setting != "keep" && len(got) != want {
				t.Errorf("%s, %s: %d lines of %d", driver, setting, len(got), want)
			}
			for _, line := range got {
				if strings.ContainsAny(line, "{}") {
					t.Errorf("%s, %s: %s", driver, setting, line)
				}
			}
		}
	}
	if out, ok := fill("echo {nobody}", map[string]string{"netdev": "eth0"}); ok {
		t.Errorf("a name without a value became %q", out)
	}
}

func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"lossless": "", "lossy": "", "spectrum-x": "", "dscp=26": "", "lossless,dscp=26,priority=3,cnp_dscp=48,cnp_priority=6": "", "custom,priority=3": "",
		"custom": "custom wants a dscp", "fast": "no network profile is called", "dscp=64": "want 0 to 63", "priority=8": "want 0 to 7",
		"dscp=-1": "want 0 to 63", "dscp=x": "want a number", "tos=106": "no value is called", "lossy,lossless": "want one profile", "cnp_priority=9": "want 0 to 7",
	} {
		n, err := ParseNetwork(text)
		switch {
		case want == "" && (err != nil || n == nil):
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	none := (*Network)(nil)
	if p, err := none.profile(); err != nil || !p.Assumed || p.Name != "lossless" {
		t.Errorf("without a word: %+v %v", p, err)
	}
	neighbours := &Network{Neighbours: map[string]string{"mlx5_0": "leaf1"}}
	if p, err := neighbours.profile(); err != nil || !p.Assumed {
		t.Errorf("neighbours alone name no profile: %+v %v", p, err)
	}
}

func TestNetworksAreComplete(t *testing.T) {
	list, err := networkProfiles()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, p := range list {
		if !name.MatchString(p.Name) || p.Title == "" || len(p.Sources) == 0 || p.Lossless && p.MaxLossless == 0 {
			t.Errorf("%+v", p)
		}
	}
	if !slices.Equal(NetworkNames(), []string{"lossless", "lossy", "spectrum-x", "custom"}) {
		t.Errorf("%v", NetworkNames())
	}
}

func FuzzParseNetwork(f *testing.F) {
	for _, seed := range []string{"lossless", "custom,dscp=26,priority=3", "dscp=-1", ",,=", "spectrum-x,cnp_priority=7"} {
		f.Add(seed)
	}
	m := goodNode()
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseNetwork(text)
		if err != nil {
			return
		}
		if _, err := Run(m, Options{Network: n, Only: []string{"roce-pfc", "roce-tos", "roce-cnp"}}); err != nil {
			t.Errorf("what is valid cannot be run: %v", err)
		}
	})
}

// What a kernel, a driver or a recording says may be out of any range: no check
// breaks on it.
func FuzzJudgeQoS(f *testing.F) {
	f.Add([]byte(`{"dcb":{"trust":{"value":"dscp"},"apps":{"value":[{"selector":"dscp","protocol":26,"priority":200}]},"pfc":{"value":{"enabled":8}},"buffer":{"value":{"priority":[0,0,0,9,0,0,0,-1]}}}}`))
	f.Add([]byte(`{"tos":{"forced":{"value":-4}},"ecn":{"np":{"value":255},"rp":{"value":1},"cnp_dscp":{"value":900},"cnp_priority":{"value":-3}}}`))
	f.Add([]byte(`{"link":{"speed_mbps":{"value":-1},"lanes":{"value":-2}},"fec":{"active":{"value":"None"}},"module":{"type":{"value":""}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := goodNode()
		secondPort(func(*rdma.Device) {})(m)
		var p qos.Port
		if json.Unmarshal(text, &p) != nil {
			return
		}
		p.Device, p.Number, p.NetDev = "mlx5_0", 1, "ens1"
		m.QoS.Ports[0] = p
		for _, opt := range []Options{{}, {Network: &Network{Profile: "spectrum-x"}}} {
			for _, finding := range mustRun(t, m, opt).Findings {
				if strings.Contains(finding.Message, "gdrcheck's own error") {
					t.Errorf("%s: %s %+v", finding.Check, finding.Message, finding.Evidence)
				}
			}
		}
	})
}

// What breaks a lossless network is a warning while the network is only taken
// for one, and a failure once somebody says that it is (--network lossless, or a
// policy): the node is then not ready.
func TestNamedNetworkFails(t *testing.T) {
	for check, change := range map[string]func(*topo.Machine){
		"roce-trust":  trustPCP,
		"roce-pfc":    pfcOn(0),
		"roce-buffer": set(func(l *qos.Port) { l.DCB.Buffer.V.Priority = [8]int{} }),
		"roce-tos":    set(func(l *qos.Port) { l.ToS.Forced = fact.Of(41, "tc/1/traffic_class") }),
	} {
		for _, tc := range []struct {
			name     string
			options  Options
			verdict  Verdict
			severity Severity
			exit     int
		}{
			{"nobody says", Options{}, Warn, SeverityWarning, 0},
			{"the option says", network(t, "lossless"), Fail, SeverityError, 1},
			{"the policy says", Options{Policy: &Policy{Network: &Network{Profile: "lossless"}}}, Fail, SeverityError, 1},
		} {
			m := goodNode()
			change(m)
			tc.options.Only = []string{check}
			o := mustRun(t, m, tc.options)
			f := one(t, o, check, "mlx5_0/1")
			if f.Verdict != tc.verdict || f.Severity != tc.severity || (f.Unsure != "") != (tc.verdict == Warn) {
				t.Errorf("%s, %s: %s of severity %s: %s; unsure %q", check, tc.name, f.Verdict, f.Severity, f.Message, f.Unsure)
			}
			if o.ExitCode != tc.exit {
				t.Errorf("%s, %s: exit code %d", check, tc.name, o.ExitCode)
			}
		}
		m := goodNode()
		change(m)
		if f := one(t, mustRun(t, m, network(t, "lossy")), check, "mlx5_0/1"); troubled(f) {
			t.Errorf("%s on a lossy network: %s %s", check, f.Verdict, f.Message)
		}
	}
}

// A port whose DCBX is CEE alone has its flow control in CEE's own answer
// (include/uapi/linux/dcbnl.h: DCB_CAP_DCBX_VER_CEE, DCB_CMD_CEE_GET); IEEE's has
// none then.
func TestPFCByCEE(t *testing.T) {
	const ask = "netlink:CEE_GET"
	cee := func(own fact.Value[qos.Priorities]) func(*topo.Machine) {
		return set(func(l *qos.Port) {
			l.DCB.DCBX.V = qos.DCBX{Host: true, CEE: true}
			unsupported(&l.DCB.PFC)
			l.DCB.CEEPFC, l.DCB.CEEPeerPFC = own, fact.Missing[qos.Priorities](fact.Unsupported, ask, "the driver left it out")
		})
	}
	peer := func(on qos.Priorities) func(*topo.Machine) {
		return set(func(l *qos.Port) { l.DCB.CEEPeerPFC = fact.Of(on, ask) })
	}
	on3 := fact.Of(qos.Priorities(1<<3), ask)
	runCases(t, "roce-pfc", []verdictCase{
		{"on", cee(on3), "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"off", cee(fact.Of(qos.Priorities(0), ask)), "mlx5_0/1", Warn, "PFC is off for all priorities", "--pfc 0,0,0,1,0,0,0,0"},
		{"two", cee(fact.Of(qos.Priorities(1<<3|1<<4), ask)), "mlx5_0/1", Warn, "on for 2 priorities (3,4)", ""},
		{"the switch agrees", all2(cee(on3), peer(1<<3)), "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"the switch has another", all2(cee(on3), peer(1<<4)), "mlx5_0/1", Warn, "priority 3 here and for 4 on the switch", ""},
		{"left out of CEE's answer, too", cee(fact.Missing[qos.Priorities](fact.Unsupported, ask, "the driver left it out")), "mlx5_0/1", Unknown, "PFC not supported here", ""},
		{"denied", cee(fact.Missing[qos.Priorities](fact.Denied, ask, "permission denied")), "mlx5_0/1", Unknown, "PFC may not be read", ""},
		{"failed", cee(fact.Missing[qos.Priorities](fact.Failed, ask, "cut short")), "mlx5_0/1", Unknown, "reading PFC failed", ""},
		{"both forms: IEEE's counts", all2(cee(fact.Of(qos.Priorities(0), ask)), set(func(l *qos.Port) {
			l.DCB.DCBX.V.IEEE = true
			l.DCB.PFC = fact.Of(qos.PFC{Enabled: 1 << 3}, "netlink:IEEE_GET")
		})), "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"IEEE alone: CEE's does not", set(func(l *qos.Port) { l.DCB.CEEPFC = fact.Of(qos.Priorities(0), ask) }), "mlx5_0/1", Pass, "on for priority 3 alone", ""},
		{"InfiniBand", all2(cee(on3), infiniband), "mlx5_0/1", NotApplicable, "", ""},
	})
	runCasesOn(t, "roce-pfc", network(t, "lossless"), []verdictCase{
		{"off", cee(fact.Of(qos.Priorities(0), ask)), "mlx5_0/1", Fail, "PFC is off", ""},
	})
	// The other checks of lossless traffic go by the same priorities.
	runCases(t, "roce-tos", []verdictCase{
		{"marked for it", cee(on3), "mlx5_0/1", Pass, "lead to lossless priority 3", ""},
		{"marked for another", cee(fact.Of(qos.Priorities(1<<5), ask)), "mlx5_0/1", Warn, "while 5 is lossless", ""},
	})
}
