package rdma

import (
	"context"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// ReadCounters reads the counters of one port and of its device, and nothing
// else, as before and after a measurement.
func ReadCounters(ctx context.Context, src fact.Source, device string, port int) []Counter {
	c := &collector{src: src}
	s := &scan{Device: Device{Name: device, Dir: classDir + "/" + device}}
	var list []Counter
	for _, folder := range []string{"hw_counters", portDir(port) + "counters", portDir(port) + "hw_counters"} {
		list = append(list, c.listCounters(s, folder)...)
	}
	c.served.paths = s.served
	c.served.ask(ctx, src)
	for i, k := range list {
		list[i] = c.counter(s.Dir, k)
	}
	return list
}
