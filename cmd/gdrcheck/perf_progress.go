package main

import (
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

// progressBar draws how far a test is, and its live rate, on a terminal.
type progressBar struct {
	out   io.Writer
	label string // before the plan; may be empty
	plan  *perftest.Plan
	size  int
	bar   *progressbar.ProgressBar
}

// newProgress returns what a test reports its progress to, and what ends the
// drawing. In a pipe both do nothing.
func newProgress(s *streams, p *perftest.Plan) (report func(perftest.Progress), end func()) {
	b := progressOn(s, "", p)
	if b == nil {
		return nil, func() {}
	}
	return b.tell, b.end
}

// progressOn is a bar on standard error; nil where that is no terminal.
func progressOn(s *streams, label string, p *perftest.Plan) *progressBar {
	if !s.ErrTerm || s.Getenv("TERM") == "dumb" {
		return nil
	}
	if label != "" {
		label += "  "
	}
	return &progressBar{out: s.Err, label: label, plan: p}
}

// progressSteps is how finely the bar moves.
const progressSteps = 1000

func (b *progressBar) tell(p perftest.Progress) {
	if b.bar == nil || b.size != p.SizeBytes {
		b.end()
		b.size = p.SizeBytes
		b.bar = progressbar.NewOptions(progressSteps,
			progressbar.OptionSetWriter(b.out), progressbar.OptionClearOnFinish(),
			progressbar.OptionFullWidth(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
	}
	b.bar.Describe(b.label + report.PerfProgress(b.plan, p))
	_ = b.bar.Set(int(min(max(p.Done, 0), 1) * (progressSteps - 1))) // only end finishes it
}

func (b *progressBar) end() {
	if b.bar != nil {
		_ = b.bar.Finish()
		_ = b.bar.Clear()
		fmt.Fprint(b.out, "\r")
		b.bar = nil
	}
}
