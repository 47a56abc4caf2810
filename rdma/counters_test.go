package rdma

import (
	"syscall"
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
		{Name: "out_of_buffer", Value: fact.Of[uint64](1, "hw_counters/out_of_buffer")},
		{Name: "port_xmit_wait", Value: fact.Of[uint64](2, "ports/1/counters/port_xmit_wait")},
		{Name: "out_of_sequence", Value: fact.Of[uint64](3, "ports/1/hw_counters/out_of_sequence")},
	}
	if diff := cmp.Diff(want, ReadCounters(t.Context(), src, "mlx5_0", 1)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := ReadCounters(t.Context(), src, "mlx5_7", 1); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// A folder of counters that is there and cannot be listed is not one without
// counters: each state says so for itself.
func TestCountersNotListed(t *testing.T) {
	dir := "/sys/class/infiniband/mlx5_0/"
	for _, tt := range []struct {
		err  error
		want fact.State
	}{{syscall.EACCES, fact.Denied}, {syscall.EIO, fact.Failed}, {fact.ErrNotCollected, fact.NotCollected}} {
		src := facttest.Tree(t, map[string]string{
			dir + "ports/1/counters/port_xmit_wait":      "2\n",
			dir + "ports/1/hw_counters/out_of_sequence":  "3\n",
			dir + "ports/1/gids/0":                       "\n",
			"/sys/class/infiniband/mlx5_0/hw_counters/x": "9\n",
		})
		for _, folder := range []string{"hw_counters", "ports/1/hw_counters"} {
			src.Errors[dir+folder] = tt.err
		}
		devices := Collect(t.Context(), src, nil, Options{}).Devices
		again := ReadCounters(t.Context(), src, "mlx5_0", 1)
		for how, list := range map[string][]Counter{
			"collected":  append(devices[0].HWCounters, devices[0].Ports[0].Counters...),
			"read again": again,
		} {
			if len(list) != 3 {
				t.Fatalf("%s: %+v", how, list)
			}
			for i, name := range []string{"hw_counters", "port_xmit_wait", "ports/1/hw_counters"} {
				if k := list[i]; k.Name != name || k.Group != (i != 1) || k.Group && k.Value.State != tt.want {
					t.Errorf("%s: %+v, want %s %s", how, k, name, tt.want)
				}
			}
		}
	}
}
