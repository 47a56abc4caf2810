package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/topo"
)

// One cause over sixteen pairs is one line, one block of evidence and one fix,
// with every pair named; -v draws each.
func TestOneCauseOnce(t *testing.T) {
	o := checks.Outcome{Verdict: checks.Fail, ExitCode: 1, Counts: map[checks.Verdict]int{checks.Fail: 16}}
	for i := range 16 {
		fix := "sudo modprobe nvidia"
		if i == 15 {
			fix = "sudo modprobe another"
		}
		o.Findings = append(o.Findings, checks.Finding{
			Check: "gdr-way", Subject: fmt.Sprintf("GPU%d mlx5_%d", i, i), Verdict: checks.Fail, Severity: checks.SeverityError,
			Message:  "the NVIDIA driver is not loaded",
			Evidence: []checks.Evidence{{Name: "driver", Got: "absent", Source: "/proc/driver/nvidia/version"}},
			Fix:      []string{fix},
		})
	}
	note := checks.Finding{Check: "rdma-link-errors", Verdict: checks.Info, Rung: checks.RungPort, Message: "nothing since the last reboot"}
	for _, port := range []string{"mlx5_0/1", "mlx5_1/1"} {
		note.Subject = port
		o.Findings = append(o.Findings, note)
	}
	for _, tt := range []struct {
		verbose                    bool
		messages, evidence, others int
	}{
		{false, 1, 1, 1},
		{true, 16, 16, 0},
	} {
		var buf bytes.Buffer
		if err := CheckTable(&buf, NewCheck(machine(), o, nil, nil, "1"), Style{Verbose: tt.verbose}); err != nil {
			t.Fatal(err)
		}
		out := buf.String()
		for text, want := range map[string]int{
			"nothing since the last reboot":                  (tt.messages + 7) / 8,
			"the NVIDIA driver is not loaded":                tt.messages,
			"/proc/driver/nvidia/version":                    tt.evidence,
			"Likewise for GPU15 mlx5_15 (-v writes out each": tt.others,
		} {
			if got := strings.Count(out, text); got != want {
				t.Errorf("verbose %v: %q %d times, want %d\n%s", tt.verbose, text, got, want, out)
			}
		}
		for i := range 16 {
			if name := fmt.Sprintf("GPU%d mlx5_%d", i, i); !strings.Contains(strings.Join(strings.Fields(out), " "), name) {
				t.Errorf("verbose %v: %s is not named", tt.verbose, name)
			}
		}
	}
}

// A script finds every key that the document promises, whatever there is to say.
func TestKeysAlwaysThere(t *testing.T) {
	o := checks.Outcome{Findings: []checks.Finding{{Check: "c", Subject: "node", Evidence: []checks.Evidence{{Name: "n"}}}, {Check: "d", Subject: "node"}}}
	text, err := json.Marshal(NewCheck(&topo.Machine{}, o, nil, nil, "1"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Summary  struct{ Counts map[string]int }
		Findings []map[string]any
		NotSeen  []string `json:"not_seen"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, f := range doc.Findings {
		for _, key := range []string{"check", "subject", "verdict", "severity", "message", "evidence", "why", "fix", "refs", "blocked_by"} {
			if f[key] == nil {
				t.Errorf("%v: %s is missing or null", f["check"], key)
			}
		}
	}
	for _, v := range []string{"pass", "warn", "fail", "unknown", "info", "not_applicable", "blocked"} {
		if _, ok := doc.Summary.Counts[v]; !ok {
			t.Errorf("no count of %s", v)
		}
	}
	row := doc.Findings[0]["evidence"].([]any)[0].(map[string]any)
	for _, key := range []string{"name", "got", "want", "source"} {
		if row[key] == nil {
			t.Errorf("evidence without %s", key)
		}
	}
	pair, err := json.Marshal(topo.Pair{GPU: "GPU0", NIC: "mlx5_0"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ceiling_bytes_per_sec":null`, `"best_bytes_per_sec":null`, `"limited_by":""`, `"preferred":false`} {
		if !strings.Contains(string(pair), want) {
			t.Errorf("no %s in %s", want, pair)
		}
	}
	pair, _ = json.Marshal(topo.Pair{CeilingBytesPerSec: 5e9})
	if !strings.Contains(string(pair), `"ceiling_bytes_per_sec":5000000000`) || strings.Count(string(pair), "ceiling_bytes_per_sec") != 1 {
		t.Errorf("the ceiling is not in %s", pair)
	}
}

func TestSubjects(t *testing.T) {
	for want, ids := range map[string][]string{
		"a, b":                         {"a", "b"},
		"write x (3 times), read x":    {"write x", "read x", "write x (2)", "write x (3)"},
		"write x (2)":                  {"write x (2)"},
		"node (rack 2) (a), link (up)": {"node (rack 2) (a)", "link (up)"},
	} {
		var list []checks.Finding
		for _, id := range ids {
			list = append(list, checks.Finding{Subject: id})
		}
		if got := subjects(list); got != want {
			t.Errorf("%q: %q, want %q", ids, got, want)
		}
	}
}
