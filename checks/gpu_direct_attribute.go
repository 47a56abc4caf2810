package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var gpuDirectAttribute = Check{
	ID: "gpu-direct-attribute", Title: "the GPU supports GPUDirect RDMA", Area: AreaGPU, Severity: SeverityError, Rung: RungWay,
	Why: "CUDA tells for each GPU whether its memory may be used by other PCIe devices. GeForce cards and some vGPU profiles do not allow it, and no setting changes that. GB10 does not either, and does without: its memory is the CPU's.",
	Fix: []string{"See which model it is: nvidia-smi -L", "No command adds it, the model has it or not: use a data-centre or workstation GPU; in a guest, pass a whole GPU through or choose a vGPU profile with GPUDirect RDMA"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html",
		"https://github.com/NVIDIA/gdrcopy/issues/211",
		"https://github.com/ofiwg/libfabric/issues/12409",
	},
	Subjects: EachGPU,
	Eval: func(c *Case) {
		g := c.Subject.GPU
		if c.passedThrough(g.Addr) {
			c.NotApplicable("reserved for a virtual machine (vfio-pci), which alone can ask it")
			return
		}
		if g.Vendor != gpu.VendorNVIDIA {
			c.NotApplicable("CUDA's attribute, on an %s GPU", g.Vendor)
			return
		}
		class := c.noGPUDirect(g.Name)
		attr := cuda(g, func(d *gpu.CUDADevice) fact.Value[int] { return d.GPUDirectRDMA })
		if c.sharesMemory(g) {
			See(c, "CUDA attribute 116 (GPUDirect RDMA)", attr)
			c.Row("model", g.Name, c.nameSource(g))
			c.Info("%s does not support GPUDirect RDMA, by design, and needs none: GPU and CPU share their memory, so register host memory (cudaHostAlloc, then ibv_reg_mr), which the GPU uses without a copy; NCCL does so by itself and reports GDR 0", g.Name)
			return
		}
		if attr.State != fact.Known && class == "" {
			// Every other NVIDIA GPU of a server has it: not having asked CUDA,
			// as in a container without its library, leaves little in doubt.
			c.Lower(SeverityWarning)
		}
		if attr.State != fact.Known && class != "" {
			See(c, "CUDA attribute 116 (GPUDirect RDMA)", attr)
			c.Row("model", g.Name, c.nameSource(g))
			c.Warn("%s: GPUs of this class do not support GPUDirect RDMA", g.Name)
			c.Fix(fixNoGPUDirect)
			c.Unsure("CUDA, which tells for sure, could not be asked")
			return
		}
		got, ok := Need(c, "CUDA attribute 116 (GPUDirect RDMA)", attr)
		c.Want("1")
		switch {
		case ok && got == 0 && class != "":
			c.Fail("%s does not support GPUDirect RDMA: its class does not, by design", g.Name)
			c.Fix(fixNoGPUDirect)
		case !ok:
			c.Unknown("cannot tell: there is no CUDA driver library to ask%s", because(attr.Reason))
			c.Fix(gpu.InstallCUDA)
		case got == 0:
			c.Fail("%s does not support GPUDirect RDMA", orElse(g.Name, "this GPU"))
		default:
			vmm := cuda(g, func(d *gpu.CUDADevice) fact.Value[int] { return d.RDMAWithVMM })
			if n, known := vmm.Get(); known && n == 0 {
				See(c, "CUDA attribute 110 (GPUDirect RDMA with virtual memory management)", vmm)
				c.Info("supported for memory of cudaMalloc, not for that of cuMemCreate (PyTorch: expandable_segments:False)")
				return
			}
			// The GPU's side alone: whether a NIC can use it, gdr-way says.
			c.Pass("supported, on the GPU's side")
		}
	},
}

// noGPUDirect names the class of GPUs without GPUDirect RDMA that one belongs
// to; empty: none.
func (n *Node) noGPUDirect(name string) string {
	for _, class := range n.Thresholds.NoGPUDirectModels {
		if strings.Contains(name, class) {
			return class
		}
	}
	return ""
}

// sharesMemory says whether a GPU's memory is the CPU's, so that GPUDirect RDMA has
// no part in reaching it. Where CUDA says that it supports it, CUDA is right.
func (n *Node) sharesMemory(g *gpu.GPU) bool {
	return g.CUDA.V.GPUDirectRDMA.Or(0) == 0 &&
		slices.ContainsFunc(n.Thresholds.SharedMemoryModels, func(m string) bool { return strings.Contains(g.Name, m) })
}

// nameSource is where a GPU's name comes from.
func (n *Node) nameSource(g *gpu.GPU) string {
	if g.NVML.State == fact.Known {
		return "nvml:nvmlDeviceGetName"
	}
	return "/proc/driver/nvidia/gpus/" + g.Addr.String() + "/information"
}

const fixNoGPUDirect = "Use a data-centre or workstation GPU for GPUDirect RDMA; on this one applications copy through the CPU"

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
