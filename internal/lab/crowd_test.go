package lab

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/crowd.sh
var crowdScript string

const (
	pairs    = 3  // of Soft-RoCE devices
	together = 24 // loopbacks: each operation in both directions of each pair
)

// checkCrowd: loopbacks that ran at the same time had each its own messages, data
// and figures, and what one that was killed held is gone with it.
func checkCrowd(t *testing.T, dir string) {
	const size, warmUp = 16 << 10, 8 // the script's
	elapsed := float64(number(t, read(t, dir, "seconds")))
	wire := make([]float64, 2*pairs) // bytes that each interface should have sent
	var sum, bytes float64
	kinds := map[string]bool{}
	for i := range together {
		name := fmt.Sprintf("%d.json", i)
		exitStatus(t, dir, name, 0)
		doc := decode[report.Perf](t, dir, name)
		if len(doc.Results) != 1 || doc.Results[0].Failure != nil || !doc.Results[0].Good() || len(doc.Results[0].Steps) != 1 {
			t.Errorf("%s: %+v", name, doc.Results)
			continue
		}
		r := doc.Results[0]
		s, messages := r.Steps[0], 200+i
		var from, to int
		if _, err := fmt.Sscanf(r.Initiator.Device+" "+r.Responder.Device, "rxe%d rxe%d", &from, &to); err != nil || from^1 != to {
			t.Fatalf("%s: from %s to %s", name, r.Initiator.Device, r.Responder.Device)
		}
		kinds[fmt.Sprintf("%s %d %d", r.Plan.Operation, from, to)] = true
		if s.Forward == nil || s.Forward.Messages != uint64(messages) || s.BytesPerSec > mostBytesPerSec {
			t.Fatalf("%s: %+v, want %d messages", name, s, messages)
		}
		// No test can have measured for longer than all of them ran.
		if took := float64(messages) * size / s.BytesPerSec; took > elapsed+1 {
			t.Errorf("%s: %g bytes/s is %g s for its messages, and all took %g s", name, s.BytesPerSec, took, elapsed)
		}
		payload := float64(messages+warmUp) * size
		if r.Plan.Operation == perftest.Read {
			from = to // whose interface sends the data
		}
		wire[from] += payload
		bytes += payload
		sum += s.BytesPerSec
	}
	if len(kinds) != together {
		t.Errorf("%d different tests, want %d: %v", len(kinds), together, kinds)
	}
	before, after := strings.Fields(read(t, dir, "before")), strings.Fields(read(t, dir, "after"))
	for i, want := range wire {
		if sent := float64(number(t, after[i]) - number(t, before[i])); sent < want {
			t.Errorf("v%d sent %g bytes by the kernel's count, and messages of %g were measured", i, sent, want)
		}
	}
	t.Logf("%d at the same time: %.3f Gb/s of all, %.3f Gb/s the sum of their figures", together, bytes*8/1e9/elapsed, sum*8/1e9)
	idle, during, last := count(t, dir, "before.resources"), count(t, dir, "during"), count(t, dir, "after.resources")
	if during[0] < 4 || last != idle {
		t.Errorf("queue pairs and regions: %v before, %v during, %v after", idle, during, last)
	}
}
