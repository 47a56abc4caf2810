package qos

import (
	_ "embed" // the counter table
	"path"
	"strconv"
	"strings"
	"sync"
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
	SignInformation    Sign = "information"    // nothing wrong: traffic, by kind
)

// Signs is every sign, worst first.
var Signs = []Sign{SignError, SignLink, SignDiscard, SignRetransmission, SignOrder, SignReceiver, SignPause, SignCongestion, SignInformation}

// CounterKind says what a counter tells.
type CounterKind struct {
	Sign    Sign   `json:"sign"`
	Counted string `json:"counted"`         // what, in words
	Means   string `json:"means,omitempty"` // what it mostly comes from, in words
	// Max is where the counter stops (InfiniBand's PortCounters are narrow):
	// there nobody can tell whether it would have moved. 0: it does not stop.
	Max uint64 `json:"max,omitempty"`
}

//go:embed counters.tsv
var countersTSV string

type counterRow struct {
	pattern string // of path.Match
	CounterKind
}

// counterTable is the table with the names that are no patterns apart: a NIC
// has thousands of counters to look up.
type counterTable struct {
	names    map[string]CounterKind
	patterns []counterRow
}

var counters = sync.OnceValue(func() counterTable {
	t := counterTable{names: map[string]CounterKind{}}
	for _, r := range parseCounterTable(countersTSV) {
		if strings.ContainsAny(r.pattern, "*?[\\") {
			t.patterns = append(t.patterns, r)
		} else {
			t.names[r.pattern] = r.CounterKind
		}
	}
	return t
})

func parseCounterTable(text string) []counterRow {
	var rows []counterRow
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimRight(line, "\r\n"), "\t"); len(f) == 5 && !strings.HasPrefix(line, "#") {
			most, _ := strconv.ParseUint(f[4], 10, 64)
			rows = append(rows, counterRow{f[0], CounterKind{Sign(f[1]), f[2], f[3], most}})
		}
	}
	return rows
}

// LookupCounter finds a counter by the name its driver gives it, in sysfs or in
// ethtool -S; false: the table does not know what it tells.
func LookupCounter(name string) (CounterKind, bool) {
	t := counters()
	if k, ok := t.names[name]; ok {
		return k, true
	}
	for _, r := range t.patterns {
		if ok, _ := path.Match(r.pattern, name); ok {
			return r.CounterKind, true
		}
	}
	return CounterKind{}, false
}
