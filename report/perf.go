package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// NewPerf puts measurements and what the checks say of them into a document.
// rails are the ports that were to be measured, where those are all of a node's.
func NewPerf(results []*perftest.Result, rails []perftest.RailPair, o checks.Outcome, at time.Time, version string) *Perf {
	doc := &Perf{
		Header: Header{
			SchemaVersion: SchemaVersion, Kind: KindPerf, Tool: "gdrcheck", Version: version, CollectedAt: at, Origin: "live",
		},
		Verdict: o.Verdict, ExitCode: o.ExitCode,
		Findings: append([]checks.Finding{}, o.Findings...), // [] in JSON, not null
		Results:  append([]*perftest.Result{}, results...), Comparisons: perftest.Compare(results),
		Rails: rails, Rules: o.Rules,
	}
	// Of a policy's waivers most are for what is not measured.
	doc.Rules.Waivers = slices.DeleteFunc(slices.Clone(o.Rules.Waivers), func(w checks.WaiverUse) bool { return w.State == checks.WaiverUnused })
	doc.Simulated = simulated(results)
	return doc
}

func simulated(results []*perftest.Result) bool {
	return slices.ContainsFunc(results, func(r *perftest.Result) bool {
		return r.Simulated
	})
}

// PerfTable draws measurements for people: Gb/s are 10^9 bit/s.
func PerfTable(w io.Writer, doc *Perf, s Style) error {
	p := &page{Style: s}
	if doc.Simulated {
		p.para("", "Simulated: "+doubles(doc.Results)+" stood for the real thing. The figures say nothing about a machine.")
		p.line("")
	}
	p.comparisons(doc)
	if doc.Rails != nil {
		p.rails(doc.Rails, doc.Results)
		p.blank()
	}
	byGPU := copiesByGPU(doc.Results)
	if byGPU {
		p.copies(doc.Results)
		p.blank()
	}
	// What these tables tell, they tell of all results.
	if doc.Rails == nil && len(doc.Comparisons) == 0 && !byGPU || s.Verbose {
		for i, r := range doc.Results {
			if i > 0 || len(doc.Comparisons) > 0 {
				p.line("")
			}
			p.perf(r)
		}
	}
	p.perfVerdict(doc)
	_, err := io.WriteString(w, p.String())
	return err
}

func (p *page) perf(r *perftest.Result) {
	p.line(p.paint(bold, clean(perfTitle(&r.Plan))))
	p.perfEnd("from ", r.Initiator, r.Limits[perftest.Initiator])
	p.perfLoad(r, perftest.Initiator)
	p.perfEnd("to   ", r.Responder, r.Limits[perftest.Responder])
	p.perfLoad(r, perftest.Responder)
	for _, n := range append(r.Notes, r.Scope) {
		if n != "" {
			p.para("  note ", n)
		}
	}
	switch {
	case len(r.Steps) == 0:
	case r.Plan.Measure == perftest.Latency:
		p.latencies(r.Steps)
	default:
		p.bandwidths(r)
	}
	for _, s := range r.Steps {
		for _, d := range s.Data {
			if !d.Correct && d.Skipped == "" {
				p.para("  "+p.mark(checks.Fail)+" ", wrongData(s.SizeBytes, d))
			}
		}
	}
	if compared, overwritten := comparedBytes(r); overwritten > 0 {
		p.para("  ", fmt.Sprintf("data: compared after the run, the last %d bytes; %d before them were overwritten by then", compared, overwritten))
	}
	p.events(r)
	if f := r.Failure; f != nil {
		p.para("  "+p.mark(checks.Fail)+" ", string(r.Faulty)+": "+f.Error())
	}
}

// events draws what devices and ports reported meanwhile.
func (p *page) events(r *perftest.Result) {
	for i := range r.Events {
		e := &r.Events[i]
		mark := p.mark(checks.Info)
		if e.Harmful {
			mark = p.mark(checks.Warn)
		}
		p.para("  "+mark+" ", string(e.Side)+": "+e.String())
	}
	if r.MoreEvents > 0 {
		p.para("  "+p.mark(checks.Info)+" ", fmt.Sprintf("and %d more events", r.MoreEvents))
	}
}

// perfVerdict draws what the checks say.
func (p *page) perfVerdict(doc *Perf) {
	open, waived := split(doc.Findings)
	groups := group(open)
	for _, v := range []checks.Verdict{checks.Fail, checks.Warn} {
		for _, g := range groups {
			if g.verdict == v {
				p.group(g)
			}
		}
	}
	p.notes(groups)
	p.waivers(doc.Rules.Waivers, waived)
	p.blank()
	if doc.Rails == nil && !copiesByGPU(doc.Results) {
		p.each(groups, checks.Pass)
	} else {
		p.folded(groups, checks.Pass, "passed")
	}
	p.each(groups, checks.Unknown)
	p.blocked(open)
	p.blank()
	rules := doc.Rules
	rules.Note = "" // it is of what a measurement does not need
	p.rules(rules)
	e := checks.ExitOf(checks.Outcome{Verdict: doc.Verdict}.Result())
	p.line(p.paint(bold, p.paint(marks[doc.Verdict].ink, strings.ToUpper(string(e.Result)))) + fmt.Sprintf("; exit code %d", doc.ExitCode))
}

func perfTitle(p *perftest.Plan) string {
	if p.Route != perftest.RouteDirect && p.Route != "" {
		return routeTitle(p)
	}
	parts := []string{fmt.Sprintf("%s %s, %s", p.Operation, p.Measure, p.Transport)}
	if p.Measure == perftest.Bandwidth {
		parts = append(parts, fmt.Sprintf("%d QP, depth %d", p.QPs, p.Depth))
	}
	if p.Bidirectional {
		parts = append(parts, "both directions")
	}
	if p.Events {
		parts = append(parts, "by events")
	}
	return strings.Join(parts, ", ")
}

func (p *page) perfEnd(label string, e perftest.Endpoint, l perftest.Limits) {
	if e.Device == "" && e.Memory.Kind == "" {
		return
	}
	text := memoryText(&e.Memory) // of an end without a NIC
	if e.Device != "" {
		text = fmt.Sprintf("%s port %d", e.Device, e.Port)
	}
	if l.PortBytesPerSec > 0 && e.Device != "" {
		text += fmt.Sprintf(", %g Gb/s by %s", l.PortBytesPerSec*8/1e9, l.PortSource)
	}
	if e.MTUBytes > 0 {
		text += fmt.Sprintf(", MTU %d", e.MTUBytes)
	}
	if e.GIDReason != "" {
		text += ", GID " + e.GIDReason
	}
	if e.GIDIndex >= 0 {
		text += fmt.Sprintf(", index %d", e.GIDIndex)
	}
	if e.CPU >= 0 {
		text += fmt.Sprintf("; CPU %d", e.CPU)
	}
	if e.NUMANode >= 0 {
		text += fmt.Sprintf(", memory on node %d", e.NUMANode)
	}
	if perftest.OnGPU(e.Memory.Kind) && e.Device != "" {
		text += "; " + memoryText(&e.Memory)
	}
	p.para("  "+label, text)
	for _, a := range e.Memory.Failed {
		p.para("       ", fmt.Sprintf("not by %s: %s", a.Way, a.Failure.Error()))
	}
	for _, n := range e.Notes {
		p.para("       ", n)
	}
}

// perfLoad draws an end's GPU as it was during the test.
func (p *page) perfLoad(r *perftest.Result, side perftest.Side) {
	l, ok := r.Load[side]
	if !ok {
		return
	}
	var parts []string
	if l.Link.Width > 0 {
		parts = append(parts, fmt.Sprintf("PCIe %g GT/s x%d (at most %g x%d)", l.Link.SpeedGTPerSec, l.Link.Width, l.Link.MaxSpeedGTPerSec, l.Link.MaxWidth))
	}
	if l.Clock.SMMHz > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d MHz", l.Clock.SMMHz, l.Clock.SMMaxMHz))
	}
	if l.PerformanceState >= 0 {
		parts = append(parts, fmt.Sprintf("P%d", l.PerformanceState))
	}
	if l.Reason != "" {
		parts = append(parts, l.Reason)
	}
	p.para("       ", "GPU during the test: "+strings.Join(parts, ", "))
}

// doubles names the test doubles that took part.
func doubles(results []*perftest.Result) string {
	var names []string
	for _, r := range results {
		for _, path := range []string{r.Initiator.Double, r.Initiator.Memory.Double, r.Responder.Double, r.Responder.Memory.Double} {
			if path != "" && !slices.Contains(names, path) {
				names = append(names, path)
			}
		}
	}
	if names == nil {
		return "a test double"
	}
	return strings.Join(names, ", ")
}

// memoryText says whose memory it is and how the NIC got at it.
func memoryText(b *perftest.Buffer) string {
	text := b.Kind + " memory"
	if g := b.GPU; g != nil {
		text += fmt.Sprintf(" of GPU%d (%s)", g.Index, g.Addr)
		if g.Path != "" {
			text += ", path " + string(g.Path)
		}
	}
	if b.Way != "" {
		text += ", registered by " + string(b.Way)
	}
	return text
}

func (p *page) bandwidths(r *perftest.Result) {
	g := grid{head: []string{"bytes", "Gb/s", "lowest", "median", "highest", "Mmsg/s", "messages", "data"}, indent: 2}
	both := r.Plan.Bidirectional
	lost := false
	if both {
		g.head = append(g.head, "there", "back")
	}
	for _, s := range r.Steps {
		f := s.Forward
		if f == nil {
			continue
		}
		row := []string{fmt.Sprint(s.SizeBytes), rate(s.BytesPerSec), "", "", "", fmt.Sprintf("%.4f", f.MessagesPerSec/1e6), fmt.Sprint(f.Messages), dataWord(s.Data)}
		if len(f.Series) > 0 {
			row[2], row[3], row[4] = rate(f.SeriesMin), rate(f.SeriesMed), rate(f.SeriesMax)
		}
		if both {
			back := ""
			if s.Reverse != nil {
				back = rate(s.Reverse.BytesPerSec)
			}
			row = append(row, rate(f.BytesPerSec), back)
		}
		lost = lost || f.Lost > 0
		g.add(row...)
	}
	p.table(g)
	for _, s := range r.Steps {
		if s.Forward != nil && s.Forward.SeriesOf > 0 {
			p.para("  ", fmt.Sprintf("%d bytes: the document's series has the means of %d intervals each; lowest, median and highest are of single ones", s.SizeBytes, s.Forward.SeriesOf))
		}
		if lost && s.Forward != nil && s.Forward.Lost > 0 {
			p.para("  ", fmt.Sprintf("%d bytes: %d datagrams did not arrive", s.SizeBytes, s.Forward.Lost))
		}
	}
}

func (p *page) latencies(steps []perftest.Step) {
	g := grid{head: []string{"bytes", "min us", "median", "mean", "p99", "p99.9", "max", "stdev", "samples", "data"}, indent: 2}
	for _, s := range steps {
		l := s.Latency
		if l == nil {
			continue
		}
		g.add(fmt.Sprint(s.SizeBytes), us(l.MinNs), us(l.MedianNs), us(l.MeanNs), us(l.P99Ns), us(l.P999Ns), us(l.MaxNs), us(l.StdevNs),
			fmt.Sprint(l.Samples), dataWord(s.Data))
	}
	p.table(g)
	for _, s := range steps {
		if l := s.Latency; l != nil && l.Lost > 0 {
			p.para("  ", fmt.Sprintf("%d bytes: %d datagrams, or their answers, did not come within %s; they have no sample", s.SizeBytes, l.Lost, time.Duration(l.LostAfterNs)))
		}
	}
	if n := len(steps); n > 0 {
		p.flushes(steps[n-1].Flush)
	}
}

// flushes draws what makes arrived data visible to a GPU, as the last size had it.
func (p *page) flushes(list []perftest.Flush) {
	for _, f := range list {
		how := "1-byte RDMA read of the NIC from itself"
		if f.Method == perftest.FlushCall {
			how = "cuFlushGPUDirectRDMAWrites"
		}
		text := fmt.Sprintf("flush at the %s by %s: ", f.Side, how)
		if l := f.Latency; l != nil {
			text += fmt.Sprintf("%s us median, 99 %% within %s", us(l.MedianNs), us(l.P99Ns))
		} else if f.Failure != nil {
			text += "not measured: " + f.Failure.Error()
		}
		switch f.Ordered {
		case "owner", "all":
			text += "; this GPU sees what arrived in order without one"
		case "none":
			text += "; this GPU needs one before it reads what arrived"
		}
		p.para("  ", text)
	}
}

func rate(bytesPerSec float64) string { return fmt.Sprintf("%.3f", bytesPerSec*8/1e9) }

func us(ns float64) string { return fmt.Sprintf("%.2f", ns/1e3) }

func dataWord(list []perftest.DataCheck) string {
	word := "not compared"
	for _, d := range list {
		switch {
		case d.Skipped != "":
			return "skipped"
		case !d.Correct:
			return "WRONG"
		}
		word = "right"
	}
	return word
}

// comparedBytes are what all sizes' comparisons looked at, and what they could not.
func comparedBytes(r *perftest.Result) (compared, overwritten uint64) {
	for _, s := range r.Steps {
		for _, d := range s.Data {
			compared += d.Bytes
			overwritten += d.OverwrittenBytes
		}
	}
	return compared, overwritten
}

func wrongData(size int, d perftest.DataCheck) string {
	where := "a byte of a message is"
	if d.Untouched {
		where = "a byte that no message was to reach is"
	}
	return fmt.Sprintf("%d bytes, at the %s, offset %d: %s %#02x, want %#02x", size, d.Side, d.FirstWrongOffset, where, d.Got, d.Want)
}
