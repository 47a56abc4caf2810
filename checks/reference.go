package checks

import (
	"fmt"
	"strings"
)

//go:generate go test . -run TestReference -update

// Reference writes the manual of all checks as Markdown: docs/checks.md.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Checks\n\n" +
		"Made from the checks themselves by `make docs`; do not edit.\n\n" +
		"`--only` and `--skip` take IDs and areas. A failed check of severity *error* makes the node not ready; " +
		"*warning* means that it works with a cost.\n\n")
	b.WriteString("| Check | Area | Severity | Rung | It passes when |\n|---|---|---|---|---|\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n", c.ID, c.ID, c.Area, c.Severity, orElse(string(c.Rung), "–"), c.Title)
	}
	for _, c := range all {
		b.WriteString("\n" + c.Reference())
	}
	b.WriteString("\n## Verdicts and exit codes\n\n" +
		"| Result | Exit code | Nagios | node-problem-detector | Meaning |\n|---|---|---|---|---|\n")
	for _, e := range ExitCodes {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s |\n", e.Result, e.Code, e.Nagios, e.NPD, e.Meaning)
	}
	return b.String()
}

// Reference is one check's part of the manual, Markdown that reads well as text.
func (c Check) Reference() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\nPasses when %s. Severity %s, area %s", c.ID, c.Title, c.Severity, c.Area)
	if c.Rung != RungNone {
		fmt.Fprintf(&b, ", rung %s", c.Rung)
	}
	b.WriteString(".")
	if len(c.DependsOn) > 0 {
		fmt.Fprintf(&b, " Not judged where %s failed.", strings.Join(c.DependsOn, ", "))
	}
	fmt.Fprintf(&b, "\n\nWhy: %s\n\nFix:\n\n", c.Why)
	for _, f := range c.Fix {
		b.WriteString("- " + f + "\n")
	}
	b.WriteString("\nSee:\n\n")
	for _, r := range c.Refs {
		b.WriteString("- <" + r + ">\n")
	}
	return b.String()
}
