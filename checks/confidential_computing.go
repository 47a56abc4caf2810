package checks

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var confidentialComputing = Check{
	ID: "confidential-computing", Title: "confidential computing does not lock the GPU's memory", Area: AreaGPU, Severity: SeverityWarning, Rung: RungWay,
	Why: "With confidential computing on, the GPU answers no device but its own virtual machine: peers cannot read or write its memory, and applications copy through encrypted host buffers.",
	Fix: []string{"Where it is not needed, on the host, with NVIDIA's gpu-admin-tools: sudo nvidia_gpu_tools.py --gpu-bdf=ADDRESS --set-cc-mode=off --reset-after-cc-mode-switch"},
	Refs: []string{
		"https://docs.nvidia.com/confidential-computing/",
		"https://github.com/NVIDIA/nvtrust/issues/22",
		"https://github.com/NVIDIA/gpu-admin-tools",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval: func(c *Case) {
		on, ok := Need(c, "confidential computing", nvml(c.Subject.GPU, func(d *gpu.NVMLDevice) fact.Value[bool] { return d.Confidential }))
		c.Want("no")
		switch {
		case !ok:
			c.NotApplicable("this GPU has no confidential computing")
		case on:
			c.Warn("confidential computing is on: no GPUDirect RDMA to this GPU")
			c.Fix("On the host, for a GPU that needs none: sudo nvidia_gpu_tools.py --gpu-bdf="+c.Subject.GPU.Addr.String()+" --set-cc-mode=off --reset-after-cc-mode-switch",
				"It protects the GPU's data from the host: leave it on where that is the purpose")
			c.Unsure("newer platforms (TDISP) may allow it: a registration tells")
		default:
			c.Pass("off")
		}
	},
}
