package report

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/checks"
)

// What a failed route keeps from being judged is one line for each route and cause,
// whatever the number of checks and measurements.
func TestBlockedByRoute(t *testing.T) {
	var findings []checks.Finding
	blocker := func(subject, cause string) {
		findings = append(findings, checks.Finding{Check: "perf-setup", Subject: subject, Verdict: checks.Fail, Message: cause})
		for _, c := range []string{"perf-bandwidth", "perf-data", "perf-counters"} {
			findings = append(findings, checks.Finding{Check: c, Subject: subject, Verdict: checks.Blocked, BlockedBy: "perf-setup " + subject, Message: "not judged: perf-setup " + subject + " comes first"})
		}
	}
	blocker("write bandwidth mlx5_0/1", "no memory")
	blocker("write_imm latency mlx5_0/1", "no memory")
	blocker("write bandwidth staged mlx5_0/1", "no memory")
	blocker("write bandwidth tcp mlx5_0/1", "no route to host")
	p := &page{Style: Style{Width: 300}}
	p.blocked(findings)
	want := []string{
		"- write bandwidth mlx5_0/1, write_imm latency mlx5_0/1: not judged by perf-bandwidth, perf-data, perf-counters, since perf-setup failed: no memory",
		"- write bandwidth staged mlx5_0/1: not judged by perf-bandwidth, perf-data, perf-counters, since perf-setup failed: no memory",
		"- write bandwidth tcp mlx5_0/1: not judged by perf-bandwidth, perf-data, perf-counters, since perf-setup failed: no route to host",
	}
	got := strings.ReplaceAll(p.String(), "\n  ", " ") // a line that was wrapped
	if got != strings.Join(want, "\n")+"\n" {
		t.Errorf("got\n%s", got)
	}
}
