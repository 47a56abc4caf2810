package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// PerfPlan says in a line what a plan measures: "write bandwidth, RC, 1 QP, depth 128, 65536 bytes".
func PerfPlan(p *perftest.Plan) string {
	lo, hi := slices.Min(p.SizesBytes), slices.Max(p.SizesBytes)
	text := fmt.Sprintf("%s, %d", perfTitle(p), lo)
	if hi != lo {
		text += fmt.Sprintf(" to %d", hi)
	}
	return text + " bytes"
}

// PerfLine says in a line how a test came out.
func PerfLine(r *perftest.Result) string {
	var parts []string
	for _, s := range r.Steps {
		figure := rate(s.BytesPerSec) + " Gb/s"
		if s.Latency != nil {
			figure = us(s.Latency.MedianNs) + " us"
		}
		if w := dataWord(s.Data); w == "WRONG" {
			figure += ", data WRONG"
		}
		parts = append(parts, figure)
	}
	const few = 3
	if n := len(parts); n > few {
		parts = []string{parts[0], "…", parts[n-1]}
	}
	if f := r.Failure; f != nil {
		parts = append(parts, fmt.Sprintf("failed at the %s: %s", r.Faulty, f.Error()))
	}
	text := PerfPlan(&r.Plan) + ": " + strings.Join(parts, ", ")
	if r.Simulated {
		text += " (simulated)"
	}
	return clean(text)
}

// PerfProgress says where a test is: "write bandwidth 65536 bytes  97.312 Gb/s".
func PerfProgress(plan *perftest.Plan, p perftest.Progress) string {
	text := fmt.Sprintf("%s %s %d bytes", plan.Operation, plan.Measure, p.SizeBytes)
	if p.BytesPerSec > 0 {
		text += "  " + rate(p.BytesPerSec) + " Gb/s"
	}
	return text
}
