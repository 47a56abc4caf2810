package perftest

import (
	"fmt"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What the histogram resolves: a tenth of a nanosecond up to ten minutes, in
// three digits.
const (
	histogramUnitNs = 0.1
	histogramMax    = 6_000_000_000_000
	histogramDigits = 3
)

// NewLatencyDist describes samples, each a latency in ns. Minimum, maximum,
// mean and standard deviation are exact, percentiles are the histogram's.
func NewLatencyDist(samplesNs []float64) (*LatencyDist, error) {
	if len(samplesNs) == 0 {
		return nil, errNoSamples
	}
	h := hdrhistogram.New(1, histogramMax, histogramDigits)
	d := &LatencyDist{Samples: uint64(len(samplesNs)), MinNs: math.Inf(1), MaxNs: math.Inf(-1), HistogramUnitNs: histogramUnitNs}
	var mean, squares float64 // Welford's method: no sum of squares that loses digits
	for i, s := range samplesNs {
		d.MinNs, d.MaxNs = min(d.MinNs, s), max(d.MaxNs, s)
		delta := s - mean
		mean += delta / float64(i+1)
		squares += delta * (s - mean)
		if err := h.RecordValue(int64(math.Round(s / histogramUnitNs))); err != nil {
			return nil, fmt.Errorf("a latency of %g ns: %w", s, err)
		}
	}
	d.MeanNs, d.StdevNs = mean, math.Sqrt(squares/float64(len(samplesNs)))
	at := func(percentile float64) float64 {
		return float64(h.ValueAtPercentile(percentile)) * histogramUnitNs
	}
	const half, p99, p999 = 50, 99, 99.9
	// A bucket's name may lie beyond what was seen.
	d.MedianNs, d.P99Ns, d.P999Ns = clamp(at(half), d), clamp(at(p99), d), clamp(at(p999), d)
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	d.Histogram = string(b)
	return d, nil
}

func clamp(v float64, d *LatencyDist) float64 { return min(max(v, d.MinNs), d.MaxNs) }
