package checks

import (
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var gpuDirectAttribute = Check{
	ID: "gpu-direct-attribute", Title: "the GPU supports GPUDirect RDMA", Area: AreaGPU, Severity: SeverityError, Rung: RungWay,
	Why: "CUDA tells for each GPU whether its memory may be used by other PCIe devices. GeForce cards, some vGPU profiles and GB10 do not allow it, and no setting changes that.",
	Fix: []string{"Use a data-centre or workstation GPU; in a guest, pass a whole GPU through or choose a vGPU profile with GPUDirect RDMA"},
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
		attr := cuda(g, func(d *gpu.CUDADevice) fact.Value[int] { return d.GPUDirectRDMA })
		if attr.State != fact.Known && !strings.Contains(g.Name, "GeForce") {
			// Every other NVIDIA GPU of a server has it: not having asked CUDA,
			// as in a container without its library, leaves little in doubt.
			c.Lower(SeverityWarning)
		}
		got, ok := Need(c, "CUDA attribute 116 (GPUDirect RDMA)", attr)
		c.Want("1")
		switch {
		case !ok:
			c.Unknown("cannot tell: there is no CUDA driver library to ask%s", because(attr.Reason))
			c.Fix("Install libcuda.so.1 (Ubuntu: libnvidia-compute of the driver's version; Debian: libcuda1; RHEL: nvidia-driver-cuda-libs); in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility")
		case got == 0:
			c.Fail("%s does not support GPUDirect RDMA", orElse(g.Name, "this GPU"))
		default:
			c.Pass("supported")
		}
	},
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
