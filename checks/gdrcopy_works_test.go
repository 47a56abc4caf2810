package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/topo"
)

func TestGDRCopyWorks(t *testing.T) {
	// As gdrcopy_copybw and copylat show it on an H100: 0.1 us for a small write,
	// slow reads through a write-combining mapping.
	sizes := func() []gpu.GDRCopySize {
		return []gpu.GDRCopySize{
			{Bytes: 4, ToNs: 90, FromNs: 800, CUDAToNs: 6000, CUDAFromNs: 7000},
			{Bytes: 4096, ToNs: 400, FromNs: 9000, CUDAToNs: 6500, CUDAFromNs: 7500},
			{Bytes: 16 << 20, ToNs: 1e6, FromNs: 4e7, CUDAToNs: 4e5, CUDAFromNs: 4e5},
		}
	}
	tried := func(change func(*gpu.GDRCopyProbe)) func(*topo.Machine) {
		return func(m *topo.Machine) {
			p := gpu.GDRCopyProbe{Library: "2.5", Driver: "2.4", Mapping: "write-combining", Sizes: sizes()}
			change(&p)
			m.GPU.GPUs[0].GDRCopy = fact.Of(p, fact.AskGDRCopy)
		}
	}
	fails := func(call string, errno int, text string) func(*topo.Machine) {
		return tried(func(p *gpu.GDRCopyProbe) {
			p.Sizes, p.Failed = nil, &gpu.GDRCopyError{Call: call, Errno: errno, Text: text}
		})
	}
	missing := func(state fact.State, source, reason string) func(*topo.Machine) {
		return func(m *topo.Machine) {
			m.GPU.GPUs[0].GDRCopy = fact.Missing[gpu.GDRCopyProbe](state, source, reason)
		}
	}
	runCases(t, "gdrcopy-works", []verdictCase{
		{"works", tried(func(*gpu.GDRCopyProbe) {}), "GPU0", Pass, "4 bytes to the GPU in 0.09 us, where CUDA takes 6.00 us; 16777216 bytes at 134.2 Gb/s", ""},
		{"not tried", nil, "node", NotApplicable, "gdrcheck check --probe", ""},
		{"no driver", missing(fact.Absent, "/dev/gdrdrv", "not there"), "GPU0", NotApplicable, "driver is not loaded", ""},
		{"no library", missing(fact.Absent, fact.AskGDRCopy, "no such file"), "GPU0", Info, "there is no libgdrapi", ""},
		{"in use", missing(fact.NotCollected, fact.AskGDRCopy, "the GPU is in use by 2 processes"), "GPU0", Unknown, "in use by 2 processes", ""},
		{"hangs", missing(fact.Failed, fact.AskGDRCopy, "no answer within 20s, in gdr_open"), "GPU0", Unknown, "reading GDRCopy failed", ""},
		{"may not be opened", fails("gdr_open", 13, "permission denied"), "GPU0", Fail, "gdr_open failed: permission denied", "chmod 666 /dev/gdrdrv"},
		{"cannot be opened", fails("gdr_open", 5, "input/output error"), "GPU0", Fail, "gdr_open failed", "modprobe gdrdrv"},
		{"cannot pin", fails("gdr_pin_buffer", 22, "invalid argument"), "GPU0", Fail, "gdr_pin_buffer failed: invalid argument", "dmesg"},
		{"cannot map", fails("gdr_map", 12, "cannot allocate memory"), "GPU0", Fail, "gdr_map failed", "BAR1"},
		{"no GPU memory", fails("cuMemAlloc_v2", 0, "CUDA error 2 CUDA_ERROR_OUT_OF_MEMORY"), "GPU0", Fail, "OUT_OF_MEMORY", "modinfo -F version gdrdrv"},
		{"writes wrong", tried(func(p *gpu.GDRCopyProbe) { p.Sizes[1].WrongTo = true }), "GPU0", Fail, "what GDRCopy wrote to the GPU is not there (4096 bytes)", "UCX_TLS=^gdr_copy"},
		{"reads wrong", tried(func(p *gpu.GDRCopyProbe) { p.Sizes[0].WrongFrom = true }), "GPU0", Fail, "read from the GPU is not what is there (4 bytes)", "NCCL_GDRCOPY_ENABLE=0"},
		{"another major", tried(func(p *gpu.GDRCopyProbe) { p.Driver = "1.3" }), "GPU0", Warn, "libgdrapi is 2.5 and gdrdrv 1.3", "same GDRCopy release"},
		{"slow", tried(func(p *gpu.GDRCopyProbe) { p.Sizes[1].ToNs, p.Mapping = 6500, "device" }), "GPU0", Warn, "4096 bytes take 6.50 us, and 6.50 us by CUDA", "(device; want write-combining)"},
		{"large copies need not be fast", tried(func(p *gpu.GDRCopyProbe) { p.Sizes[2].ToNs = 1e9 }), "GPU0", Pass, "at 0.1 Gb/s", ""},
		{"nothing copied", tried(func(p *gpu.GDRCopyProbe) { p.Sizes = nil }), "GPU0", Unknown, "nothing was copied", ""},
	})
}
