package qos

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

func lossless(trust Trust, pfc Priorities, apps ...App) *Port {
	return &Port{DCB: DCB{
		Trust: fact.Of(trust, "netlink"), Apps: fact.Of(apps, "netlink"), PFC: fact.Of(PFC{Enabled: pfc}, "netlink"),
		Buffer: fact.Of(Buffer{Priority: [8]int{0, 0, 0, 1, 0, 2, 0, 0}}, "netlink"),
	}}
}

// The wanted paths follow from IEEE 802.1Q's and the drivers' rules by hand; the
// one of traffic class 236 is a cluster that people reported (nccl#2383).
func TestPathOf(t *testing.T) {
	unread := lossless(TrustDSCP, 8)
	unread.DCB.PFC = fact.Missing[PFC](fact.Denied, "netlink", "permission denied")
	for _, c := range []struct {
		name string
		port *Port
		tos  int
		want string
	}{
		{"by default table", lossless(TrustDSCP, 8), 106, "DSCP 26 → priority 3 (dscp>>3) → lossless → buffer 1"},
		{"unmarked", lossless(TrustDSCP, 8), 0, "DSCP 0 → priority 0 (dscp>>3) → lossy → buffer 0"},
		{"by table", lossless(TrustDSCP, 1<<5, App{ByDSCP, 59, 5}), 236, "DSCP 59 → priority 5 (DSCP table) → lossless → buffer 2"},
		{"an entry of another kind", lossless(TrustDSCP, 8, App{ByDatagram, 26, 5}), 104, "DSCP 26 → priority 3 (dscp>>3) → lossless → buffer 1"},
		{"the highest of several", lossless(TrustDSCP, 8, App{ByDSCP, 26, 2}, App{ByDSCP, 26, 4}), 104, "DSCP 26 → priority 4 (DSCP table) → lossy → buffer 0"},
		{"trust in the VLAN tag", lossless(TrustPCP, 8, App{ByDSCP, 26, 3}), 106, "DSCP 26 → priority 0 (no VLAN tag) → lossy → buffer 0"},
		{"a default priority", lossless(TrustPCP, 8, App{ByEtherType, 0, 3}), 106, "DSCP 26 → priority 3 (no VLAN tag) → lossless → buffer 1"},
		{"PFC not seen", unread, 106, "DSCP 26 → priority 3 (dscp>>3) → PFC (denied)"},
		{"nothing seen", &Port{}, 106, "DSCP 26 → priority (not collected)"},
	} {
		if got := c.port.PathOf(c.tos).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// What a program makes of its variable's text, by its source: strtoll(str, NULL, 0)
// of NCCL's ncclLoadParam, sscanf("%lu") after "auto" and "inf" of UCX's
// ucs_config_sscanf_ulunits, and a uint8_t for the value in both.
func TestMarkOfText(t *testing.T) {
	const refused = -1
	for text, want := range map[string][2]int{ // NCCL, UCX; NCCL's default is 0, UCX's 106
		"106": {106, 106}, " 106 ": {106, 106}, "106x": {106, 106}, "106;rm -rf": {106, 106}, "+41": {41, 41},
		"0x6a": {106, 0}, "0X6A": {106, 0}, "0152": {106, 152}, "089": {0, 89}, "0x": {0, 0},
		"362": {106, 106}, "-150": {106, 106}, "-1": {0, 255}, "auto": {0, 106}, "AUTO": {0, 106}, "inf": {0, 255},
		"": {0, refused}, "garbage": {0, refused}, "\x00\xff": {0, refused}, "x106": {0, refused}, "-": {0, refused}, "\u0661": {0, refused},
		"99999999999999999999999999": {0, 255}, "--1": {0, refused}, "0xg": {0, 0}, "1e3": {1, 1}, "0b1": {0, 0},
	} {
		facts := &Facts{Job: fact.Of([]Setting{{"NCCL_IB_TC", text, "environment"}, {"UCX_IB_TRAFFIC_CLASS", text, "environment"}}, "environment")}
		none := fact.Missing[int](fact.Absent, "tc", "not set")
		for i, m := range facts.Marks(&Port{ToS: ToS{Forced: none, RDMACM: none}})[:2] {
			tos, ok := m.ToS.Get()
			if want[i] == refused {
				if ok || m.ToS.State != fact.Failed {
					t.Errorf("%s of %q: %+v", m.Program, text, m)
				}
			} else if !ok || tos != want[i] {
				t.Errorf("%s of %q: %+v, want %d", m.Program, text, m, want[i])
			}
		}
	}
}

func FuzzMarkOfText(f *testing.F) {
	f.Add("0x6a")
	f.Add(strings.Repeat("9", 1<<16))
	f.Fuzz(func(t *testing.T, text string) {
		for _, program := range []Program{NCCL, UCX} {
			tos, read := readToS(program, text)
			if tos < 0 || tos > 255 || read == refused && program == NCCL {
				t.Errorf("%s of %q: %d %d", program, text, tos, read)
			}
		}
	})
}

func TestMarks(t *testing.T) {
	none := fact.Missing[int](fact.Absent, "tc/1/traffic_class", "not set")
	port := func(change func(*Port)) *Port {
		p := &Port{ToS: ToS{Forced: none, RDMACM: none}}
		change(p)
		return p
	}
	job := func(list ...Setting) *Facts { return &Facts{Job: fact.Of(list, "environment")} }
	type want struct {
		tos    [3]int // NCCL, UCX, rdma_cm
		chosen [3]bool
	}
	for _, c := range []struct {
		name  string
		facts *Facts
		port  *Port
		want  want
	}{
		{"nobody says anything", &Facts{}, port(func(*Port) {}), want{tos: [3]int{0, 106, 0}}},
		{"forced", job(Setting{"NCCL_IB_TC", "106", "environment"}), port(func(p *Port) { p.ToS.Forced = fact.Of(236, "tc/1/traffic_class") }),
			want{[3]int{236, 236, 236}, [3]bool{true, true, true}}},
		{"a job's", job(Setting{"NCCL_IB_TC", " 0x6a ", "/etc/nccl.conf"}, Setting{"UCX_IB_TRAFFIC_CLASS", "41", "environment"}), port(func(*Port) {}),
			want{[3]int{106, 41, 0}, [3]bool{true, true, false}}},
		{"UCX's word for its default", job(Setting{"UCX_IB_TRAFFIC_CLASS", "auto", "environment"}, Setting{"NCCL_IB_TC", "-1", "environment"}), port(func(*Port) {}), want{tos: [3]int{0, 106, 0}}},
		{"rdma_cm's", &Facts{}, port(func(p *Port) { p.ToS.RDMACM = fact.Of(104, "default_roce_tos") }), want{[3]int{0, 106, 104}, [3]bool{false, false, true}}},
		{"the driver's", &Facts{}, port(func(p *Port) { p.ECN.DSCP = fact.Of(26, "cc/roce_dscp") }), want{[3]int{104, 106, 104}, [3]bool{true, false, true}}},
	} {
		for i, m := range c.facts.Marks(c.port) {
			if m.ToS.Or(-1) != c.want.tos[i] || m.Chosen != c.want.chosen[i] || m.From == "" {
				t.Errorf("%s, %s: %+v, want %d, chosen %v", c.name, m.Program, m, c.want.tos[i], c.want.chosen[i])
			}
		}
	}
	if m := (&Facts{}).Marks(port(func(p *Port) { p.ToS.RDMACM = fact.Missing[int](fact.Unsupported, "rdma_cm", "no directory") }))[2]; m.ToS.State != fact.Unsupported {
		t.Errorf("rdma_cm's mark, of which there is no sign: %+v", m)
	}
	hiddenForced := port(func(p *Port) {
		p.ToS.Forced = fact.Missing[int](fact.Denied, "tc/1/traffic_class", "permission denied")
	})
	for _, m := range (&Facts{}).Marks(hiddenForced) {
		if m.ToS.State != fact.Denied {
			t.Errorf("what forces the mark was not seen, and yet: %+v", m)
		}
	}
}

func TestToSFor(t *testing.T) {
	for _, c := range []struct {
		port     *Port
		priority int
		want     int
		ok       bool
	}{
		{lossless(TrustDSCP, 8), 3, 106, true},
		{lossless(TrustDSCP, 8), 5, 162, true}, // DSCP 40
		{lossless(TrustDSCP, 32, App{ByDSCP, 26, 5}), 5, 106, true},
		{lossless(TrustPCP, 8), 3, 0, false},
		{&Port{}, 3, 0, false},
	} {
		if tos, ok := c.port.ToSFor(c.priority); tos != c.want || ok != c.ok {
			t.Errorf("priority %d: %d %v, want %d %v", c.priority, tos, ok, c.want, c.ok)
		}
	}
}
