package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: the output that the README shows is what the program prints. A …
// within a line stands for a number that each new check changes.
func TestReadme(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/example.1.table")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "check --example`")
	output, _, _ := strings.Cut(rest, "\n## ")
	printed := func(shown string) bool {
		start, end, cut := strings.Cut(shown, "…")
		for line := range strings.Lines(string(golden)) {
			line = strings.TrimRight(line, "\n")
			if rest, ok := strings.CutPrefix(line, start); line == shown || cut && ok && strings.HasSuffix(rest, end) {
				return true
			}
		}
		return false
	}
	shown := 0
	for line := range strings.Lines(output) {
		line, block := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !block || line == "…" {
			continue
		}
		if shown++; !printed(line) {
			t.Errorf("README.md shows a line that the program does not print:\n%s", line)
		}
	}
	if shown < 20 {
		t.Errorf("README.md shows %d lines of output, want a report", shown)
	}
}
