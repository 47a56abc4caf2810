package checks

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// idleLeg is a NIC that no GPU has nearest, with settings that change changes.
func idleLeg(change func(*qos.Port)) func(*topo.Machine) {
	return all2(idleNIC(func(*rdma.Device) {}), func(m *topo.Machine) { change(&m.QoS.Ports[1]) })
}

// idleDown is such a NIC whose port is down.
func idleDown(m *topo.Machine) {
	idleLeg(func(*qos.Port) {})(m)
	m.RDMA.Devices[1].Ports[0].State.V = "DOWN"
}

// What each network asks for, and what of it a port has not.
func TestRoCEByNetwork(t *testing.T) {
	pause := set(func(l *qos.Port) { l.Pause.RX.V, l.Pause.TX.V = true, true })
	runCasesOn(t, "roce-trust", network(t, "lossy"), []verdictCase{
		{"whatever it is", trustPCP, "mlx5_0/1", NotApplicable, "does not ask for it", ""},
	})
	runCasesOn(t, "roce-buffer", network(t, "lossy"), []verdictCase{
		{"none", nil, "mlx5_0/1", NotApplicable, "no lossless priority", ""},
	})
	runCasesOn(t, "roce-tos", network(t, "lossy"), []verdictCase{
		{"none", nil, "mlx5_0/1", NotApplicable, "no lossless priority", ""},
	})
	runCasesOn(t, "roce-cnp", network(t, "lossless,cnp_dscp=48,cnp_priority=7"), []verdictCase{
		{"another priority alone", nil, "mlx5_0/1", Fail, "the network has 48 and 7", ""},
	})
	runCasesOn(t, "roce-global-pause", network(t, "lossy"), []verdictCase{
		{"on", all2(pause, pfcOn(0)), "mlx5_0/1", Info, "only if the switch sends or obeys", ""},
	})
	runCasesOn(t, "roce-tos", network(t, "dscp=26"), []verdictCase{
		{"where it leads", nil, "mlx5_0/1", Pass, "", ""},
		{"which is not lossless", pfcOn(1 << 5), "mlx5_0/1", Fail, "leads to priority 3, not to the lossless 5", ""},
	})
}

// A network without ECN has CNPs only where it says how they are marked.
func TestCNPsOfNetworks(t *testing.T) {
	six, mark := 6, 48
	for name, tc := range map[string]struct {
		network NetworkProfile
		want    Verdict
	}{
		"neither":    {NetworkProfile{Name: "bare"}, NotApplicable},
		"ECN":        {NetworkProfile{Name: "bare", ECN: true}, Pass},
		"a mark":     {NetworkProfile{Name: "bare", CNPDSCP: &mark}, Pass},
		"a priority": {NetworkProfile{Name: "bare", CNPPriority: &six}, Pass},
	} {
		n, err := NewNode(goodNode(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n.Network = tc.network
		if f := runCheck(n, &roceCNP, nil)[0]; f.Verdict != tc.want {
			t.Errorf("%s: %s %s, want %s", name, f.Verdict, f.Message, tc.want)
		}
	}
}

func TestRoCEUnseen(t *testing.T) {
	none := func(change func(*qos.Port)) func(*topo.Machine) { return set(change) }
	runCases(t, "roce-trust", []verdictCase{
		{"shows none", none(func(l *qos.Port) { l.DCB.Trust = absent[qos.Trust]() }), "mlx5_0/1", Unknown, "shows no trust", ""},
		{"a transport of its own", transport(rdma.Other), "mlx5_0/1", NotApplicable, "not RoCE", ""},
		{"a NIC that nobody needs is down", idleDown, "mlx5_1/1", NotApplicable, "the port is DOWN and no GPU's", ""},
		{"a NIC that nobody needs is up", idleLeg(func(*qos.Port) {}), "mlx5_1/1", Pass, "", ""},
		{"a GPU's NIC is down", func(m *topo.Machine) { port(m).State.V = "DOWN" }, "mlx5_0/1", Pass, "", ""},
		{"a NIC that nobody needs, state not seen", all2(idleLeg(func(*qos.Port) {}), func(m *topo.Machine) { denied(&m.RDMA.Devices[1].Ports[0].State) }), "mlx5_1/1", Pass, "", ""},
	})
	runCases(t, "roce-pfc", []verdictCase{
		{"shows none", none(func(l *qos.Port) { l.DCB.PFC = absent[qos.PFC]() }), "mlx5_0/1", Unknown, "shows no PFC", ""},
	})
	runCases(t, "roce-dcbx", []verdictCase{
		{"none here", none(func(l *qos.Port) { l.DCB.DCBX = absent[qos.DCBX]() }), "mlx5_0/1", NotApplicable, "has no DCBX", ""},
	})
	runCases(t, "roce-ecn", []verdictCase{
		{"one end's switch alone", none(func(l *qos.Port) { l.ECN.RP = absent[qos.Priorities]() }), "mlx5_0/1", Unknown, "no switch for it", ""},
		{"the other end's alone", none(func(l *qos.Port) { l.ECN.NP = absent[qos.Priorities]() }), "mlx5_0/1", Unknown, "no switch for it", ""},
	})
	runCases(t, "roce-cnp", []verdictCase{
		{"no mark shown", none(func(l *qos.Port) { l.ECN.CNPDSCP = absent[int]() }), "mlx5_0/1", Unknown, "no mark of CNPs", ""},
		{"no priority shown", none(func(l *qos.Port) { l.ECN.CNPPriority = absent[int]() }), "mlx5_0/1", Unknown, "no mark of CNPs", ""},
	})
	runCases(t, "roce-global-pause", []verdictCase{
		{"one way shown", none(func(l *qos.Port) { l.Pause.TX = absent[bool]() }), "mlx5_0/1", Unknown, "shows no pause", ""},
		{"the other way shown", none(func(l *qos.Port) { l.Pause.RX = absent[bool]() }), "mlx5_0/1", Unknown, "shows no pause", ""},
		{"obeyed alone", none(func(l *qos.Port) { l.Pause.RX.V = true }), "mlx5_0/1", Fail, "beside PFC", ""},
		{"sent alone", none(func(l *qos.Port) { l.Pause.TX.V = true }), "mlx5_0/1", Fail, "beside PFC", ""},
	})
	runCases(t, "roce-buffer", []verdictCase{
		{"a buffer that the NIC has not", set(func(l *qos.Port) { l.DCB.Buffer.V.Priority[3] = len(l.DCB.Buffer.V.SizeBytes) }), "mlx5_0/1", Pass, "", ""},
		{"no number for it", set(func(l *qos.Port) { l.DCB.Buffer.V.Priority[3] = -1 }), "mlx5_0/1", Pass, "", ""},
		{"its first buffer, empty", set(func(l *qos.Port) {
			l.DCB.Buffer.V.Priority = [8]int{1, 1, 1, 0, 1, 1, 1, 1}
			l.DCB.Buffer.V.SizeBytes[0] = 0
		}), "mlx5_0/1", Warn, "buffer 0 of lossless priority 3 has no size", ""},
		{"PFC not seen", set(func(l *qos.Port) { denied(&l.DCB.PFC) }), "mlx5_0/1", Unknown, "PFC may not be read", ""},
		{"PFC cannot be told", set(func(l *qos.Port) { unsupported(&l.DCB.PFC) }), "mlx5_0/1", NotApplicable, "no priority", ""},
	})
	runCases(t, "rdma-link-fec", []verdictCase{
		{"software", software, "mlx5_0/1", NotApplicable, "software", ""},
		{"none here", set(func(l *qos.Port) { l.FEC.Active = absent[string]() }), "mlx5_0/1", NotApplicable, "no FEC", ""},
		{"no lanes", set(func(l *qos.Port) { l.FEC.Active.V, l.Link.Lanes.V = "None", 0 }), "mlx5_0/1", Pass, "None", ""},
	})
	runCases(t, "rdma-module", []verdictCase{
		{"software", software, "mlx5_0/1", NotApplicable, "software", ""},
	})
	runCases(t, "rdma-link-flaps", []verdictCase{
		{"nothing counts", func(m *topo.Machine) { leg(m).Link.Downs, m.RDMA.NetDevs = absent[uint64](), nil }, "mlx5_0/1", NotApplicable, "nothing counts", ""},
		{"no uptime", func(m *topo.Machine) { leg(m).Link.Downs.V, m.Host.UptimeSec = 5, absent[float64]() }, "mlx5_0/1", Unknown, "over an unknown time", ""},
		{"once more than at the start", all2(set(func(l *qos.Port) { unsupported(&l.Link.Downs) }), func(m *topo.Machine) { m.RDMA.NetDevs[0].CarrierChanges = known(uint64(4)) }), "mlx5_0/1", Pass, "lost 1 times", ""},
		{"the interface does not count", all2(set(func(l *qos.Port) { unsupported(&l.Link.Downs) }), func(m *topo.Machine) { m.RDMA.NetDevs[0].CarrierChanges = absent[uint64]() }), "mlx5_0/1", NotApplicable, "nothing counts", ""},
	})
	runCases(t, "nic-pending", []verdictCase{
		{"software", software, "mlx5_0/1", NotApplicable, "software", ""},
		{"none stored", set(func(l *qos.Port) { l.Devlink.Versions, l.NVConfig = absent[[]qos.Version](), qos.NVConfig{} }), "mlx5_0/1", NotApplicable, "no stored versions", ""},
		{"stored, and not running", set(func(l *qos.Port) { l.Devlink.Versions.V[1].Name = "fw.undi" }), "mlx5_0/1", Pass, "", ""},
		{"another version that runs", set(func(l *qos.Port) {
			l.Devlink.Versions.V = append([]qos.Version{{Kind: "running", Name: "fw.undi", Value: "14"}}, l.Devlink.Versions.V...)
		}), "mlx5_0/1", Pass, "", ""},
		{"fixed versions are none that wait", set(func(l *qos.Port) {
			l.Devlink.Versions.V[1].Kind, l.Devlink.Versions.V[1].Value = "fixed", "1"
		}), "mlx5_0/1", Pass, "", ""},
		{"a setting that says nothing of the next boot", set(func(l *qos.Port) {
			l.NVConfig.Settings = known([]qos.NVSetting{{Name: "X", Current: "1"}})
		}), "mlx5_0/1", Pass, "", ""},
	})
	runCases(t, "nic-consistency", []verdictCase{
		{"software", all2(threeNICs(func(*qos.Port) {}), software), "mlx5_0", NotApplicable, "software", ""},
		{"models not known", all2(secondPort(func(d *rdma.Device) { d.Model = absent[rdma.Model]() }), func(m *topo.Machine) { nic(m).Model = absent[rdma.Model]() }), "mlx5_1", Pass, "", ""},
		{"models not known, other boards", all2(secondPort(func(d *rdma.Device) { d.Model, d.BoardID.V = absent[rdma.Model](), "MT_9" }), func(m *topo.Machine) { nic(m).Model = absent[rdma.Model]() }), "mlx5_1", NotApplicable, "the only NIC", ""},
		{"InfiniBand", all2(threeNICs(func(*qos.Port) {}), func(m *topo.Machine) {
			m.QoS = qos.Facts{}
			for i := range m.RDMA.Devices {
				m.RDMA.Devices[i].Transport.V = rdma.InfiniBand
			}
		}), "mlx5_0", NotApplicable, "subnet manager's", ""},
		{"what need not be seen", threeNICs(func(l *qos.Port) { denied(&l.FEC.Active) }), "mlx5_2", Pass, "", ""},
		{"trust, the others have pcp", all2(threeNICs(func(*qos.Port) {}), func(m *topo.Machine) {
			for i := range 2 {
				m.QoS.Ports[i].DCB.Trust.V, m.QoS.Ports[i].DCB.Apps.V = qos.TrustPCP, nil
			}
		}), "mlx5_2", Fail, "trust dscp, while 2 of 3 have pcp", "--trust pcp"},
		{"PFC, all with pcp", all2(threeNICs(func(l *qos.Port) { l.DCB.PFC.V.Enabled = 1 << 5 }), func(m *topo.Machine) {
			for i := range m.QoS.Ports {
				m.QoS.Ports[i].DCB.Trust.V, m.QoS.Ports[i].DCB.Apps.V = qos.TrustPCP, nil
			}
		}), "mlx5_2", Fail, "PFC priority 5", "--pfc 0,0,0,1,0,0,0,0"},
		{"one model known", secondPort(func(d *rdma.Device) { d.Model = absent[rdma.Model]() }), "mlx5_1", Pass, "", ""},
	})
}

func TestQoSSeverities(t *testing.T) {
	for _, tc := range []struct {
		check, subject string
		change         func(*topo.Machine)
		options        Options
		verdict        Verdict
		want           Severity
	}{
		{"roce-trust", "mlx5_0/1", trustPCP, Options{}, Warn, SeverityWarning},
		{"roce-trust", "mlx5_0/1", trustPCP, network(t, "lossless"), Fail, SeverityError},
		{"roce-trust", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.DCB.Trust.V = qos.TrustPCP }), Options{}, Warn, SeverityInfo},
		{"roce-trust", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.DCB.Trust.V = qos.TrustPCP }), network(t, "lossless"), Fail, SeverityWarning},
		{"rdma-link-flaps", "mlx5_0/1", func(m *topo.Machine) { leg(m).Link.Downs.V = 95 }, Options{}, Warn, SeverityWarning},
		{"rdma-link-flaps", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.Link.Downs.V = 95 }), Options{}, Warn, SeverityInfo},
		{"rdma-module", "mlx5_0/1", set(func(l *qos.Port) { l.Module.State.V = "ModuleFault" }), Options{}, Warn, SeverityWarning},
		{"rdma-module", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.Module.State.V = "ModuleFault" }), Options{}, Warn, SeverityInfo},
		{"rdma-link-fec", "mlx5_0/1", set(func(l *qos.Port) { l.FEC.Active.V = "None" }), Options{}, Warn, SeverityWarning},
		{"rdma-link-fec", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.FEC.Active.V = "None" }), Options{}, Warn, SeverityInfo},
		{"nic-pending", "mlx5_0/1", set(func(l *qos.Port) { l.Devlink.Versions.V[1].Value = "1" }), Options{}, Warn, SeverityWarning},
		{"nic-pending", "mlx5_1/1", idleLeg(func(l *qos.Port) { l.Devlink.Versions.V[1].Value = "1" }), Options{}, Warn, SeverityInfo},
		{"nic-consistency", "mlx5_2", threeNICs(func(l *qos.Port) { l.DCB.PFC.V.Enabled = 0 }), Options{}, Fail, SeverityError},
		{"nic-consistency", "mlx5_2", all2(threeNICs(func(l *qos.Port) { l.DCB.PFC.V.Enabled = 0 }), func(m *topo.Machine) { m.GPU.GPUs = nil }), Options{}, Fail, SeverityWarning},
		{"nic-consistency", "mlx5_2", all2(threeNICs(func(*qos.Port) {}), func(m *topo.Machine) {
			for i := range m.QoS.Ports {
				m.QoS.Ports[i].FEC.Active = known([]string{"RS", "RS", "None"}[i])
			}
		}), Options{}, Warn, SeverityWarning},
		{"roce-gid-choice", "mlx5_0/1", func(m *topo.Machine) { port(m).GIDs = []rdma.GID{gidEntry(5, gidV6, "RoCE v2")} }, Options{}, Warn, SeverityWarning},
		{"roce-gid-choice", "mlx5_1/1", idleNIC(func(d *rdma.Device) {
			d.Ports[0].GIDs = []rdma.GID{gidEntry(5, gidV6, "RoCE v2")}
		}), Options{}, Warn, SeverityInfo},
	} {
		m := goodNode()
		tc.change(m)
		check, ok := Lookup(tc.check)
		if !ok {
			t.Fatal(tc.check)
		}
		if f := findingOf(t, m, check, tc.subject, tc.options); f.Verdict != tc.verdict || f.Severity != tc.want {
			t.Errorf("%s %s: %s of severity %s (%s), want %s of %s", tc.check, tc.subject, f.Verdict, f.Severity, f.Message, tc.verdict, tc.want)
		}
	}
}

func TestRoCEPriorities(t *testing.T) {
	of := func(change func(*topo.Machine), opt Options) qos.Priorities {
		m := goodNode()
		change(m)
		n, err := NewNode(m, opt)
		if err != nil {
			t.Fatal(err)
		}
		return (&Case{Node: n, Subject: EachLeg(n)[0], check: &roceTrust}).rocePriorities()
	}
	for _, tc := range []struct {
		name   string
		change func(*topo.Machine)
		opt    Options
		want   qos.Priorities
	}{
		{"where the marks lead", func(*topo.Machine) {}, Options{}, 1 << 3},
		{"the network's", func(*topo.Machine) {}, network(t, "priority=5"), 1 << 5},
		{"where the network's mark leads", func(*topo.Machine) {}, network(t, "dscp=40"), 1 << 5},
		{"nobody marks", noMarks, Options{}, 0},
		{"rdma_cm's mark was not seen", func(m *topo.Machine) { noMarks(m); denied(&leg(m).ToS.RDMACM) }, Options{}, 0},
		{"the way of marks was not seen", func(m *topo.Machine) { denied(&leg(m).DCB.Trust); denied(&leg(m).DCB.Apps) }, Options{}, 0},
	} {
		if got := of(tc.change, tc.opt); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
	ecn := set(func(l *qos.Port) { l.DCB.PFC.V.Enabled, l.ECN.NP.V, l.ECN.RP.V = 1<<5, 8, 8 })
	runCases(t, "roce-ecn", []verdictCase{{"on where the marks lead", ecn, "mlx5_0/1", Pass, "on for priority 3", ""}})
	runCasesOn(t, "roce-tos", network(t, "dscp=40"), []verdictCase{
		{"another lossless priority", set(func(l *qos.Port) {
			l.DCB.PFC.V.Enabled, l.ToS.Forced = 1<<3|1<<5, fact.Of(160, "tc/1/traffic_class")
		}), "mlx5_0/1", Pass, "ToS 160", ""},
	})
	runCases(t, "roce-gid-index", []verdictCase{
		{"a NIC that nobody needs", idleNIC(func(d *rdma.Device) { d.Ports[0].GIDs = []rdma.GID{gidEntry(5, gidV4, "RoCE v2")} }), "node", Pass, "on all 1", ""},
	})
	policy := Options{Policy: &Policy{Network: &Network{Neighbours: map[string]string{"mlx5_0": "leaf1", "mlx5_1": "leaf2"}}}}
	m := goodNode()
	leg(m).Neighbour = qos.Neighbour{System: fact.Of("leaf9", "lldp")}
	if f := findingOf(t, m, nicNeighbour, "mlx5_0/1", policy); f.Verdict != Fail || strings.Contains(strings.Join(f.Fix, " "), "exchanged") {
		t.Errorf("%s: %q", f.Verdict, f.Fix)
	}
	n, err := NewNode(goodNode(), network(t, "priority=3"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Case{Node: n, Subject: EachLeg(n)[0], check: &rocePFC}
	for priority, want := range map[int]string{0: "--pfc 1,0,0,0,0,0,0,0", 4: "--pfc 0,0,0,0,1,0,0,0", -1: "--pfc 0,0,0,1,0,0,0,0"} {
		if got := c.qosFix(c.Subject.Leg, "pfc", priority)[0]; !strings.Contains(got, want) {
			t.Errorf("priority %d: %s", priority, got)
		}
	}
}

func TestFirmwareFaultCovers(t *testing.T) {
	f := firmwareFault{Drivers: []string{"bnxt_en"}, From: "230.0", Until: "231.2"}
	for version, want := range map[string]bool{
		"230.0": true, "231": true, "231.2": true, "231.2.9": true, "231.3": false, "229.9": false, "": false, "x": false,
	} {
		if f.covers("bnxt_en", version) != want {
			t.Errorf("%q: %v", version, !want)
		}
		if f.covers("mlx5_core", version) {
			t.Errorf("%q of another driver", version)
		}
	}
}

func TestNetworkBorders(t *testing.T) {
	for _, text := range []string{"dscp=0", "dscp=63", "priority=0", "priority=7", "lossless,cnp_dscp=0", "lossless,cnp_priority=0"} {
		if _, err := ParseNetwork(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	m := goodNode()
	if o := mustRun(t, m, Options{Policy: &Policy{Network: &Network{Profile: "lossy"}}}); one(t, o, "roce-tos", "mlx5_0/1").Verdict != NotApplicable {
		t.Error("the policy's network is not taken")
	}
	if o := mustRun(t, m, Options{Policy: &Policy{Network: &Network{Profile: "lossy"}}, Network: &Network{Profile: "lossless"}}); one(t, o, "roce-tos", "mlx5_0/1").Verdict != Pass {
		t.Error("the option's network does not outrank the policy's")
	}
}

func TestBuffersInWords(t *testing.T) {
	b := qos.Buffer{Priority: [8]int{0, 0, 0, 1, 7, 8, -1, 0}}
	b.SizeBytes[0], b.SizeBytes[1] = 130048, 65536
	if got := showBuffers(b); !strings.HasPrefix(got, "of priorities 0 to 7: 0,0,0,1,7,8,-1,0 (buffer 0: 127 KiB, buffer 1: 64 KiB") {
		t.Error(got)
	}
}

// The evidence of a setting that is wrong is the way of each program's packets,
// as far as it was seen.
func TestPathRows(t *testing.T) {
	m := goodNode()
	trustPCP(m)
	denied(&leg(m).ToS.RDMACM)
	got := map[string]string{}
	for _, e := range findingOf(t, m, roceTrust, "mlx5_0/1").Evidence {
		got[e.Name] = e.Got
	}
	if got["NCCL"] != "ToS 106 → DSCP 26 → priority 0 (no VLAN tag) → lossy → buffer 0" || got["rdma_cm"] != "denied" {
		t.Errorf("%q", got)
	}
}

func TestToSMore(t *testing.T) {
	f := findingOf(t, func() *topo.Machine {
		m := goodNode()
		unsupported(&leg(m).ToS.RDMACM)
		return m
	}(), roceToS, "mlx5_0/1")
	if f.Verdict != Pass || !strings.Contains(f.Message, "NCCL's ToS 106, UCX's ToS 106 lead") {
		t.Errorf("nobody shows rdma_cm's: %s %s", f.Verdict, f.Message)
	}
	// Where the network names its priority, PFC elsewhere is no way out.
	m := goodNode()
	m.QoS.Job.V[0].Value = "160"
	for options, offered := range map[string]bool{"": true, "priority=3": false} {
		opt := Options{}
		if options != "" {
			opt = network(t, options)
		}
		if f := findingOf(t, m, roceToS, "mlx5_0/1", opt); strings.Contains(strings.Join(f.Fix, "\n"), "Where it is 5: sudo mlnx_qos -i ens1 --pfc 0,0,0,0,0,1,0,0") != offered {
			t.Errorf("%q: %q", options, f.Fix)
		}
	}
}
