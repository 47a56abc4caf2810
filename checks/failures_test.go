package checks

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/topo"
)

// failure is a machine with a fault that people reported, in
// testdata/failures: a healthy base, what is changed on it, and what must be
// said of it.
type failure struct {
	Failure string      `yaml:"failure"` // the catalogue's ID
	Title   string      `yaml:"title"`
	Base    string      `yaml:"base"` // one of bases
	Change  []operation `yaml:"change"`
	// Expect are findings. The first is the root cause: of the new ones it is
	// the worst, and the first of these in the report. All new Fail and Warn
	// must be listed.
	Expect []expectation `yaml:"expect"`

	file string
}

// expectation is one finding, or several of one kind: Subject is a pattern.
type expectation struct {
	Check   string  `yaml:"check"`
	Subject string  `yaml:"subject"`
	Verdict Verdict `yaml:"verdict"`
	Says    string  `yaml:"says"`   // part of the message
	Fix     string  `yaml:"fix"`    // part of the fix
	Unsure  string  `yaml:"unsure"` // part of what makes sure
}

func loadFailures(t *testing.T) []failure {
	t.Helper()
	files, err := filepath.Glob("testdata/failures/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := make([]failure, len(files))
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := strictYAML(b, &out[i]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[i].file = filepath.Base(name)
	}
	return out
}

// Each base is a machine on which nothing is wrong: a failure's findings are
// then the change's alone.
func TestBasesAreHealthy(t *testing.T) {
	for name, build := range bases {
		t.Run(name, func(t *testing.T) {
			for _, f := range mustRun(t, build(t), Options{}).Findings {
				if troubled(f) || f.Verdict == Unknown {
					t.Errorf("%s %s: %s: %s", f.Check, f.Subject, f.Verdict, f.Message)
				}
			}
		})
	}
}

func TestFailures(t *testing.T) {
	machines, before := map[string]*topo.Machine{}, map[string][]Finding{}
	for _, f := range loadFailures(t) {
		t.Run(strings.TrimSuffix(f.file, ".yaml"), func(t *testing.T) {
			build, ok := bases[f.Base]
			if !ok {
				t.Fatalf("no base %q", f.Base)
			}
			if machines[f.Base] == nil {
				machines[f.Base] = build(t)
				before[f.Base] = mustRun(t, machines[f.Base], Options{}).Findings
			}
			m := clone(t, machines[f.Base])
			for _, o := range f.Change {
				if err := o.apply(m); err != nil {
					t.Fatal(err)
				}
			}
			judgeFailure(t, f, before[f.Base], m)
		})
	}
}

func judgeFailure(t *testing.T, f failure, before []Finding, m *topo.Machine) {
	t.Helper()
	if len(f.Change) == 0 || len(f.Expect) == 0 {
		t.Fatal("nothing changed, or nothing expected")
	}
	var fresh []Finding
	for _, g := range mustRun(t, m, Options{}).Findings {
		if !slices.ContainsFunc(before, func(b Finding) bool {
			return b.Check == g.Check && b.Subject == g.Subject && b.Verdict == g.Verdict && b.Message == g.Message
		}) {
			fresh = append(fresh, g)
		}
	}
	for _, e := range f.Expect {
		hits := slices.DeleteFunc(slices.Clone(fresh), func(g Finding) bool { return !e.is(g) })
		if len(hits) == 0 {
			t.Errorf("not said: %s %s: %s %q", e.Check, e.Subject, e.Verdict, e.Says)
		}
		for _, h := range hits {
			if !strings.Contains(strings.Join(h.Fix, "\n"), e.Fix) {
				t.Errorf("%s %s: fix %q lacks %q", h.Check, h.Subject, h.Fix, e.Fix)
			}
			if !strings.Contains(h.Unsure, e.Unsure) {
				t.Errorf("%s %s: unsure %q lacks %q", h.Check, h.Subject, h.Unsure, e.Unsure)
			}
			checkFinding(t, h)
			if check, _ := Lookup(h.Check); troubled(h) {
				neverPassesUnseen(t, m, check, h.Subject, Options{})
			}
		}
	}
	var first *Finding
	for i, g := range fresh {
		listed := slices.ContainsFunc(f.Expect, func(e expectation) bool { return e.is(g) })
		if troubled(g) && !listed {
			t.Errorf("said besides: %s %s: %s %s", g.Check, g.Subject, g.Verdict, g.Message)
		}
		if first == nil || badness(g) > badness(*first) {
			first = &fresh[i]
		}
	}
	if first != nil && badness(*first) > 0 && !f.Expect[0].is(*first) {
		t.Errorf("the first reason is %s %s: %s %s; the root cause is %s", first.Check, first.Subject, first.Verdict, first.Message, f.Expect[0].Check)
	}
	if t.Failed() {
		for _, g := range slices.DeleteFunc(fresh, func(g Finding) bool { return g.Verdict == Pass || g.Verdict == NotApplicable }) {
			t.Logf("new: %s %s: %s %s", g.Check, g.Subject, g.Verdict, g.Message)
		}
	}
}

func (e expectation) is(g Finding) bool {
	ok, err := path.Match(e.Subject, g.Subject)
	return err == nil && ok && e.Check == g.Check && e.Verdict == g.Verdict && strings.Contains(g.Message, e.Says)
}

func troubled(f Finding) bool { return f.Verdict == Fail || f.Verdict == Warn }

// badness orders findings as a reader takes them: failures that count first.
func badness(f Finding) int {
	switch {
	case f.Verdict == Fail && f.Severity == SeverityError:
		return 3
	case troubled(f):
		return 2
	case f.Verdict == Unknown && f.Severity == SeverityError:
		return 1
	}
	return 0
}

// A description that is wrong must not pass for one that proves something.
func TestOperationsFail(t *testing.T) {
	for _, o := range []operation{
		{Set: "rdma.devices[mlx5_9].fw_ver", To: "1"},
		{Set: "rdma.devices[mlx5_0].nothing", To: "1"},
		{Set: "rdma.devices[mlx5_0].ports[1].lid", To: "text"},
		{Set: "rdma.devices[mlx5_0].model", To: map[string]any{"nme": "x"}},
		{Set: "rdma.listed", State: "gone"},
		{Remove: "host.modules[nothing]"},
		{Remove: "host.modules"},
		{Add: "host.modules", Item: map[string]any{"nme": "x"}},
		{},
	} {
		if err := o.apply(goodNode()); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func TestOperations(t *testing.T) {
	m := goodNode()
	for _, o := range []operation{
		{Set: "rdma.devices[mlx5_0].ports[1].state", To: "DOWN"},
		{Set: "pci[" + gpuPort + "].config.acs.ctl", To: 4},
		{Set: "pci[*].numa_node", State: "absent"},
		{Set: "host.symbols[x]", To: true},
		{Set: "gpu.nvidia.params[A]", To: "1"},
		{Set: "gpu.gpus[0].nvml.fabric", To: map[string]any{"state": "completed"}},
		{Add: "host.modules", Item: map[string]any{"name": "gdrdrv", "version": map[string]any{"value": "2.5"}}},
		{Remove: "host.modules[nvidia_peermem]"},
	} {
		if err := o.apply(m); err != nil {
			t.Error(err)
		}
	}
	got := fmt.Sprintln(port(m).State.V, fn(m, gpuPort).Config.ACS.V.Ctl, fn(m, nicAddr).NUMANode.State, m.Host.Symbols["x"].V,
		m.GPU.NVIDIA.Params.V["A"], m.GPU.GPUs[0].NVML.V.Fabric.V.State, m.Host.Modules.V[0].Name, m.Host.Modules.V[0].Version.V)
	if want := fmt.Sprintln("DOWN", 4, "absent", true, "1", "completed", "gdrdrv", "2.5"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
