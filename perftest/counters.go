package perftest

import (
	"cmp"
	_ "embed"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// Sign is what an increase of a counter is a sign of.
type Sign string

// Signs, worst first.
const (
	SignError          Sign = "error"          // something failed
	SignLink           Sign = "link"           // the cable, the transceiver or the port
	SignDiscard        Sign = "discard"        // packets were lost
	SignRetransmission Sign = "retransmission" // packets were lost, or late
	SignOrder          Sign = "order"          // packets were lost, or overtook each other
	SignReceiver       Sign = "receiver"       // the receiving program was too slow
	SignPause          Sign = "pause"          // flow control held the traffic back
	SignCongestion     Sign = "congestion"     // congestion control held the traffic back
)

// Signs is every sign, worst first.
var Signs = []Sign{SignError, SignLink, SignDiscard, SignRetransmission, SignOrder, SignReceiver, SignPause, SignCongestion}

// CounterDelta is a counter that moved during a run.
type CounterDelta struct {
	Name    string `json:"name"` // as the driver calls it
	Sign    Sign   `json:"sign"`
	Counted string `json:"counted"` // what, in words
	Delta   uint64 `json:"delta"`
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

//go:embed counters.tsv
var countersTSV string

type counterRow struct {
	pattern string
	sign    Sign
	counted string
}

var counterTable = sync.OnceValue(func() []counterRow { return parseCounterTable(countersTSV) })

func parseCounterTable(text string) []counterRow {
	var rows []counterRow
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 && !strings.HasPrefix(line, "#") {
			rows = append(rows, counterRow{f[0], Sign(f[1]), f[2]})
		}
	}
	return rows
}

func lookupCounter(name string) (counterRow, bool) {
	for _, r := range counterTable() {
		if ok, _ := path.Match(r.pattern, name); ok {
			return r, true
		}
	}
	return counterRow{}, false
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
		row, matters := lookupCounter(c.Name)
		if !matters || slices.Contains(out.Watched, c.Name) {
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
			out.Moved = append(out.Moved, CounterDelta{Name: c.Name, Sign: row.sign, Counted: row.counted, Delta: b - a})
		}
	}
	slices.SortStableFunc(out.Moved, func(x, y CounterDelta) int {
		return cmp.Compare(slices.Index(Signs, x.Sign), slices.Index(Signs, y.Sign))
	})
	if len(out.Watched) == 0 {
		out.Reason = cmp.Or(unread, "the driver keeps no counter that would tell")
		if len(before)+len(after) == 0 {
			out.Reason = "no counters were found"
		}
	}
	return out
}
