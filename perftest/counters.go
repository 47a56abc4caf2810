package perftest

import (
	"cmp"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// CounterDelta is a counter that moved during a run.
type CounterDelta struct {
	Name    string   `json:"name"` // as the driver calls it
	Sign    qos.Sign `json:"sign"`
	Counted string   `json:"counted"` // what, in words
	Delta   uint64   `json:"delta"`
}

// SideCounters is what the counters of one side's port and NIC did in a run.
type SideCounters struct {
	// Watched are the counters that matter and could be read before and after.
	// Empty: nothing can be said, and Reason says why.
	Watched []string `json:"watched,omitempty"`
	// Moved are those of them that increased, worst sign first. Nobody else's
	// traffic is told from the run's own.
	Moved  []CounterDelta `json:"moved,omitempty"`
	Reason string         `json:"reason,omitempty"`
}

// CompareCounters says what moved between two readings of the same port. A
// counter that fell was reset or has wrapped: it is not watched.
func CompareCounters(before, after []rdma.Counter) SideCounters {
	var out SideCounters
	first := make(map[string]fact.Value[uint64], len(before))
	for _, c := range before {
		first[c.Name] = c.Value
	}
	unread := ""
	for _, c := range after {
		kind, known := qos.LookupCounter(c.Name)
		if !known || kind.Sign == qos.SignInformation || slices.Contains(out.Watched, c.Name) {
			continue
		}
		a, okA := first[c.Name].Get()
		b, okB := c.Value.Get()
		if !okA || !okB || b < a {
			unread = cmp.Or(unread, c.Value.Reason, first[c.Name].Reason)
			continue
		}
		out.Watched = append(out.Watched, c.Name)
		if b > a {
			out.Moved = append(out.Moved, CounterDelta{Name: c.Name, Sign: kind.Sign, Counted: kind.Counted, Delta: b - a})
		}
	}
	slices.SortStableFunc(out.Moved, func(x, y CounterDelta) int {
		return cmp.Compare(slices.Index(qos.Signs, x.Sign), slices.Index(qos.Signs, y.Sign))
	})
	if len(out.Watched) == 0 {
		out.Reason = cmp.Or(unread, "the driver keeps no counter that would tell")
		if len(before)+len(after) == 0 {
			out.Reason = "no counters were found"
		}
	}
	return out
}
