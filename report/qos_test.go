package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// qosNode has a NIC that is well set, one that trusts the VLAN tag, one of
// which nothing is told, as a VF in a guest, and one on InfiniBand.
func qosNode() *topo.Machine {
	m := &topo.Machine{Origin: "live"}
	add := func(name, netdev string, transport rdma.Transport, set func(*qos.Port)) {
		p := rdma.Port{Number: 1, State: fact.Of("ACTIVE", "state"), NetDev: fact.Of(netdev, "netdev"), ActiveMTU: fact.Of(4096, "verbs"), GIDTable: fact.Of(8, "gids")}
		if transport == rdma.RoCE {
			p.GIDs = []rdma.GID{
				{Index: 0, GID: "fe80:0000:0000:0000:0000:00ff:fe00:0001", Type: fact.Of("IB/RoCE v1", "t"), NetDev: fact.Of(netdev, "n")},
				{Index: 3, GID: "0000:0000:0000:0000:0000:ffff:c0a8:0001", Type: fact.Of("RoCE v2", "t"), NetDev: fact.Of(netdev, "n")},
			}
		}
		m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Name: name, Dir: "/sys/class/infiniband/" + name, Transport: fact.Of(transport, "link_layer"),
			Driver: fact.Of("mlx5_core", "driver"), PortsListed: fact.Of(1, "ports"), Ports: []rdma.Port{p}})
		q := qos.Port{Device: name, Number: 1, NetDev: netdev, NetDir: "/sys/class/net/" + netdev}
		set(&q)
		m.QoS.Ports = append(m.QoS.Ports, q)
	}
	well := func(q *qos.Port) {
		q.DCB = qos.DCB{
			Trust: fact.Of(qos.TrustDSCP, "netlink"), PFC: fact.Of(qos.PFC{Enabled: 8}, "netlink"), Apps: fact.Of([]qos.App{}, "netlink"),
			Buffer: fact.Of(qos.Buffer{Priority: [8]int{3: 1}}, "netlink"), DCBX: fact.Of(qos.DCBX{Host: true}, "netlink"),
		}
		q.ECN = qos.ECN{NP: fact.Of(qos.Priorities(255), "ecn"), RP: fact.Of(qos.Priorities(8), "ecn"), CNPDSCP: fact.Of(48, "ecn"), CNPPriority: fact.Of(6, "ecn")}
		q.ToS = qos.ToS{Forced: fact.Missing[int](fact.Absent, "tc", "none"), RDMACM: fact.Of(106, "configfs")}
	}
	add("mlx5_0", "eth0", rdma.RoCE, well)
	add("mlx5_1", "eth1", rdma.RoCE, func(q *qos.Port) {
		well(q)
		q.DCB.Trust.V, q.DCB.PFC.V.Enabled, q.ECN.RP.V = qos.TrustPCP, 0, 0
		q.ToS.Forced = fact.Of(106, "tc")
	})
	add("mlx5_2", "eth2", rdma.RoCE, func(q *qos.Port) {
		none := "operation not supported"
		q.DCB.Trust, q.DCB.PFC = fact.Missing[qos.Trust](fact.Unsupported, "netlink", none), fact.Missing[qos.PFC](fact.Unsupported, "netlink", none)
		q.ToS.Forced = fact.Missing[int](fact.Unsupported, "tc", "no such file")
	})
	add("mlx5_3", "ib0", rdma.InfiniBand, func(*qos.Port) {})
	return m
}

func newQoS(t *testing.T, m *topo.Machine) *QoS {
	t.Helper()
	n, err := checks.NewNode(m, checks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return NewQoS(m, n, "1.2.3")
}

func TestQoSTable(t *testing.T) {
	for _, width := range []int{80, 100, 200} {
		var out bytes.Buffer
		if err := QoSTable(&out, newQoS(t, qosNode()), Style{Width: width}); err != nil {
			t.Fatal(err)
		}
		for l := range strings.Lines(out.String()) {
			if w := twwidth.Width(strings.TrimSuffix(l, "\n")); w > width {
				t.Errorf("width %d: %d columns: %s", width, w, l)
			}
		}
		if name, ok := map[int]string{80: "qos-80", 100: "qos-100"}[width]; ok {
			golden(t, name, out.Bytes())
		}
	}
}

// The document says what becomes of each program's packets, and is read back
// as it was written.
func TestQoSDocument(t *testing.T) {
	var out bytes.Buffer
	if err := JSON(&out, newQoS(t, qosNode())); err != nil {
		t.Fatal(err)
	}
	var doc QoS
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != KindQoS || len(doc.Ports) != 4 || doc.Network.Name != "lossless" || !doc.Network.Assumed {
		t.Fatalf("%+v", doc)
	}
	ucx := doc.Ports[0].Marks[1]
	if ucx.Program != qos.UCX || ucx.ToS.V != 106 || *ucx.DSCP != 26 || ucx.Priority.V != 3 || !ucx.Lossless.V || ucx.Buffer.V != 1 || ucx.Chosen {
		t.Errorf("UCX on mlx5_0: %+v", ucx)
	}
	forced := doc.Ports[1].Marks[0]
	if forced.Priority.V != 0 || forced.Lossless.V || !forced.Chosen {
		t.Errorf("NCCL on mlx5_1, which trusts the VLAN tag: %+v", forced)
	}
	if unseen := doc.Ports[2].Marks[0]; unseen.Lossless.State != fact.Unsupported {
		t.Errorf("NCCL on mlx5_2: %+v", unseen)
	}
	if g := doc.Ports[0].GIDs[0]; g.Index.V != 3 || !g.Routable {
		t.Errorf("GID of mlx5_0: %+v", g)
	}
	if ib := doc.Ports[3]; ib.Marks != nil || ib.GIDs != nil {
		t.Errorf("InfiniBand: %+v", ib)
	}
}

// That nobody could tell of devices is not that there are none.
func TestNoPorts(t *testing.T) {
	for _, tt := range []struct {
		listed fact.Value[int]
		text   string
		reason string
	}{
		{fact.Of(0, "/sys/class/infiniband"), "No RDMA port was seen.", ""},
		{fact.Missing[int](fact.Absent, "/sys/class/infiniband", "no such file or directory"), "No RDMA port was seen.", ""},
		{fact.Missing[int](fact.NotCollected, "/sys/class/infiniband", "took too long"), "? RDMA devices: not collected (took too long)", "RDMA devices: not collected (took too long)"},
		{fact.Missing[int](fact.Denied, "/sys/class/infiniband", ""), "? RDMA devices: denied (/sys/class/infiniband)", "RDMA devices: denied (/sys/class/infiniband)"},
	} {
		m := &topo.Machine{RDMA: rdma.Facts{Listed: tt.listed}}
		settings, counters := newQoS(t, m), NewCounters(m, "1")
		var first, second bytes.Buffer
		if err := errors.Join(QoSTable(&first, settings, Style{}), CountersTable(&second, counters, Style{})); err != nil {
			t.Fatal(err)
		}
		if settings.Reason != tt.reason || counters.Reason != tt.reason || !strings.Contains(first.String(), tt.text) || !strings.Contains(second.String(), tt.text) {
			t.Errorf("%+v: %q, %q\n%s%s", tt.listed, settings.Reason, counters.Reason, &first, &second)
		}
	}
}
