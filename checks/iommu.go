package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var iommuTranslation = Check{
	ID: "iommu", Title: "the IOMMU does not translate for GPUs and NICs", Area: AreaPCIe, Severity: SeverityWarning, Rung: RungACS,
	Why: "A translating IOMMU makes peer addresses its own: transfers between GPU and NIC may be refused, hang, vanish without an error, or take the way over the root complex.",
	Fix: append(bootWith("iommu=pt"), "On Arm the option is iommu.passthrough=1; with Intel CPUs: intel_iommu=on iommu=pt"),
	Refs: []string{
		"https://docs.kernel.org/admin-guide/kernel-parameters.html",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
		"https://github.com/NVIDIA/nccl/issues/1737",
		"https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1324",
	},
	Subjects: EachEndpoint,
	Eval:     evalIOMMU,
}

func evalIOMMU(c *Case) {
	f, ok := needFunction(c)
	if !ok {
		return
	}
	if slices.ContainsFunc(c.Machine.GPU.GPUs, func(g gpu.GPU) bool { return c.sharesMemory(&g) }) {
		c.NotApplicable("GPU and CPU share their memory: nothing passes between PCIe devices")
		return
	}
	group, ok := Need(c, "IOMMU group", f.IOMMUGroup, f.Dir)
	if !ok {
		if c.Platform.Virt == Guest {
			c.Pass("no IOMMU in this guest")
		} else {
			c.Pass("no IOMMU is active")
		}
		return
	}
	kind, ok := Need(c, "IOMMU domain", f.IOMMUGroupType, f.Dir)
	c.Want("identity")
	if !ok {
		c.Unknown("cannot tell whether the IOMMU translates: this kernel does not show the type of group %d", group)
		c.Fix("See the kernel log: dmesg | grep -i 'iommu.*default domain type'")
		return
	}
	switch {
	case kind == "identity":
		c.Pass("IOMMU in pass-through (identity)")
	case f.Driver.Or("") == "vfio-pci":
		c.NotApplicable("reserved for a virtual machine (vfio-pci)")
	case strings.HasPrefix(kind, "DMA"):
		faults := c.logOf(f.Address.String(), host.LogIOMMUFault)
		c.Fix(passThrough(c)...)
		if len(faults) > 0 {
			c.Row("kernel log", faults[0].Text, "/dev/kmsg")
			c.Warn("the IOMMU translates for it (%s), and has refused accesses of it", kind)
			return
		}
		c.Warn("the IOMMU translates for it (%s)", kind)
		// With DMA-BUF completions may tell of success though the data is gone.
		c.Unsure("some platforms route translated peer traffic correctly, others throw writes away while completions succeed: only a transfer with data verification tells")
	default:
		c.Info("IOMMU domain %q: a driver manages it itself", kind)
	}
}

// passThrough are the steps that put the IOMMU into pass-through.
func passThrough(c *Case) []string {
	arg := "iommu=pt"
	switch {
	case c.Platform.Arch == "aarch64":
		arg = "iommu.passthrough=1"
	case c.Machine.Host.CPU.Vendor.Or("") == "GenuineIntel":
		arg = "intel_iommu=on iommu=pt"
	}
	if line, state := See(c, "kernel command line", c.Machine.Host.CommandLine); state == fact.Known && asksPassThrough(line) {
		return []string{
			"The kernel command line asks for pass-through already and the IOMMU translates all the same: memory encryption (SME, SEV, TDX) forces that, and so does a device marked untrusted; see: dmesg | grep -iE 'iommu|SME|SEV'",
		}
	}
	return bootWith(arg)
}

// bootWith are the steps that put an option on the kernel's command line.
func bootWith(option string) []string {
	return []string{
		fmt.Sprintf("Debian, Ubuntu: add '%s' to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub", option),
		fmt.Sprintf("RHEL: sudo grubby --update-kernel=ALL --args='%s'", option),
		"It takes effect with the next boot",
	}
}

// asksPassThrough says whether a kernel command line asks the IOMMU to pass
// through (Documentation/admin-guide/kernel-parameters.txt).
func asksPassThrough(line string) bool {
	for arg := range strings.FieldsSeq(line) {
		if arg == "iommu=pt" || arg == "iommu.passthrough=1" {
			return true
		}
	}
	return false
}
