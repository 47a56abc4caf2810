package perftest

import (
	_ "embed" // the table
	"strconv"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/rdma"
)

//go:embed traffic.tsv
var trafficTSV string

// trafficTable holds the bytes that a count of each counter stands for.
var trafficTable = sync.OnceValue(func() map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(trafficTSV) {
		name, bytes, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.ParseUint(bytes, 10, 64); ok && err == nil && !strings.HasPrefix(line, "#") {
			out[name] = n
		}
	}
	return out
})

// Traffic is about how many bytes a port moved between two readings of its
// counters, in the direction that moved more. ok is false where no counter tells.
func Traffic(before, after []rdma.Counter) (bytes uint64, ok bool) {
	first := make(map[string]uint64, len(before))
	for _, c := range before {
		if v, known := c.Value.Get(); known {
			first[c.Name] = v
		}
	}
	for _, c := range after {
		each, counts := trafficTable()[c.Name]
		v, known := c.Value.Get()
		old, was := first[c.Name]
		if !counts || !known || !was || v < old {
			continue
		}
		ok, bytes = true, max(bytes, (v-old)*each)
	}
	return bytes, ok
}
