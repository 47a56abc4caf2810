package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	validate "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

// copies runs perf copy on a machine, in workers as ever. It is interrupted as the
// n-th worker is wanted; 0: never.
func copies(t *testing.T, m *topo.Machine, n int, line string) (code int, stdout, stderr string) {
	t.Helper()
	old := perf
	t.Cleanup(func() { perf = old })
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var wanted atomic.Int32
	perf = &perfBackend{
		newEngine: func() perftest.Engine {
			if int(wanted.Add(1)) == n {
				interrupt()
			}
			return &worker.Perf{}
		},
		collect: func(context.Context, time.Duration) (*topo.Machine, error) { return m, nil },
	}
	s := quiet()
	code = guard(s, func() error {
		root := newRootCommand(s)
		root.SetArgs(strings.Fields("perf copy " + line))
		return root.ExecuteContext(ctx)
	})
	return code, fmt.Sprint(s.Out), fmt.Sprint(s.Err)
}

func copyNode(t *testing.T, addrs ...string) *topo.Machine {
	t.Helper()
	m := nodeMachine()
	for i, text := range addrs {
		addr, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Index: i, Addr: addr, Vendor: gpu.VendorNVIDIA})
	}
	return m
}

// Over a double of libcuda: each GPU out of its own memory and into it, alone and
// with the other, and every copy arrives.
func TestCopyAll(t *testing.T) {
	libraryDoubles(t)
	m := copyNode(t, "0000:10:00.0", "0000:30:00.0")
	const few = "--all --count 20 --warm-up 0 --size 64K,4K"
	code, text, problem := copies(t, m, 0, few+" -o json")
	if code != 0 || problem != "" {
		t.Fatalf("exit code %d, %s\n%s", code, problem, text)
	}
	if v, err := validate.UnmarshalJSON(strings.NewReader(text)); err != nil || compileSchema(t, "perf").Validate(v) != nil {
		t.Errorf("not what the schema says: %v, %v", err, compileSchema(t, "perf").Validate(v))
	}
	var doc report.Perf
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range doc.Results {
		end, way := r.Responder, "to"
		if r.CopiedOut() {
			end, way = r.Initiator, "from"
		}
		if !r.Good() || len(r.Steps) != 2 || !r.Simulated {
			t.Errorf("%+v", r)
		}
		got = append(got, fmt.Sprintf("%s %s %s (%s) %d", r.Plan.Measure, way, r.Rail, end.Memory.GPU.Addr, r.Together))
	}
	const gpu0, gpu1 = "GPU0 (0000:10:00.0)", "GPU1 (0000:30:00.0)"
	if diff := cmp.Diff([]string{
		"bandwidth from " + gpu0 + " 0", "bandwidth to " + gpu0 + " 0", "bandwidth from " + gpu1 + " 0", "bandwidth to " + gpu1 + " 0",
		"bandwidth from " + gpu0 + " 2", "bandwidth from " + gpu1 + " 2", "bandwidth to " + gpu0 + " 2", "bandwidth to " + gpu1 + " 2",
		"latency from " + gpu0 + " 0", "latency to " + gpu0 + " 0", "latency from " + gpu1 + " 0", "latency to " + gpu1 + " 0",
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	subjects := map[string]bool{}
	for _, f := range doc.Findings {
		subjects[f.Check+": "+f.Subject] = true
	}
	for _, s := range []string{
		"perf-data: copy bandwidth to pinned host memory GPU1", "perf-data: copy bandwidth from pinned host memory GPU0 with all others",
		"perf-shared: copies to pinned host memory of 2 GPUs", "perf-shared: copies from pinned host memory of 2 GPUs",
	} {
		if !subjects[s] {
			t.Errorf("no finding %q", s)
		}
	}

	code, text, _ = copies(t, m, 0, few)
	for _, want := range []string{
		`(?m)^  GPU +from GPU Gb/s +to GPU Gb/s +from GPU us +to GPU us$`,
		`(?m)^  GPU[01]( +[0-9.]+ / [0-9.]+){2}( +[0-9.]+){2}$`, `(?m)^  all( +[0-9.]+ / [0-9.]+){2}$`, `copies of 65536 bytes alone / with all GPUs`, `single\s+copies of 4096`,
	} {
		if code != 0 || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("exit code %d, no %s in\n%s", code, want, text)
		}
	}
}

// One GPU that cannot be opened hides nothing of the other, and is no pass.
func TestCopyAllOneBroken(t *testing.T) {
	libraryDoubles(t)
	code, text, problem := copies(t, copyNode(t, "0000:10:00.0", "0000:99:00.0"), 0, "--all --count 20 --size 64K --measure bandwidth")
	for _, want := range []string{`(?m)^  GPU0( +[0-9.]+ / [0-9.]+){2}$`, `(?m)^  GPU1( +x / x){2}$`, `x GPU1, from GPU Gb/s: initiator: `, `NOT READY`} {
		if code != 1 || problem != "" || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("exit code %d, %s, no %s in\n%s", code, problem, want, text)
		}
	}
}

// What cannot be measured is told, on standard error alone.
func TestCopyAllRefused(t *testing.T) {
	unseen := nodeMachine()
	unseen.Problems = []topo.Problem{{Part: "gpu", Reason: "it hung"}}
	for _, tt := range []struct {
		machine *topo.Machine
		line    string
		code    int
		want    string
	}{
		{copyNode(t), "--all", 2, "there is no GPU here"},
		{copyNode(t), "--all --mem cuda", 2, "there is no NVIDIA GPU here"},
		{unseen, "--all", 3, "could not be collected: it hung"},
		{copyNode(t, "0000:10:00.0"), "--all --mem rocm", 2, "there is no AMD GPU here"},
		{copyNode(t, "0000:10:00.0"), "--all --mem host", 2, "--mem host does not go with it"},
		{copyNode(t, "0000:10:00.0"), "--all --gpu 0", 2, "--gpu does not go with it"},
		{copyNode(t, "0000:10:00.0"), "--all --cpu 0", 2, "--cpu does not go with it"},
	} {
		code, out, problem := copies(t, tt.machine, 0, tt.line)
		if code != tt.code || out != "" || !strings.Contains(problem, tt.want) || bytes.Count([]byte(problem), []byte("\n")) != 1 {
			t.Errorf("%s: exit code %d, %q, %q", tt.line, code, out, problem)
		}
	}
}

// What was copied before an interruption is written, and is never all that is well.
func TestCopyInterrupted(t *testing.T) {
	libraryDoubles(t)
	m := copyNode(t, "0000:10:00.0", "0000:30:00.0")
	for _, tt := range []struct {
		line        string
		at          int
		whole, gone int
	}{
		{"--all --count 20 --size 4K", 3, 2, 10},
		{"--all --count 20 --size 4K", 6, 4, 8}, // among those at the same time, of which none counts
		{"--gpu 0 --count 20 --size 4K", 2, 1, 3},
	} {
		code, text, problem := copies(t, m, tt.at, tt.line+" -o json")
		var doc report.Perf
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%s: exit code %d, %s: %v", tt.line, code, problem, err)
		}
		want := fmt.Sprintf("gdrcheck: %d of %d tests were not made: interrupted\n", tt.gone, tt.whole+tt.gone)
		if code != 3 || doc.ExitCode != 3 || len(doc.Results) != tt.whole || problem != want {
			t.Errorf("%s: exit code %d, %d results, %q, want %q", tt.line, code, len(doc.Results), problem, want)
		}
	}
}

// Sizes that were given are measured, also where they are those of a single GPU.
func TestCopyAllSizes(t *testing.T) {
	libraryDoubles(t)
	m := copyNode(t, "0000:10:00.0")
	for line, want := range map[string][]int{
		"":                     {allCopyBytes},
		" --size " + copySizes: {4 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20},
	} {
		_, text, problem := copies(t, m, 0, "--all --measure bandwidth --count 8 --warm-up 0 --chunks 1 -o json"+line)
		var doc report.Perf
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatalf("%s: %v", problem, err)
		}
		if diff := cmp.Diff(want, doc.Results[0].Plan.SizesBytes); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}
