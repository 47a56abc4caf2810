package perftest

import (
	"fmt"
	"slices"
)

// Comparison is the same data, measured by several routes in turns.
type Comparison struct {
	Measure Measure `json:"measure"`
	// OnGPU: an end's memory is a GPU's, so that the direct route is GPUDirect
	// RDMA. Else host memory stands for it.
	OnGPU bool `json:"on_gpu"`
	// Simulated: no GPU or no RDMA took part, but what stands for it. Note says what.
	Simulated bool           `json:"simulated"`
	Note      string         `json:"note,omitempty"`
	Rounds    int            `json:"rounds"`
	Sizes     []ComparedSize `json:"sizes"`
	// CrossoverBytes is the smallest size from which on, up to the largest, the
	// direct route is better than the staged one; 0: it is not even for the largest.
	CrossoverBytes int `json:"crossover_bytes,omitempty"`
	// Failures are the reasons of rounds that gave no figure, for each route.
	Failures map[Route][]string `json:"failures,omitempty"`
}

// ComparedSize is one size by each route that gave a figure for it.
type ComparedSize struct {
	SizeBytes int              `json:"size_bytes"`
	Routes    map[Route]Figure `json:"routes"`
	// SpeedUp is how many times better the direct route is: more bytes a second,
	// or less latency.
	SpeedUp map[Route]float64 `json:"speed_up,omitempty"`
}

// Figure is the median of a size's rounds by one route.
type Figure struct {
	BytesPerSec float64 `json:"bytes_per_sec,omitempty"` // of a bandwidth
	LatencyNs   float64 `json:"latency_ns,omitempty"`    // the median of medians
	// Rounds are the figures that the median is of, in the order measured.
	Rounds []float64 `json:"rounds"`
	// CPUNsPerByte is what both ends' measuring threads took for each byte;
	// equal to seconds per GB.
	CPUNsPerByte float64 `json:"cpu_ns_per_byte,omitempty"`
	// HostBytesPerByte is Route.HostBytesPerByte.
	HostBytesPerByte float64 `json:"host_bytes_per_byte"`
	Path             string  `json:"path,omitempty"` // interfaces that a TCP connection took
}

// Compare puts results of the same plan by different routes side by side; each
// measure that was taken by more than one gives a comparison.
func Compare(results []*Result) []*Comparison {
	var out []*Comparison
	for _, m := range []Measure{Bandwidth, Latency} {
		var of []*Result
		routes := map[Route]bool{}
		for _, r := range results {
			if r.Plan.Measure == m && r.Plan.Route != RouteCopy {
				of = append(of, r)
				routes[r.Plan.Route] = true
			}
		}
		if len(routes) > 1 {
			out = append(out, compare(m, of))
		}
	}
	return out
}

func compare(m Measure, results []*Result) *Comparison {
	c := &Comparison{Measure: m, OnGPU: slices.ContainsFunc(results, (*Result).OnGPU)}
	lanes := map[Route][]*Result{}
	var sizes []int
	for _, r := range results {
		lane := r.Plan.Route
		if lane == RouteDirect && c.OnGPU && r.onHost() {
			lane = RouteHost
		}
		lanes[lane] = append(lanes[lane], r)
		c.Rounds = max(c.Rounds, len(lanes[lane]))
		sizes = append(sizes, r.Plan.SizesBytes...)
		if r.Failure != nil {
			c.fail(lane, r)
		}
		c.Simulated = c.Simulated || r.Simulated
	}
	switch {
	case c.Simulated:
		c.Note = "test doubles took part: the figures say nothing about a machine"
	case !c.OnGPU:
		c.Simulated = true
		c.Note = "no GPU took part: host memory stands for a GPU's, so the direct route is RDMA without GPUDirect, and what is staged is copied by the CPU"
	}
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		s := ComparedSize{SizeBytes: size, Routes: map[Route]Figure{}}
		for lane, of := range lanes {
			if f, ok := figure(m, lane, size, of); ok {
				s.Routes[lane] = f
			}
		}
		s.SpeedUp = s.speedUp(m)
		c.Sizes = append(c.Sizes, s)
	}
	c.CrossoverBytes = crossover(c.Sizes)
	return c
}

func (e *Endpoint) onGPU() bool { return OnGPU(e.Memory.Kind) }

// OnGPU says whether an end's memory was a GPU's.
func (r *Result) OnGPU() bool { return r.Initiator.onGPU() || r.Responder.onGPU() }

// onHost is false for a test that did not come so far.
func (r *Result) onHost() bool {
	return r.Initiator.Memory.Kind == MemoryHost && r.Responder.Memory.Kind == MemoryHost
}

func (c *Comparison) fail(lane Route, r *Result) {
	text := fmt.Sprintf("at the %s: %s", r.Faulty, r.Failure.Error())
	if c.Failures == nil {
		c.Failures = map[Route][]string{}
	}
	if list := c.Failures[lane]; !slices.Contains(list, text) {
		c.Failures[lane] = append(list, text)
	}
}

// figure is the median of what the rounds of a lane gave for a size. A round
// whose data arrived wrong gives none.
func figure(m Measure, lane Route, size int, results []*Result) (f Figure, ok bool) {
	var cpu []float64
	for _, r := range results {
		for _, s := range r.Steps {
			if s.SizeBytes != size || s.wrong() {
				continue
			}
			switch {
			case m == Latency && s.Latency != nil:
				f.Rounds = append(f.Rounds, s.Latency.MedianNs)
			case m == Bandwidth && s.Forward != nil:
				f.Rounds = append(f.Rounds, s.BytesPerSec)
			default:
				continue
			}
			if s.CPU != nil && s.CPU.Bytes > 0 {
				cpu = append(cpu, (s.CPU.InitiatorNs+s.CPU.ResponderNs)/float64(s.CPU.Bytes))
			}
			f.Path = s.Path
		}
	}
	if len(f.Rounds) == 0 {
		return f, false
	}
	if m == Latency {
		f.LatencyNs = median(f.Rounds)
	} else {
		f.BytesPerSec, f.CPUNsPerByte = median(f.Rounds), median(cpu)
	}
	f.HostBytesPerByte = lane.HostBytesPerByte(f.Path == loopbackInterface)
	return f, true
}

// loopbackInterface is what Linux calls it.
const loopbackInterface = "lo"

func (s *Step) wrong() bool {
	return slices.ContainsFunc(s.Data, func(d DataCheck) bool { return !d.Correct && d.Skipped == "" })
}

// median of a list, or 0 of none.
func median(list []float64) float64 {
	n := len(list)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func (s *ComparedSize) speedUp(m Measure) map[Route]float64 {
	direct, ok := s.Routes[RouteDirect]
	if !ok {
		return nil
	}
	out := map[Route]float64{}
	for route, f := range s.Routes {
		switch {
		case route == RouteDirect:
		case m == Latency && direct.LatencyNs > 0:
			out[route] = f.LatencyNs / direct.LatencyNs
		case m == Bandwidth && f.BytesPerSec > 0:
			out[route] = direct.BytesPerSec / f.BytesPerSec
		}
	}
	return out
}

// crossover walks from the largest size down, as far as the direct route wins.
func crossover(sizes []ComparedSize) (from int) {
	for _, s := range slices.Backward(sizes) {
		if s.SpeedUp[RouteStaged] <= 1 {
			break
		}
		from = s.SizeBytes
	}
	return from
}
