package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// The example node's own description says where its devices are (exampleNode):
// GPU n and mlx5_n share a switch, two pairs to a switch.
func TestChooseMemory(t *testing.T) {
	o := sourceOptions{Example: true, Timeout: defaultTimeout}
	m, _, err := o.machine(t.Context(), collect.All())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		nic   string
		ask   perftest.MemoryAsk
		kind  string
		way   perftest.Way
		gpu   int
		path  topo.Class
		fault string
	}{
		{nic: "mlx5_0", ask: perftest.MemoryAsk{}, kind: "host", gpu: -1},
		{nic: "mlx5_0", ask: perftest.MemoryAsk{Memory: "cuda"}, kind: "cuda", way: "auto", gpu: 0, path: topo.ClassPIX},
		{nic: "mlx5_5", ask: perftest.MemoryAsk{Memory: "auto"}, kind: "cuda", way: "auto", gpu: 5, path: topo.ClassPIX},
		{nic: "mlx5_5", ask: perftest.MemoryAsk{Memory: "cuda-vmm,peermem", GPU: "3"}, kind: "cuda-vmm", way: "peermem", gpu: 3, path: topo.ClassSYS},
		{nic: "mlx5_5", ask: perftest.MemoryAsk{GPU: "gpu4"}, kind: "cuda", way: "auto", gpu: 4},
		{nic: "mlx5_5", ask: perftest.MemoryAsk{GPU: strings.ToLower(gpuUUID(6))}, kind: "cuda", way: "auto", gpu: 6},
		{nic: "mlx5_0", ask: perftest.MemoryAsk{GPU: m.GPU.GPUs[7].Addr.String()}, kind: "cuda", way: "auto", gpu: 7, path: topo.ClassSYS},
		{nic: "mlx5_0", ask: perftest.MemoryAsk{Memory: "rocm"}, fault: "there is no AMD GPU here"},
		{nic: "mlx5_0", ask: perftest.MemoryAsk{Memory: "cuda", GPU: "8"}, fault: "there is no GPU 8 here; there are: GPU0 ("},
	} {
		l := perftest.NewLocal(tt.nic)
		kind, way, err := tt.ask.Parse()
		if err == nil && kind != perftest.MemoryHost {
			err = chooseMemory(m, &l, kind, way, tt.ask.GPU)
		}
		switch {
		case tt.fault != "":
			if err == nil || !strings.HasPrefix(err.Error(), tt.fault) {
				t.Errorf("%+v: %v, want %s", tt.ask, err, tt.fault)
			}
		case err != nil || l.Memory != tt.kind || l.Way != tt.way || (l.GPU == nil) != (tt.gpu < 0):
			t.Errorf("%s %+v: %+v, %v", tt.nic, tt.ask, l, err)
		case l.GPU != nil && (l.GPU.Index != tt.gpu || l.GPU.UUID != gpuUUID(tt.gpu) || tt.path != "" && l.GPU.Path != tt.path):
			t.Errorf("%s %+v: %+v", tt.nic, tt.ask, l.GPU)
		}
	}
	l := perftest.NewLocal("mlx5_0")
	if err := chooseMemory(&topo.Machine{}, &l, perftest.MemoryAuto, perftest.WayAuto, ""); err != nil || l.Memory != perftest.MemoryHost {
		t.Errorf("a node without a GPU: %+v, %v", l, err)
	}
}

func TestServerMemory(t *testing.T) {
	ask := func(memory, gpu string) perftest.MemoryAsk { return perftest.MemoryAsk{Memory: memory, GPU: gpu} }
	none := perftest.MemoryAsk{}
	for _, tt := range []struct{ server, client, want perftest.MemoryAsk }{
		{none, none, none},
		{none, ask("cuda", "1"), ask("cuda", "1")},
		{none, ask("auto", ""), ask("auto", "")},
		{ask("cuda", ""), none, ask("cuda", "")},
		{ask("cuda", ""), ask("auto", ""), ask("cuda", "")},
		{ask("cuda", "1"), ask("cuda", "1"), ask("cuda", "1")},
		{ask("cuda", "1"), ask("host", ""), ask("host", "")}, // what perf compare compares with
		{ask("", "1"), ask("auto", ""), ask("", "1")},
	} {
		if got, err := (&perfServerOptions{Memory: tt.server}).memory(tt.client); err != nil || got != tt.want {
			t.Errorf("started for %+v, asked for %+v: %+v, %v; want %+v", tt.server, tt.client, got, err, tt.want)
		}
	}
	for _, client := range []perftest.MemoryAsk{ask("cuda", ""), ask("cuda", "2"), ask("cuda,peermem", "1"), ask("auto", "2")} {
		if _, err := (&perfServerOptions{Memory: ask("cuda", "1")}).memory(client); err == nil || !strings.Contains(err.Error(), "started for memory cuda 1 alone") {
			t.Errorf("%+v: %v", client, err)
		}
	}
}

func FuzzMemoryAsk(f *testing.F) {
	f.Add("cuda,dmabuf", "0")
	f.Fuzz(func(t *testing.T, memory, gpu string) {
		kind, way, err := perftest.MemoryAsk{Memory: memory, GPU: gpu}.Parse()
		if err == nil && (kind == "" || way == "" && kind != perftest.MemoryHost) {
			t.Errorf("%q %q: %q %q", memory, gpu, kind, way)
		}
	})
}

func TestAdaptPlans(t *testing.T) {
	plan := func(op perftest.Operation, m perftest.Measure) perftest.Plan { return perftest.NewPlan(op, m) }
	plans := []perftest.Plan{plan(perftest.Write, perftest.Bandwidth), plan(perftest.Write, perftest.Latency), plan(perftest.Read, perftest.Latency)}
	for i, a := range adaptPlans(plans, false) {
		if a.Operation != plans[i].Operation || a.Note != "" {
			t.Errorf("host: %+v", a)
		}
	}
	got := adaptPlans(plans, true)
	if len(got) != 3 || got[1].Operation != perftest.WriteImm || got[1].Note == "" || got[0].Operation != perftest.Write || got[0].Note != "" {
		t.Errorf("GPU: %+v", got)
	}
	if got = adaptPlans(append(plans, plan(perftest.WriteImm, perftest.Latency)), true); len(got) != 3 || got[2].Operation != perftest.WriteImm || got[2].Note != "" {
		t.Errorf("asked for anyway: %+v", got)
	}
}

// What a GPU does while it is measured is read from NVML, of that GPU.
func TestGPULoad(t *testing.T) {
	addr, err := pci.ParseAddress("0000:30:00.0")
	if err != nil {
		t.Fatal(err)
	}
	link := pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}
	device := func(bus uint8, l pci.Link) json.RawMessage {
		b, err := json.Marshal(gpu.NVMLDevice{Addr: pci.Address{Bus: bus}, Link: fact.Of(l, "x"), Clocks: fact.Of(gpu.Clocks{SMMHz: 7}, "x"), PerformanceState: fact.Of(0, "x")})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var asked []string
	b := &perfBackend{askNVML: func(_ context.Context, args ...string) ([]fact.Record, error) {
		asked = args
		return []fact.Record{
			{Subject: gpu.SubjectSystem, State: fact.Known, Data: json.RawMessage(`{}`)},
			{Subject: "gpu0", State: fact.Known, Data: device(0x10, pci.Link{Width: 1})},
			{Subject: "gpu1", State: fact.Known, Data: device(0x30, link)},
		}, nil
	}}
	l := perftest.NewLocal("mlx5_0")
	l.Memory, l.GPU = perftest.MemoryCUDA, &perftest.GPU{Addr: addr}
	want := &perftest.GPULoad{Addr: addr, Link: link, Clock: gpu.Clocks{SMMHz: 7}}
	if diff := cmp.Diff(want, b.load(t.Context(), l)); diff != "" || !slices.Equal(asked, []string{gpu.Load}) {
		t.Errorf("%s, asked %q", diff, asked)
	}
	l.GPU = &perftest.GPU{Addr: pci.Address{Bus: 0x50}}
	if got := b.load(t.Context(), l); got == nil || got.Reason == "" || got.PerformanceState != -1 {
		t.Errorf("a GPU that NVML does not know: %+v", got)
	}
}
