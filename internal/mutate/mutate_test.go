package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mutateSample(t *testing.T, accepted string, args ...string) (code int, out string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "accepted")
	if err := os.WriteFile(file, []byte(accepted), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	code, err := run(t.Context(), &b, append(append(args, "-accepted", file), "testdata/sample"))
	if err != nil {
		t.Fatal(err)
	}
	return code, b.String()
}

// The sample says of each of its parts whether its test covers it.
func TestSample(t *testing.T) {
	code, out := mutateSample(t, "")
	want := []string{
		"sample.go:14: n < 5 as <= survives",
		"sample.go:21: c.Lower(\"x\") left out survives",
		"sample.go:30: Pass taken for Fail in not reached survives (no test reaches it)",
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("lacks %q", w)
		}
	}
	// Comparisons: 2 bounds, 3 negations; "and" 2, HasPrefix 1, known 1, large and small 2,
	// what small and large return is their comparison; verdicts: Warn 2, Fail 2, Pass 1 and 1; Lower 1.
	if last := "18 mutants: 15 killed, 0 accepted, 3 survived\n"; code != 1 || !strings.HasSuffix(out, last) {
		t.Errorf("code %d, want 1 and %q", code, last)
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestAccepted(t *testing.T) {
	code, out := mutateSample(t, `
# What the sample leaves open.
sample.go small: n < 5 as <= # the test leaves it out
sample.go judge: c.Lower("x") left out # it does nothing
sample.go never: Pass taken for Fail in not reached # nobody calls it
`)
	if code != 0 || !strings.HasSuffix(out, "15 killed, 3 accepted, 0 survived\n") {
		t.Errorf("code %d: %s", code, out)
	}
	// One that is accepted and killed is not accepted any more.
	code, out = mutateSample(t, "sample.go large: n >= 10 negated # wrong\n")
	if code != 1 || !strings.Contains(out, "accepted, and no survivor: sample.go large: n >= 10 negated") {
		t.Errorf("code %d: %s", code, out)
	}
	// Only those of an earlier run's output.
	again := filepath.Join(t.TempDir(), "again")
	if err := os.WriteFile(again, []byte("sample.go:14: n < 5 as <= survives\n\tsample.go small: n < 5 as <=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, out = mutateSample(t, "", "-again", again); !strings.HasSuffix(out, "\n1 mutants: 0 killed, 0 accepted, 1 survived\n") {
		t.Errorf("again: %s", out)
	}
	if _, err := readAccepted(filepath.Join("testdata", "sample", "sample.go")); err == nil {
		t.Error("lines without a reason are taken")
	}
}
