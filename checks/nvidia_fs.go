package checks

import "github.com/gdrcheck/gdrcheck/internal/fact"

var nvidiaFS = Check{
	ID: "nvidia-fs", Title: "GPUDirect Storage's driver works where it is loaded", Area: AreaDriver, Severity: SeverityWarning,
	Why: "cuFile reads storage and NFS over RDMA into GPU memory through nvidia-fs. Without it cuFile copies through the CPU (compatibility mode), or uses the kernel's P2PDMA where that is supported.",
	Fix: []string{"Load nvidia-fs anew: sudo modprobe -r nvidia_fs && sudo modprobe nvidia-fs"},
	Refs: []string{
		"https://docs.nvidia.com/gpudirect-storage/troubleshooting-guide/index.html",
		"https://github.com/NVIDIA/gds-nvidia-fs",
	},
	Subjects: eachNVIDIANode,
	Eval: func(c *Case) {
		mod, ok := Need(c, "nvidia_fs", c.module("nvidia_fs"))
		if !ok {
			c.NotApplicable("not loaded: GPUDirect Storage goes through the CPU, or the kernel's P2PDMA; GPUDirect RDMA does not need it")
			return
		}
		majors, ok := Need(c, "device numbers", fact.As(c.Machine.Host.CharMajors, majorText(major0(c, "nvidia-fs"))))
		if !ok || majors == "none" {
			c.Want("a number for nvidia-fs")
			c.Warn("nvidia-fs is loaded but has no device number: cuFile cannot open it")
			return
		}
		c.Pass("%s", show(mod))
	},
}

func major0(c *Case, name string) (int, bool) {
	n, ok := c.Machine.Host.CharMajors.V[name]
	return n, ok
}
