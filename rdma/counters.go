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
	var paths []string
	for _, folder := range []string{"hw_counters", portDir(port) + "counters", portDir(port) + "hw_counters"} {
		paths = append(paths, c.listCounters(s, folder)...)
	}
	c.served.paths = s.served
	c.served.ask(ctx, src)
	list := make([]Counter, len(paths))
	for i, p := range paths {
		list[i] = c.counter(s.Dir, p)
	}
	return list
}
