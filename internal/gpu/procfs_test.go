package gpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/pci"
)

// The lines are what drivers of these versions printed, as public reports show them.
func TestParseVersion(t *testing.T) {
	for _, tt := range []struct {
		line string
		want Version
	}{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc version 4.8.5\n", Version{"535.129.03", "proprietary"}},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module 390.48 Thu Mar 22 00:42:57 PDT 2018", Version{"390.48", "proprietary"}},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (abuild@host)  Thu Jul 11 12:00:00 UTC 2024\nGCC version:  gcc version 7.5.0 (SUSE Linux)", Version{"555.42.06", "open"}},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (buildbrain@x)", Version{"540.4.0", "open"}},
	} {
		got, err := ParseVersion(tt.line)
		if err != nil || got != tt.want {
			t.Errorf("%.60q: %+v %v, want %+v", tt.line, got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "GCC version: 12.2.0", "NVRM version: none"} {
		if v, err := ParseVersion(bad); err == nil {
			t.Errorf("%q: %+v", bad, v)
		}
	}
}

func TestParseParams(t *testing.T) {
	got, err := ParseParams("EnableStreamMemOPs: 0\nRegistryDwords: \"PeerMappingOverride=1;\"\nTemporaryFilePath: \"/a:b\"\nExcludedGpus: \"\"\n")
	want := map[string]string{
		"EnableStreamMemOPs": "0", "RegistryDwords": `"PeerMappingOverride=1;"`, "TemporaryFilePath": `"/a:b"`, "ExcludedGpus": `""`,
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if _, err := ParseParams("no colon here\n"); err == nil {
		t.Error("a line without a colon parses")
	}
}

func TestParseParamsRecorded(t *testing.T) {
	b, err := fact.ReadBounded(facttest.Fixture(t, "outputs/text/nvidia-params.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseParams(string(b))
	if err != nil || got["DeviceFileMode"] != "438" || got["ImexChannelCount"] != "2048" || got["TemporaryFilePath"] != `"/var/tmp"` {
		t.Errorf("%v %v", got, err)
	}
}

// That the driver's files are missing says that it is not loaded, unless the
// module is there: then the tree is incomplete.
func TestProcfsInTrees(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  fact.State
	}{
		"not loaded": {nil, fact.Absent},
		"loaded":     {map[string]string{"/sys/module/nvidia/": ""}, fact.NotCollected},
		"another":    {map[string]string{"/sys/module/nvidia_fs/": ""}, fact.Absent},
	} {
		n := procfs(facttest.Tree(t, tc.files))
		if n.Version.State != tc.want || n.Flavour.State != tc.want || n.Params.State != tc.want {
			t.Errorf("%s: version %v, flavour %v, params %v; want %v", name, n.Version.State, n.Flavour.State, n.Params.State, tc.want)
		}
	}
}

func TestParseInformation(t *testing.T) {
	got, err := ParseInformation("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 10\nGPU UUID: \t GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b\n" +
		"Video BIOS: \t 96.00.99.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n" +
		"Bus Location: \t 0000:62:00.0\nDevice Minor: \t 5\nGPU Firmware: \t 535.129.03\nGPU Excluded:\t No\n")
	want := Information{
		Model: "NVIDIA H100 80GB HBM3", UUID: "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b", VBIOS: "96.00.99.00.01",
		DMASize: "52 bits", Firmware: "535.129.03", Excluded: "No",
	}
	if got != want || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ParseInformation("nothing: here"); err == nil {
		t.Error("nothing known, no error")
	}
}

func TestKFDNames(t *testing.T) {
	for packed, want := range map[uint64]string{90402: "gfx942", 90010: "gfx90a", 110501: "gfx1151", 120001: "gfx1201"} {
		if got := gfxName(packed); got != want {
			t.Errorf("%d: %s, want %s", packed, got, want)
		}
	}
	for loc, want := range map[uint64]string{0x050b: "0000:05:01.3", 0x7500: "0000:75:00.0", 0x3_0000_7500: "0000:75:00.0"} {
		if got := kfdAddress(map[string]uint64{"location_id": loc}).String(); got != want {
			t.Errorf("%#x: %s, want %s", loc, got, want)
		}
	}
}

func TestKFD(t *testing.T) {
	const nodes = kfdNodes + "/"
	src := facttest.Tree(t, map[string]string{
		nodes + "0/properties":             "cpu_cores_count 48\nsimd_count 0\ngfx_target_version 0\n",
		nodes + "1/properties":             "simd_count 304\ngfx_target_version 90402\nlocation_id 29952\ndomain 0\n",
		nodes + "1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 206142726144\nflags 0\n",
		nodes + "2/properties":             "simd_count 64\ngfx_target_version 110000\nlocation_id 768\ndomain 65536\n",
		nodes + "2/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 268435456\n",
		nodes + "2/mem_banks/1/properties": "heap_type 2\nsize_in_bytes 1000\n",
		nodes + "3/properties":             "no number\n",
	})
	got, v := kfd(src)
	if !v.V {
		t.Fatalf("%+v", v)
	}
	want := map[pci.Address]fact.Value[KFDNode]{
		{Bus: 0x75}:               fact.Of(KFDNode{Node: 1, GfxTarget: "gfx942", LocalMemSize: 206142726144, LargeBAR: true}, nodes+"1"),
		{Domain: 0x10000, Bus: 3}: fact.Of(KFDNode{Node: 2, GfxTarget: "gfx1100", LocalMemSize: 268436456}, nodes+"2"),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, v := kfd(facttest.Tree(t, map[string]string{"/sys/": ""})); v.State != fact.Absent {
		t.Errorf("without KFD: %s", v.State)
	}
	if _, v := kfd(facttest.Tree(t, map[string]string{nodes + "1/properties": "bad"})); v.State != fact.Failed {
		t.Errorf("all broken: %s", v.State)
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseVersion(s); err == nil && (v.Version == "" || v.Flavour == "") {
			t.Errorf("%+v", v)
		}
	})
}

func FuzzParseParams(f *testing.F) {
	f.Add("A: 1\nB: \"x\"\n")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := ParseParams(s); err != nil && m != nil {
			t.Error("an error with a value")
		}
	})
}

func FuzzParseInformation(f *testing.F) {
	f.Add("Model: \t\t X\nGPU UUID: \t ?\n")
	f.Fuzz(func(t *testing.T, s string) {
		if i, err := ParseInformation(s); err == nil && i == (Information{}) {
			t.Error("nothing known, no error")
		}
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add("simd_count 304\nlocation_id 29952\n")
	f.Fuzz(func(_ *testing.T, s string) {
		if m, err := ParseProperties(s); err == nil {
			_ = kfdAddress(m).String() + gfxName(m["gfx_target_version"])
		}
	})
}
