package lab

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

//go:embed testdata/qos.sh
var qosScript string

// TestQoS compares what gdrcheck reads of RDMA ports and of the interfaces below
// them with ethtool, dcb, devlink, rdma, ip and ibv_devinfo on the same kernel.
// Its NICs have no DCB, no FEC and no module: the states are real, the settings
// are those of an e1000e.
func TestQoS(t *testing.T) {
	dir := boot(t, Guest{Script: qosScript, Machine: Node(false)})
	before := decode[report.Check](t, dir, "before-check.json").Machine
	after := decode[report.Check](t, dir, "after-check.json").Machine
	for stage, m := range map[string]*topo.Machine{"before": before, "after": after} {
		t.Run(stage, func(t *testing.T) {
			checkLegs(t, m)
			for i := range m.QoS.Ports {
				compareEthtool(t, dir, stage, &m.QoS.Ports[i])
			}
			comparePorts(t, dir, stage, m)
			compareStatistics(t, dir, stage, m)
			compareCarrier(t, dir, stage, m)
		})
	}
	t.Run("addresses", func(t *testing.T) { checkAddresses(t, before) })
	t.Run("changes", func(t *testing.T) { checkChanges(t, dir, before, after) })
}

// checkLegs: three RDMA ports, of which the one on the bond has two ways out.
func checkLegs(t *testing.T, m *topo.Machine) {
	got := map[string][]string{}
	for _, p := range m.QoS.Ports {
		got[p.Device] = append(got[p.Device], p.PCI.V.String())
		if bonded := p.Device == "rxe2"; bonded != (p.LAG.Bond.V == "bond0") || bonded && p.LAG.Mode.V != "active-backup" {
			t.Errorf("%s on %s: bond %+v", p.Device, p.NetDev, p.LAG)
		}
	}
	want := map[string][]string{"rxe0": {"0000:24:00.0"}, "rxe1": {"0000:27:00.0"}, "rxe2": {"0000:81:00.0", "0000:c1:00.0"}}
	for dev, legs := range want {
		if slices.Sort(got[dev]); !slices.Equal(got[dev], legs) {
			t.Errorf("%s leaves by %v, want %v", dev, got[dev], legs)
		}
	}
}

// said is the value of "NAME: VALUE" in a tool's text; nil: the tool does not say.
func said(text, name string) *string {
	for l := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), ":"); ok && strings.TrimSpace(k) == name {
			v = strings.TrimSpace(v)
			return &v
		}
	}
	return nil
}

func isOn(v *string) *bool {
	if v == nil {
		return nil
	}
	on := *v == "on" || *v == "yes" || *v == "Full"
	return &on
}

func compareEthtool(t *testing.T, dir, stage string, p *qos.Port) {
	t.Helper()
	at := fmt.Sprintf("%s %s ", stage, p.NetDev)
	file := func(tool string) string { return read(t, dir, stage+"-"+tool+"-"+p.NetDev) }
	unsupported := func(what, tool string, state fact.State) {
		t.Helper()
		if rc := strings.TrimSpace(read(t, dir, stage+"-"+tool+"-"+p.NetDev+".rc")); rc == "0" || state != fact.Unsupported {
			t.Errorf("%s%s is %s; %s ends with %s: %s", at, what, state, tool, rc, read(t, dir, stage+"-"+tool+"-"+p.NetDev+".err"))
		}
	}
	text := file("ethtool")
	same(t, at+"link", p.Link.Up, isOn(said(text, "Link detected")))
	same(t, at+"autonegotiation", p.Link.Autoneg, isOn(said(text, "Auto-negotiation")))
	if s := said(text, "Speed"); s != nil && strings.HasSuffix(*s, "Mb/s") {
		n := number(t, strings.TrimSuffix(*s, "Mb/s"))
		same(t, at+"speed", p.Link.SpeedMbps, &n)
		same(t, at+"duplex", p.Link.FullDuplex, isOn(said(text, "Duplex")))
	} else {
		same[int](t, at+"speed", p.Link.SpeedMbps, nil)
		same[bool](t, at+"duplex", p.Link.FullDuplex, nil)
	}
	if modes := regexp.MustCompile(`\d+base\S+`).FindAllString(strings.Split(text, "Supported pause")[0], -1); len(modes) == 0 || len(modes) != len(p.Link.Modes.V) {
		t.Errorf("%slink modes %v, ethtool %v", at, p.Link.Modes.V, modes)
	}
	text = file("pause")
	same(t, at+"pause autonegotiation", p.Pause.Autoneg, isOn(said(text, "Autonegotiate")))
	same(t, at+"pause, received", p.Pause.RX, isOn(said(text, "RX")))
	same(t, at+"pause, sent", p.Pause.TX, isOn(said(text, "TX")))
	unsupported("FEC", "fec", p.FEC.Active.State)
	unsupported("module", "module", p.Module.Type.State)
	unsupported("PFC", "dcb", p.DCB.PFC.State)
	// Every counter that we keep is ethtool's, and there is none that the table
	// knows and we have not.
	have := map[string]bool{}
	for _, s := range p.Stats.V {
		have[s.Name] = true
	}
	for l := range strings.Lines(file("stats")) {
		name, _, _ := strings.Cut(strings.TrimSpace(l), ":")
		if _, known := qos.LookupCounter(name); known != have[name] {
			t.Errorf("%scounter %s: in the table %v, read %v", at, name, known, have[name])
		}
		delete(have, name)
	}
	if p.Stats.State != fact.Known || len(have) > 0 {
		t.Errorf("%sstatistics are %s; ethtool has no %v", at, p.Stats.State, have)
	}
}

// comparePorts compares GIDs, MTUs and states with ibv_devinfo.
func comparePorts(t *testing.T, dir, stage string, m *topo.Machine) {
	t.Helper()
	ibv := parseIBVDevinfo(t, read(t, dir, stage+"-ibv_devinfo"))
	links := decode[[]rdmaLink](t, dir, stage+"-rdma-link.json")
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		p := &d.Ports[0]
		at := stage + " " + d.Name + " "
		want := ibv[d.Name]
		same(t, at+"active MTU", p.ActiveMTU, &want.activeMTU)
		if len(p.GIDs) != len(want.gids) {
			t.Errorf("%shas %d GIDs, ibv_devinfo %d", at, len(p.GIDs), len(want.gids))
		}
		for _, g := range p.GIDs {
			a, err := netip.ParseAddr(g.GID)
			if w := want.gids[g.Index]; err != nil || w.addr != a || w.kind != g.Type.V {
				t.Errorf("%sGID %d is %s %s, ibv_devinfo %s %s", at, g.Index, g.GID, g.Type.V, w.addr, w.kind)
			}
		}
		// A table of one entry, the default partition with full membership.
		if k := p.PKeys; k.State != fact.Known || len(k.V) != 1 || k.V[0].Value != 0xffff {
			t.Errorf("%sP_Keys %+v", at, k)
		}
		for _, l := range links {
			if l.Name == d.Name {
				same(t, at+"state", p.State, &l.State)
				same(t, at+"netdev", p.NetDev, &l.NetDev)
			}
		}
	}
}

// compareStatistics compares hw_counters with rdma statistic. Nothing is sent
// over RDMA here, so they stand still.
func compareStatistics(t *testing.T, dir, stage string, m *topo.Machine) {
	t.Helper()
	compared := 0
	for _, s := range decode[[]map[string]json.RawMessage](t, dir, stage+"-statistic.json") {
		name := strings.Trim(string(s["ifname"]), `"`)
		i := slices.IndexFunc(m.RDMA.Devices, func(d rdma.Device) bool { return d.Name == name })
		if i < 0 {
			t.Errorf("no device %s", name)
			continue
		}
		for _, c := range m.RDMA.Devices[i].Ports[0].Counters {
			raw, there := s[c.Name]
			if !there {
				continue // those of counters/
			}
			n, err := strconv.ParseUint(string(raw), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			same(t, stage+" "+name+" "+c.Name, c.Value, &n)
			compared++
		}
	}
	if compared < 3*10 {
		t.Errorf("%s: only %d counters were compared", stage, compared)
	}
}

// compareCarrier compares the changes of carrier with ip.
func compareCarrier(t *testing.T, dir, stage string, m *topo.Machine) {
	t.Helper()
	type link struct {
		Name  string `json:"ifname"`
		Stats struct {
			TX struct {
				Changes uint64 `json:"carrier_changes"`
			}
		} `json:"stats64"`
	}
	links := decode[[]link](t, dir, stage+"-ip-link.json")
	for _, p := range m.QoS.Ports {
		n := slices.IndexFunc(m.RDMA.NetDevs, func(n rdma.NetDev) bool { return n.Name == p.NetDev })
		l := slices.IndexFunc(links, func(l link) bool { return l.Name == p.NetDev })
		if n < 0 || l < 0 {
			t.Errorf("%s is not among the interfaces", p.NetDev)
			continue
		}
		same(t, stage+" "+p.NetDev+" carrier changes", m.RDMA.NetDevs[n].CarrierChanges, &links[l].Stats.TX.Changes)
	}
}

// checkAddresses: IPv4 and VLAN on one port, IPv6 alone on another, a bond.
func checkAddresses(t *testing.T, m *topo.Machine) {
	has := func(dev, addr, netdev string) bool {
		for i := range m.RDMA.Devices {
			for _, g := range m.RDMA.Devices[i].Ports[0].GIDs {
				a, err := netip.ParseAddr(g.GID)
				if err == nil && a.Unmap() == netip.MustParseAddr(addr) && m.RDMA.Devices[i].Name == dev && (netdev == "" || g.NetDev.V == netdev) {
					return true
				}
			}
		}
		return false
	}
	eth := m.QoS.Of("rxe0", 1)[0].NetDev
	for _, g := range []struct{ dev, addr, netdev string }{
		{"rxe0", "10.1.0.1", eth}, {"rxe0", "10.10.0.1", eth + ".10"}, {"rxe1", "fd00:1::1", ""}, {"rxe2", "10.3.0.1", "bond0"},
	} {
		if !has(g.dev, g.addr, g.netdev) {
			t.Errorf("%s has no GID for %s on %s", g.dev, g.addr, g.netdev)
		}
	}
	for _, g := range m.RDMA.Devices[1].Ports[0].GIDs {
		if a, err := netip.ParseAddr(g.GID); err != nil || a.Is4In6() {
			t.Errorf("rxe1, which has IPv6 alone, has GID %s", g.GID)
		}
	}
}

func checkChanges(t *testing.T, dir string, before, after *topo.Machine) {
	a, b := before.QoS.Of("rxe0", 1)[0], after.QoS.Of("rxe0", 1)[0]
	if a.Pause.Autoneg.V == b.Pause.Autoneg.V || !b.Pause.RX.V || b.Pause.TX.V {
		t.Errorf("pause was %+v and is %+v", a.Pause, b.Pause)
	}
	mtu := func(m *topo.Machine) int { return m.RDMA.Devices[0].Ports[0].ActiveMTU.V }
	if mtu(before) != 4096 || mtu(after) != 1024 {
		t.Errorf("RDMA MTU was %d and is %d", mtu(before), mtu(after))
	}
	if up := after.QoS.Of("rxe1", 1)[0].Link.Up; up.V || up.State != fact.Known || after.RDMA.Devices[1].Ports[0].State.V != "DOWN" {
		t.Errorf("the link that was taken down: %+v, %+v", up, after.RDMA.Devices[1].Ports[0].State)
	}
	want := []qos.Setting{
		{Name: "NCCL_IB_GID_INDEX", Value: "9", Source: "environment"}, {Name: "NCCL_IB_SL", Value: "3", Source: "/etc/nccl.conf"},
		{Name: "NCCL_IB_TC", Value: "106", Source: "environment"},
	}
	if !slices.Equal(after.QoS.Job.V, want) || len(before.QoS.Job.V) != 0 || before.QoS.Job.State != fact.Known {
		t.Errorf("the job's settings were %+v and are %+v", before.QoS.Job, after.QoS.Job)
	}
	for _, f := range []string{"0000:24:00.0", "0000:81:00.0"} {
		if rc := strings.TrimSpace(read(t, dir, "before-devlink-"+f+".rc")); rc == "0" {
			t.Errorf("devlink knows %s", f)
		}
	}
	if v := a.Devlink.Versions; v.State != fact.Absent && v.State != fact.Unsupported {
		t.Errorf("devlink: %+v", v)
	}
	for _, tool := range []string{"index-gdrcheck", "index-ib_write_bw"} {
		if rc := strings.TrimSpace(read(t, dir, tool+".rc")); rc == "0" {
			t.Errorf("%s ran with a GID index that is not there", tool)
		}
	}
	if s := read(t, dir, "index-gdrcheck"); !strings.Contains(s, "GID index 9 is empty") {
		t.Errorf("gdrcheck does not name the index: %s", s)
	}
}
