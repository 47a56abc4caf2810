package checks

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var relaxedOrdering = Check{
	ID: "relaxed-ordering", Title: "NICs may use relaxed ordering", Area: AreaPCIe, Severity: SeverityWarning, Rung: RungLink,
	Why: "With strict ordering each write of a NIC waits for the one before. On AMD EPYC and on recent Xeon and Arm servers that costs up to two thirds of the bandwidth to GPU memory.",
	Fix: []string{"Set PCIe Relaxed Ordering to Enabled in the BIOS, then a cold reboot", "Or until the next boot: sudo setpci -s ADDRESS CAP_EXP+8.w=10:10"},
	Refs: []string{
		"https://docs.nvidia.com/networking/display/ofedv502180/relaxed+ordering+(rso)",
		"https://github.com/openucx/ucx/issues/10955",
		"https://github.com/openucx/ucx/issues/8062",
		"https://github.com/NVIDIA/nccl/issues/615",
	},
	Subjects: eachHardwareNIC,
	Eval:     evalRelaxedOrdering,
}

func evalRelaxedOrdering(c *Case) {
	end, ok := needPathEnd(c)
	if !ok {
		return
	}
	if c.Platform.Virt == Guest {
		c.NotApplicable("a guest sees an emulated register: the host sets it")
		return
	}
	if !c.matters(c.Subject.NIC) {
		c.NotApplicable("not a NIC that a GPU uses")
		return
	}
	f := c.physical(end)
	on, ok := Need(c, "Enable Relaxed Ordering", f.Config.RelaxedOrdering, f.Dir)
	c.Want("yes")
	if !ok {
		c.NotApplicable("not a PCI Express device")
		return
	}
	if on {
		// Whether it is used is the application's choice for each memory region,
		// or mlxconfig's PCI_WR_ORDERING, which only the firmware tool shows.
		c.Pass("allowed; applications ask for it by IBV_ACCESS_RELAXED_ORDERING")
		return
	}
	switch c.needsRelaxedOrdering() {
	case dontKnow:
		c.Unknown("cannot tell whether it matters that relaxed ordering is off: the CPU's model could not be seen")
	case no:
		c.Info("off; on this CPU it makes little difference")
	case yes:
		c.Warn("relaxed ordering is off, and this CPU needs it for full bandwidth")
		c.Fix("Set PCIe Relaxed Ordering to Enabled in the BIOS, then a cold reboot",
			fmt.Sprintf("Or until the next boot: sudo setpci -s %s CAP_EXP+8.w=10:10", f.Address),
			"Leave mlxconfig's PCI_WR_ORDERING at per_mkey(0): force_relax(1) reorders writes that applications rely on")
		c.Unsure("the kernel also turns it off below root ports that break it: dmesg | grep -i 'relaxed ordering'; a bandwidth test tells")
	}
}

// needsRelaxedOrdering says whether the CPU is slow without: AMD's and Arm's are,
// and some of Intel's.
func (c *Case) needsRelaxedOrdering() answerState {
	cpu := c.Machine.Host.CPU
	vendor, state := See(c, "CPU vendor", cpu.Vendor)
	switch {
	case c.Platform.Arch == "aarch64", vendor == "AuthenticAMD":
		return yes
	case state != fact.Known:
		return dontKnow
	case vendor != "GenuineIntel":
		return no
	}
	model, state := See(c, "CPU model number", cpu.ModelNum)
	switch {
	case state != fact.Known:
		return dontKnow
	case slices.Contains(c.Thresholds.RelaxedOrderingIntelModels, model):
		return yes
	}
	return no
}
