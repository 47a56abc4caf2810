package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// planFlags are the flags that say what to measure, and the plans they make.
type planFlags struct {
	Plans []perftest.Plan
	Local perftest.Local
	// Memory of this end, and of the other; left open there, it is as the other
	// end has it.
	Memory, PeerMemory perftest.MemoryAsk

	ops, measures   []string
	routes          []string
	chunk           string
	transport, size string
	footprint       string
	oneBuffer       bool
	noRelaxed       bool
	duration        time.Duration
	margin          time.Duration
	idle, interval  time.Duration
	set             perftest.Plan // what stands in it is taken for flags that were given
	portGiven       bool
	whose           string        // "peer-": Memory is what --peer-mem and --peer-gpu say
	shortest        time.Duration // of a bandwidth test where no flag says more; 0: the plan's own
}

func addPlanFlags(cmd *cobra.Command, p *planFlags) {
	addRunFlags(cmd, p)
	f := cmd.Flags()
	l, set := &p.Local, &p.set
	f.StringVar(&l.Device, "dev", "", "RDMA `DEVICE`, as in /sys/class/infiniband")
	f.IntVar(&l.Port, "port", 0, "its port `NUMBER` (default: the first active one)")
	f.StringSliceVar(&p.ops, "op", []string{string(perftest.Write)}, "`OPERATIONS`: write, write_imm, read, send")
	f.StringSliceVar(&p.routes, "route", []string{string(perftest.RouteDirect)}, "`ROUTES` of the data: direct, staged (through pinned host memory), tcp (the same over a socket)")
	f.StringVar(&p.chunk, "chunk", "512K", "`BYTES` of a chunk of the routes through host memory")
	f.StringVar(&p.transport, "transport", string(perftest.RC), "RC, or UD for send")
	f.IntVar(&set.QPs, "qps", 1, "queue pairs of a bandwidth test")
	f.IntVar(&set.Depth, "depth", perftest.DefaultDepth, "messages in flight on a queue pair of a bandwidth test")
	f.IntVar(&set.RecvDepth, "recv-depth", perftest.DefaultRecvDepth, "receives posted on a queue pair")
	f.IntVar(&set.PostList, "post-list", 1, "work requests handed over in one call")
	f.IntVar(&set.CQModeration, "cq-mod", 0, "one completion for so many messages (0: 100, and 1 for messages above 8K)")
	f.IntVar(&set.InlineBytes, "inline", 0, "copy messages up to this size into the work request (default 0 for bandwidth, 220 for latency)")
	f.BoolVar(&set.Bidirectional, "bidirectional", false, "both directions at the same time (bandwidth)")
	f.BoolVar(&set.Events, "events", false, "sleep until a completion instead of polling")
	f.IntVar(&set.MTUBytes, "mtu", 0, "path MTU in bytes (default: the ports')")
	f.IntVar(&set.ServiceLevel, "sl", 0, "service level (InfiniBand)")
	f.IntVar(&set.TrafficClass, "traffic-class", 0, "traffic class of the GRH, which is the ToS byte on RoCE")
	f.IntVar(&l.GIDIndex, "gid-index", l.GIDIndex, "of the GID table (-1: chosen and explained)")
	f.BoolVar(&l.IPv6, "ipv6", false, "prefer an IPv6 GID")
	f.IntVar(&l.PKeyIndex, "pkey-index", 0, "of the partition key table")
	f.IntVar(&set.RetryCount, "retry", 7, "retries of an unacknowledged packet (0 to 7)")
	f.IntVar(&set.RNRRetry, "rnr-retry", 7, "retries when the receiver is not ready (7: for ever)")
	f.IntVar(&set.TimeoutExponent, "timeout", 14, "acknowledgement timeout `N`: 4.096 us times 2^N")
	f.BoolVar(&p.noRelaxed, "no-relaxed-ordering", false, "register memory without relaxed ordering")
}

// addRunFlags adds what needs no network.
func addRunFlags(cmd *cobra.Command, p *planFlags) {
	p.Local, p.transport = perftest.NewLocal(""), string(perftest.RC)
	p.set = perftest.NewPlan(perftest.Write, perftest.Bandwidth)
	f := cmd.Flags()
	l, set := &p.Local, &p.set
	f.StringSliceVar(&p.measures, "measure", []string{string(perftest.Bandwidth), string(perftest.Latency)}, "`MEASURES`: bandwidth, latency")
	f.StringVar(&p.size, "size", "", "message `BYTES`, as 64K; several as 2,64K; powers of two as 2:8M (default 64K for bandwidth, 2 for latency)")
	f.IntVar(&set.Chunks, "chunks", perftest.DefaultChunks, "chunks that each end of a route through host memory holds in each direction")
	f.IntVar(&set.Messages, "count", 0, "messages on each queue pair (default: by time for bandwidth, 10000 for latency)")
	f.DurationVar(&p.duration, "duration", 0, "time of each size (default 3s for bandwidth)")
	f.DurationVar(&p.margin, "margin", perftest.DefaultMargin, "left out of --duration at its start and end")
	f.IntVar(&set.WarmUp, "warm-up", 0, "messages on each queue pair that are not counted (default 256 for bandwidth, 100 for latency)")
	f.StringVar(&p.footprint, "footprint", "64M", "`BYTES` of memory that the messages walk through, so that caches do not flatter the figure")
	f.BoolVar(&p.oneBuffer, "one-buffer", false, "all messages use one buffer, as in perftest")
	f.DurationVar(&p.idle, "idle", perftest.DefaultIdle, "end a test on which nothing arrives for so long, and, where it is given, one whose opening, connecting, filling or comparing takes longer (but not below 1s; otherwise 60s to 120s); above 20s, this node may take as long to be read, too")
	f.DurationVar(&p.interval, "interval", perftest.DefaultInterval, "of the series of a bandwidth")
	f.IntVar(&l.CPU, "cpu", l.CPU, "`NUMBER` of the CPU that measures (-1: one near the NIC)")
	f.IntVar(&l.NUMANode, "numa-node", l.NUMANode, "NUMA `NODE` of the buffers (-1: the NIC's)")
	addMemoryFlags(cmd, &p.Memory, "", memoryUsage+" (default host)")
}

// validate makes the plans of what was given, and refuses what they would not follow.
func (p *planFlags) validate(cmd *cobra.Command) error {
	if err := p.make(cmd); err != nil {
		return err
	}
	return p.checkUnused(cmd)
}

// make makes the plans.
func (p *planFlags) make(cmd *cobra.Command) error {
	p.portGiven = cmd.Flags().Changed("port")
	var sizes []int
	err := cmp.Or(checkMemory(p.Memory, ""), checkMemory(p.PeerMemory, "peer-"), checkNumbers(cmd))
	if err != nil {
		return err
	}
	if p.size != "" {
		if sizes, err = parseSizes(p.size); err != nil {
			return usagef("--size %s: %w", p.size, err)
		}
	}
	footprint, err := parseBytes(p.footprint)
	if err != nil {
		return usagef("--footprint %s: %w", p.footprint, err)
	}
	if p.oneBuffer {
		footprint = 0
	}
	if p.chunk != "" {
		if p.set.ChunkBytes, err = parseBytes(p.chunk); err != nil {
			return usagef("--chunk %s: %w", p.chunk, err)
		}
	}
	for _, op := range p.ops {
		for _, m := range p.measures {
			plan := perftest.NewPlan(perftest.Operation(op), perftest.Measure(m))
			p.apply(cmd, &plan)
			plan.FootprintBytes = int64(footprint)
			if sizes != nil {
				plan.SizesBytes = sizes
			}
			if err := p.byRoutes(cmd, plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers are the bounds of flags that say where to measure, which no plan has.
var numbers = map[string]struct{ lo, hi int }{
	"port": {1, math.MaxUint8}, "peer-port": {1, math.MaxUint8}, "gid-index": {-1, math.MaxUint8}, "pkey-index": {0, math.MaxUint16},
	"cpu": {-1, math.MaxInt32}, "peer-cpu": {-1, math.MaxInt32}, "numa-node": {-1, math.MaxInt32},
}

func checkNumbers(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		within, ok := numbers[f.Name]
		if n, bad := strconv.Atoi(f.Value.String()); err == nil && ok && (bad != nil || n < within.lo || n > within.hi) {
			err = usagef("--%s %s: want %d to %d", f.Name, f.Value, within.lo, within.hi)
		} else if here, is := onlineLists[f.Name]; err == nil && is && n >= 0 {
			err = isOnline(f.Name, n, here)
		}
	})
	if d, missing := cmd.Flags().GetDuration("margin"); err == nil && missing == nil && d < 0 {
		return usagef("--margin %s: want 0 or more", d)
	}
	return err
}

// onlineLists tell which CPUs and NUMA nodes this node has
// (Documentation/ABI/stable/sysfs-devices-node, testing/sysfs-devices-system-cpu).
var onlineLists = map[string]string{
	"cpu": "/sys/devices/system/cpu/online", "peer-cpu": "/sys/devices/system/cpu/online", "numa-node": "/sys/devices/system/node/online",
}

// isOnline refuses what this node has not. Where nothing tells, it may be there.
func isOnline(flag string, n int, from string) error {
	b, err := os.ReadFile(from)
	list := strings.TrimSpace(string(b))
	cpus := worker.ParseCPUList(list)
	if err != nil || cpus == nil || slices.Contains(cpus, n) {
		return nil
	}
	return usagef("--%s %d: this node has none of this number online; it has %s (%s)", flag, n, list, from)
}

// byRoutes adds a plan by each route that was asked for.
func (p *planFlags) byRoutes(cmd *cobra.Command, plan perftest.Plan) error {
	name := fmt.Sprintf("%s %s", plan.Operation, plan.Measure)
	if f := cmd.Flags().Lookup("op"); f == nil || f.Hidden { // the command has chosen it
		name = string(plan.Measure)
	}
	for _, r := range p.routes {
		if perftest.Route(r) == perftest.RouteCopy && p.chunk != "" { // no route between two ends
			return usagef("%s: no route %q: want direct, staged or tcp", name, r)
		}
		plan.ChunkBytes, plan.Chunks = p.set.ChunkBytes, p.set.Chunks
		if p.chunk == "" { // what is copied is whole
			plan.ChunkBytes = max(slices.Max(plan.SizesBytes), os.Getpagesize())
		}
		plan := plan.Through(perftest.Route(r))
		if err := plan.Validate(); err != nil {
			return usagef("%s: %w", name, err)
		}
		p.Plans = append(p.Plans, plan)
	}
	return nil
}

// needsDevice says whether any of the routes takes an RDMA device.
func (p *planFlags) needsDevice() bool {
	return slices.ContainsFunc(p.routes, func(r string) bool {
		return r != string(perftest.RouteTCP) && r != string(perftest.RouteCopy)
	})
}

// place is where this end measures: the device that was named, or the first that
// can be measured, and what else the flags say.
func (p *planFlags) place(ctx context.Context) (perftest.Local, error) {
	l := p.Local
	if l.Device == "" && !p.needsDevice() {
		return l, p.chooseMemory(ctx, &l)
	}
	name := l.Device
	if name != "" && p.portGiven {
		name += "/" + strconv.Itoa(l.Port)
	}
	found, err := perf.device(ctx, name)
	// A port that is down is named to be measured: what it lacks is a finding.
	if err != nil && (name == "" || !errors.Is(err, errNotActive)) {
		return l, deviceError(err)
	}
	l.Device, l.Port = found.Device, found.Port
	return l, p.chooseMemory(ctx, &l)
}

func (p *planFlags) chooseMemory(ctx context.Context, l *perftest.Local) error {
	if err := perf.memory(ctx, l, p.Memory); err != nil {
		return deviceError(fmt.Errorf("--%s%s: %w", p.whose, memoryFlag(p.Memory, err), err))
	}
	return nil
}

// deviceError says what an error of perf.device is to who started the command.
func deviceError(err error) error {
	if errors.Is(err, errNotCollected) {
		return unmeasured{err}
	}
	return usageError{err}
}

// shortestStep is what --idle leaves each step at least: a worker has to start.
const shortestStep = time.Second

// apply overwrites a plan's defaults by the flags that were given.
func (p *planFlags) apply(cmd *cobra.Command, plan *perftest.Plan) {
	set := p.set
	plan.Transport, plan.RelaxedOrdering, plan.Seed = perftest.Transport(p.transport), !p.noRelaxed, rand.Uint64()
	perf.patience = p.idle
	plan.IdleNs, plan.IntervalNs = int64(p.idle), int64(p.interval)
	if cmd.Flags().Changed("idle") {
		plan.StepNs = int64(max(p.idle, shortestStep))
	}
	plan.RecvDepth, plan.MTUBytes = set.RecvDepth, set.MTUBytes
	plan.Events = set.Events
	plan.ServiceLevel, plan.TrafficClass = set.ServiceLevel, set.TrafficClass
	plan.RetryCount, plan.RNRRetry, plan.TimeoutExponent = set.RetryCount, set.RNRRetry, set.TimeoutExponent
	if plan.Measure == perftest.Bandwidth {
		plan.QPs, plan.Depth, plan.PostList, plan.CQModeration = set.QPs, set.Depth, set.PostList, set.CQModeration
		plan.Bidirectional = set.Bidirectional
	}
	given := cmd.Flags().Changed
	if given("inline") {
		plan.InlineBytes = set.InlineBytes
	}
	if given("warm-up") {
		plan.WarmUp = set.WarmUp
	}
	if given("duration") {
		plan.Messages, plan.DurationNs = 0, int64(p.duration)
	}
	if given("count") {
		plan.Messages, plan.DurationNs = set.Messages, 0
	}
	if p.shortest > 0 && plan.Measure == perftest.Bandwidth && !given("duration") && !given("count") {
		plan.DurationNs = int64(p.shortest)
	}
	plan.MarginNs = 0
	if plan.DurationNs > 0 && plan.Measure == perftest.Bandwidth {
		plan.MarginNs = int64(p.margin)
		if !given("margin") { // a short test keeps half of its time
			plan.MarginNs = min(plan.MarginNs, plan.DurationNs/4)
		}
	}
}

// parseSizes reads "64K", "2,64K" and "2:8M".
func parseSizes(text string) ([]int, error) {
	if lo, hi, ok := strings.Cut(text, ":"); ok {
		a, err := parseBytes(lo)
		if err != nil {
			return nil, err
		}
		b, err := parseBytes(hi)
		if err != nil {
			return nil, err
		}
		if sizes := perftest.Sweep(a, b); len(sizes) > 0 {
			return sizes, nil
		}
		return nil, fmt.Errorf("no power of two from %d to %d", a, b)
	}
	var sizes []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := parseBytes(part)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// parseBytes reads a number with K, M or G, powers of 1024.
func parseBytes(text string) (int, error) {
	digits := strings.TrimRight(text, "kKmMgG")
	shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}
	by, ok := shift[strings.ToUpper(text[len(digits):])]
	n, err := strconv.Atoi(digits)
	if err != nil || !ok || n < 0 || n > 1<<40>>by {
		return 0, fmt.Errorf("want a number of bytes as 64K, not %q", text)
	}
	return n << by, nil
}
