package qos

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/rdma"
)

func counter(name string, v uint64) rdma.Counter {
	return rdma.Counter{Name: name, Value: fact.Of(v, name)}
}

func TestChanges(t *testing.T) {
	before := []rdma.Counter{counter("link_downed", 255), counter("symbol_error", 3), counter("port_xmit_data", 1), counter("out_of_buffer", 9), counter("nobody_knows", 1)}
	after := []rdma.Counter{counter("link_downed", 255), counter("symbol_error", 5), counter("port_xmit_data", 9), counter("out_of_buffer", 0), counter("nobody_knows", 2),
		{Name: "packet_seq_err", Value: fact.Missing[uint64](fact.Failed, "packet_seq_err", "input/output error")}}
	list, unread := Changes(before, after)
	var got []string
	for _, c := range list {
		got = append(got, string(c.Sign)+" "+c.Name+" +"+strconv.FormatUint(c.Delta, 10)+map[bool]string{true: " stuck"}[c.Stuck])
	}
	want := []string{"link link_downed +0 stuck", "link symbol_error +2", "information port_xmit_data +8"}
	if diff := cmp.Diff(want, got); diff != "" || unread != "input/output error" {
		t.Errorf("unread %q (-want +got)\n%s", unread, diff)
	}
}

// That a driver does not keep a counter is no gap beside others; a group that
// could not be listed is one, of its own counters or an interface's.
func TestChangesUnseen(t *testing.T) {
	notKept := rdma.Counter{Name: "symbol_error", Value: fact.Missing[uint64](fact.Unsupported, "symbol_error", "not kept")}
	list := []rdma.Counter{counter("port_xmit_data", 1), notKept}
	facts := func(v fact.Value[[]Stat]) []rdma.Counter {
		f := &Facts{Ports: []Port{{Device: "mlx5_0", Number: 1, NetDev: "eth0", Stats: v}}}
		return f.Counters(&rdma.Device{Name: "mlx5_0"}, &rdma.Port{Number: 1, Counters: list})
	}
	missing := func(s fact.State, source string) fact.Value[[]Stat] { return fact.Missing[[]Stat](s, source, "") }
	for name, tt := range map[string]struct {
		counters []rdma.Counter
		want     string
	}{
		"one not kept":           {list, ""},
		"none kept":              {list[1:], "not kept"},
		"a folder denied":        {append([]rdma.Counter{{Name: "ports/1/counters", Value: fact.Missing[uint64](fact.Denied, "ports/1/counters", "permission denied"), Group: true}}, list...), "ports/1/counters was not seen: permission denied"},
		"interface told":         {facts(fact.Of([]Stat{{Name: "rx_discards_phy", Value: 1}}, "stats")), ""},
		"interface not asked":    {facts(fact.Value[[]Stat]{}), ""},
		"interface keeps none":   {facts(missing(fact.Unsupported, "stats")), ""},
		"interface gone":         {facts(missing(fact.Absent, "stats")), ""},
		"interface denied":       {facts(missing(fact.Denied, "stats")), "ethtool -S eth0 was not seen: denied"},
		"interface failed":       {facts(missing(fact.Failed, "stats")), "ethtool -S eth0 was not seen: failed"},
		"interface in no record": {facts(missing(fact.NotCollected, "stats")), "ethtool -S eth0 was not seen: not collected"},
	} {
		if _, got := Totals(tt.counters); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A real node's counters: the worst is the port that lost its link so often
// that the counter, of eight bits (InfiniBand specification 16.1.3.5), is full.
func TestTotalsRecorded(t *testing.T) {
	const class = "/sys/class/infiniband"
	src := facttest.Recorded(t, "gpud-ibclass-h100", "root/components/accelerator/nvidia/infiniband/class/testdata/sys-class-infiniband-h100.0/", class)
	ports := 0
	for _, d := range rdma.Collect(t.Context(), src, nil, rdma.Options{}).Devices {
		ports++
		list, unread := Totals(d.Ports[0].Counters)
		worst := map[string]string{}
		for _, c := range list {
			if c.Sign == SignLink && c.Value > 0 {
				worst[c.Name] = strconv.FormatUint(c.Value, 10) + map[bool]string{true: " stuck"}[c.Stuck]
			}
		}
		want := map[string]string{"excessive_buffer_overrun_errors": "15 stuck", "port_rcv_errors": "14"}
		if d.Name == "mlx5_1" {
			want["link_downed"] = "255 stuck"
		}
		if diff := cmp.Diff(want, worst); diff != "" || unread != "" {
			t.Errorf("%s: unread %q (-want +got)\n%s", d.Name, unread, diff)
		}
	}
	if ports != 9 {
		t.Errorf("%d ports", ports)
	}
}

// Two nodes after 30 s of ib_write_bw, as ethtool -S printed them: on the first
// the network paused the NIC, on the second the NIC the network.
func TestPausesRecorded(t *testing.T) {
	b, err := os.ReadFile(facttest.Fixture(t, "outputs/text/ethtool-S-pause-gpudirect.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var nodes [][]rdma.Counter
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if strings.HasPrefix(line, "#") {
			nodes = append(nodes, nil)
		}
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			nodes[len(nodes)-1] = append(nodes[len(nodes)-1], counter(name, n))
		}
	}
	if len(nodes) != 2 {
		t.Fatalf("%d nodes", len(nodes))
	}
	for i, want := range []map[string]uint64{{"rx_prio0_pause": 12667, "tx_prio0_pause": 80, "rx_prio0_pause_transition": 5418}, {"rx_prio0_pause": 80, "tx_prio0_pause": 12667}} {
		list, _ := Totals(nodes[i])
		got := map[string]uint64{}
		for _, c := range list {
			if c.Sign != SignPause || c.Means == "" {
				t.Errorf("node %d: %+v", i, c)
			}
			got[c.Name] = c.Value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("node %d (-want +got)\n%s", i, diff)
		}
	}
}
