package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// modes is what ethtool netlink answers of both ends, by the kernel's names of
// link modes (net/ethtool/common.c).
func modes(speedMbps int, autoneg bool, own, peer []qos.Mode) func(*topo.Machine) {
	return func(m *topo.Machine) {
		const source = "ethtool:LINKMODES_GET"
		l := &leg(m).Link
		l.SpeedMbps, l.Autoneg, l.Modes = fact.Of(speedMbps, source), fact.Of(autoneg, source), fact.Of(own, source)
		l.PeerModes = fact.Missing[[]qos.Mode](fact.Absent, source, "the link partner offered none")
		if peer != nil {
			l.PeerModes = fact.Of(peer, source)
		}
		port(m).Rate.V = rdma.Rate{BitsPerSec: float64(speedMbps) * 1e6, Text: "a rate"}
	}
}

func TestLinkModes(t *testing.T) {
	to400 := []qos.Mode{"25000baseCR/Full", "100000baseCR4/Full", "200000baseCR4/Full", "400000baseCR4/Full", "100000baseSR4/Full"}
	to200 := to400[:3]
	bond := func(mbps ...int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			modes(400_000, true, to400, nil)(m)
			l := m.QoS.Ports[0]
			m.QoS.Ports, m.RDMA.NetDevs[0].Slaves = nil, []string{"ens1f0", "ens1f1"}
			for i, n := range mbps {
				l.NetDev = []string{"ens1f0", "ens1f1"}[i]
				l.Link.SpeedMbps = fact.Of(n, "ethtool:LINKMODES_GET")
				m.QoS.Ports = append(m.QoS.Ports, l)
			}
		}
	}
	second := func(mbps int) func(*topo.Machine) {
		return func(m *topo.Machine) {
			secondNIC(func(d *rdma.Device) { d.Ports[0].Rate.V.BitsPerSec = float64(mbps) * 1e6 })(m)
			m.QoS.Ports[1].Link.SpeedMbps.V = mbps
		}
	}
	model := func(gbps float64) func(*topo.Machine) {
		return func(m *topo.Machine) { nic(m).Model.V.MaxGbps = gbps }
	}
	noModel := func(m *topo.Machine) { nic(m).Model = absent[rdma.Model]() }
	ib := func(m *topo.Machine) { infiniband(m); port(m).Rate.V.BitsPerSec = 200e9 }
	unread := func(state fact.State) func(*topo.Machine) {
		return set(func(l *qos.Port) {
			l.Link.Modes = fact.Missing[[]qos.Mode](state, "ethtool:LINKMODES_GET", "lost")
		})
	}
	const subject = "mlx5_0/1"
	runCases(t, "rdma-port-rate", []verdictCase{
		{"the fastest mode", modes(400_000, true, to400, to400), subject, Pass, "the fastest of its link modes", ""},
		{"the fastest mode of a slower board, whatever the model's best", modes(200_000, true, to200, to400), subject, Pass, "the fastest of its link modes", ""},
		{"a model that no table has", all2(modes(200_000, true, to200, nil), noModel), subject, Pass, "the fastest of its link modes", ""},
		{"the other end offers less", modes(200_000, true, to400, to200), subject, Warn, "200 Gb/s, while ens1 can do 400 Gb/s: the other end offers no more than 200 Gb/s", "Set the switch's port to 400 Gb/s, or use one that has it; then negotiate again: sudo ethtool -r ens1"},
		{"both could do more", modes(100_000, true, to400, to400), subject, Warn, "100 Gb/s, while ens1 can do 400 Gb/s, and so can the other end", "Offer all modes: sudo ethtool -s ens1 autoneg on"},
		{"cable or module", modes(100_000, true, to400, to400), subject, Warn, "cable and module carry no more", "sudo ethtool -m ens1"},
		{"set by hand", modes(200_000, false, to400, nil), subject, Warn, "autonegotiation is off, and its speed is set by hand", "sudo ethtool -s ens1 autoneg on; or set the speed at both ends: sudo ethtool -s ens1 speed 400000 autoneg off"},
		{"the other end does not tell", modes(200_000, true, to400, nil), subject, Warn, "which end keeps it lower is not told", "the other end's modes were not seen"},
		{"whether it negotiates is not told", all2(modes(200_000, true, to400, to200), set(func(l *qos.Port) { unsupported(&l.Link.Autoneg) })), subject, Warn, "the other end offers no more than 200 Gb/s", ""},
		{"the driver tells no speed", all2(modes(200_000, true, to400, to200), set(func(l *qos.Port) { l.Link.SpeedMbps = absent[int]() })), subject, Warn, "200 Gb/s, while ens1 can do 400 Gb/s", ""},
		{"below a sibling, too", all2(modes(200_000, true, to400, to200), second(400_000)), subject, Warn, "the other end offers no more", ""},
		{"a fabric of that speed", all2(modes(200_000, true, to400, to200), second(200_000)), subject, Info, "all others of its model here run at this rate", ""},
		{"the fastest mode, and a sibling is faster", all2(modes(200_000, true, to200, to400), second(400_000)), subject, Warn, "while mlx5_1/1 of the same model runs at 400 Gb/s", ""},
		{"both legs of a bond at their best", bond(400_000, 400_000), subject, Pass, "the fastest of its link modes", ""},
		{"both legs of a bond are slower", bond(200_000, 100_000), subject, Warn, "200 Gb/s, while ens1f0 can do 400 Gb/s", "ens1f0"},
		{"nothing among the modes is one", all2(modes(400_000, true, []qos.Mode{"Autoneg", "base"}, nil), model(400)), subject, Pass, "a rate", ""},
		{"one leg of a bond is slower", bond(400_000, 100_000), subject, Warn, "100 Gb/s, while ens1f1 can do 400 Gb/s", "ens1f1"},
		{"the modes of one leg were not seen", all2(bond(400_000, 400_000), func(m *topo.Machine) { denied(&m.QoS.Ports[1].Link.Modes) }), subject, Unknown, "link modes of ens1f1 may not be read", ""},
		{"the speed of one leg was not seen", all2(bond(400_000, 400_000), func(m *topo.Machine) { denied(&m.QoS.Ports[1].Link.SpeedMbps) }), subject, Unknown, "speed of ens1f1 may not be read", ""},
		{"one leg has no speed", all2(bond(400_000, 400_000), func(m *topo.Machine) { m.QoS.Ports[1].Link.SpeedMbps = absent[int]() }), subject, Unknown, "a leg of the bond shows no link modes or no speed", ""},
		{"nothing of a bond's legs was collected", all2(bond(400_000, 400_000), func(m *topo.Machine) { m.QoS = qos.Facts{} }), subject, Unknown, "link modes of the bond's legs not collected", ""},
		{"no mode among them, as VFs", all2(modes(400_000, true, []qos.Mode{}, nil), model(400)), subject, Pass, "a rate", ""},

		{"not collected, but the model can do no more", unread(fact.NotCollected), subject, Pass, "400 Gb/sec", ""},
		{"not collected, and no model", all2(unread(fact.NotCollected), noModel), subject, Unknown, "link modes not collected", ""},
		{"denied", all2(unread(fact.Denied), noModel), subject, Unknown, "link modes may not be read", "sudo"},
		{"failed", all2(unread(fact.Failed), model(0)), subject, Unknown, "reading link modes failed", ""},
		{"an old kernel", all2(unread(fact.Unsupported), noModel), subject, Unknown, "link modes not supported here", ""},
		{"no settings at all", all2(noModel, func(m *topo.Machine) { m.QoS = qos.Facts{} }), subject, Unknown, "link modes not collected", ""},
		{"no link modes there, and no model", all2(unread(fact.Absent), noModel), subject, Info, "nothing says what this port can do", ""},

		{"InfiniBand has no link modes", all2(modes(100_000, true, to400, to400), ib, model(200)), subject, Pass, "a rate", ""},
		{"InfiniBand below its model", all2(ib, model(400)), subject, Warn, "a ConnectX-7 can do 400 Gb/s", ""},
		{"InfiniBand of an unknown model", all2(ib, noModel), subject, Info, "nothing says what this port can do", ""},
		{"InfiniBand whose model was not read", all2(ib, func(m *topo.Machine) { denied(&nic(m).Model) }), subject, Unknown, "model may not be read", ""},
		{"down", all2(modes(100_000, true, to400, to400), func(m *topo.Machine) { port(m).State.V = "DOWN" }), subject, NotApplicable, "DOWN", ""},
		{"EFA", all2(modes(100_000, true, to400, to400), transport(rdma.EFA)), subject, NotApplicable, "EFA", ""},
		{"software", all2(modes(100_000, true, to400, to400), software), subject, NotApplicable, "software", ""},
	})
}
