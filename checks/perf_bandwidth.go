package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfBandwidth = Check{
	ID: "perf-bandwidth", Title: "the measured bandwidth is what port and PCIe carry", Area: AreaPerf, Severity: SeverityError,
	DependsOn: []string{"perf-data"},
	Why:       "A port that moves less than it could slows every collective that uses it, and the cause is seldom seen in any one setting.",
	Fix: []string{
		"Measure again with more queue pairs and larger messages: --qps 4 --size 8M",
		"See what limits each end: gdrcheck check --only pcie,rdma",
		"Compare with another port of the same kind, and with --one-buffer",
	},
	Refs: []string{
		"https://github.com/linux-rdma/perftest",
	},
	Subjects: eachAlone(perftest.Bandwidth),
	Eval:     evalPerfBandwidth,
}

func evalPerfBandwidth(c *Case) {
	r := measured(c)
	step := largestStep(r)
	if step == nil || step.Forward == nil {
		c.Unknown("cannot tell: nothing was measured")
		return
	}
	got := step.Forward.BytesPerSec
	if step.Reverse != nil {
		got = min(got, step.Reverse.BytesPerSec)
	}
	most, by, reason := ceiling(r)
	c.Row(fmt.Sprintf("%s of %d bytes", r.Plan.Operation, step.SizeBytes), rate(got), "measured")
	if most == 0 {
		c.Unknown("cannot tell: %s", reason)
		return
	}
	c.Want("%s (%s)", rate(most), by)
	share := got / most
	text := scoped(r, fmt.Sprintf("%s, %.0f %% of what %s carries", rate(got), share*100, by))
	switch {
	case step.SizeBytes < c.Thresholds.PerfBandwidthMinSizeBytes:
		c.Info("%s; messages of %d bytes are not expected to fill a port", text, step.SizeBytes)
	case share < c.Thresholds.PerfBandwidthWarnShare && reason == "":
		c.Fail("%s", text)
	case share < c.Thresholds.PerfBandwidthPassShare:
		c.Warn("%s", text)
		if reason != "" {
			c.Unsure("%s", reason)
		}
	case r.Plan.Bidirectional:
		c.Pass("%s, in each direction", text)
	default:
		c.Pass("%s", text)
	}
}

// largestStep is the measure of the largest messages, which a port is judged by.
func largestStep(r *perftest.Result) *perftest.Step {
	var largest *perftest.Step
	for i := range r.Steps {
		if largest == nil || r.Steps[i].SizeBytes > largest.SizeBytes {
			largest = &r.Steps[i]
		}
	}
	return largest
}
