package collect

import (
	"bytes"
	"context"
	"encoding/json"

	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	gpuDir = "/sys/bus/pci/devices/0000:01:00.0"
	nicDir = "/sys/bus/pci/devices/0000:02:00.0"
	ibDir  = "/sys/class/infiniband/mlx5_0"
)

// node is a machine with a GPU and a NIC, and with a library behind NVML; more
// are empty files that it has, too.
func node(t *testing.T, more ...string) *facttest.Source {
	t.Helper()
	files := map[string]string{
		gpuDir + "/vendor": "0x10de\n", gpuDir + "/device": "0x2335\n", gpuDir + "/class": "0x030200\n", gpuDir + "/config": "",
		gpuDir + "/uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2335\nPCI_SUBSYS_ID=10DE:18BE\nPCI_SLOT_NAME=0000:01:00.0\n",
		nicDir + "/vendor": "0x15b3\n", nicDir + "/device": "0x1021\n", nicDir + "/class": "0x020700\n", nicDir + "/config": "",
		nicDir + "/uevent": "PCI_CLASS=20700\nPCI_ID=15B3:1021\nPCI_SUBSYS_ID=15B3:0023\nPCI_SLOT_NAME=0000:02:00.0\n",
		ibDir + "/device":  "-> ../../../bus/pci/devices/0000:02:00.0",
		ibDir + "/fw_ver":  "28.39.1002\n", ibDir + "/node_type": "1: CA\n",
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1.2  Release Build\n",
		"/proc/cmdline":               "quiet\n",
	}
	for _, name := range more {
		files[name] = ""
	}
	src := facttest.Tree(t, files)
	src.Answers[fact.AskNVML] = []fact.Record{
		answer(t, gpu.SubjectSystem, gpu.NVMLSystem{DeviceCount: 1, DriverVersion: "580.1.2"}),
		answer(t, "gpu0", gpu.NVMLDevice{Addr: pci.Address{Bus: 1}, Name: fact.Of("NVIDIA Test", "nvml:x")}),
	}
	src.Answers[fact.AskLimits] = []fact.Record{answer(t, "self", host.Limits{MemlockSoft: 7})}
	return src
}

func answer(t *testing.T, subject string, data any) fact.Record {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return fact.Record{Subject: subject, State: fact.Known, Data: b}
}

func opts() Options {
	o := All()
	o.Origin, o.CollectedAt = "tree", when
	return o
}

// A live kernel may have no PCI; a tree without it is partial, and must not pass for
// a machine without GPUs.
func TestTreeWithoutPCI(t *testing.T) {
	for origin, want := range map[string]int{"tree": 1, "live": 0} {
		o := opts()
		o.Origin = origin
		m := Machine(t.Context(), facttest.Tree(t, map[string]string{"/proc/cmdline": "quiet"}), o)
		if len(m.Problems) != want || want == 1 && m.Problems[0].Part != "pci" {
			t.Errorf("%s: problems %+v", origin, m.Problems)
		}
	}
}

func TestMachine(t *testing.T) {
	src := node(t)
	m := Machine(t.Context(), src, opts())
	if len(m.Problems) != 0 || m.Simulated || m.Origin != "tree" || !m.CollectedAt.Equal(when) {
		t.Errorf("%+v %v %s %s", m.Problems, m.Simulated, m.Origin, m.CollectedAt)
	}
	if len(m.PCI) != 2 || m.PCI[0].Vendor.V != 0x10de {
		t.Errorf("pci %+v", m.PCI)
	}
	if len(m.GPU.GPUs) != 1 || m.GPU.GPUs[0].Name != "NVIDIA Test" || m.GPU.NVIDIA.Flavour.V != "open" {
		t.Errorf("gpu %+v", m.GPU)
	}
	if len(m.RDMA.Devices) != 1 || m.RDMA.Devices[0].Firmware.V != "28.39.1002" {
		t.Errorf("rdma %+v", m.RDMA)
	}
	if m.Host.CommandLine.V != "quiet" || m.Host.Limits.V.MemlockSoft != 7 {
		t.Errorf("host %+v", m.Host)
	}
	want := map[string]int{fact.AskNVML: 1, fact.AskCUDA: 1, fact.AskLimits: 1, fact.AskGHW: 1, fact.AskRDMAMap: 1, fact.AskVerbs: 1, fact.AskKernelLog: 1}
	got := map[string]int{}
	for name, n := range src.Asked {
		if name != fact.AskFiles { // each part its own
			got[name] = n
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("questions (-want +got):\n%s", d)
	}
}

// TestTopologyOnly: what a command does not need is not asked, and says so.
func TestTopologyOnly(t *testing.T) {
	src := node(t)
	m := Machine(t.Context(), src, Topology())
	for _, ask := range []string{fact.AskCUDA, fact.AskLimits, fact.AskGHW, fact.AskVerbs, fact.AskRDMAMap} {
		if src.Asked[ask] != 0 {
			t.Errorf("%s was asked", ask)
		}
	}
	if v := m.GPU.NVIDIA.CUDA; v.State != fact.NotCollected || v.Reason == "" {
		t.Errorf("CUDA %+v", v)
	}
	if v := m.RDMA.Devices[0].Verbs; v.State != fact.NotCollected || v.Reason == "" {
		t.Errorf("verbs %+v", v)
	}
	if m.GPU.GPUs[0].Name != "NVIDIA Test" {
		t.Errorf("no NVML in %+v", m.GPU.GPUs[0])
	}
}

func document(t *testing.T, m *topo.Machine) string {
	t.Helper()
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReplay: a recording gives the same machine to the byte.
func TestReplay(t *testing.T) {
	rec := fact.NewRecorder(node(t))
	m := Machine(t.Context(), rec, opts())
	var file bytes.Buffer
	if err := rec.Save(&file, when); err != nil {
		t.Fatal(err)
	}
	src, err := fact.OpenRecording(&file)
	if err != nil {
		t.Fatal(err)
	}
	want := document(t, m)
	if d := cmp.Diff(want, document(t, Machine(t.Context(), src, opts()))); d != "" {
		t.Errorf("(-recorded +replayed):\n%s", d)
	}
	var back topo.Machine
	if err := json.Unmarshal([]byte(want), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, document(t, &back)); d != "" {
		t.Errorf("JSON loses (-first +second):\n%s", d)
	}
}

func TestSimulated(t *testing.T) {
	src := node(t)
	src.Answers[fact.AskNVML] = []fact.Record{ // one that never came to answer
		answer(t, gpu.SubjectDouble, "/stub.so"), {Subject: gpu.SubjectSystem, State: fact.Failed, Reason: "hung"},
	}
	if m := Machine(t.Context(), src, opts()); !m.Simulated {
		t.Error("a test double stood for NVML, and the machine does not say so")
	}
}

// bad is a Source with a path that hangs or panics.
type bad struct {
	fact.Source
	path string
	do   func()
}

func (b *bad) at(name string) {
	if strings.HasPrefix(name, b.path) {
		b.do()
	}
}

func (b *bad) ReadFile(name string) ([]byte, error) { b.at(name); return b.Source.ReadFile(name) }

func (b *bad) ReadDir(name string) ([]fact.Entry, error) { b.at(name); return b.Source.ReadDir(name) }

func (b *bad) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	b.at("ask:" + name)
	return b.Source.Ask(ctx, name, args...)
}

func TestLostParts(t *testing.T) {
	forever := make(chan struct{})
	t.Cleanup(func() { close(forever) })
	hang := func() { <-forever }
	crash := func() { panic("out of order") }
	tests := []struct {
		name, path string
		do         func()
		want       []topo.Problem
	}{
		{"rdma hangs", "/sys/class/infiniband", hang, []topo.Problem{{Part: "rdma", Reason: "rdma took longer than it was given: context deadline exceeded"}}},
		{"rdma panics", "/sys/class/infiniband", crash, []topo.Problem{{Part: "rdma", Reason: "panic: out of order (collect_test.go"}}},
		{"host hangs", "/proc/cmdline", hang, []topo.Problem{{Part: "host", Reason: "host took longer"}}},
		{"host panics", "/proc/cmdline", crash, []topo.Problem{{Part: "host", Reason: "panic: out of order"}}},
		{"gpu hangs", "/proc/driver/nvidia/version", hang, []topo.Problem{{Part: "gpu", Reason: "gpu took longer"}}},
		{"gpu panics", "/proc/driver/nvidia/version", crash, []topo.Problem{{Part: "gpu", Reason: "panic: out of order"}}},
		{"pci panics", "/sys/bus/pci/devices", crash, []topo.Problem{{Part: "pci", Reason: "panic: out of order"}}},
		{"pci and all after it hang", "/sys/bus/pci/devices", hang, []topo.Problem{
			{Part: "pci", Reason: "pci took longer"}, {Part: "rdma", Reason: "rdma took longer"},
			{Part: "gpu", Reason: "gpu took longer"}, {Part: "host", Reason: "host took longer"},
		}},
		{"an early question panics", "ask:limits", crash, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := opts()
			o.Timeout = 700 * time.Millisecond
			begin := time.Now()
			m := Machine(t.Context(), &bad{node(t), tt.path, tt.do}, o)
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("took %s", took)
			}
			lost := map[string]bool{}
			for i, p := range m.Problems {
				lost[p.Part] = true
				if i >= len(tt.want) || p.Part != tt.want[i].Part || !strings.HasPrefix(p.Reason, tt.want[i].Reason) {
					t.Errorf("problem %+v", p)
				}
			}
			if len(m.Problems) != len(tt.want) {
				t.Errorf("%d problems, want %d", len(m.Problems), len(tt.want))
			}
			checkParts(t, m, lost)
		})
	}
}

// checkParts: what was not lost is there, what was lost has a reason.
func checkParts(t *testing.T, m *topo.Machine, lost map[string]bool) {
	t.Helper()
	if got := len(m.PCI) == 2; got == lost["pci"] {
		t.Errorf("%d PCI functions", len(m.PCI))
	}
	if v := m.RDMA.Listed; (v.State == fact.Known) == lost["rdma"] || v.State != fact.Known && v.Reason == "" {
		t.Errorf("rdma %+v", v)
	}
	if v := m.Host.CommandLine; (v.State == fact.Known) == lost["host"] || v.State != fact.Known && v.Reason == "" {
		t.Errorf("host %+v", v)
	}
	if v := m.GPU.NVIDIA.Version; (v.State == fact.Known) == lost["gpu"] || v.State != fact.Known && v.Reason == "" {
		t.Errorf("gpu %+v", v)
	}
	if len(m.GPU.GPUs) != 1 && !lost["pci"] {
		t.Errorf("%d GPUs: the PCI tree shows one", len(m.GPU.GPUs))
	}
	for _, g := range m.GPU.GPUs {
		if g.NVML.State != fact.Known && g.NVML.Reason == "" {
			t.Errorf("NVML without a word: %+v", g.NVML)
		}
	}
}

// TestFillHost: no value of the host stays without a reason.
func TestFillHost(t *testing.T) {
	var f host.Facts
	fillHost(&f, "because")
	n := 0
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for sf, field := range v.Fields() {
			if field.Kind() != reflect.Struct {
				continue
			}
			if r := field.FieldByName("Reason"); r.IsValid() {
				if n++; r.String() != "because" {
					t.Errorf("%s.%s: reason %q", path, sf.Name, r)
				}
				continue
			}
			walk(field, path+"."+sf.Name)
		}
	}
	walk(reflect.ValueOf(f), "Host")
	if n < 30 {
		t.Errorf("only %d values", n)
	}
}

// slow answers questions after a while and notes how many are under way.
type slow struct {
	fact.Source
	mu        sync.Mutex
	now, most int
}

func (s *slow) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	return s.Source.Ask(ctx, name, args...)
}

// TestConcurrent: long questions are under way at the same time.
func TestConcurrent(t *testing.T) {
	s := &slow{Source: node(t)}
	Machine(t.Context(), s, opts())
	if s.most < 4 {
		t.Errorf("at most %d questions at a time, want NVML, CUDA, limits and names at once", s.most)
	}
}

func TestNoDeadline(t *testing.T) {
	ctx, cancel := early(context.Background())
	defer cancel()
	if _, ok := ctx.Deadline(); ok {
		t.Error("a deadline out of nothing")
	}
}
