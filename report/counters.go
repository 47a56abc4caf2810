package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// KindCounters is the kind of "gdrcheck rdma counters".
const KindCounters Kind = "counters"

// Counters is the document of "gdrcheck rdma counters".
type Counters struct {
	Header
	// WindowNs is the time between the two readings that were compared; 0: the
	// counts are those since the counters began.
	WindowNs int64         `json:"window_ns"`
	Ports    []CounterPort `json:"ports"`
	// Reason says why there is no port, where nobody could tell whether there is.
	Reason string `json:"reason,omitempty"`
}

// NewCounters is a document of a machine, without ports.
func NewCounters(m *topo.Machine, version string) *Counters {
	return &Counters{Header: NewHeader(KindCounters, m, version), Ports: []CounterPort{}, Reason: noPorts(m)}
}

// CounterPort is what the counters of one port and its NIC did.
type CounterPort struct {
	Device   string       `json:"device"`
	Port     int          `json:"port"`
	Counters []qos.Change `json:"counters"` // worst sign first
	// Reason says why there are none, or why one was left out.
	Reason string `json:"reason,omitempty"`
}

func (p CounterPort) name() string { return fmt.Sprintf("%s/%d", p.Device, p.Port) }

// CountersTable draws what moved, worst first, each counter with what it means;
// those that only tell of traffic with Verbose.
func CountersTable(w io.Writer, doc *Counters, s Style) error {
	p := &page{Style: s}
	window := time.Duration(doc.WindowNs)
	if window > 0 {
		p.line(fmt.Sprintf("%s, within %s", doc.CollectedAt.UTC().Format(time.TimeOnly), window.Round(time.Millisecond)))
	} else {
		p.para("", "Since the counters began, mostly when the driver was loaded: what counts is whether they grow (--watch 1s).")
	}
	moved := doc.moved(s.Verbose)
	for _, c := range moved {
		p.para("  ", p.paint(bold, c.name)+fmt.Sprintf(" (%s): %s", c.Sign, strings.TrimSuffix(c.Counted+"; "+c.Means, "; ")))
		for _, n := range c.counts {
			p.para("      "+n.what+"  ", strings.Join(n.ports, ", "))
		}
	}
	var unread tallyOfPorts
	for _, port := range doc.Ports {
		switch {
		case len(port.Counters) == 0:
			unread.add(port.Reason, port.name())
		case port.Reason != "":
			unread.add("not all was seen: "+port.Reason, port.name())
		}
	}
	switch {
	case len(doc.Ports) == 0:
		p.sayNoPorts(doc.Reason)
	case len(moved) == 0 && len(unread) == 0:
		p.line("No counter of trouble moved.")
	}
	for _, u := range unread {
		p.para("? ", strings.Join(u.ports, ", ")+": "+u.what)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// tallyOfPorts gathers the ports of which the same is said.
type tallyOfPorts []struct {
	what  string
	ports []string
}

func (t *tallyOfPorts) add(what, port string) {
	for i := range *t {
		if (*t)[i].what == what {
			(*t)[i].ports = append((*t)[i].ports, port)
			return
		}
	}
	*t = append(*t, struct {
		what  string
		ports []string
	}{what, []string{port}})
}

// movedCounter is a counter with its counts and the ports of each.
type movedCounter struct {
	qos.CounterKind
	name   string
	counts tallyOfPorts
}

// moved are the counters that are not zero, worst sign first.
func (doc *Counters) moved(all bool) []movedCounter {
	var out []movedCounter
	for _, port := range doc.Ports {
		for _, c := range port.Counters {
			if c.Sign == qos.SignInformation && !all || c.Delta == 0 && !c.Stuck {
				continue
			}
			text := strconv.FormatUint(c.Delta, 10)
			switch {
			case c.Stuck:
				text = fmt.Sprintf("%d, and counts no further", c.Value)
			case doc.WindowNs > 0:
				text = "+" + text
			}
			i := slices.IndexFunc(out, func(m movedCounter) bool { return m.name == c.Name })
			if i < 0 {
				i = len(out)
				out = append(out, movedCounter{CounterKind: c.CounterKind, name: c.Name})
			}
			out[i].counts.add(text, port.name())
		}
	}
	slices.SortStableFunc(out, func(a, b movedCounter) int {
		return cmp.Compare(slices.Index(qos.Signs, a.Sign), slices.Index(qos.Signs, b.Sign))
	})
	return out
}
