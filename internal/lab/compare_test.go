package lab

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/compare.sh
var compareScript string

// checkCompare: the same data moved between two Soft-RoCE devices by every route.
func checkCompare(t *testing.T, dir string) {
	for _, tt := range []struct {
		file    string
		results int
		sizes   map[perftest.Measure]int
	}{
		{"loopback", 2 * 3, map[perftest.Measure]int{perftest.Bandwidth: 3}},
		{"latency", 2 * 3, map[perftest.Measure]int{perftest.Latency: 3}},
		{"odd", 2, map[perftest.Measure]int{perftest.Bandwidth: 3}},
		{"gpu", 2 * 4, map[perftest.Measure]int{perftest.Bandwidth: 2, perftest.Latency: 2}},
		{"session", 3 * 2, map[perftest.Measure]int{perftest.Bandwidth: 2, perftest.Latency: 2}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			doc := compared(t, dir, tt.file)
			if len(doc.Results) != tt.results || len(doc.Comparisons) != len(tt.sizes) {
				t.Fatalf("%d results, %d comparisons", len(doc.Results), len(doc.Comparisons))
			}
			for _, r := range doc.Results {
				checkRoute(t, r)
			}
			for _, c := range doc.Comparisons {
				checkComparison(t, c, tt.sizes[c.Measure])
			}
		})
	}
	checkDoubles(t, dir)
	for _, name := range []string{"loopback.table", "latency.table", "gpu.table"} {
		text := read(t, dir, name)
		t.Logf("%s:\n%s", name, text)
		contains(t, text, "v0")
	}
	// A rule of the kernel stops one route, and costs the others nothing; what that one
	// carries, which was asked for, is not known.
	exitStatus(t, dir, "stopped", checks.ExitOf(checks.Undetermined).Code)
	doc := decode[report.Perf](t, dir, "stopped")
	if len(doc.Comparisons) != 1 {
		t.Fatalf("%d comparisons", len(doc.Comparisons))
	}
	c := doc.Comparisons[0]
	if _, measured := c.Sizes[0].Routes[perftest.RouteTCP]; measured || len(c.Failures[perftest.RouteTCP]) != 1 ||
		!unreachable.MatchString(c.Failures[perftest.RouteTCP][0]) || len(c.Failures) != 1 {
		t.Errorf("TCP was not stopped: %+v", c)
	}
	if c.Sizes[0].SpeedUp[perftest.RouteStaged] <= 0 || c.Rounds != 2 {
		t.Errorf("the other routes were not compared: %+v", c)
	}
}

// unreachable is what the kernel answers for a rule of that name: ENETUNREACH of
// the rule (net/ipv4/fib_rules.c), EHOSTUNREACH of a route that was looked up before.
var unreachable = regexp.MustCompile("network is unreachable|no route to host")

// checkDoubles looks at what was asked of GPUs that are doubles.
func checkDoubles(t *testing.T, dir string) {
	t.Helper()
	for _, c := range compared(t, dir, "gpu").Comparisons {
		if _, ok := c.Sizes[0].Routes[perftest.RouteHost]; !ok || !c.OnGPU || !c.Simulated {
			t.Errorf("%s: %+v", c.Measure, c)
		}
	}
	if c := compared(t, dir, "loopback").Comparisons[0]; c.OnGPU || !c.Simulated || !strings.Contains(c.Note, "host memory stands for a GPU's") {
		t.Errorf("without a GPU: %+v", c)
	}
	copies := compared(t, dir, "copy")
	if len(copies.Results) != 4 || !copies.Simulated {
		t.Errorf("%d results of copies; simulated: %v", len(copies.Results), copies.Simulated)
	}
	for _, r := range copies.Results {
		if !r.Good() || len(r.Steps) != 2 || (r.Initiator.Memory.Kind == "cuda") == (r.Responder.Memory.Kind == "cuda") {
			t.Errorf("%+v", r)
		}
	}
	exitStatus(t, dir, "gdrcopy", 0)
	doc := decode[report.Check](t, dir, "gdrcopy")
	if len(doc.Findings) != 2 {
		t.Fatalf("%+v", doc.Findings)
	}
	for _, f := range doc.Findings {
		// The double goes through the double of libcuda, and is no faster.
		if f.Verdict != checks.Warn && f.Verdict != checks.Pass || f.Subject != "GPU0" && f.Subject != "GPU1" {
			t.Errorf("%s: %s %s", f.Subject, f.Verdict, f.Message)
		}
	}
}

func compared(t *testing.T, dir, name string) report.Perf {
	t.Helper()
	exitStatus(t, dir, name, 0)
	return decode[report.Perf](t, dir, name)
}

func checkRoute(t *testing.T, r *perftest.Result) {
	t.Helper()
	at := string(r.Plan.Route) + " " + string(r.Plan.Measure)
	if r.Failure != nil || !r.Good() || len(r.Steps) != len(r.Plan.SizesBytes) {
		t.Fatalf("%s: %v, %d steps: %+v", at, r.Failure, len(r.Steps), r.Steps)
	}
	for _, s := range r.Steps {
		if s.BytesPerSec > mostBytesPerSec || len(s.Data) == 0 {
			t.Errorf("%s, %d bytes: %+v", at, s.SizeBytes, s)
		}
		// The interfaces that the kernel's own counters say carried it: the answers
		// come by the other one.
		want := ""
		if r.Plan.Route == perftest.RouteTCP {
			want = "v0"
			if r.Plan.Measure == perftest.Latency || r.Plan.Bidirectional {
				want = "v0, v1"
			}
		}
		if s.Path != want {
			t.Errorf("%s, %d bytes: it went by %q, want %q", at, s.SizeBytes, s.Path, want)
		}
		if s.CPU == nil || s.CPU.InitiatorNs <= 0 || r.Plan.Route != perftest.RouteDirect && s.CPU.ResponderNs <= 0 {
			t.Errorf("%s, %d bytes: CPU %+v", at, s.SizeBytes, s.CPU)
		}
	}
}

func checkComparison(t *testing.T, c *perftest.Comparison, sizes int) {
	t.Helper()
	if len(c.Sizes) != sizes || len(c.Failures) > 0 {
		t.Fatalf("%d sizes, failures %v", len(c.Sizes), c.Failures)
	}
	for _, s := range c.Sizes {
		for route, f := range s.Routes {
			if len(f.Rounds) != c.Rounds || f.BytesPerSec+f.LatencyNs <= 0 {
				t.Errorf("%d bytes, %s: %+v", s.SizeBytes, route, f)
			}
		}
	}
}
