package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfLatency = Check{
	ID: "perf-latency", Title: "the measured latency of small messages is low", Area: AreaPerf, Severity: SeverityWarning,
	DependsOn: []string{"perf-data"},
	Why:       "Small messages cost their latency: a slow path, a sleeping CPU or a far NUMA node shows here before it shows in bandwidth.",
	Fix: []string{
		"Set the CPU's frequency governor to performance and measure again: cpupower frequency-set -g performance",
		"Measure from a CPU of the NIC's NUMA node (--cpu), and keep other work off it",
		"Count the switches between both ends",
	},
	Refs: []string{
		"https://github.com/linux-rdma/perftest",
		"https://docs.kernel.org/admin-guide/pm/cpufreq.html",
	},
	Subjects: eachAlone(perftest.Latency),
	Eval:     evalPerfLatency,
}

func evalPerfLatency(c *Case) {
	r := measured(c)
	step := smallestStep(r)
	if step == nil || step.Latency == nil {
		c.Unknown("cannot tell: nothing was measured")
		return
	}
	good, warn := c.Thresholds.PerfLatencyPassNs[r.Plan.Operation], c.Thresholds.PerfLatencyWarnNs[r.Plan.Operation]
	got := step.Latency.MeanNs
	c.Row(fmt.Sprintf("mean of %d bytes", step.SizeBytes), us(got), "measured")
	text := scoped(r, fmt.Sprintf("%s on average, 99 %% within %s", us(got), us(step.Latency.P99Ns)))
	if step.SizeBytes > c.Thresholds.PerfLatencyMaxSizeBytes || good == 0 {
		c.Info("%s; there is no threshold for %s of %d bytes", text, r.Plan.Operation, step.SizeBytes)
		return
	}
	c.Want("at most %s", us(good))
	switch {
	case got <= good:
		c.Pass("%s", text)
	case got <= warn:
		c.Warn("%s", text)
	default:
		c.Fail("%s", text)
	}
}

func us(ns float64) string { return fmt.Sprintf("%.2f us", ns/1e3) }

func smallestStep(r *perftest.Result) *perftest.Step {
	var smallest *perftest.Step
	for i := range r.Steps {
		if smallest == nil || r.Steps[i].SizeBytes < smallest.SizeBytes {
			smallest = &r.Steps[i]
		}
	}
	return smallest
}
