package gpu

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/pci"
)

func function(addr string, vendor pci.ID, class pci.Class) pci.Function {
	a, err := pci.ParseAddress(addr)
	if err != nil {
		panic(err)
	}
	return pci.Function{Address: a, Vendor: fact.Of(vendor, "vendor"), Class: fact.Of(class, "class"), DeviceName: "name of " + addr}
}

const (
	classVGA   = 0x030000
	class3D    = 0x030200
	classAudio = 0x040300
	classOther = 0x038000
	classAccel = 0x120000
)

// twoGPUs is a node whose NVML numbers follow addresses; each GPU has an audio
// function, and an integrated AMD GPU and an NVSwitch stand beside them.
var twoGPUs = []pci.Function{
	function("0000:3b:00.0", vendorNVIDIA, class3D), function("0000:3b:00.1", vendorNVIDIA, classAudio),
	function("0000:86:00.0", vendorNVIDIA, classVGA), function("0000:90:00.0", vendorNVIDIA, 0x068000),
	function("0000:04:00.0", vendorAMD, classVGA), function("0000:05:00.0", 0x1a03, classVGA),
}

func record(t *testing.T, subject string, data any) fact.Record {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return fact.Record{Subject: subject, State: fact.Known, Source: "nvml", Data: b}
}

func nvmlDevice(i int, addr, name string) NVMLDevice {
	a, err := pci.ParseAddress(addr)
	if err != nil {
		panic(err)
	}
	return NVMLDevice{Index: i, Addr: a, Name: fact.Of(name, "nvml:x"), UUID: fact.Of("uuid of "+name, "nvml:x")}
}

type shown struct {
	Index int
	Addr  string
	Name  string
	NVML  fact.State
	UUID  string
}

func show(f Facts) []shown {
	var out []shown
	for _, g := range f.GPUs {
		out = append(out, shown{g.Index, g.Addr.String(), g.Name, g.NVML.State, g.UUID.V})
	}
	return out
}

const info = procDir + "/gpus/0000:86:00.0/information"

func driver(t *testing.T) *facttest.Source {
	return facttest.Tree(t, map[string]string{
		procDir + "/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1.2  Release Build\n",
		info:                 "Model: \t\t Proc name\nGPU UUID: \t GPU-proc\n",
	})
}

func TestCollect(t *testing.T) {
	opt := Options{NVML: true, CUDA: true}
	system := record(t, SubjectSystem, NVMLSystem{DeviceCount: 2})
	failed := func(subject, reason, part string) fact.Record {
		r := fact.Record{Subject: subject, State: fact.Failed, Reason: reason}
		if part != "" {
			r.Data = json.RawMessage(part)
		}
		return r
	}
	a, b := nvmlDevice(0, "0000:3b:00.0", "A"), nvmlDevice(1, "0000:86:00.0", "B")
	tests := []struct {
		name string
		nvml []fact.Record
		want []shown
	}{
		{"both", []fact.Record{system, record(t, "gpu0", a), record(t, "gpu1", b)}, []shown{
			{0, "0000:3b:00.0", "A", fact.Known, "uuid of A"}, {1, "0000:86:00.0", "B", fact.Known, "uuid of B"},
		}},
		{"NVML's order is not the tree's", []fact.Record{
			system, record(t, "gpu0", nvmlDevice(0, "0000:86:00.0", "B")), record(t, "gpu1", nvmlDevice(1, "0000:3b:00.0", "A")),
		}, []shown{
			{0, "0000:86:00.0", "B", fact.Known, "uuid of B"}, {1, "0000:3b:00.0", "A", fact.Known, "uuid of A"},
		}},
		{"gpu0 hung with its address known", []fact.Record{system, failed("gpu0", "hung", `{"addr":"0000:86:00.0"}`), record(t, "gpu1", nvmlDevice(1, "0000:3b:00.0", "A"))}, []shown{
			{0, "0000:86:00.0", "Proc name", fact.Failed, "GPU-proc"}, {1, "0000:3b:00.0", "A", fact.Known, "uuid of A"},
		}},
		{"gpu1 lost without an address", []fact.Record{system, record(t, "gpu0", a), failed("gpu1", "lost", "")}, []shown{
			{0, "0000:3b:00.0", "A", fact.Known, "uuid of A"}, {1, "0000:86:00.0", "Proc name", fact.Failed, "GPU-proc"},
		}},
		{"one only NVML knows", []fact.Record{system, record(t, "gpu0", nvmlDevice(0, "0001:01:00.0", "X")), record(t, "gpu1", a)}, []shown{
			{0, "0001:01:00.0", "X", fact.Known, "uuid of X"}, {1, "0000:3b:00.0", "A", fact.Known, "uuid of A"},
			{2, "0000:86:00.0", "Proc name", fact.Absent, "GPU-proc"},
		}},
		{"no NVML", []fact.Record{{Subject: SubjectSystem, State: fact.Absent, Reason: "no library"}}, []shown{
			{0, "0000:3b:00.0", "name of 0000:3b:00.0", fact.Absent, ""}, {1, "0000:86:00.0", "Proc name", fact.Absent, "GPU-proc"},
		}},
		{"no answer", []fact.Record{}, []shown{
			{0, "0000:3b:00.0", "name of 0000:3b:00.0", fact.NotCollected, ""}, {1, "0000:86:00.0", "Proc name", fact.NotCollected, "GPU-proc"},
		}},
		{"nonsense", []fact.Record{system, {Subject: "gpu-1", State: fact.Known, Data: json.RawMessage(`7`)}, {Subject: "gpu0", State: fact.Known, Data: json.RawMessage(`7`)}}, []shown{
			{0, "0000:3b:00.0", "name of 0000:3b:00.0", fact.Failed, ""}, {1, "0000:86:00.0", "Proc name", fact.Failed, "GPU-proc"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := driver(t)
			src.Answers[fact.AskNVML] = tt.nvml
			got := Collect(t.Context(), src, twoGPUs, opt)
			if d := cmp.Diff(tt.want, show(got)); d != "" {
				t.Error(d)
			}
			for _, g := range got.GPUs {
				if g.NVML.State != fact.Known && (g.NVML.Reason == "" || g.NVML.Source == "") {
					t.Errorf("GPU%d: no reason or source: %+v", g.Index, g.NVML)
				}
				if g.CUDA.State != fact.NotCollected || !strings.Contains(g.CUDA.Reason, "only a live machine") {
					t.Errorf("GPU%d: CUDA of a tree: %+v", g.Index, g.CUDA)
				}
			}
			if got.NVIDIA.Flavour.V != "open" || got.NVIDIA.Version.V != "580.1.2" {
				t.Errorf("driver %+v", got.NVIDIA)
			}
		})
	}
}

func TestCollectCUDA(t *testing.T) {
	src := driver(t)
	a, err := pci.ParseAddress("0000:86:00.0")
	if err != nil {
		t.Fatal(err)
	}
	src.Answers[fact.AskCUDA] = []fact.Record{
		record(t, SubjectDouble, "/stub.so"), record(t, SubjectSystem, CUDASystem{DeviceCount: 1}),
		record(t, "gpu0", CUDADevice{Addr: a, DMABuf: fact.Of(1, "cuda:x")}),
	}
	got := Collect(t.Context(), src, twoGPUs, Options{CUDA: true})
	if g := got.GPUs[1].CUDA; g.V.DMABuf.V != 1 {
		t.Errorf("%+v", g)
	}
	if g := got.GPUs[0].CUDA; g.State != fact.Absent || g.Reason != "CUDA does not list this GPU" {
		t.Errorf("%+v", g)
	}
	if d := cmp.Diff([]string{"/stub.so"}, got.NVIDIA.Doubles); d != "" {
		t.Error(d)
	}
	if n := got.NVIDIA.NVML; n.State != fact.NotCollected || n.Reason != "not asked for" {
		t.Errorf("%+v", n)
	}
}

// TestNoNVIDIA: no library is asked on a node without NVIDIA's.
func TestNoNVIDIA(t *testing.T) {
	src := facttest.Tree(t, map[string]string{"/proc/": "", "/sys/": ""})
	got := Collect(t.Context(), src, twoGPUs[4:], Options{NVML: true, CUDA: true})
	if len(src.Asked) != 0 || len(got.GPUs) != 0 {
		t.Errorf("asked %v, got %v", src.Asked, got.GPUs)
	}
	if v := got.NVIDIA.NVML; v.State != fact.Absent || v.Reason != "no NVIDIA device" {
		t.Errorf("%+v", v)
	}
	Collect(t.Context(), src, nil, Options{NVML: true, Always: true})
	if src.Asked[fact.AskNVML] != 1 {
		t.Errorf("asked %v, want NVML once", src.Asked)
	}
}

func TestAMD(t *testing.T) {
	functions := []pci.Function{
		function("0000:75:00.0", vendorAMD, classAccel), function("0000:03:00.0", vendorAMD, classVGA),
		function("0000:04:00.0", vendorAMD, classOther), function("0000:75:00.1", vendorAMD, classAudio),
		function("0000:3b:00.0", vendorNVIDIA, class3D),
	}
	with := facttest.Tree(t, map[string]string{
		kfdNodes + "/1/properties":             "simd_count 304\ngfx_target_version 90402\nlocation_id 29952\n",
		kfdNodes + "/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 5\n",
		kfdNodes + "/2/properties":             "simd_count 4\ngfx_target_version 110000\nlocation_id 768\n",
		kfdNodes + "/2/mem_banks/":             "",
	})
	type row struct {
		Index  int
		Vendor Vendor
		Addr   string
		KFD    fact.State
	}
	rows := func(f Facts) (out []row) {
		for _, g := range f.GPUs {
			out = append(out, row{g.Index, g.Vendor, g.Addr.String(), g.KFD.State})
		}
		return out
	}
	want := []row{
		{0, VendorNVIDIA, "0000:3b:00.0", fact.NotCollected}, {1, VendorAMD, "0000:03:00.0", fact.Known},
		{2, VendorAMD, "0000:75:00.0", fact.Known},
	}
	if d := cmp.Diff(want, rows(Collect(t.Context(), with, functions, Options{}))); d != "" {
		t.Error(d)
	}
	// Without KFD, what computes by its class is there, and says why no more is known.
	want = []row{
		{0, VendorNVIDIA, "0000:3b:00.0", fact.NotCollected}, {1, VendorAMD, "0000:04:00.0", fact.Absent},
		{2, VendorAMD, "0000:75:00.0", fact.Absent},
	}
	without := facttest.Tree(t, map[string]string{"/sys/": ""})
	if d := cmp.Diff(want, rows(Collect(t.Context(), without, functions, Options{}))); d != "" {
		t.Error(d)
	}
}
