package lab

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/bench.sh
var benchScript string

// rivalry is one figure that gdrcheck and perftest both measure.
type rivalry struct {
	name   string
	unit   string
	column int     // of perftest's line of figures
	scale  float64 // from perftest's unit
	ours   func(perftest.Step) float64
	best   func([]float64) float64
	// Least and most of the best by perftest that the other's best may be.
	least, most float64
}

// perftest prints Gb/s with two decimals only, so it is asked for MiB/s.
const gbpsOfMiB = 8 * (1 << 20) / 1e9

var rivalries = func() (list []rivalry) {
	for _, op := range []string{"write", "send", "read"} {
		list = append(list,
			rivalry{op + "-bandwidth", "Gb/s", 3, gbpsOfMiB, gbps, slices.Max[[]float64], 0.97, 1.05},
			rivalry{op + "-latency", "us", 2, 1, minUs, slices.Min[[]float64], 0, 1.03},
		)
	}
	return list
}()

// TestBench measures the same with perftest, with perftest again (the control)
// and with gdrcheck, in one guest, in turn. Emulation is noisy, and what repeats
// is each one's best, so that is what is compared, where the control's best
// passes too.
func TestBench(t *testing.T) {
	rounds := needRounds(t)
	const aRound = 5 * time.Minute
	dir := bootFor(t, time.Duration(rounds)*aRound, Guest{
		Share:   newShare(t, ""),
		Script:  fmt.Sprintf("rounds=%d\n", rounds) + rdmaScript + benchScript,
		Machine: []string{"-machine", "q35", "-m", "1G"},
	})[0]
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "measure\ttool\tbest\tof perftest's\tmedian\tleast\tmost\tof\t")
	for _, r := range rivalries {
		rival := r.rival(t, dir, "perftest", rounds)
		control := r.rival(t, dir, "control", rounds)
		ours := r.gdrcheck(t, dir, rounds)
		for _, row := range []struct {
			tool    string
			figures []float64
		}{{"perftest", rival}, {"perftest again", control}, {"gdrcheck", ours}} {
			slices.Sort(row.figures)
			f := row.figures
			fmt.Fprintf(w, "%s\t%s\t%.3f %s\t%.3f\t%.3f\t%.3f\t%.3f\t%d\t\n", r.name, row.tool, r.best(f), r.unit,
				r.best(f)/r.best(rival), f[len(f)/2], f[0], f[len(f)-1], len(f))
		}
		switch {
		case !r.passes(control, rival):
			t.Errorf("%s: perftest does not agree with itself: more rounds, or a quieter machine", r.name)
		case !r.passes(ours, rival):
			t.Errorf("%s: gdrcheck's best is %.3f of perftest's, want %.2f to %.2f", r.name, r.best(ours)/r.best(rival), r.least, r.most)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rounds each\n%s", rounds, table.String())
}

// needRounds is how often to measure; without being asked for, not at all.
func needRounds(t *testing.T) int {
	t.Helper()
	rounds, err := strconv.Atoi(os.Getenv("GDRCHECK_LAB_ROUNDS"))
	if err != nil || rounds < 1 {
		t.Skip("measures for minutes: run make bench-lab")
	}
	return rounds
}

func (r *rivalry) passes(figures, rival []float64) bool {
	ratio := r.best(figures) / r.best(rival)
	return !math.IsNaN(ratio) && ratio >= r.least && ratio <= r.most
}

// rival are perftest's figures. Its sampling of the clock fails now and then
// under emulation, and it prints inf, or zero.
func (r *rivalry) rival(t *testing.T, dir, tool string, rounds int) (figures []float64) {
	for i := range rounds {
		v := r.scale * rivalFigure(t, read(t, dir, fmt.Sprintf("%s-%d.%s", r.name, i+1, tool)), r.column)
		if v > 0 && !math.IsInf(v, 0) {
			figures = append(figures, v)
		}
	}
	if len(figures) == 0 {
		t.Fatalf("%s: no figure of perftest", r.name)
	}
	return figures
}

func (r *rivalry) gdrcheck(t *testing.T, dir string, rounds int) (figures []float64) {
	for i := range rounds {
		name := fmt.Sprintf("%s-%d.gdrcheck", r.name, i+1)
		doc := decode[report.Perf](t, dir, name)
		if len(doc.Results) != 1 || !doc.Results[0].Good() || len(doc.Results[0].Steps) != 1 {
			t.Fatalf("%s: %s", name, read(t, dir, name))
		}
		figures = append(figures, r.ours(doc.Results[0].Steps[0]))
	}
	return figures
}
