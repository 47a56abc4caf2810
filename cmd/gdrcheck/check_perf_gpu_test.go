package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

// libraryDoubles builds the doubles of libibverbs, whose device is stub0, and of
// libcuda, and puts them in the libraries' places.
func libraryDoubles(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	verbs, cuda := filepath.Join(dir, "libibverbs.so"), filepath.Join(dir, "libcuda.so")
	const of = "../../rdma/verbs/testdata/"
	parts, err := filepath.Glob(of + "provider*.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		append([]string{"-o", verbs, "-Wl,--version-script=" + of + "provider.map"}, parts...),
		{"-w", "-o", cuda, "../../internal/mem/testdata/libcuda.c"},
	} {
		if b, err := exec.CommandContext(t.Context(), "cc", append([]string{"-shared", "-fPIC", "-O1"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, b)
		}
	}
	t.Setenv(worker.VerbsLibraryEnv, verbs)
	t.Setenv(worker.CUDALibraryEnv, cuda)
	t.Setenv("GDR_STUB_CUDA_LIBRARY", cuda)
}

// gpuNode is a node with one NIC and the GPUs of the doubles. busy is why the GPUs
// were not probed; empty: they were, by the doubles.
func gpuNode(t *testing.T, busy string) *topo.Machine {
	t.Helper()
	m := nodeMachine("stub0")
	var args []string
	for i, text := range []string{"0000:10:00.0", "0000:30:00.0"} {
		addr, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Index: i, Addr: addr, Vendor: gpu.VendorNVIDIA})
		m.Registrations = append(m.Registrations, rdma.Registration{GPU: addr, Device: "stub0"})
		args = append(args, rdma.RegistrationAsk{GPU: addr, Device: "stub0", Kinds: []string{"cuda"}, Ways: []string{"dmabuf", "peermem"}}.String())
	}
	if busy != "" {
		for i := range m.Registrations {
			m.Registrations[i].Probe = fact.FromError[rdma.RegistrationProbe](fmt.Errorf("%s: %w", busy, fact.ErrNotCollected), fact.AskRegistration)
		}
		return m
	}
	recs, err := (&worker.Client{}).Ask(t.Context(), fact.AskRegistration, args...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range args {
		for _, r := range recs {
			if r.Subject == args[i] {
				m.Registrations[i].Probe = fact.Decode[rdma.RegistrationProbe](r)
			}
		}
	}
	return m
}

// Over doubles of libibverbs and libcuda, in workers as ever: a port is measured in
// the memory of its nearest GPU by the way that works, and in host memory beside it;
// where no way does, or others use the GPU, in host memory, and the finding says so.
func TestMeasureNodeGPU(t *testing.T) {
	libraryDoubles(t)
	const gpu0, host = "cuda of 0000:10:00.0 by ", "host"
	both := func(way string) []string {
		return []string{
			"write bandwidth " + gpu0 + way, "write bandwidth host (reference)",
			"write_imm latency " + gpu0 + way, "write_imm latency host (reference)",
		}
	}
	hostOnly := []string{"write bandwidth " + host, "write latency " + host}
	for name, tt := range map[string]struct {
		env   map[string]string
		busy  string
		want  []string
		ports string
		table string
	}{
		"dma-buf works": {nil, "", both("dmabuf"), "pass: measured with itself in the memory of GPU0, and beside it in host memory", "stub0/1  GPU0"},
		"only peermem works": {
			map[string]string{"GDR_STUB_DMABUF": "95"}, "", both("peermem"),
			"pass: measured with itself in the memory of GPU0, and beside it in host memory", "stub0/1  GPU0",
		},
		"no way works": {
			map[string]string{"GDR_STUB_DMABUF": "95", "GDR_STUB_PEERMEM": "14"}, "", hostOnly,
			"info: measured with itself, in host memory alone, not in that of GPU0: its memory cannot be registered: dmabuf: ibv_reg_dmabuf_mr on stub0: driver or provider have no dma-buf registration",
			"stub0/1: in host memory, not in that of GPU0",
		},
		"a busy GPU": {
			nil, "the GPU is in use by 2 processes", hostOnly,
			"unknown: measured with itself, in host memory alone; cannot tell what it reaches in that of GPU0: whether its memory can be registered is not known: the GPU is in use by 2 processes",
			"stub0/1: in host memory; cannot tell what it reaches in that of GPU0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			m := gpuNode(t, tt.busy)
			b := nodeDouble(t, map[string]uint64{}, nil)
			b.newEngine, b.simulated = func() perftest.Engine { return &worker.Perf{} }, false
			what, outcome := measureTest(t, b, m, nodePerf{Budget: 30 * time.Second})
			var got []string
			for _, r := range what.Results {
				if !r.Good() || !r.Simulated {
					t.Errorf("%v, simulated %t", r.Failure, r.Simulated)
				}
				memory := r.Initiator.Memory.Kind
				if g := r.Initiator.Memory.GPU; g != nil {
					memory += fmt.Sprintf(" of %s by %s", g.Addr, r.Initiator.Memory.Way)
				}
				if r.Reference {
					memory += " (reference)"
				}
				got = append(got, fmt.Sprintf("%s %s %s", r.Plan.Operation, r.Plan.Measure, memory))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("measured (-want +got)\n%s", diff)
			}
			if got := verdictOf(outcome, "perf-ports", "stub0/1"); !strings.HasPrefix(got, tt.ports) {
				t.Error(got)
			}
			var table bytes.Buffer
			doc := report.NewCheck(m, outcome, what.Results, what.Rails, "test")
			if err := report.CheckTable(&table, doc, report.Style{Width: 200}); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{tt.table, "imulated"} {
				if !strings.Contains(table.String(), text) {
					t.Errorf("no %q in\n%s", text, table.String())
				}
			}
			if !doc.Simulated {
				t.Error("the document of doubles does not say so")
			}
			var text bytes.Buffer
			if err := report.JSON(&text, doc); err != nil {
				t.Fatal(err)
			}
			promised(t, text.Bytes())
		})
	}
}

// Where it is not known whether there are GPUs, or what their registration gave, a
// port says so and does not pass as one of a node without GPUs; a part that has
// nothing to do with GPUs changes nothing.
func TestMeasureNodeUnseenGPU(t *testing.T) {
	lost := func(part string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.Problems = append(m.Problems, topo.Problem{Part: "qos", Reason: "slow, too"}, topo.Problem{Part: part, Reason: "it took longer than 15s"})
		}
	}
	class := func(state fact.State, reason string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			f := pci.Function{Class: fact.Missing[pci.Class](state, "class", reason)}
			f.Address, _ = pci.ParseAddress("0000:3b:00.0")
			m.PCI = append(m.PCI, f)
		}
	}
	const cannot = "unknown: measured with itself, in host memory alone; cannot tell whether there is a GPU to measure: "
	for name, tt := range map[string]struct {
		spoil func(*topo.Machine)
		want  string
	}{
		"pci lost":            {lost("pci"), cannot + "pci could not be collected: it took longer than 15s"},
		"gpu lost":            {lost("gpu"), cannot + "gpu could not be collected: it took longer than 15s"},
		"class denied":        {class(fact.Denied, "permission denied"), cannot + "the class of 0000:3b:00.0 was not seen: permission denied"},
		"class failed":        {class(fact.Failed, "input/output error"), cannot + "the class of 0000:3b:00.0 was not seen: input/output error"},
		"class not collected": {class(fact.NotCollected, "no time"), cannot + "the class of 0000:3b:00.0 was not seen: no time"},
		"host lost":           {lost("host"), "pass: measured with itself"},
		"no GPU":              {func(*topo.Machine) {}, "pass: measured with itself"},
		"registration lost": {func(m *topo.Machine) {
			m.GPU.GPUs = []gpu.GPU{{Vendor: gpu.VendorNVIDIA}}
			lost("registration")(m)
		}, "unknown: measured with itself, in host memory alone; cannot tell what it reaches in that of GPU0: whether its memory can be registered is not known: it could not be collected: it took longer than 15s"},
	} {
		t.Run(name, func(t *testing.T) {
			m := nodeMachine("stub0")
			tt.spoil(m)
			what, outcome := measureTest(t, nodeDouble(t, map[string]uint64{}, nil), m, nodePerf{Budget: 2 * time.Second})
			if len(what.Results) == 0 {
				t.Error("nothing was measured")
			}
			got := verdictOf(outcome, "perf-ports", "stub0/1")
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if unknown := strings.HasPrefix(tt.want, "unknown"); unknown != (outcome.ExitCode == 3) {
				t.Errorf("exit code %d", outcome.ExitCode)
			}
			var table bytes.Buffer
			if err := report.CheckTable(&table, report.NewCheck(m, outcome, what.Results, what.Rails, "test"), report.Style{Width: 300}); err != nil {
				t.Fatal(err)
			}
			if _, why, ok := strings.Cut(tt.want, ": measured with itself, in host memory alone"); ok && !strings.Contains(strings.Join(strings.Fields(table.String()), " "), "stub0/1: in host memory"+why) {
				t.Errorf("the table does not say why:\n%s", table.String())
			}
		})
	}
}

// What a GPU reaches of what host memory does is told where it was measured.
func TestMemoryBesideHost(t *testing.T) {
	result := func(gbps float64, reference bool) *perftest.Result {
		return &perftest.Result{
			Rail: "mlx5_0/1", Peer: "mlx5_0/1", Plan: perftest.NewPlan(perftest.Write, perftest.Bandwidth), Reference: reference,
			Steps: []perftest.Step{{SizeBytes: 65536, Forward: &perftest.Rate{BytesPerSec: gbps * 1e9 / 8}}},
		}
	}
	o, err := checks.Run(&topo.Machine{}, checks.Options{
		Only:    []string{"perf-ports", "perf-bandwidth"},
		Results: []*perftest.Result{result(300, false), result(400, true)},
		Rails:   []perftest.RailPair{{Rail: "mlx5_0/1", Peer: "mlx5_0/1", GPU: "GPU3"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := verdictOf(o, "perf-ports", "mlx5_0/1"); got != "pass: measured with itself in the memory of GPU3, and beside it in host memory, of which it reaches 75 %" {
		t.Error(got)
	}
	for _, subject := range []string{"write bandwidth mlx5_0/1", "write bandwidth mlx5_0/1 in host memory"} {
		if got := verdictOf(o, "perf-bandwidth", subject); got == "no finding" {
			t.Errorf("%s: %s", subject, got)
		}
	}
}
