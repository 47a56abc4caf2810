package checks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is one failure of testdata/catalogue.yaml.
type entry struct {
	ID    string `yaml:"id"`
	Title string `yaml:"title"`
	Refs  string `yaml:"refs"`
	// Unseen says why no machine description can reproduce it.
	Unseen string `yaml:"unseen"`
}

func loadCatalogue(t *testing.T) []entry {
	t.Helper()
	b, err := os.ReadFile("testdata/catalogue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	if err := strictYAML(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The reports that were gathered describe this many failures; all but ten can be
// told on one node by what is read there, and are reproduced.
const catalogueEntries, catalogueReproduced = 87, 79

// Every failure of the catalogue is reproduced, or says why it cannot be; and
// every description belongs to one.
func TestCatalogueIsCovered(t *testing.T) {
	catalogue, failures := loadCatalogue(t), loadFailures(t)
	seen := map[string]bool{}
	reproduced := 0
	for _, e := range catalogue {
		n := len(descriptions(failures, e.ID))
		switch {
		case seen[e.ID] || e.ID == "" || e.Title == "":
			t.Errorf("%q: twice, or without a title", e.ID)
		case n == 0 && e.Unseen == "":
			if !slices.Contains(pending, e.ID) {
				t.Errorf("%s is neither reproduced nor explained", e.ID)
			}
		case n > 0 && e.Unseen != "":
			t.Errorf("%s is reproduced, and said to be unseen", e.ID)
		case n > 0:
			reproduced++
		}
		seen[e.ID] = true
	}
	for _, f := range failures {
		if !seen[f.Failure] || !strings.HasPrefix(f.file, f.Failure+".") && !strings.HasPrefix(f.file, f.Failure+"-") {
			t.Errorf("%s: failure %q", f.file, f.Failure)
		}
	}
	if reproduced != catalogueReproduced || len(catalogue) != catalogueEntries {
		t.Errorf("%d of %d reproduced, want %d of %d", reproduced, len(catalogue), catalogueReproduced, catalogueEntries)
	}
}

// pending are entries whose checks are not written yet.
var pending = []string{ // one a line, so that branches merge
}

func descriptions(list []failure, id string) []failure {
	var out []failure
	for _, f := range list {
		if f.Failure == id {
			out = append(out, f)
		}
	}
	return out
}

// TestReferenceOfFailures holds docs/failure-modes.md to the catalogue and the
// descriptions, which TestFailures proves.
func TestReferenceOfFailures(t *testing.T) {
	const path = "../docs/failure-modes.md"
	want := failureReference(loadCatalogue(t), loadFailures(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/failure-modes.md is stale; run: make docs\n%s", diff)
	}
}

func failureReference(catalogue []entry, failures []failure) string {
	var b strings.Builder
	reproduced := 0
	for _, e := range catalogue {
		if len(descriptions(failures, e.ID)) > 0 {
			reproduced++
		}
	}
	b.WriteString("# Failure modes\n\n" +
		"Made from the tests by `make docs`; do not edit.\n\n" +
		"What breaks GPUDirect RDMA in the field, as people reported it, and the check that finds it. Each description in " +
		"[checks/testdata/failures](../checks/testdata/failures) puts the fault on a healthy machine; `go test ./checks -run TestFailures` " +
		"holds the verdict, that it is the first reason, that nothing else is said, and the fix.\n\n" +
		fmt.Sprintf("%d failures: %d are reproduced, by %d descriptions; %d cannot be told on one node by what is read there, and the table says why.\n\n",
			len(catalogue), reproduced, len(failures), len(catalogue)-reproduced) +
		"| Failure | What happens | Reported | Check | Verdict | Test |\n|---|---|---|---|---|---|\n")
	for _, e := range catalogue {
		found := descriptions(failures, e.ID)
		if len(found) == 0 {
			fmt.Fprintf(&b, "| %s | %s | %s | – | – | %s |\n", e.ID, e.Title, e.Refs, orElse(e.Unseen, "not yet"))
		}
		for _, f := range found {
			x := f.Expect[0]
			fmt.Fprintf(&b, "| %s | %s | %s | [%s](checks.md#%s) | %s | [%s](../checks/testdata/failures/%s): %s |\n",
				e.ID, e.Title, e.Refs, x.Check, x.Check, x.Verdict, strings.TrimSuffix(f.file, ".yaml"), f.file, f.Title)
		}
	}
	return b.String()
}
