package main

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: the output that the README shows is what the program prints.
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
	printed := map[string]bool{}
	for line := range strings.Lines(string(golden)) {
		printed[strings.TrimRight(line, "\n")] = true
	}
	shown := 0
	for line := range strings.Lines(output) {
		line, block := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !block || line == "…" {
			continue
		}
		if shown++; !printed[line] {
			t.Errorf("README.md shows a line that the program does not print:\n%s", line)
		}
	}
	if shown < 20 {
		t.Errorf("README.md shows %d lines of output, want a report", shown)
	}
}
