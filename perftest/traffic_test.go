package perftest

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

func TestTraffic(t *testing.T) {
	lost := rdma.Counter{Name: "port_xmit_data", Value: fact.Missing[uint64](fact.Failed, "port_xmit_data", "no answer")}
	list := func(c ...rdma.Counter) []rdma.Counter { return c }
	for name, tt := range map[string]struct {
		before, after []rdma.Counter
		bytes         uint64
		ok            bool
	}{
		"words of four bytes": {list(counter("port_xmit_data", 10), counter("port_rcv_data", 10)), list(counter("port_xmit_data", 1010), counter("port_rcv_data", 110)), 4000, true},
		"quiet":               {list(counter("port_xmit_data", 10)), list(counter("port_xmit_data", 10)), 0, true},
		"packets":             {list(counter("rcvd_pkts", 1)), list(counter("rcvd_pkts", 3)), 2048, true},
		"other counters":      {list(counter("link_downed", 1)), list(counter("link_downed", 9)), 0, false},
		"unreadable":          {list(lost), list(counter("port_xmit_data", 9)), 0, false},
		"was reset":           {list(counter("port_xmit_data", 9)), list(counter("port_xmit_data", 1)), 0, false},
		"none":                {nil, nil, 0, false},
	} {
		if bytes, ok := Traffic(tt.before, tt.after); bytes != tt.bytes || ok != tt.ok {
			t.Errorf("%s: %d, %v, want %d, %v", name, bytes, ok, tt.bytes, tt.ok)
		}
	}
}
