package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// KindPerf is a measurement.
const KindPerf Kind = "perf"

// Perf is the document of "gdrcheck perf".
type Perf struct {
	Header
	Verdict  checks.Verdict     `json:"verdict"`
	ExitCode int                `json:"exit_code"`
	Findings []checks.Finding   `json:"findings"`
	Tests    []*perftest.Result `json:"tests"`
}

// NewPerf puts results and what the checks say of them into a document. m is
// the machine of the end that the document is of.
func NewPerf(m *topo.Machine, tests []*perftest.Result, o checks.Outcome, version string) *Perf {
	doc := &Perf{
		Header: NewHeader(KindPerf, m, version), Verdict: o.Verdict, ExitCode: o.ExitCode,
		Findings: append([]checks.Finding{}, o.Findings...), Tests: append([]*perftest.Result{}, tests...),
	}
	for _, t := range tests {
		doc.Simulated = doc.Simulated || t.Simulated
	}
	return doc
}

// PlanText says in a few words what a plan measures: "write bandwidth, RC, 64 KiB".
func PlanText(p *perftest.Plan) string {
	text := fmt.Sprintf("%s %s, %s, ", p.Operation, p.Measure, p.Transport)
	switch n := len(p.SizesBytes); {
	case n == 1:
		text += sizeText(p.SizesBytes[0])
	case n > 1:
		text += fmt.Sprintf("%s to %s", sizeText(slices.Min(p.SizesBytes)), sizeText(slices.Max(p.SizesBytes)))
	}
	if p.QPs > 1 {
		text += fmt.Sprintf(", %d QPs", p.QPs)
	}
	if p.Bidirectional {
		text += ", both directions"
	}
	return text
}

// ResultText says in a line how a test came out.
func ResultText(r *perftest.Result) string {
	text := PlanText(&r.Plan)
	if r.Failure != nil {
		return fmt.Sprintf("%s: failed at the %s: %s", text, r.Faulty, r.Failure.Error())
	}
	var figures []string
	for _, s := range r.Steps {
		switch {
		case s.Latency != nil:
			figures = append(figures, microseconds(s.Latency.MedianNs)+" us")
		case r.Plan.Measure == perftest.Bandwidth:
			figures = append(figures, gigabits(s.BytesPerSec)+" Gb/s")
		}
	}
	const few = 3
	if len(figures) > few {
		figures = []string{figures[0], "…", figures[len(figures)-1]}
	}
	return text + ": " + strings.Join(figures, ", ")
}

// sizeText is exact: "64 KiB", "3000 B".
func sizeText(n int) string {
	const kib = 1 << 10
	units := []string{"B", "KiB", "MiB", "GiB"}
	i := 0
	for ; n >= kib && n%kib == 0 && i < len(units)-1; i++ {
		n /= kib
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

func significant(x float64) string { return strconv.FormatFloat(x, 'f', decimals(x), 64) }

// decimals leave three to four figures.
func decimals(x float64) int {
	switch {
	case x >= 1000:
		return 0
	case x >= 100:
		return 1
	case x >= 1:
		return 2
	}
	return 3
}

// gigabits is 10^9 bit/s.
func gigabits(bytesPerSec float64) string { return significant(bytesPerSec * 8 / 1e9) }

func microseconds(ns float64) string { return significant(ns / 1e3) }

// PerfTable draws the document for people.
func PerfTable(w io.Writer, doc *Perf, s Style) error {
	p := &page{Style: s}
	p.line(p.paint(dim, fmt.Sprintf("%s, measured %s, gdrcheck %s", originText(doc.Header), doc.CollectedAt.UTC().Format(time.RFC3339), clean(doc.Version))))
	for _, t := range doc.Tests {
		p.test(t)
	}
	groups := group(doc.Findings)
	for _, v := range []checks.Verdict{checks.Fail, checks.Warn} {
		for _, g := range groups {
			if g.verdict == v {
				p.group(g)
			}
		}
	}
	p.notes(doc.Findings)
	p.blank()
	p.folded(groups, checks.Pass, "passed")
	p.folded(groups, checks.Blocked, "not judged, since another check failed first")
	p.folded(groups, checks.Unknown, "could not be judged")
	p.blank()
	e := checks.ExitOf(checks.Outcome{Verdict: doc.Verdict}.Result())
	p.line(p.paint(bold, p.paint(marks[doc.Verdict].ink, strings.ToUpper(string(e.Result)))) +
		fmt.Sprintf(": exit code %d", doc.ExitCode))
	_, err := io.WriteString(w, p.String())
	return err
}

func (p *page) test(r *perftest.Result) {
	p.blank()
	p.line(p.paint(bold, clean(PlanText(&r.Plan))))
	p.para("  ", fmt.Sprintf("%s -> %s, MTU %d", endText(&r.Initiator), endText(&r.Responder), r.MTUBytes))
	if r.Scope != "" {
		p.para("  ", r.Scope)
	}
	var g grid
	if r.Plan.Measure == perftest.Latency {
		g = latencyGrid(r)
	} else {
		g = bandwidthGrid(r)
	}
	if len(g.rows) > 0 {
		p.table(g)
	}
	for _, side := range []perftest.Side{perftest.Initiator, perftest.Responder} {
		p.moved(side, r.Counters[side])
	}
	if f := r.Failure; f != nil {
		p.para("  "+p.mark(checks.Fail)+" ", fmt.Sprintf("failed at the %s: %s", r.Faulty, f.Error()))
	}
	for _, n := range r.Notes {
		p.para("  ", n)
	}
}

func endText(e *perftest.Endpoint) string {
	if e.Device == "" {
		return "(not opened)"
	}
	text := fmt.Sprintf("%s/%d", e.Device, e.Port)
	if e.GID != "" {
		text += " " + e.GID
	}
	return text
}

func (p *page) moved(side perftest.Side, c perftest.SideCounters) {
	var texts []string
	for _, d := range c.Moved {
		texts = append(texts, fmt.Sprintf("%s +%d (%s)", d.Name, d.Delta, d.Counted))
	}
	if len(texts) > 0 {
		p.para("  ", fmt.Sprintf("counters of the %s: %s", side, strings.Join(texts, ", ")))
	}
}

func bandwidthGrid(r *perftest.Result) grid {
	g := grid{head: []string{"size", "direction", "Gb/s", "least", "median", "most", "Mmsg/s", "messages", "data"}, indent: 2}
	for i := range r.Steps {
		s := &r.Steps[i]
		for _, d := range []struct {
			name string
			rate *perftest.Rate
		}{{"forward", s.Forward}, {"reverse", s.Reverse}} {
			if d.rate == nil {
				continue
			}
			row := []string{sizeText(s.SizeBytes), d.name, gigabits(d.rate.BytesPerSec), "", "", "", significant(d.rate.MessagesPerSec / 1e6), strconv.FormatUint(d.rate.Messages, 10), dataText(s)}
			if len(d.rate.Series) > 0 {
				row[3], row[4], row[5] = gigabits(d.rate.SeriesMin), gigabits(d.rate.SeriesMed), gigabits(d.rate.SeriesMax)
			}
			g.add(row...)
		}
		if s.Forward != nil && s.Reverse != nil {
			g.add(sizeText(s.SizeBytes), "both", gigabits(s.BytesPerSec), "", "", "", "", "", "")
		}
	}
	return g
}

func latencyGrid(r *perftest.Result) grid {
	g := grid{head: []string{"size", "min us", "median", "mean", "p99", "p99.9", "max", "stdev", "samples", "data"}, indent: 2}
	for i := range r.Steps {
		s := &r.Steps[i]
		l := s.Latency
		if l == nil {
			continue
		}
		row := []string{sizeText(s.SizeBytes)}
		for _, ns := range []float64{l.MinNs, l.MedianNs, l.MeanNs, l.P99Ns, l.P999Ns, l.MaxNs, l.StdevNs} {
			row = append(row, microseconds(ns))
		}
		g.add(append(row, strconv.FormatUint(l.Samples, 10), dataText(s))...)
	}
	return g
}

// dataText says how the comparison of what arrived came out.
func dataText(s *perftest.Step) string {
	text := ""
	for _, d := range s.Data {
		switch {
		case d.Skipped != "":
			text = "not compared"
		case !d.Correct:
			return fmt.Sprintf("wrong at %d", d.FirstWrongOffset)
		case text == "":
			text = "correct"
		}
	}
	return text
}
