package qos

import (
	"encoding/json"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// LLDP does not run on InfiniBand, IPoIB's interfaces too, nor SMPs on Ethernet:
// each port is asked about by its own way, and InfiniBand's only on demand.
func TestNeighbourByTransport(t *testing.T) {
	said := func(system, source string) json.RawMessage {
		b, err := json.Marshal(Neighbour{System: fact.Of(system, source)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		transport rdma.Transport
		physState fact.Value[string]
		asked     bool
		want      string
		lldp, smp int // questions
	}{
		"RoCE":                      {rdma.RoCE, known("LinkUp"), true, `"leaf1" lldpcli`, 1, 0},
		"InfiniBand, asked":         {rdma.InfiniBand, known("LinkUp"), true, `"S-leaf1" smp:NodeDescription`, 0, 1},
		"InfiniBand, not asked":     {rdma.InfiniBand, known("LinkUp"), false, "not_collected: asked with --neighbour only", 0, 0},
		"InfiniBand without a link": {rdma.InfiniBand, known("Polling"), true, "absent: the port has no link: Polling", 0, 0},
		"InfiniBand, link not seen": {rdma.InfiniBand, fact.Missing[string](fact.Failed, "phys_state", "x"), true, `"S-leaf1" smp:NodeDescription`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			src := tree(t, "mlx5_core", nil)
			src.Answers = map[string][]fact.Record{
				fact.AskLLDP: {{Subject: "ens3", State: fact.Known, Data: said("leaf1", "lldpcli")}},
				fact.AskSMP:  {{Subject: "mlx5_0/1", State: fact.Known, Data: said("S-leaf1", "smp:NodeDescription")}},
			}
			r := oneNIC(t, "mlx5_0", "mlx5_core", tt.transport)
			r.Devices[0].Ports[0].PhysState = tt.physState
			p := Collect(t.Context(), src, r, nil, Options{Neighbours: tt.asked}).Ports[0]
			if got := shown(p.Neighbour.System); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if src.Asked[fact.AskLLDP] != tt.lldp || src.Asked[fact.AskSMP] != tt.smp {
				t.Errorf("asked: %v", src.Asked)
			}
		})
	}
}
