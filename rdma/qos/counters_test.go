package qos

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every line of the table is one, and its sign is known.
func TestCounterTable(t *testing.T) {
	lines := 0
	for line := range strings.Lines(countersTSV) {
		if s := strings.TrimSpace(line); s != "" && s[0] != '#' {
			lines++
		}
	}
	rows := parseCounterTable(countersTSV)
	if len(rows) != lines || lines == 0 {
		t.Errorf("%d of %d lines were read", len(rows), lines)
	}
	seen := map[string]bool{}
	for line := range strings.SplitSeq(countersTSV, "\n") {
		f := strings.Split(line, "\t")
		if _, err := strconv.ParseUint(f[len(f)-1], 10, 64); len(f) == 5 && f[4] != "" && err != nil {
			t.Errorf("%q: no number at its end", line)
		}
	}
	for _, r := range rows {
		if !slices.Contains(Signs, r.Sign) || r.Counted == "" || seen[r.pattern] {
			t.Errorf("%+v", r)
		}
		seen[r.pattern] = true
	}
}
