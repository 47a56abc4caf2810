// Package perftest measures RDMA between two ends: what to run (Plan), what
// came out (Result), and the steps that both ends go through together (Run).
// The moving of data is an Engine's; how the ends talk is a Channel's.
package perftest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Operation is what moves the data.
type Operation string

// Operations, named as perftest's programs are.
const (
	Write    Operation = "write"     // RDMA WRITE
	WriteImm Operation = "write_imm" // RDMA WRITE with immediate: ends in a receive completion
	Read     Operation = "read"      // RDMA READ
	Send     Operation = "send"      // SEND and RECEIVE
)

// Operations are all operations.
var Operations = []Operation{Write, WriteImm, Read, Send}

// Measure is what is measured.
type Measure string

// Measures.
const (
	Bandwidth Measure = "bandwidth"
	Latency   Measure = "latency"
)

// Transport is the type of the queue pairs.
type Transport string

// Transports.
const (
	RC Transport = "RC" // reliable connection
	UD Transport = "UD" // unreliable datagram
)

// Route is how data gets from one end's memory into the other's.
type Route string

// Routes.
const (
	RouteDirect Route = "direct" // RDMA on the memory itself: GPUDirect RDMA, where it is a GPU's
	RouteStaged Route = "staged" // copied into pinned host memory, RDMA from there to there, and copied again
	RouteTCP    Route = "tcp"    // the same over a TCP connection
	RouteCopy   Route = "copy"   // only the copy: out of the device at the initiator, into it at the responder
)

// Side says which end of a test an engine is.
type Side string

// Sides. The initiator's figures are the test's.
const (
	Initiator Side = "initiator" // posts first
	Responder Side = "responder" // its memory is written or read, or it answers
)

// Plan says what to measure. Both ends run the same plan. NewPlan gives one
// with every default in it; Validate says what is wrong with one.
type Plan struct {
	Operation Operation `json:"operation"`
	Measure   Measure   `json:"measure"`
	Transport Transport `json:"transport"`
	Route     Route     `json:"route"`
	// SizesBytes are the message sizes, measured one after another.
	SizesBytes []int `json:"sizes_bytes"`

	QPs          int `json:"qps"`           //nolint:revive // queue pairs, not queries per second
	Depth        int `json:"depth"`         // sends outstanding on a QP
	RecvDepth    int `json:"recv_depth"`    // receives posted on a QP, where the operation uses any
	PostList     int `json:"post_list"`     // work requests handed over in one call
	CQModeration int `json:"cq_moderation"` // one completion for so many sends; 0: as perftest, 100, and 1 above 8 KiB
	InlineBytes  int `json:"inline_bytes"`  // messages up to this size are copied into the work request

	// Either Messages, on each QP, or Duration is set.
	Messages   int   `json:"messages,omitempty"`
	DurationNs int64 `json:"duration_ns,omitempty"`
	// MarginNs is left out of the measure at both ends of a Duration.
	MarginNs int64 `json:"margin_ns,omitempty"`
	WarmUp   int   `json:"warm_up"` // messages on each QP before the clock starts

	// Of the routes through host memory: messages go in chunks of ChunkBytes, of
	// which each end holds Chunks in each direction.
	ChunkBytes int `json:"chunk_bytes,omitempty"`
	Chunks     int `json:"chunks,omitempty"`

	Bidirectional bool `json:"bidirectional,omitempty"` // bandwidth only: both ends post
	// FootprintBytes is how much memory each QP's messages walk through, so
	// that no cache flatters the figure; 0: all use one buffer of a message's size.
	FootprintBytes int64 `json:"footprint_bytes"`
	Events         bool  `json:"events,omitempty"` // sleep until a completion, instead of polling

	MTUBytes        int  `json:"mtu_bytes,omitempty"` // 0: the smaller one of both ports' active MTU
	ServiceLevel    int  `json:"service_level,omitempty"`
	TrafficClass    int  `json:"traffic_class,omitempty"` // of the GRH; ToS on RoCE
	RetryCount      int  `json:"retry_count"`
	RNRRetry        int  `json:"rnr_retry"`        // 7: for ever
	TimeoutExponent int  `json:"timeout_exponent"` // local ACK timeout: 4.096 us × 2^n
	RelaxedOrdering bool `json:"relaxed_ordering"` // never in a write latency test, which polls memory
	// IdleNs ends a test on which nothing arrives or completes for so long.
	IdleNs int64 `json:"idle_ns"`
	// StepNs is the most that a driver gets for each step but the run, in which the
	// idle limit holds; 0: as long as an engine gives it.
	StepNs int64 `json:"step_ns,omitempty"`
	// IntervalNs is the length of one interval of a bandwidth's series.
	IntervalNs int64 `json:"interval_ns"`
	// Seed makes the pattern of the data; each end derives its own from it.
	Seed uint64 `json:"seed"`
}

// Local is what an end decides for itself.
type Local struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`       // 1 and up
	GIDIndex  int    `json:"gid_index"`  // -1: chosen by family and type
	IPv6      bool   `json:"ipv6"`       // prefer an IPv6 GID over an IPv4 one
	PKeyIndex int    `json:"pkey_index"` // into the port's table
	CPU       int    `json:"cpu"`        // of the measuring thread; -1: one near the NIC
	NUMANode  int    `json:"numa_node"`  // of the buffer; -1: the NIC's
	// Place spreads the engines of one host over the CPUs near their NIC: 0
	// takes the first choice, 1 the second.
	Place int `json:"place"`
	// Address is of the data connection of RouteTCP; empty: the NIC's own.
	Address string `json:"address,omitempty"`
	Memory  string `json:"memory"` // MemoryHost, …
	// Way is how a GPU's memory is registered; empty: WayAuto.
	Way Way `json:"way,omitempty"`
	// GPU is whose memory it is, for kinds that are a GPU's.
	GPU *GPU `json:"gpu,omitempty"`
	// DataDirect: the NIC has an mlx5 Data Direct function.
	DataDirect bool `json:"data_direct,omitempty"`
}

// NewLocal returns the defaults for a device.
func NewLocal(device string) Local {
	return Local{Device: device, Port: 1, GIDIndex: -1, CPU: -1, NUMANode: -1, Memory: MemoryHost}
}

// Defaults of a plan; those that perftest has too are perftest's.
const (
	DefaultBandwidthSize = 65536
	DefaultLatencySize   = 2
	DefaultDepth         = 128
	DefaultRecvDepth     = 512
	DefaultFootprint     = 64 << 20
	DefaultDuration      = 3 * time.Second
	DefaultMargin        = 250 * time.Millisecond
	DefaultLatencyCount  = 10000
	DefaultInterval      = 100 * time.Millisecond
	DefaultIdle          = 5 * time.Second
	latencyInline        = 220
	bulkSize             = 8192 // above it every bandwidth message is signalled
	manySignalled        = 100
)

// NewPlan returns a plan with the defaults of its operation and measure.
func NewPlan(op Operation, m Measure) Plan {
	p := Plan{
		Operation: op, Measure: m, Transport: RC, Route: RouteDirect, QPs: 1, PostList: 1,
		RetryCount: 7, RNRRetry: 7, TimeoutExponent: 14, RelaxedOrdering: true,
		RecvDepth: DefaultRecvDepth, FootprintBytes: DefaultFootprint,
		IdleNs: int64(DefaultIdle), IntervalNs: int64(DefaultInterval),
	}
	if m == Latency {
		p.SizesBytes, p.Depth, p.CQModeration = []int{DefaultLatencySize}, 1, 1
		p.Messages, p.WarmUp = DefaultLatencyCount, 100
		if op != Read {
			p.InlineBytes = latencyInline
		}
		return p
	}
	p.SizesBytes, p.Depth = []int{DefaultBandwidthSize}, DefaultDepth
	p.DurationNs, p.MarginNs, p.WarmUp = int64(DefaultDuration), int64(DefaultMargin), 2*DefaultDepth
	return p
}

// Sweep returns the powers of two from lo to hi.
func Sweep(lo, hi int) []int {
	var sizes []int
	for s := 1; s <= hi && s > 0; s *= 2 {
		if s >= lo {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// Bounds of what a plan may ask for. A peer's plan is checked against them, so
// that it cannot make this end allocate without limit.
const (
	MaxSizeBytes      = 1 << 30
	MaxFootprintBytes = 8 << 30
	MaxSizes          = 64
	MaxQPs            = 1024 //nolint:revive // queue pairs, not queries per second
	MaxDepth          = 32768
	MaxPostList       = 1024
	MaxMessages       = 1 << 32
	MaxLatencyWarmUp  = 1 << 20 // each message's time is noted
	MaxDuration       = 24 * time.Hour
	MaxChunkBytes     = 1 << 30
	MaxChunks         = 128
	maxInline         = 4096
	maxExponent       = 31
	maxRetry          = 7
	maxServiceLevel   = 15
	maxTrafficClass   = 255
)

// Validate says what is wrong with a plan, in words for who wrote it.
func (p *Plan) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	within := func(name string, v, lo, hi int64) {
		bad(v < lo || v > hi, "%s %d: want %d to %d", name, v, lo, hi)
	}
	during := func(name string, ns int64, lo time.Duration) {
		bad(ns < int64(lo) || ns > int64(MaxDuration), "%s %s: want %s to %.0fh", name, time.Duration(ns), lo, MaxDuration.Hours())
	}
	bad(!slices.Contains(Operations, p.Operation), "no operation %q", p.Operation)
	bad(p.Measure != Bandwidth && p.Measure != Latency, "no measure %q", p.Measure)
	if err := Supported(p.Transport, p.Operation); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, p.validateRoute())
	within("number of sizes", int64(len(p.SizesBytes)), 1, MaxSizes)
	if i := slices.IndexFunc(p.SizesBytes, func(s int) bool { return s < 1 || s > MaxSizeBytes }); i >= 0 { // of a long sweep
		within("size", int64(p.SizesBytes[i]), 1, MaxSizeBytes)
	}
	within("QPs", int64(p.QPs), 1, MaxQPs)
	within("depth", int64(p.Depth), 1, MaxDepth)
	within("receive depth", int64(p.RecvDepth), 1, MaxDepth)
	within("post list", int64(p.PostList), 1, MaxPostList)
	bad(p.PostList > p.Depth, "post list %d is more than the depth %d", p.PostList, p.Depth)
	within("CQ moderation", int64(p.CQModeration), 0, int64(MaxDepth))
	bad(p.CQModeration > p.Depth, "CQ moderation %d is more than the depth %d: no send would ever complete", p.CQModeration, p.Depth)
	within("inline", int64(p.InlineBytes), 0, maxInline)
	within("messages", int64(p.Messages), 0, MaxMessages)
	during("duration", p.DurationNs, 0)
	bad((p.Messages > 0) == (p.DurationNs > 0), "want either a number of messages or a duration")
	during("margin", p.MarginNs, 0)
	bad(p.DurationNs > 0 && 2*p.MarginNs >= p.DurationNs, "two margins leave nothing of the duration")
	warmUp := int64(MaxMessages)
	if p.Measure == Latency {
		warmUp = MaxLatencyWarmUp
	}
	within("warm-up", int64(p.WarmUp), 0, warmUp)
	bad(p.Measure == Latency && (p.QPs > 1 || p.Depth > 1 || p.PostList > 1 || p.Bidirectional), "a latency test has one QP, one message in flight and no second direction")
	bad(p.Polls() && p.Events, "a write latency test has no event to sleep for: it polls memory")
	within("footprint", p.FootprintBytes, 0, MaxFootprintBytes)
	bad(p.MTUBytes != 0 && !slices.Contains([]int{256, 512, 1024, 2048, 4096}, p.MTUBytes), "MTU %d: want 256, 512, 1024, 2048 or 4096", p.MTUBytes)
	within("service level", int64(p.ServiceLevel), 0, maxServiceLevel)
	within("traffic class", int64(p.TrafficClass), 0, maxTrafficClass)
	within("retries", int64(p.RetryCount), 0, maxRetry)
	within("RNR retries", int64(p.RNRRetry), 0, maxRetry)
	within("timeout exponent", int64(p.TimeoutExponent), 0, maxExponent)
	during("idle limit", p.IdleNs, 1)
	during("limit of a step", p.StepNs, 0)
	during("interval", p.IntervalNs, time.Millisecond)
	return oneLine(errs)
}

// oneLine joins errors as errors.Join does, for a message of one line.
func oneLine(errs []error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Moderation is the completion moderation for a size.
func (p *Plan) Moderation(size int) int {
	switch {
	case p.CQModeration > 0:
		return p.CQModeration
	case p.Measure == Latency || size > bulkSize && p.Transport != UD || p.Events:
		return 1
	}
	return min(manySignalled, p.Depth)
}

// Polls says whether an end learns of a message by reading its memory.
func (p *Plan) Polls() bool { return p.Operation == Write && p.Measure == Latency }

// Supported says whether an operation goes over a transport.
func Supported(t Transport, op Operation) error {
	switch {
	case t == RC:
		return nil
	case t == UD && op == Send:
		return nil
	case t == UD:
		return fmt.Errorf("%s is not defined for UD, which has send alone", op)
	}
	return fmt.Errorf("no transport %q here: want RC or UD (EFA's SRD and iWARP's connections are not supported)", t)
}
