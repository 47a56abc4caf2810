package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// copiesByGPU says whether the results are the copies of every GPU.
func copiesByGPU(results []*perftest.Result) bool {
	return slices.ContainsFunc(results, func(r *perftest.Result) bool { return r.Rail != "" && r.Plan.Route == perftest.RouteCopy })
}

// copyColumn is a measure that the table of copies has a column for.
type copyColumn struct {
	measure perftest.Measure
	out     bool
}

func (c copyColumn) head() string {
	text, unit := "to GPU", "Gb/s"
	if c.out {
		text = "from GPU"
	}
	if c.measure == perftest.Latency {
		unit = "us"
	}
	return text + " " + unit
}

// copies draws one row for each GPU: its copies out of its memory and into it, alone
// and with those of all others.
func (p *page) copies(results []*perftest.Result) {
	var columns []copyColumn
	var gpus []string
	of := map[copyColumn][]*perftest.Result{}
	for _, r := range results {
		c := copyColumn{r.Plan.Measure, r.CopiedOut()}
		if !slices.Contains(columns, c) {
			columns = append(columns, c)
		}
		if !slices.Contains(gpus, r.Rail) {
			gpus = append(gpus, r.Rail)
		}
		of[c] = append(of[c], r)
	}
	p.line(p.paint(bold, "copies between each GPU's memory and pinned host memory"))
	g := grid{head: []string{"GPU"}, indent: 2}
	for _, c := range columns {
		g.head = append(g.head, c.head())
	}
	var faults []string
	for _, name := range gpus {
		row := []string{name}
		for _, c := range columns {
			text, fault := p.figures(of[c], func(r *perftest.Result) bool { return r.Rail == name })
			row = append(row, text)
			if fault != "" {
				faults = append(faults, fmt.Sprintf("%s, %s: %s", name, c.head(), fault))
			}
		}
		g.add(row...)
	}
	if len(gpus) > 1 {
		row := []string{"all"}
		for _, c := range columns {
			row = append(row, sum(c.measure, of[c]))
		}
		g.add(row...)
	}
	p.table(g)
	p.para("  ", copyLegend(results))
	for _, f := range faults {
		p.para("  "+p.mark(checks.Fail)+" ", f)
	}
}

// copyLegend says what the figures are.
func copyLegend(results []*perftest.Result) string {
	var parts []string
	together := slices.ContainsFunc(results, func(r *perftest.Result) bool { return r.Together > 0 })
	for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
		i := slices.IndexFunc(results, func(r *perftest.Result) bool { return r.Plan.Measure == m })
		if i < 0 {
			continue
		}
		sizes := results[i].Plan.SizesBytes
		switch {
		case m == perftest.Latency:
			parts = append(parts, fmt.Sprintf("us: the median of single copies of %d bytes", slices.Min(sizes)))
		case together:
			parts = append(parts, fmt.Sprintf("Gb/s (10^9 bit/s) of copies of %d bytes alone / with all GPUs at the same time", slices.Max(sizes)))
		default:
			parts = append(parts, fmt.Sprintf("Gb/s (10^9 bit/s) of copies of %d bytes", slices.Max(sizes)))
		}
	}
	return strings.Join(parts, "; ")
}
