package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var kernelDMABuf = Check{
	ID: "kernel-dmabuf", Title: "the kernel was built with what DMA-BUF needs", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"gpu-present", "rdma-device-present"},
	Why:       "GPU memory reaches the NIC as a dma-buf only in a kernel that has the framework (CONFIG_DMA_SHARED_BUFFER), for mlx5 on-demand paging besides, and for AMD GPUs P2PDMA. NVIDIA's driver needs no P2PDMA.",
	Fix:       []string{"See which options it has: grep -E 'CONFIG_(PCI_P2PDMA|DMABUF_MOVE_NOTIFY|INFINIBAND_USER_MEM)=' /boot/config-$(uname -r)", "No command adds one to a kernel: boot one of the distribution that has them, or use nvidia-peermem with DOCA-OFED"},
	Refs: []string{
		"https://docs.kernel.org/driver-api/dma-buf.html",
		"https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/mr.c",
		"https://github.com/siderolabs/talos/issues/12021",
		"https://github.com/ROCm/rocm-systems/issues/3258",
		"https://github.com/ROCm/mori/issues/560",
	},
	UnknownIs: SeverityWarning, // gdr-way decides
	Subjects:  TheNode,
	Eval:      evalKernelDMABuf,
}

func evalKernelDMABuf(c *Case) {
	pairs := EachPair(c.Node)
	if len(pairs) == 0 {
		c.none("no GPU and NIC that belong together")
		return
	}
	release, _ := Need(c, "kernel", c.Machine.Host.KernelRelease)
	if older(release, c.Thresholds.DMABufMinKernel) {
		c.NotApplicable("kernel %s is too old for it whatever its options", release)
		return
	}
	needed := dmabufOptions(c, pairs)
	if c.Machine.Host.KernelConfig.State != fact.Known {
		Need(c, "kernel configuration", fact.As(c.Machine.Host.KernelConfig, ""))
		c.Unknown("cannot tell: this kernel's configuration is not on this machine")
		c.Fix("Look for it: ls /boot/config-" + release + " /proc/config.gz /lib/modules/" + release + "/config")
		return
	}
	var missing []string
	for _, name := range needed {
		got, _ := Need(c, name, c.configOption(name))
		c.Want("y or m")
		if got != "y" && got != "m" {
			missing = append(missing, name)
		}
	}
	other := c.module("nvidia_peermem", "nv_peer_mem").State == fact.Known ||
		slices.ContainsFunc(c.Machine.Host.MemoryPeers.V, func(s string) bool { return strings.HasPrefix(s, "amdkfd") })
	switch {
	case missing == nil:
		c.Pass("%s", strings.Join(needed, ", "))
	case other:
		c.Info("built without %s: no DMA-BUF, but a peer memory module is loaded", strings.Join(missing, ", "))
	default:
		c.Fail("the kernel was built without %s: no DMA-BUF, and no peer memory module is loaded", strings.Join(missing, ", "))
		c.Fix("Boot a kernel that has "+strings.Join(missing, "=y, ")+"=y (this is "+release+"); those of Ubuntu 22.04 HWE, RHEL 9.2 and newer have them",
			otherThanDMABuf(pairs, release))
	}
}

// otherThanDMABuf names the peer memory client as the other way, where there is one.
func otherThanDMABuf(pairs []Subject, release string) string {
	const gplOnly = "6.3" // the kernel from which amdgpu can no longer look its symbol up
	switch {
	case pairs[0].GPU.Vendor == gpu.VendorNVIDIA:
		return "Or install DOCA-OFED, then reinstall the GPU driver and sudo modprobe nvidia-peermem"
	case older(release, gplOnly):
		return "Or install DOCA-OFED and amdgpu-dkms, whose peer memory client needs none of them"
	}
	return "There is no other way: on kernel 6.3 and newer amdgpu's peer memory client never registers with OFED, also that of amdgpu-dkms"
}

// dmabufOptions are the options that the GPUs and NICs here need. What
// libibverbs proved, or a vendor's driver brings, the configuration need not say.
func dmabufOptions(c *Case, pairs []Subject) []string {
	out := []string{"CONFIG_DMA_SHARED_BUFFER"}
	add := func(names ...string) {
		for _, n := range names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	for _, s := range pairs {
		const ebadf = 9
		proven := s.NIC.Verbs.V.DMABufErrno.Or(0) == ebadf
		driver, _ := mustSee(c, "driver of "+s.NIC.Name, s.NIC.Driver, s.NIC.Dir)
		if strings.HasPrefix(driver, "mlx5") && !proven && c.moduleVersion("mlx5_core").State != fact.Known {
			add("CONFIG_INFINIBAND_USER_MEM", "CONFIG_INFINIBAND_ON_DEMAND_PAGING")
		}
		if s.GPU.Vendor == gpu.VendorAMD {
			add("CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_HSA_AMD_P2P")
		}
	}
	return out
}
