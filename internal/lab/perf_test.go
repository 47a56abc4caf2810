package lab

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/perf.sh
var perfScript string

// checkPerf: data moved between two Soft-RoCE devices by every operation, and
// perftest measured the same in the same guest.
func checkPerf(t *testing.T, dir string) {
	sizes := len(perftest.Sweep(1, 8<<20))
	for _, tt := range []struct {
		file         string
		plans, steps int
	}{
		{"sweep-write", 1, sizes},
		{"sweep-write_imm", 1, sizes},
		{"sweep-read", 1, sizes},
		{"sweep-send", 1, sizes},
		{"latency", 4, 3},
		{"datagrams", 2, 3},
		{"both", 3, 1},
		{"by-time", 4, 1},
		{"events", 2, 1},
	} {
		t.Run(tt.file, func(t *testing.T) {
			doc := decode[report.Perf](t, dir, tt.file+".json")
			if len(doc.Results) != tt.plans {
				t.Fatalf("%d results, want %d", len(doc.Results), tt.plans)
			}
			for _, r := range doc.Results {
				checkResult(t, r, tt.steps)
			}
		})
	}
	compareRivals(t, dir)
}

func checkResult(t *testing.T, r *perftest.Result, steps int) {
	t.Helper()
	name := fmt.Sprintf("%s %s: ", r.Plan.Operation, r.Plan.Measure)
	if r.Failure != nil {
		t.Errorf("%s%s: %v", name, r.Faulty, r.Failure)
		return
	}
	if len(r.Steps) != steps || !r.Good() {
		t.Errorf("%s%d steps, want %d; good: %v", name, len(r.Steps), steps, r.Good())
	}
	// What the script gave the interfaces.
	if r.Initiator.GIDType != "RoCE v2" || r.Initiator.GID != "::ffff:10.0.0.1" || r.Responder.GID != "::ffff:10.0.0.2" || r.MTUBytes != 4096 {
		t.Errorf("%sfrom %s (%s) to %s, MTU %d", name, r.Initiator.GID, r.Initiator.GIDType, r.Responder.GID, r.MTUBytes)
	}
	if r.Scope != "" {
		t.Errorf("%stwo devices, but: %s", name, r.Scope)
	}
	for _, s := range r.Steps {
		for _, d := range s.Data {
			if !d.Correct || d.Bytes < uint64(s.SizeBytes) {
				t.Errorf("%ssize %d: %+v", name, s.SizeBytes, d)
			}
		}
		if (s.Latency != nil) != (r.Plan.Measure == perftest.Latency) || (s.Forward != nil) == (s.Latency != nil) || len(s.Data) == 0 {
			t.Errorf("%ssize %d lacks its figures: %+v", name, s.SizeBytes, s)
		}
	}
}

// compareRivals prints what perftest and gdrcheck measured, each one's best.
// Emulation is noisy, more so beside other work, so only what is far off is an error.
func compareRivals(t *testing.T, dir string) {
	const far = 4
	for _, tt := range []struct {
		name   string
		column int // of perftest's line
		unit   string
		figure func(perftest.Step) float64
		best   func([]float64) float64
	}{
		{"write-bandwidth", 3, "Gb/s", gbps, slices.Max[[]float64]},
		{"send-bandwidth", 3, "Gb/s", gbps, slices.Max[[]float64]},
		{"write-latency", 2, "us", minUs, slices.Min[[]float64]},
		{"send-latency", 2, "us", minUs, slices.Min[[]float64]},
		{"read-latency", 2, "us", minUs, slices.Min[[]float64]},
	} {
		var ours, rivals []float64
		files, err := filepath.Glob(filepath.Join(dir, tt.name+"-*.rival"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no figures of perftest: %v", tt.name, err)
			continue
		}
		for _, f := range files {
			name := filepath.Base(f)
			rivals = append(rivals, rivalFigure(t, read(t, dir, name), tt.column))
			doc := decode[report.Perf](t, dir, strings.TrimSuffix(name, ".rival")+".json")
			if len(doc.Results) != 1 || !doc.Results[0].Good() {
				t.Fatalf("%s: %+v", name, doc.Results)
			}
			ours = append(ours, tt.figure(doc.Results[0].Steps[0]))
		}
		a, b := tt.best(ours), tt.best(rivals)
		t.Logf("%-16s gdrcheck %8.3f %s  perftest %8.3f %s  all: %.3f, %.3f", tt.name, a, tt.unit, b, tt.unit, ours, rivals)
		if !(a < far*b && b < far*a) {
			t.Errorf("%s: %g and %g %s are far apart", tt.name, a, b, tt.unit)
		}
	}
}

func gbps(s perftest.Step) float64 { return s.BytesPerSec * 8 / 1e9 }

func minUs(s perftest.Step) float64 { return s.Latency.MinNs / 1e3 }

// rivalFigure finds a column in perftest's one line of figures.
func rivalFigure(t *testing.T, text string, column int) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= column {
			continue
		}
		if _, err := strconv.Atoi(f[0]); err != nil {
			continue
		}
		if v, err := strconv.ParseFloat(f[column], 64); err == nil {
			return v
		}
	}
	t.Fatalf("no figures of perftest in:\n%s", text)
	return 0
}
