package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var gpuDriver = Check{
	ID: "gpu-driver", Title: "the GPU driver is new enough, and its libraries fit it", Area: AreaGPU, Severity: SeverityWarning,
	Why: "nvidia-peermem came with driver 470, DMA-BUF with the open modules of 515 and CUDA 11.7. Libraries of another version than the loaded module do not start at all.",
	Fix: []string{"See which are there: cat /proc/driver/nvidia/version; modinfo -F version nvidia; nvidia-smi", "Install kernel modules and libraries from one source, and reboot; with NVIDIA's repository on Debian and Ubuntu: sudo apt install nvidia-open"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://docs.nvidia.com/deploy/cuda-compatibility/",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalGPUDriver,
}

func evalGPUDriver(c *Case) {
	nv := c.Machine.GPU.NVIDIA
	version, ok := Need(c, "driver version", nv.Version)
	if !ok {
		c.NotApplicable("the NVIDIA driver is not loaded")
		return
	}
	if lib, ok := nv.NVML.Get(); ok && lib.DriverVersion != "" {
		c.Row("version that NVML reports", lib.DriverVersion, orElse(nv.NVML.Source, "nvml"))
		c.Want("%s", version)
		if lib.DriverVersion != version {
			c.Warn("the loaded driver is %s, and the libraries say %s", version, lib.DriverVersion)
			c.Fix("The driver was updated and not loaded anew; \"driver is in use\" means that others hold it:")
			c.Fix(c.reloadGPU()...)
			c.Fix("In a container: start it with the NVIDIA container toolkit, which brings the host's libraries")
			return
		}
	}
	if nv.NVML.State == fact.Failed {
		See(c, "NVML", nv.NVML)
		c.Warn("the driver's libraries do not start%s", because(nv.NVML.Reason))
		c.Fix("See: nvidia-smi", "If it tells of a version mismatch, the driver was updated and not loaded anew; \"driver is in use\" means that others hold it:")
		c.Fix(c.reloadGPU()...)
		c.Fix("In a container: start it with the NVIDIA container toolkit, which brings the host's libraries")
		return
	}
	mustSee(c, "NVML", nv.NVML)
	th := c.Thresholds
	if major(version) < th.PeermemMinDriver {
		c.Warn("driver %s is older than %d: it brings neither nvidia-peermem nor DMA-BUF", version, th.PeermemMinDriver)
		c.Fix(fmt.Sprintf("Install a driver of branch %d or newer with its open kernel modules, and reboot", th.DMABufMinNVIDIADriver))
		return
	}
	cuda := 0
	if sys, ok := nv.CUDA.Get(); ok {
		cuda = sys.DriverVersion
		c.Row("CUDA of the driver", cudaVersion(cuda), orElse(nv.CUDA.Source, "cuda"))
	}
	switch {
	case major(version) < th.DMABufMinNVIDIADriver:
		c.Info("driver %s: nvidia-peermem only; DMA-BUF needs %d or newer", version, th.DMABufMinNVIDIADriver)
	case cuda != 0 && cuda < th.DMABufMinCUDA:
		c.Info("driver %s with the libraries of CUDA %s: DMA-BUF needs %s", version, cudaVersion(cuda), cudaVersion(th.DMABufMinCUDA))
	default:
		c.Pass("%s", version)
	}
}

// cudaVersion writes 13000 as 13.0.
func cudaVersion(n int) string { return fmt.Sprintf("%d.%d", n/1000, n%1000/10) }

var gpuPartition = Check{
	ID: "gpu-partition", Title: "the GPU is whole: no MIG, no vGPU", Area: AreaGPU, Severity: SeverityInfo,
	Why: "MIG instances and vGPUs are parts of a GPU. NCCL does not use MIG instances across nodes, and not every vGPU profile allows GPUDirect RDMA; CUDA's attribute and a registration tell.",
	Fix: []string{"For jobs that span GPUs switch MIG off: sudo nvidia-smi -i ADDRESS -mig 0", "In a guest: pass the whole GPU through"},
	Refs: []string{
		"https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
		"https://github.com/NVIDIA/nccl/issues/1716",
		"https://github.com/linux-rdma/perftest/issues/126",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval: func(c *Case) {
		g := c.Subject.GPU
		virt, hasMode := Need(c, "virtualization mode", nvml(g, func(d *gpu.NVMLDevice) fact.Value[string] { return d.Virtualization }))
		if hasMode && virt == "vgpu" {
			c.Info("a vGPU: whether its profile allows GPUDirect RDMA, CUDA's attribute and a registration tell")
			return
		}
		mig, ok := Need(c, "MIG mode", nvml(g, func(d *gpu.NVMLDevice) fact.Value[gpu.MIGMode] { return d.MIG }))
		switch {
		case !ok:
			c.NotApplicable("this GPU has no MIG mode")
		case mig.Current:
			c.Info("MIG is on: NCCL does not use its instances across nodes; off: sudo nvidia-smi -i %s -mig 0", g.Addr)
		case mig.Pending:
			c.Info("MIG comes on with the next reset of the GPU")
		default:
			c.Pass("whole")
		}
	},
}

// eachNVIDIAGPU has the GPUs that NVIDIA's driver may be asked of.
func eachNVIDIAGPU(n *Node) []Subject {
	var out []Subject
	for _, s := range EachGPU(n) {
		if s.GPU.Vendor == gpu.VendorNVIDIA && !n.passedThrough(s.GPU.Addr) {
			out = append(out, s)
		}
	}
	return out
}
