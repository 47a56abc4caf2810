package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// railColumn is a measure that the table of rails has a column for.
type railColumn struct {
	op      perftest.Operation
	measure perftest.Measure
	reverse bool
	// reference: in host memory, beside a GPU's.
	reference bool
}

func columnOf(r *perftest.Result) railColumn {
	return railColumn{r.Plan.Operation, r.Plan.Measure, r.Reverse, r.Reference}
}

// rails draws one row for each port that was to be measured: its bandwidth
// alone and with all others, there and back, and its latency.
func (p *page) rails(rails []perftest.RailPair, results []*perftest.Result) {
	columns := railColumns(results)
	bothWays := slices.ContainsFunc(columns, func(c railColumn) bool { return c.reverse })
	peers := slices.ContainsFunc(rails, func(r perftest.RailPair) bool { return r.By != "" || r.Peer != r.Rail })
	if !peers && slices.ContainsFunc(rails, func(r perftest.RailPair) bool { return r.Rail != "" }) {
		p.line(p.paint(bold, "each port with itself, which stays inside the NIC"))
	}
	gpus := slices.ContainsFunc(rails, func(r perftest.RailPair) bool { return r.GPU != "" })
	g := grid{head: []string{"port"}, indent: 2}
	if gpus {
		g.head = append(g.head, "memory")
	}
	if peers {
		g.head = append(g.head, "peer")
	}
	for _, c := range columns {
		g.head = append(g.head, c.head(bothWays))
	}
	var notes [][2]string // mark, text
	for _, r := range rails {
		if r.Rail == "" && r.Peer == "" { // of the node as a whole
			notes = append(notes, [2]string{p.noteMark(r), r.NotMeasured})
			continue
		}
		row := []string{cmp.Or(r.Rail, "-")}
		if gpus {
			row = append(row, memoryOf(r))
		}
		if peers {
			row = append(row, cmp.Or(r.Peer, "-"))
		}
		note := r.NotMeasured
		for _, c := range columns {
			text, fault := p.railCell(results, r, c)
			row, note = append(row, text), cmp.Or(note, fault)
		}
		g.add(row...)
		if note != "" {
			notes = append(notes, [2]string{p.noteMark(r), cmp.Or(r.Rail, "the other node's "+r.Peer) + ": " + note})
		}
		if len(r.LeftOut) > 0 {
			notes = append(notes, [2]string{p.mark(checks.Info), fmt.Sprintf("%s: there was no time for: %s", r.Rail, strings.Join(r.LeftOut, ", "))})
		}
		if r.GPUNotMeasured != "" {
			notes = append(notes, p.notOnGPU(r))
		}
	}
	if len(g.rows) > 1 {
		row := make([]string, len(g.head)-len(columns))
		row[0] = "all"
		for _, c := range columns {
			row = append(row, sumCell(results, c))
		}
		g.add(row...)
	}
	if len(g.rows) > 0 {
		p.table(g)
		p.railLegend(rails, results)
	}
	for _, n := range notes {
		p.para("  "+n[0]+" ", n[1])
	}
}

// notOnGPU says why a port was measured in host memory alone.
func (p *page) notOnGPU(r perftest.RailPair) [2]string {
	if r.GPU == "" {
		return [2]string{p.mark(checks.Unknown), fmt.Sprintf("%s: in host memory; cannot tell whether there is a GPU to measure: %s", r.Rail, r.GPUNotMeasured)}
	}
	if r.GPUUnknown {
		return [2]string{p.mark(checks.Unknown), fmt.Sprintf("%s: in host memory; cannot tell what it reaches in that of %s: %s", r.Rail, r.GPU, r.GPUNotMeasured)}
	}
	return [2]string{p.mark(checks.Info), fmt.Sprintf("%s: in host memory, not in that of %s: %s", r.Rail, r.GPU, r.GPUNotMeasured)}
}

// noteMark is that of why a port was not measured, or of a measurement that failed.
func (p *page) noteMark(r perftest.RailPair) string {
	switch r.Why {
	case "", perftest.WhyDown:
		return p.mark(checks.Fail)
	case perftest.WhyNoPeer:
		return p.mark(checks.Warn)
	case perftest.WhyNone, perftest.WhyUnsupported:
		return p.mark(checks.NotApplicable)
	default:
		return p.mark(checks.Unknown)
	}
}

// railLegend says what the table's figures are, and how peers were found.
func (p *page) railLegend(rails []perftest.RailPair, results []*perftest.Result) {
	parts := []string{"Gb/s (10^9 bit/s)"}
	if slices.ContainsFunc(results, func(r *perftest.Result) bool { return r.Together > 0 }) {
		parts[0] += " alone / with all ports at the same time"
	}
	if slices.ContainsFunc(results, func(r *perftest.Result) bool { return r.Plan.Measure == perftest.Latency }) {
		parts = append(parts, "latency: the median")
	}
	if slices.ContainsFunc(results, func(r *perftest.Result) bool { return r.Reference }) {
		parts = append(parts, "host: in host memory, to compare with a GPU's")
	}
	by := map[perftest.Match][]string{}
	for _, r := range rails {
		by[r.By] = append(by[r.By], r.Rail)
	}
	for _, m := range []struct {
		match perftest.Match
		words string
	}{
		{perftest.MatchName, "by name"},
		{perftest.MatchSubnet, "by network"},
		{perftest.MatchOrder, "by order, since neither name nor network told"},
	} {
		if list := by[m.match]; len(list) > 0 {
			parts = append(parts, fmt.Sprintf("peer %s: %s", m.words, few(list)))
		}
	}
	p.para("  ", strings.Join(parts, "; "))
}

// few names the first ones of a list.
func few(names []string) string {
	if n := len(names) - maxSubjects; n > 0 {
		return strings.Join(names[:maxSubjects], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

func railColumns(results []*perftest.Result) []railColumn {
	var out []railColumn
	for _, r := range results {
		if c := columnOf(r); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	// Bandwidths first, each operation's there and back side by side.
	slices.SortStableFunc(out, func(a, b railColumn) int {
		return cmp.Or(cmp.Compare(a.measure, b.measure), cmp.Compare(slices.Index(perftest.Operations, a.op), slices.Index(perftest.Operations, b.op)))
	})
	return out
}

// memoryOf is what a rail was measured in.
func memoryOf(r perftest.RailPair) string {
	if r.GPU == "" || r.GPUNotMeasured != "" || r.Why != "" {
		return "host"
	}
	return r.GPU
}

func (c railColumn) head(bothWays bool) string {
	text := string(c.op)
	if c.reference {
		text += " host"
	}
	switch {
	case c.measure == perftest.Latency:
		return text + " us"
	case bothWays && c.reverse:
		return text + " ←"
	case bothWays:
		return text + " →"
	}
	return text + " Gb/s"
}

// railCell is a rail's figure in a column, and what went wrong with it.
func (p *page) railCell(results []*perftest.Result, pair perftest.RailPair, c railColumn) (text, fault string) {
	return p.figures(results, func(r *perftest.Result) bool {
		return r.Rail == pair.Rail && r.Peer == pair.Peer && columnOf(r) == c
	})
}

// figures are those of the results that are meant, and what went wrong first.
func (p *page) figures(results []*perftest.Result, meant func(*perftest.Result) bool) (text, fault string) {
	var parts []string
	for _, r := range results {
		if !meant(r) {
			continue
		}
		figure, ok := figureOf(r)
		if !ok {
			figure = p.mark(checks.Fail)
			fault = cmp.Or(fault, faultOf(r))
		}
		parts = append(parts, figure)
	}
	return strings.Join(parts, " / "), fault
}

// figureOf is the bandwidth of a result's largest messages, or the median
// latency of its smallest. ok is false for one that cannot be relied on.
func figureOf(r *perftest.Result) (text string, ok bool) {
	if len(r.Steps) == 0 || !r.Good() {
		return "", false
	}
	bySize := func(a, b perftest.Step) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) }
	if r.Plan.Measure == perftest.Latency {
		if l := slices.MinFunc(r.Steps, bySize).Latency; l != nil {
			return us(l.MedianNs), true
		}
		return "", false
	}
	return shortRate(slices.MaxFunc(r.Steps, bySize).BytesPerSec), true
}

func faultOf(r *perftest.Result) string {
	if r.Failure != nil {
		return fmt.Sprintf("%s: %s", r.Faulty, r.Failure.Error())
	}
	return "data arrived WRONG"
}

// sumCell is the sum of a column's results.
func sumCell(results []*perftest.Result, c railColumn) string {
	return sum(c.measure, slices.DeleteFunc(slices.Clone(results), func(r *perftest.Result) bool { return columnOf(r) != c }))
}

// sum adds up bandwidths, those measured alone and those measured together.
func sum(m perftest.Measure, results []*perftest.Result) string {
	if m == perftest.Latency {
		return ""
	}
	var alone, all float64
	for _, r := range results {
		if len(r.Steps) == 0 || !r.Good() {
			continue
		}
		rate := slices.MaxFunc(r.Steps, func(a, b perftest.Step) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) }).BytesPerSec
		if r.Together > 0 {
			all += rate
		} else {
			alone += rate
		}
	}
	if all == 0 {
		return shortRate(alone)
	}
	return shortRate(alone) + " / " + shortRate(all)
}

// shortRate is rate in as many digits as a table of ports has room for.
func shortRate(bytesPerSec float64) string {
	const wide = 100
	v := bytesPerSec * 8 / 1e9
	if v < wide {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
