package checks

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/checks.md anew")

func TestReferenceIsFresh(t *testing.T) {
	const path = "../docs/checks.md"
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Reference(), string(got)); diff != "" {
		t.Errorf("docs/checks.md is stale; run: make docs\n%s", diff)
	}
}

// Each Check variable of the package must be in all: one that is not listed
// would compile, be documented nowhere and never run.
func TestEveryCheckIsListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]string{}
	var listed []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			lit, ok := spec.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			if id, ok := lit.Type.(*ast.Ident); ok && id.Name == "Check" {
				declared[spec.Names[0].Name] = name
			}
			if spec.Names[0].Name == "all" {
				for _, e := range lit.Elts {
					listed = append(listed, e.(*ast.Ident).Name)
				}
			}
			return true
		})
	}
	for v, file := range declared {
		if !slices.Contains(listed, v) {
			t.Errorf("%s: the check %s is not in all.go", file, v)
		}
	}
	if len(listed) != len(all) || len(declared) != len(all) {
		t.Errorf("%d declared, %d listed, %d in all", len(declared), len(listed), len(all))
	}
}

func TestChecksAreComplete(t *testing.T) {
	kebab := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	var areas []string
	for _, c := range all {
		areas = append(areas, string(c.Area))
	}
	for _, c := range all {
		switch {
		case !kebab.MatchString(c.ID):
			t.Errorf("%s: not in kebab case", c.ID)
		case seen[c.ID]:
			t.Errorf("%s: twice", c.ID)
		case slices.Contains(areas, c.ID):
			t.Errorf("%s: the name of an area", c.ID)
		case c.Title == "" || c.Why == "" || len(c.Fix) == 0 || len(c.Refs) == 0:
			t.Errorf("%s: lacks a title, why, fix or reference", c.ID)
		case !slices.Contains([]Area{AreaPCIe, AreaGPU, AreaDriver, AreaRDMA, AreaHost, AreaPolicy, AreaPerf}, c.Area):
			t.Errorf("%s: area %q", c.ID, c.Area)
		case severityRank(c.Severity) == 0 && c.Severity != SeverityInfo:
			t.Errorf("%s: severity %q", c.ID, c.Severity)
		case c.Rung != RungNone && !slices.Contains(Rungs, c.Rung):
			t.Errorf("%s: rung %q", c.ID, c.Rung)
		case c.Subjects == nil || c.Eval == nil:
			t.Errorf("%s: lacks a function", c.ID)
		}
		seen[c.ID] = true
		for _, r := range c.Refs {
			if u, err := url.Parse(r); err != nil || u.Scheme != "https" || u.Host == "" {
				t.Errorf("%s: reference %q", c.ID, r)
			}
		}
		if !strings.HasSuffix(c.Why, ".") || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: why is a sentence, title is not", c.ID)
		}
	}
	for _, c := range all {
		for _, d := range c.DependsOn {
			if !seen[d] {
				t.Errorf("%s depends on %s, which does not exist", c.ID, d)
			}
			if reaches(d, c.ID, map[string]bool{}) {
				t.Errorf("%s and %s depend on each other", c.ID, d)
			}
		}
	}
	// Every rung of the ladder needs a check, or it could never be more than unknown.
	for _, r := range Rungs {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.Rung == r && c.Severity != SeverityInfo }) {
			t.Errorf("no check stands on rung %s", r)
		}
	}
}

// fixPrograms are what fixes call: each is a program of a distribution, of the
// NIC's or GPU's maker, or gdrcheck.
var fixPrograms = []string{
	"cat", "cpupower", "docker", "echo", "ethtool", "gdrcheck", "grep", "ibstat", "ldconfig", "lsmod", "lspci", "mlnx_qos", "modinfo", "nvidia-smi",
	"printf", "rdma", "smpquery", "sudo", "unset",
}

// Whoever asks gdrcheck to explain a check gets a command to run, or the settings
// of a program, or is told in so many words why there is none.
func TestExplainNamesCommands(t *testing.T) {
	setting := regexp.MustCompile(`^[A-Z][A-Z0-9_]*=\S`)
	reason := regexp.MustCompile(`^No command [a-z ,]+: .{20,}`)
	for _, c := range all {
		named, why := false, false
		for _, line := range c.Fix {
			why = why || reason.MatchString(line)
			command := line
			if _, after, ok := strings.Cut(line, ": "); ok {
				command = after
			}
			first, _, _ := strings.Cut(command, " ")
			named = named || slices.Contains(fixPrograms, first) || setting.MatchString(command)
			if strings.ContainsAny(line, "{}") || strings.Contains(line, "%!") {
				t.Errorf("%s: %q", c.ID, line)
			}
			if strings.Contains(line, "named here") {
				t.Errorf("%s: %q: an explanation names nothing of this machine", c.ID, line)
			}
		}
		if !named && !why {
			t.Errorf("%s: neither a command nor why there is none:\n%s", c.ID, strings.Join(c.Fix, "\n"))
		}
	}
}

func reaches(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	c, ok := Lookup(from)
	if !ok || seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(c.DependsOn, func(d string) bool { return reaches(d, to, seen) })
}

func TestExitCodes(t *testing.T) {
	// The scales are others': plugins' 0 to 3, node-problem-detector's 0 to 2.
	for i, e := range ExitCodes {
		if e.Nagios < 0 || e.Nagios > 3 || e.NPD < 0 || e.NPD > 2 || e.Meaning == "" {
			t.Errorf("row %d: %+v", i, e)
		}
		if (e.Code == 0) != (e.NPD == 0) {
			t.Errorf("%s: 0 in one scale and not in the other", e.Result)
		}
	}
	want := map[Result]int{Ready: 0, ReadyWarnings: 0, NotReady: 1, BadUsage: 2, Undetermined: 3, ToolFailed: 4}
	for r, code := range want {
		if got := ExitOf(r).Code; got != code {
			t.Errorf("%s: %d, want %d", r, got, code)
		}
	}
}

func TestThresholds(t *testing.T) {
	def, err := defaultThresholds()
	if err != nil || def.PathPromised != "" || def.MemlockMinBytes != 16<<30 {
		t.Errorf("defaults: %+v %v", def, err)
	}
	dgx := def
	if err := presetNamed("dgx-h100").overlay(&dgx); err != nil || dgx.PathPromised != "PXB" {
		t.Errorf("preset: %+v %v", dgx, err)
	}
	dgx.PathPromised = ""
	if diff := cmp.Diff(def, dgx); diff != "" {
		t.Errorf("the preset changed more than it names: %s", diff)
	}
}

func TestVersions(t *testing.T) {
	for _, tc := range []struct {
		a, b  string
		older bool
	}{
		{"5.4.0-150-generic", "5.12", true}, {"5.12", "5.12", false}, {"5.12.0", "5.12", false}, {"5.15.0-1", "5.12", false},
		{"6.8.0", "5.12", false}, {"5", "5.12", true}, {"2.4.1", "2.4.1", false}, {"2.4.4", "2.4.1", false}, {"2.3", "2.4.1", true},
		{"6.1.0+rc1", "6.3", true}, {"", "5.12", true},
	} {
		if got := older(tc.a, tc.b); got != tc.older {
			t.Errorf("older(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
	if major("580.159.04") != 580 || major("") != 0 {
		t.Error("major")
	}
}
