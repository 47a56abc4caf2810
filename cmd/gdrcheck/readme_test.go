package main

import (
	"os"
	"regexp"
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

// Every command line that README.md and docs/perf.md show is one that the program
// takes.
func TestShownCommands(t *testing.T) {
	shown := 0
	for _, file := range []string{"../../README.md", "../../docs/perf.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("gdrcheck ((?:check|topo|perf|rdma|explain|snapshot|policy|list)[^`#;\n]*)").FindAllStringSubmatch(string(text), -1) {
			args := strings.Fields(strings.Split(m[1], ", ")[0])
			cmd, rest, err := newRootCommand(quiet()).Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && (cmd.Args != nil && !strings.Contains(m[1], "…")) {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: gdrcheck %s: %v", file, m[1], err)
			}
			shown++
		}
	}
	if shown < 25 {
		t.Errorf("%d command lines were found", shown)
	}
}
