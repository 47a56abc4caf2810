package perftest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

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
	// Reason says why others could not be, or that there are none.
	Watched []string `json:"watched,omitempty"`
	// Moved are those of them that increased, worst sign first. Nobody else's
	// traffic is told from the run's own.
	Moved  []CounterDelta `json:"moved,omitempty"`
	Reason string         `json:"reason,omitempty"`
	// Priorities is what each IEEE 802.1p priority carried, as the network
	// interface counted it; empty: it does not count by priority.
	Priorities []PriorityBytes `json:"priorities,omitempty"`
}

// PriorityBytes is what one priority carried.
type PriorityBytes struct {
	Priority int    `json:"priority"`
	Sent     uint64 `json:"sent_bytes"`
	Received uint64 `json:"received_bytes"`
}

// CompareCounters says what moved between two readings of the same port. A
// counter that fell was reset or has wrapped, and one that stands where it stops
// cannot move: they are not watched.
func CompareCounters(before, after []rdma.Counter) SideCounters {
	var out SideCounters
	changes, unread := qos.Changes(before, after)
	for _, c := range changes {
		out.addPriority(c)
		if c.Sign == qos.SignInformation || c.Stuck {
			continue
		}
		out.Watched = append(out.Watched, c.Name)
		if c.Delta > 0 {
			out.Moved = append(out.Moved, CounterDelta{Name: c.Name, Sign: c.Sign, Counted: c.Counted, Delta: c.Delta})
		}
	}
	if out.Reason = unread; len(out.Watched) == 0 {
		out.Reason = cmp.Or(unread, "the driver keeps no counter that would tell")
		if len(before)+len(after) == 0 {
			out.Reason = "no counters were found"
		}
	}
	return out
}

// priorityBytes are the names of mlx5's and bnxt's counters of bytes by priority.
var priorityBytes = regexp.MustCompile(`^(tx|rx)_(?:prio([0-7])_bytes|bytes_pri([0-7]))$`)

func (s *SideCounters) addPriority(c qos.Change) {
	m := priorityBytes.FindStringSubmatch(c.Name)
	if m == nil {
		return
	}
	n, _ := strconv.Atoi(m[2] + m[3])
	i := slices.IndexFunc(s.Priorities, func(p PriorityBytes) bool { return p.Priority >= n })
	if i < 0 {
		i = len(s.Priorities)
	}
	if i == len(s.Priorities) || s.Priorities[i].Priority != n {
		s.Priorities = slices.Insert(s.Priorities, i, PriorityBytes{Priority: n})
	}
	if m[1] == "tx" {
		s.Priorities[i].Sent = c.Delta
	} else {
		s.Priorities[i].Received = c.Delta
	}
}
