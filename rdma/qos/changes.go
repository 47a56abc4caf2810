package qos

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// Change is what a counter that the table knows did between two readings.
type Change struct {
	Name string `json:"name"` // as the driver calls it
	CounterKind
	Value uint64 `json:"value"` // at the second reading
	Delta uint64 `json:"delta"`
	// Stuck: it stands where it stops, so that Delta says nothing.
	Stuck bool `json:"stuck,omitempty"`
}

// Changes compares two readings of the same port, worst sign first. A counter
// that fell was reset or has wrapped, and is left out like one that could not be
// read both times; unread is why, for the first of those: groups that could not
// be listed before single counters. That a driver does not keep a counter is told
// only where none is left.
func Changes(before, after []rdma.Counter) (list []Change, unread string) {
	first := make(map[string]fact.Value[uint64], len(before))
	for _, c := range before {
		first[c.Name] = c.Value
	}
	for _, c := range slices.Concat(before, after) {
		if c.Group {
			unread = cmp.Or(unread, c.Name+" was not seen: "+cmp.Or(c.Value.Reason, strings.ReplaceAll(c.Value.State.String(), "_", " ")))
		}
	}
	var notKept string
	seen := map[string]bool{}
	for _, c := range after {
		kind, known := LookupCounter(c.Name)
		if !known || seen[c.Name] {
			continue
		}
		a, okA := first[c.Name].Get()
		b, okB := c.Value.Get()
		if !okA || !okB || b < a {
			why := cmp.Or(c.Value.Reason, first[c.Name].Reason)
			if s := c.Value.State; s == fact.Absent || s == fact.Unsupported {
				notKept = cmp.Or(notKept, why)
			} else {
				unread = cmp.Or(unread, why)
			}
			continue
		}
		seen[c.Name] = true
		list = append(list, Change{c.Name, kind, b, b - a, kind.Max > 0 && b == kind.Max && a == b})
	}
	slices.SortStableFunc(list, func(x, y Change) int {
		return cmp.Compare(slices.Index(Signs, x.Sign), slices.Index(Signs, y.Sign))
	})
	if len(list) == 0 {
		unread = cmp.Or(unread, notKept)
	}
	return list, unread
}

// Totals is Changes since the counters began, mostly when the driver was loaded.
func Totals(counters []rdma.Counter) (list []Change, unread string) {
	zero := make([]rdma.Counter, len(counters))
	for i, c := range counters {
		zero[i] = rdma.Counter{Name: c.Name, Value: fact.Of(uint64(0), c.Value.Source)}
	}
	list, unread = Changes(zero, counters)
	for i := range list {
		list[i].Stuck = list[i].Max > 0 && list[i].Value == list[i].Max
	}
	return list, unread
}
