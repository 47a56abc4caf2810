package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

var gdrWay = Check{
	ID: "gdr-way", Title: "the drivers have a way to register GPU memory", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"gpu-present", "rdma-device-present", "nic-model", "gpu-direct-attribute", "module-signature", "kernel-dmabuf", "p2p-host-bridge", "peermem-load"},
	Why:       "A NIC can use GPU memory only after it was registered, either through the nvidia-peermem module or through DMA-BUF. One way suffices; without any, ibv_reg_mr answers EFAULT or applications copy through the CPU.",
	Fix:       []string{"With DOCA-OFED: sudo modprobe nvidia-peermem", "Or DMA-BUF with the open GPU kernel modules; with NVIDIA's repository on Debian and Ubuntu: sudo apt install nvidia-open"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/#using-nvidia-peermem",
		"https://docs.kernel.org/driver-api/dma-buf.html",
		"https://github.com/linux-rdma/perftest/issues/126",
		"https://github.com/siderolabs/talos/issues/12021",
		"https://github.com/NVIDIA/nccl/issues/1474",
	},
	Subjects: EachPair,
	Eval:     evalGDRWay,
}

// answer is one condition of a way: yes, no or unknown, and why. Of a yes that was
// inferred rather than asked, why says so.
type answer struct {
	state answerState
	why   string
}

type answerState uint8

const (
	dontKnow answerState = iota
	yes
	no
)

// both is the answer to "a and b": one no decides.
func both(list ...answer) answer {
	out := answer{state: yes}
	for _, a := range list {
		switch {
		case a.state == no:
			return a
		case a.state == dontKnow && out.state == yes:
			out = a
		case a.state == yes && out.state == yes && a.why != "":
			out.why = a.why
		}
	}
	return out
}

func evalGDRWay(c *Case) {
	if c.passedThrough(c.Subject.GPU.Addr) {
		c.NotApplicable("the GPU is reserved for a virtual machine (vfio-pci): its driver is the guest's")
		return
	}
	if p, ok := c.registration(c.Subject.GPU, c.Subject.NIC).Get(); ok {
		// What was done counts more than what settings let expect.
		if ways := slices.Concat(works(p, perftest.MemoryCUDA), works(p, perftest.MemoryROCm)); len(ways) > 0 {
			c.Row("registration", "works by "+strings.Join(ways, " and "), fact.AskRegistration)
			c.Pass("%s, as registering showed", strings.Join(ways, " and "))
			return
		}
	}
	if c.Subject.GPU.Vendor == gpu.VendorAMD {
		evalAMDWay(c)
		return
	}
	if slices.ContainsFunc(c.Thresholds.NoGPUDirectProducts, func(p string) bool { return strings.HasPrefix(c.Platform.Product, p) }) {
		c.Row("product", c.Platform.Product, c.Machine.Host.DMI.ProductName.Source)
		c.Fail("%s instances have no GPUDirect RDMA: their NIC copies through the CPU", c.Platform.Product)
		c.Fix("Choose an instance type with GPUDirect RDMA (p4d, p5, p6); here nothing on the node changes it")
		return
	}
	peermem := peermemWay(c)
	dmabuf := both(gpuExportsDMABuf(c), nicImportsDMABuf(c))
	switch {
	case peermem.state == yes && dmabuf.state == yes:
		c.Pass("DMA-BUF and %s", peermem.why)
	case peermem.state == yes && dmabuf.state == no:
		c.Pass("%s (no DMA-BUF: %s)", peermem.why, dmabuf.why)
	case peermem.state == yes:
		c.Pass("%s (whether DMA-BUF works too is not known: %s)", peermem.why, dmabuf.why)
	case dmabuf.state == yes:
		c.Pass("DMA-BUF%s", because(dmabuf.why))
	case peermem.state == no && dmabuf.state == no && c.driverMissing():
		c.Fail("the NVIDIA driver is not loaded: nothing can register GPU memory")
		fixWay(c)
	case peermem.state == no && dmabuf.state == no:
		c.Fail("no way to register GPU memory: %s, and no DMA-BUF: %s", peermem.why, dmabuf.why)
		fixWay(c)
	default:
		c.Unknown("cannot tell whether GPU memory can be registered: peermem: %s; DMA-BUF: %s", peermem.why, dmabuf.why)
		c.Fix("Run on the live node as root: sudo gdrcheck check --only gdr-way")
	}
}

// peermemWay asks for a peer memory client: nvidia_peermem, or its forerunner.
func peermemWay(c *Case) answer {
	mod, state := See(c, "nvidia_peermem", c.module("nvidia_peermem", "nv_peer_mem"))
	switch state {
	case fact.Known:
	case fact.Absent:
		return answer{no, "nvidia_peermem is not loaded"}
	case fact.NotCollected, fact.Unsupported, fact.Denied, fact.Failed:
		return answer{dontKnow, "the list of modules could not be seen"}
	}
	// peermem hands memory to any driver on a patched RDMA core; drivers that
	// do without (EFA has a module of its own) never ask it.
	if m, ok := c.Subject.NIC.Model.Get(); ok && (m.GPUDirect == "dmabuf" || m.GPUDirect == "none") {
		return answer{no, mod.Name + " does not serve this NIC"}
	}
	return answer{yes, mod.Name}
}

// gpuExportsDMABuf: CUDA's own answer counts most, then the driver's flavour.
func gpuExportsDMABuf(c *Case) answer {
	g := c.Subject.GPU
	if cc, ok := nvml(g, func(d *gpu.NVMLDevice) fact.Value[bool] { return d.Confidential }).Get(); ok && cc {
		return answer{no, "confidential computing is on"}
	}
	if blocked := topologyRefused(c); blocked.state != yes {
		return blocked
	}
	attr, state := See(c, "CUDA attribute 124 (DMA-BUF)", cuda(g, func(d *gpu.CUDADevice) fact.Value[int] { return d.DMABuf }))
	switch {
	case state == fact.Known && attr != 0:
		return answer{state: yes}
	case state == fact.Known:
		return answer{no, "the GPU driver does not export it (CUDA attribute 124 is 0)"}
	}
	flavour, state := See(c, "GPU driver flavour", c.Machine.GPU.NVIDIA.Flavour)
	c.Want("open")
	switch {
	case c.driverMissing():
		return answer{no, "the NVIDIA driver is not loaded"}
	case state == fact.Absent:
		return answer{dontKnow, "the NVIDIA driver is bound to the GPU, but its version file was not seen"}
	case state != fact.Known:
		return answer{dontKnow, "the GPU driver's flavour could not be seen"}
	case flavour != "open":
		return answer{no, "the " + flavour + " GPU driver does not export it"}
	}
	// The open modules began with 515: without a version the flavour alone tells.
	version, ok := c.Machine.GPU.NVIDIA.Version.Get()
	if ok && major(version) < c.Thresholds.DMABufMinNVIDIADriver {
		return answer{no, fmt.Sprintf("GPU driver %s is older than %d", version, c.Thresholds.DMABufMinNVIDIADriver)}
	}
	conf, state := See(c, "CONFIG_DMA_SHARED_BUFFER", c.configOption("CONFIG_DMA_SHARED_BUFFER"))
	c.Want("y or m")
	if state == fact.Known && conf == "n" {
		return answer{no, "the kernel was built without CONFIG_DMA_SHARED_BUFFER"}
	}
	return answer{state: yes}
}

// topologyRefused: on Arm servers whose CPU does not forward peer traffic the
// driver refuses DMA-BUF unless GPU and NIC share a switch; coherent GPUs and
// guests pass.
func topologyRefused(c *Case) answer {
	if c.Platform.Arch != "aarch64" || c.Platform.Virt == Guest || coherent(c.Subject.GPU) ||
		c.Subject.Pair.Path.Rank() <= topo.ClassPXB.Rank() {
		return answer{state: yes}
	}
	if c.Machine.GPU.NVIDIA.Params.V["GrdmaPciTopoCheckOverride"] == "1" {
		return answer{state: yes}
	}
	if c.Machine.Host.CPU.Vendor.Or("") == "Ampere" {
		See(c, "CPU", c.Machine.Host.CPU.Vendor)
		return answer{no, "on this CPU the GPU driver refuses it where GPU and NIC share no PCIe switch"}
	}
	return answer{dontKnow, "on some Arm CPUs the GPU driver refuses it where GPU and NIC share no switch"}
}

// nicImportsDMABuf: the probe through libibverbs proves the whole stack; without
// it the kernel's age and the NIC's driver tell.
func nicImportsDMABuf(c *Case) answer {
	nic := c.Subject.NIC
	probe := fact.As(nic.Verbs, 0)
	if nic.Verbs.State == fact.Known {
		probe = nic.Verbs.V.DMABufErrno
	}
	const ebadf, eprotonosupport, eopnotsupp = 9, 93, 95
	switch n, state := See(c, "ibv_reg_dmabuf_mr(fd -1)", probe); {
	case state != fact.Known:
	case n == ebadf:
		c.Want("errno 9 (EBADF)")
		return answer{state: yes}
	case n == eopnotsupp:
		return answer{no, "the NIC's driver does not take it (EOPNOTSUPP)"}
	case n == eprotonosupport:
		return answer{no, "kernel or rdma-core are too old for it (EPROTONOSUPPORT)"}
	}
	release, state := See(c, "kernel", c.Machine.Host.KernelRelease)
	c.Want("%s or newer", c.Thresholds.DMABufMinKernel)
	if state != fact.Known {
		return answer{dontKnow, "the kernel's release could not be seen"}
	}
	if older(release, c.Thresholds.DMABufMinKernel) {
		return answer{no, fmt.Sprintf("kernel %s is older than %s", release, c.Thresholds.DMABufMinKernel)}
	}
	driver, state := See(c, "NIC driver", nic.Driver)
	since := c.Thresholds.DMABufNICDrivers[driver]
	switch {
	case state != fact.Known:
		return answer{dontKnow, "the NIC's driver could not be seen"}
	case since == "":
		return answer{dontKnow, "not known for the NIC driver " + driver}
	case since == "none":
		return answer{no, "the NIC driver " + driver + " does not take it"}
	case older(release, since) && c.module(driver).V.Version.State == fact.Known:
		// In-tree drivers carry no version: one that does is a vendor's, which
		// may bring the function to older kernels.
		return answer{dontKnow, "the NIC driver " + driver + " is not the kernel's own"}
	case older(release, since):
		return answer{no, fmt.Sprintf("the NIC driver %s takes it from kernel %s on", driver, since)}
	}
	return answer{yes, "by kernel and driver; libibverbs was not asked"}
}

// driverMissing says that NVIDIA's driver is not loaded. Where one is bound to the
// GPU and only its files in /proc are missing, as in a partial tree, it is loaded.
func (c *Case) driverMissing() bool {
	return c.Machine.GPU.NVIDIA.Flavour.State == fact.Absent && c.boundDriver() != "nvidia"
}

// boundDriver is the driver that the kernel has bound to the GPU; empty: none, or
// not known.
func (c *Case) boundDriver() string {
	if f := c.Graph.Function(c.Subject.GPU.Addr); f != nil {
		return f.Driver.Or("")
	}
	return ""
}

// fixWay orders the fixes by ease: a module that is there already, a setting,
// another driver.
func fixWay(c *Case) {
	sym := c.Machine.Host.Symbols["ib_register_peer_memory_client"]
	has, symKnown := sym.Get()
	if c.driverMissing() {
		if c.boundDriver() == "nouveau" {
			c.Fix("nouveau has taken the GPU: printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf; then sudo update-initramfs -u (RHEL: sudo dracut -f) and reboot")
		}
		c.Fix("Load the NVIDIA driver: sudo modprobe nvidia",
			"Where it is not installed: the open GPU kernel modules (package nvidia-open of NVIDIA's repository; Ubuntu's own: nvidia-driver-VERSION-server-open)")
		return
	}
	open := c.Machine.GPU.NVIDIA.Flavour.Or("") == "open"
	switch {
	case c.module("nvidia_peermem").State == fact.Absent && c.moduleFile("nvidia_peermem") && (has || !symKnown):
		c.Fix("Easiest: sudo modprobe nvidia-peermem",
			"To keep it: echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
			"If modprobe says 'Invalid argument': the module was built before DOCA-OFED; reinstall the GPU driver")
	case symKnown && !has:
		c.Fix("nvidia-peermem cannot load: this kernel's RDMA core has no peer memory interface; it needs DOCA-OFED, and the GPU driver reinstalled after it")
	}
	if !open {
		c.Fix("DMA-BUF: change to the open GPU kernel modules (package nvidia-open), driver 515 or newer, and reboot")
	}
	if rel, ok := c.Machine.Host.KernelRelease.Get(); ok && older(rel, c.Thresholds.DMABufMinKernel) {
		c.Fix(fmt.Sprintf("DMA-BUF: needs kernel %s or newer; this is %s", c.Thresholds.DMABufMinKernel, rel))
	}
	if n, ok := c.Subject.NIC.Verbs.V.DMABufErrno.Get(); ok && n != 9 {
		c.Fix(fmt.Sprintf("DMA-BUF: update rdma-core and the driver of %s, then try again", c.Subject.NIC.Name))
	}
}

// evalAMDWay: DMA-BUF by the kernel's options, or the peer memory client that
// amdgpu registers.
func evalAMDWay(c *Case) {
	peers, _ := See(c, "peer memory clients", c.Machine.Host.MemoryPeers)
	for _, p := range peers {
		if strings.HasPrefix(p, "amdkfd") {
			c.Pass("amdgpu's peer memory client")
			return
		}
	}
	list := []answer{nicImportsDMABuf(c)}
	for _, name := range []string{"CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_HSA_AMD_P2P"} {
		got, state := See(c, name, c.configOption(name))
		c.Want("y")
		a := answer{state: yes}
		switch {
		case state == fact.Known && got == "n":
			a = answer{no, "the kernel was built without " + name}
		case state != fact.Known:
			a = answer{dontKnow, "the kernel's configuration could not be seen"}
		}
		list = append(list, a)
	}
	switch a := both(list...); a.state {
	case yes:
		c.Pass("DMA-BUF%s", because(a.why))
	case no:
		c.Fail("no way to register GPU memory: no peer memory client, and no DMA-BUF: %s", a.why)
		c.Fix("Use a kernel with CONFIG_PCI_P2PDMA, CONFIG_DMABUF_MOVE_NOTIFY and CONFIG_HSA_AMD_P2P (Ubuntu 22.04 HWE and newer), or AMD's amdgpu-dkms")
	case dontKnow:
		c.Unknown("cannot tell whether GPU memory can be registered: %s", a.why)
		c.Fix("Run on the live node as root: sudo gdrcheck check --only gdr-way")
	}
}

// configOption is one option of the kernel's configuration, "y", "m" or "n".
func (n *Node) configOption(name string) fact.Value[string] {
	conf := n.Machine.Host.KernelConfig
	if conf.State != fact.Known {
		return fact.As(conf, "")
	}
	v, ok := conf.V[name]
	if !ok {
		return fact.Missing[string](fact.NotCollected, conf.Source, "gdrcheck did not look for it")
	}
	return fact.Of(v, conf.Source)
}
