package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var bar1Size = Check{
	ID: "bar1-size", Title: "BAR1 maps all of the GPU's memory", Area: AreaGPU, Severity: SeverityWarning, Rung: RungBAR1,
	Why: "A NIC reaches GPU memory only through the BAR1 window. Where it is smaller than the memory, registering buffers fails once it is full: a test of 1 MB works, the job does not.",
	Fix: []string{"See how much is mapped: nvidia-smi -q -d MEMORY", "No command enlarges it while the node runs: enable Above 4G Decoding and Resizable BAR in the BIOS"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/#how-to-display-bar-space-usage",
		"https://developer.nvidia.com/displaymodeselector",
		"https://github.com/Mellanox/nv_peer_memory/issues/101",
		"https://github.com/openucx/ucx/issues/8049",
	},
	Subjects: EachGPU,
	Eval:     evalBAR1,
}

func evalBAR1(c *Case) {
	g := c.Subject.GPU
	if g.Vendor == gpu.VendorAMD {
		evalLargeBAR(c)
		return
	}
	bar := nvml(g, func(d *gpu.NVMLDevice) fact.Value[gpu.Memory] { return d.BAR1 })
	var size uint64
	if m, state := See(c, "BAR1", bar); state == fact.Known {
		size = m.TotalBytes
	} else {
		size = bar1FromPCI(c)
	}
	if size == 0 {
		c.Fail("the GPU has no BAR1: firmware found no room for it below its MMIO limit")
		c.finding.Severity = SeverityError
		c.Fix("Enable Above 4G Decoding (64-bit MMIO) in the BIOS; in a guest, give the firmware a larger 64-bit MMIO window",
			fmt.Sprintf("Then see: lspci -v -s %s | grep prefetchable", g.Addr))
		return
	}
	mem := nvml(g, func(d *gpu.NVMLDevice) fact.Value[gpu.Memory] { return d.Memory })
	if coherent(g) && mem.State != fact.Known {
		c.Info("coherent memory: NICs reach it through the CPU's fabric too")
		return
	}
	if mem.State != fact.Known && size <= c.Thresholds.BAR1SmallBytes {
		warnSmallBAR1(c, size, "the GPU's memory")
		return
	}
	total, _ := Need(c, "GPU memory", mem)
	c.Want("at most BAR1")
	switch {
	case float64(size) >= float64(total.TotalBytes)*c.Thresholds.BAR1MinShare:
		c.Pass("BAR1 %s for %s of memory", showBytes(size), showBytes(total.TotalBytes))
	case coherent(g):
		c.Info("BAR1 %s for %s of coherent memory, which NICs reach through the CPU's fabric too", showBytes(size), showBytes(total.TotalBytes))
	default:
		warnSmallBAR1(c, size, showBytes(total.TotalBytes)+" of memory")
	}
}

// bar1FromPCI finds BAR1 among the function's windows: the largest prefetchable one.
func bar1FromPCI(c *Case) uint64 {
	f := c.Subject.Function
	if f == nil {
		c.Unknown("cannot tell: neither NVML nor the PCI tree shows the GPU's windows")
		panic(stop{})
	}
	bars, ok := Need(c, "PCI windows", f.BARs, f.Dir)
	if !ok {
		c.Unknown("cannot tell: what was read does not list the GPU's PCI windows")
		c.Fix(c.howToSee(fact.NotCollected)...)
		panic(stop{})
	}
	var size uint64
	const prefetch = 0x2000 // include/linux/ioport.h
	for _, b := range bars {
		if b.Index <= 5 && b.Flags&prefetch != 0 {
			size = max(size, b.SizeBytes)
		}
	}
	return size
}

func warnSmallBAR1(c *Case, size uint64, of string) {
	c.Warn("BAR1 is %s for %s: RDMA can register about that much at once, and fails beyond", showBytes(size), of)
	name, f := c.Subject.GPU.Name, c.Subject.Function
	if slices.ContainsFunc(c.Thresholds.DisplayModeModels, func(s string) bool { return strings.Contains(name, s) }) {
		c.Fix(fmt.Sprintf("This model has display modes: sudo ./displaymodeselector --gpumode physical_display_disabled (choose %s), then reboot", c.Subject.GPU.Addr))
	}
	if f != nil {
		for _, r := range f.Config.ReBAR.Or(nil) {
			if best := slices.Max(append(r.SupportedBytes, 0)); best > r.SizeBytes {
				c.Fix(fmt.Sprintf("Its Resizable BAR capability offers up to %s: enable Resizable BAR and Above 4G Decoding in the BIOS", showBytes(best)))
				return
			}
		}
		if f.Config.ReBAR.State == fact.Absent {
			c.Fix("The card has no Resizable BAR capability now: a newer VBIOS may add it; otherwise keep RDMA buffers small or choose another model")
			return
		}
	}
	if c.Platform.Virt == Guest {
		c.Fix("In the guest's definition: pass the whole GPU through and give the firmware a 64-bit MMIO window of twice its memory")
		return
	}
	c.Fix("Enable Above 4G Decoding and Resizable BAR in the BIOS")
}

func evalLargeBAR(c *Case) {
	node, ok := Need(c, "KFD node", c.Subject.GPU.KFD)
	if !ok {
		c.Unknown("cannot tell: the amdgpu driver shows no compute node for this GPU")
		c.Fix("Load the driver: sudo modprobe amdgpu")
		return
	}
	c.Row("large BAR", show(node.LargeBAR), c.Subject.GPU.KFD.Source)
	c.Want("yes")
	if node.LargeBAR {
		c.Pass("all %s of memory is visible", showBytes(node.LocalMemSize))
		return
	}
	c.Warn("the CPU and NICs see only part of the GPU's %s: peer access needs a large BAR", showBytes(node.LocalMemSize))
	c.Fix("Enable Above 4G Decoding and Resizable BAR in the BIOS")
}
