package rdma

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestReadCounters(t *testing.T) {
	dir := "/sys/class/infiniband/mlx5_0/"
	src := facttest.Tree(t, map[string]string{
		dir + "hw_counters/out_of_buffer":            "1\n",
		dir + "hw_counters/lifespan":                 "10\n",
		dir + "ports/1/counters/port_xmit_wait":      "2\n",
		dir + "ports/1/hw_counters/out_of_sequence":  "3\n",
		dir + "ports/2/counters/port_xmit_wait":      "9\n",
		"/sys/class/infiniband/mlx5_1/hw_counters/x": "9\n",
	})
	want := []Counter{
		{"out_of_buffer", fact.Of[uint64](1, "hw_counters/out_of_buffer")},
		{"port_xmit_wait", fact.Of[uint64](2, "ports/1/counters/port_xmit_wait")},
		{"out_of_sequence", fact.Of[uint64](3, "ports/1/hw_counters/out_of_sequence")},
	}
	if diff := cmp.Diff(want, ReadCounters(t.Context(), src, "mlx5_0", 1)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := ReadCounters(t.Context(), src, "mlx5_7", 1); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
