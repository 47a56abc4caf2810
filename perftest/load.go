package perftest

import (
	"context"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// GPULoad is a GPU as it was while its memory was measured. An idle one lowers its
// link and its clocks.
type GPULoad struct {
	Addr  pci.Address `json:"addr"`
	Link  pci.Link    `json:"link,omitzero"`  // zero: not told
	Clock gpu.Clocks  `json:"clock,omitzero"` // zero: not told
	// PerformanceState is 0, the fastest, to 15; -1: not told.
	PerformanceState int    `json:"performance_state"`
	Reason           string `json:"reason,omitempty"` // why nothing could be read
}

// watchLoad reads a GPU's load during a test, until the function that it returns
// is called, which gives the reading with the fastest link. nil: no GPU is part
// of this end, or nobody reads.
func (e *End) watchLoad(ctx context.Context, l Local) (stop func() *GPULoad) {
	if e.Load == nil || l.GPU == nil {
		return func() *GPULoad { return nil }
	}
	const first, every = 400 * time.Millisecond, time.Second
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan *GPULoad, 1)
	go func() {
		defer close(done)
		var best *GPULoad
		for wait := time.Duration(first); pause(ctx, wait); wait = every {
			if r := e.Load(ctx, l); r != nil && ctx.Err() == nil && (best == nil || faster(r.Link, best.Link)) {
				best = r
			}
		}
		done <- best
	}()
	return func() *GPULoad {
		cancel()
		return <-done
	}
}

func faster(a, b pci.Link) bool {
	return a.SpeedGTPerSec*float64(a.Width) >= b.SpeedGTPerSec*float64(b.Width)
}
