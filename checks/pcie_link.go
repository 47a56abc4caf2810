package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// linkBest is what a link could be: what both of its ends support.
type linkBest struct {
	speed    float64 // GT/s
	width    int
	own      pci.Link // what the device itself supports
	slot     *pci.Function
	slotLink pci.Link
	vf       bool // the link is the physical function's
}

// needLink reads the link of an endpoint, for a virtual function that of its
// physical function, and the port above it. It returns false after it gave the
// verdict itself. A guest's ports are emulated and their limits are not real, so
// that there only the device's own maximum counts.
func needLink(c *Case) (now pci.Link, best linkBest, ok bool) {
	f, ok := needFunction(c)
	if !ok {
		return now, best, false
	}
	if pf, isVF := f.PhysFn.Get(); isVF {
		if f, best.vf = c.Graph.Function(pf), true; f == nil {
			c.Unknown("cannot tell: a virtual function, whose physical function %s, which has the link, was not seen", pf)
			return now, best, false
		}
	}
	link := f.Link
	if link.State != fact.Known && f.Config.Link.State == fact.Known {
		link = f.Config.Link
	}
	now, ok = Need(c, "link now", link, f.Dir)
	if !ok {
		c.NotApplicable("not a PCI Express device")
		return now, best, false
	}
	if now.MaxSpeedGTPerSec == 0 || now.MaxWidth == 0 {
		c.NotApplicable("the device does not say what its link could be, as VFs and emulated devices do")
		return now, best, false
	}
	if now.SpeedGTPerSec == 0 && (c.Platform.Virt == Guest || c.Subject.NIC != nil && c.Subject.NIC.Model.V.IsVF) {
		// The link status of a VF reads as zero (SR-IOV specification), and in a
		// guest nothing tells a VF from a device of its own.
		c.NotApplicable("the device does not show the state of its link, as VFs do not")
		return now, best, false
	}
	best.own, best.speed, best.width = now, now.MaxSpeedGTPerSec, now.MaxWidth
	if c.Platform.Virt == Guest || f.Parent == nil {
		return now, best, true
	}
	if port := c.Graph.Function(*f.Parent); port != nil {
		if pl, known := port.Link.Get(); known && pl.MaxSpeedGTPerSec > 0 && pl.MaxWidth > 0 {
			best.slot, best.slotLink = port, pl
			best.speed, best.width = min(best.speed, pl.MaxSpeedGTPerSec), min(best.width, pl.MaxWidth)
		}
	}
	return now, best, true
}

var pcieLinkWidth = Check{
	ID: "pcie-link-width", Title: "GPUs and NICs have all their PCIe lanes", Area: AreaPCIe, Severity: SeverityError, Rung: RungLink,
	Why: "Each missing half of the lanes halves what the device can move. Lanes do not come and go with load: a narrow link is a seating, riser, cable or bifurcation fault.",
	Fix: []string{"See what the link has, and what both ends can: sudo lspci -vv -s ADDRESS | grep -E 'LnkCap:|LnkSta:'", "No command gives lanes back: power off, reseat the card and its riser or cable; swap slots to tell the card from the slot"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-testing.html",
	},
	Subjects: EachEndpoint,
	Eval:     evalLinkWidth,
}

func evalLinkWidth(c *Case) {
	if c.Subject.NIC != nil && !c.matters(c.Subject.NIC) {
		c.Lower(SeverityWarning)
	}
	now, best, ok := needLink(c)
	if !ok {
		return
	}
	c.Want("x%d", best.width)
	c.citeWidth()
	addr := c.linkOwner()
	switch {
	case now.Width == 0:
		c.Fail("its PCIe link is down")
		c.Fix(fmt.Sprintf("See what the kernel says: dmesg | grep -E '%s|pcieport'", addr),
			"Power off, reseat the card and its riser or cable")
	case now.Width < best.width:
		c.Fail("runs on %d of %d PCIe lanes", now.Width, best.width)
		c.Fix(fmt.Sprintf("Confirm: sudo lspci -vv -s %s | grep LnkSta:", addr),
			"Power off, reseat the card and its riser or cable; check the slot's bifurcation in the BIOS",
			"If it stays: swap the card with a good one, to tell the card from the slot")
	case now.Width < best.own.MaxWidth:
		c.Warn("the card has x%d, but the slot above it (%s) gives x%d", best.own.MaxWidth, best.slot.Address, best.slotLink.MaxWidth)
		c.Fix(fmt.Sprintf("Move the card (%s) to an x%d slot, or undo the bifurcation of %s in the BIOS", addr, best.own.MaxWidth, best.slot.Address))
	default:
		c.Pass("x%d", now.Width)
	}
}

// citeWidth makes the link's row name the file that tells the lanes: both come
// from two files of one directory, and the fact's source names the other.
func (c *Case) citeWidth() {
	e := &c.finding.Evidence[len(c.finding.Evidence)-1]
	e.Source = strings.Replace(e.Source, "current_link_speed", "current_link_width", 1)
}

// linkOwner is the address whose link the subject's is.
func (c *Case) linkOwner() pci.Address {
	if pf, ok := c.Subject.Function.PhysFn.Get(); ok {
		return pf
	}
	return c.Subject.Function.Address
}

var pcieLinkSpeed = Check{
	ID: "pcie-link-speed", Title: "GPUs and NICs run at full PCIe speed", Area: AreaPCIe, Severity: SeverityWarning, Rung: RungLink,
	DependsOn: []string{"pcie-link-width"},
	Why:       "A link one generation down carries half. GPUs lower their link's speed while idle to save power, and that is no fault; a NIC or a bridge does not.",
	Fix:       []string{"See whether the link trains badly: sudo lspci -vv -s ADDRESS | grep -E 'LnkSta|LnkCtl2'", "Reboot, which trains it anew, or reseat the card; check that the BIOS does not limit the slot's PCIe generation"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-testing.html",
		"https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
	},
	Subjects: EachEndpoint,
	Eval:     evalLinkSpeed,
}

func evalLinkSpeed(c *Case) {
	now, best, ok := needLink(c)
	if !ok {
		return
	}
	c.Want("%s GT/s", trimFloat(best.speed))
	addr := c.linkOwner()
	switch {
	case now.SpeedGTPerSec < best.speed:
		if l, ok := c.loaded(addr); ok {
			judgeLoadedLink(c, l.Link, best)
			return
		}
		c.Warn("runs at %s GT/s (Gen%d), not at %s (Gen%d)", trimFloat(now.SpeedGTPerSec), generation(now.SpeedGTPerSec),
			trimFloat(best.speed), generation(best.speed))
		if c.Subject.GPU != nil && c.idle() {
			c.Unsure("idle GPUs lower their link: run work on it and read again")
			c.Fix(recheckLink(c)...)
			return
		}
		c.Fix(fixTraining(addr)...)
	case now.SpeedGTPerSec < best.own.MaxSpeedGTPerSec:
		c.Warn("the card can do Gen%d, the port above it (%s) only Gen%d", generation(best.own.MaxSpeedGTPerSec),
			best.slot.Address, generation(best.slotLink.MaxSpeedGTPerSec))
		c.Fix(fmt.Sprintf("Check that the BIOS does not limit the PCIe generation of %s; else the card is faster than its slot", best.slot.Address))
	default:
		c.Pass("Gen%d, %s GT/s", generation(now.SpeedGTPerSec), trimFloat(now.SpeedGTPerSec))
	}
}

// loaded is a GPU as it was while its memory was measured, by its address.
func (n *Node) loaded(a pci.Address) (perftest.GPULoad, bool) {
	for _, r := range n.Results {
		for _, l := range r.Load {
			if l.Addr == a && l.Link.Width > 0 {
				return l, true
			}
		}
	}
	return perftest.GPULoad{}, false
}

// judgeLoadedLink settles what an idle GPU's link leaves open.
func judgeLoadedLink(c *Case, link pci.Link, best linkBest) {
	c.Row("link under load", show(link), "nvml:nvmlDeviceGetCurrPcieLinkGeneration, while its memory was measured")
	c.Want("%s GT/s", trimFloat(best.speed))
	if link.SpeedGTPerSec >= best.speed {
		c.Pass("Gen%d under load; the idle GPU lowers it", generation(link.SpeedGTPerSec))
		return
	}
	c.Warn("runs at %s GT/s (Gen%d) under load, too, not at %s (Gen%d)", trimFloat(link.SpeedGTPerSec), generation(link.SpeedGTPerSec),
		trimFloat(best.speed), generation(best.speed))
	c.Fix(fixTraining(c.linkOwner())...)
}

func fixTraining(a pci.Address) []string {
	return []string{
		fmt.Sprintf("See whether the link trains badly: sudo lspci -vv -s %s | grep -E 'LnkSta|LnkCtl2'; dmesg | grep -E '%s|pcieport'", a, a),
		"Check that the BIOS does not limit the slot's PCIe generation, then reseat the card",
	}
}

// idle says whether a GPU may be saving power: one that works, or is known to be
// in its fastest state, is not.
func (c *Case) idle() bool {
	nv := c.Subject.GPU.NVML.V
	pstate, known := nv.PerformanceState.Get()
	return nv.UtilizationPercent.Or(0) == 0 && (!known || pstate != 0)
}

func recheckLink(c *Case) []string {
	addr := c.Subject.Function.Address
	if c.Subject.GPU.Vendor == "NVIDIA" {
		return []string{fmt.Sprintf("While a job runs on it: nvidia-smi -i %s --query-gpu=pstate,pcie.link.gen.current,pcie.link.gen.max --format=csv", addr),
			"If the generation stays low under load: reseat the card, check the slot's PCIe generation in the BIOS"}
	}
	return []string{fmt.Sprintf("While a job runs on it: cat /sys/bus/pci/devices/%s/current_link_speed", addr),
		"If it stays low under load: reseat the card, check the slot's PCIe generation in the BIOS"}
}

// generation is the PCI Express generation of a link speed in GT/s.
func generation(gts float64) int {
	switch {
	case gts >= 64:
		return 6
	case gts >= 32:
		return 5
	case gts >= 16:
		return 4
	case gts >= 8:
		return 3
	case gts >= 5:
		return 2
	}
	return 1
}
