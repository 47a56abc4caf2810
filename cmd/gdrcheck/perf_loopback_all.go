package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// validateAll refuses what --all decides by itself.
func (o *loopbackOptions) validateAll(cmd *cobra.Command) error {
	for _, name := range []string{"dev", "port", "cpu", "numa-node", "route", "peer-dev", "peer-port", "peer-cpu", "peer-mem", "peer-gpu"} {
		if cmd.Flags().Changed(name) {
			return usagef("--all measures every port with itself: --%s does not go with it", name)
		}
	}
	o.Plan.shortest = allDuration
	return nil
}

// loopbackAllRun measures each active port with itself, alone and then all at the
// same time; a GPU's memory is by default that of the GPU nearest to the port.
func loopbackAllRun(ctx context.Context, opts *loopbackOptions, by checks.Options) error {
	m, err := perf.machine(ctx)
	if err != nil {
		return interruptedHere(ctx, deviceError(err))
	}
	at := time.Now().UTC()
	t := &nodeTest{backend: perf, machine: m, graph: topo.New(m), nodePerf: nodePerf{Force: true}, bar: newGroupProgress(opts.IO)}
	defer t.bar.end()
	ports, onGPU := t.choose(ctx), false
	for i := range ports {
		l := opts.Plan.Local
		l.Device, l.Port, l.Place = ports[i].local.Device, ports[i].local.Port, ports[i].local.Place
		if err := perf.memory(ctx, &l, opts.Plan.Memory); err != nil {
			return deviceError(fmt.Errorf("--%s, for %s: %w", memoryFlag(opts.Plan.Memory, err), t.what.Rails[ports[i].index].Rail, err))
		}
		if l.GPU != nil {
			t.what.Rails[ports[i].index].GPU = fmt.Sprintf("GPU%d", l.GPU.Index)
		}
		ports[i].local, onGPU = l, onGPU || perftest.OnGPU(l.Memory)
	}
	plans := adaptPlans(opts.Plan.Plans, onGPU)
	for _, p := range ports {
		for _, plan := range plans {
			if t.what.Rails[p.index].Why == "" {
				t.bar.begin(t.what.Rails[p.index].Rail, &plan.Plan, 1)
				t.add(p, t.one(ctx, p, lane{p.local, false}, plan.Plan, 0, nil).noted(plan.Note), "")
			}
		}
	}
	for _, plan := range plans {
		if plan.Measure == perftest.Bandwidth && ctx.Err() == nil {
			t.together(ctx, ports, plan.Plan, plan.Note)
		}
	}
	if ctx.Err() != nil {
		for i := range t.what.Rails {
			if r := &t.what.Rails[i]; r.Why == perftest.WhyLost {
				r.NotMeasured = interruptedHere(ctx, nil).Error()
			}
		}
		tests := len(ports) * len(plans)
		if len(ports) > 1 {
			for _, plan := range plans {
				if plan.Measure == perftest.Bandwidth {
					tests += len(ports)
				}
			}
		}
		t.what.cut(tests-len(t.what.Results), interruptedHere(ctx, nil))
	}
	return writePerf(ctx, opts.IO, &opts.Output, by, t.what, at)
}
