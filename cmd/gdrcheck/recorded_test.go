package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// h200x2 is a virtual machine with two H200 and no RDMA NIC, recorded as root
// with snapshot --redact.
const h200x2 = "testdata/h200x2.rec"

// What is wanted here is what nvidia-smi (topo -m, -q) and the CUDA driver
// answered on that machine.
func TestRecordedH200(t *testing.T) {
	o := sourceOptions{From: h200x2, Timeout: defaultTimeout}
	m, _, err := o.machine(t.Context(), collect.All())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.GPU.GPUs) != 2 {
		t.Fatalf("%d GPUs", len(m.GPU.GPUs))
	}
	if v, f := m.GPU.NVIDIA.Version.V, m.GPU.NVIDIA.Flavour.V; v != "580.159.04" || f != "open" {
		t.Errorf("driver %s %s", v, f)
	}
	for i, g := range m.GPU.GPUs {
		if want := []string{"0000:00:06.0", "0000:00:07.0"}[i]; g.Addr.String() != want || g.Name != "NVIDIA H200" {
			t.Errorf("GPU%d is %s at %s", i, g.Name, g.Addr)
		}
		const mib = 1 << 20
		if bar1 := g.NVML.V.BAR1.V.TotalBytes; bar1 != 262144*mib {
			t.Errorf("GPU%d: BAR1 of %d MiB", i, bar1/mib)
		}
		type attributes struct{ a110, a116, a117, a118, a124 int }
		c := g.CUDA.V
		got := attributes{c.RDMAWithVMM.V, c.GPUDirectRDMA.V, c.FlushWritesOptions.V, c.WritesOrdering.V, c.DMABuf.V}
		if got != (attributes{1, 1, 1, 100, 1}) {
			t.Errorf("GPU%d: attributes %+v", i, got)
		}
		if link := g.NVML.V.Link.V; link != (pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}) {
			t.Errorf("GPU%d: link %+v", i, link)
		}
	}
	if class := topo.New(m).Class("GPU0", "GPU1"); class != "NV18" {
		t.Errorf("GPU0 to GPU1: %s", class)
	}
	outcome, err := checks.Run(m, checks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]checks.Verdict{}
	for _, f := range outcome.Findings {
		verdicts[f.Check] = f.Verdict
	}
	for check, want := range map[string]checks.Verdict{
		"gpu-present": checks.Pass, "bar1-size": checks.Pass, "gpu-direct-attribute": checks.Pass, "rdma-device-present": checks.Fail,
	} {
		if verdicts[check] != want {
			t.Errorf("%s: %s, want %s", check, verdicts[check], want)
		}
	}
	if outcome.ExitCode != 1 {
		t.Errorf("exit code %d", outcome.ExitCode)
	}
	for _, g := range m.GPU.GPUs {
		if v := g.NVML.V.Fabric; v.V != (gpu.Fabric{State: "completed"}) {
			t.Errorf("fabric %+v", v)
		}
	}
}

// A redacted recording is judged as the plain one: the same findings on the same
// subjects, and the same paths.
func TestRedactedVerdicts(t *testing.T) {
	dir := t.TempDir()
	example := filepath.Join(dir, "example.rec")
	if err := os.WriteFile(example, exampleRecording, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string][]string{
		"example":      {"--from", example},
		"tree":         {"--root", machineDir(t, "eight-gpu", render.EightGPU)},
		"H200":         {"--from", h200x2},
		"this machine": nil,
	} {
		t.Run(name, func(t *testing.T) {
			plain, redacted := filepath.Join(t.TempDir(), "plain.rec"), filepath.Join(t.TempDir(), "redacted.rec")
			for _, args := range [][]string{
				append([]string{"snapshot", "-o", plain}, source...), {"snapshot", "--from", plain, "--redact", "-o", redacted},
			} {
				if _, code := mustRun(t, args...); code != 0 {
					t.Fatalf("%v: exit code %d", args, code)
				}
			}
			if diff := cmp.Diff(judged(t, plain), judged(t, redacted)); diff != "" {
				t.Errorf("(-plain +redacted):\n%s", diff)
			}
			a, b := read(t, plain), read(t, redacted)
			if bytes.Equal(a, b) {
				t.Error("redaction changed nothing")
			}
		})
	}
}

// judged is what must not depend on names: who is judged how.
func judged(t *testing.T, file string) any {
	t.Helper()
	o := sourceOptions{From: file, Timeout: defaultTimeout}
	m, _, err := o.machine(t.Context(), collect.All())
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := checks.Run(m, checks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Check, Subject string
		Verdict        checks.Verdict
		Severity       checks.Severity
	}
	var rows []row
	for _, f := range outcome.Findings {
		rows = append(rows, row{f.Check, f.Subject, f.Verdict, f.Severity})
	}
	classes := map[string]topo.Class{}
	for _, p := range topo.New(m).Pairs() {
		classes[p.GPU+" "+p.NIC] = p.Path
	}
	return []any{rows, classes, outcome.Verdict, outcome.Ladders, outcome.Rules}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
