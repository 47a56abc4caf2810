package perftest

import (
	"cmp"

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
// counter that fell was reset or has wrapped, and one that stands where it stops
// cannot move: they are not watched.
func CompareCounters(before, after []rdma.Counter) SideCounters {
	var out SideCounters
	changes, unread := qos.Changes(before, after)
	for _, c := range changes {
		if c.Sign == qos.SignInformation || c.Stuck {
			continue
		}
		out.Watched = append(out.Watched, c.Name)
		if c.Delta > 0 {
			out.Moved = append(out.Moved, CounterDelta{Name: c.Name, Sign: c.Sign, Counted: c.Counted, Delta: c.Delta})
		}
	}
	if len(out.Watched) == 0 {
		out.Reason = cmp.Or(unread, "the driver keeps no counter that would tell")
		if len(before)+len(after) == 0 {
			out.Reason = "no counters were found"
		}
	}
	return out
}
