package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

var acsRedirect = Check{
	ID: "acs-redirect", Title: "no bridge on the path sends peer traffic to the root complex", Area: AreaPCIe,
	Severity: SeverityError, Rung: RungACS,
	Why: "With ACS redirection on, a switch port does not turn GPU–NIC traffic around but sends it up to the root complex and down again: half the bandwidth, hangs, or local protection errors.",
	Fix: []string{
		"See which ports redirect: sudo lspci -vv | grep -E '^[0-9a-f]|ACSCtl:'",
		fmt.Sprintf("For each on the path, until the next boot: sudo setpci -v -s ADDRESS ECAP_ACS+6.w=0:%x", pci.ACSRedirectMask),
		"For good: turn ACS off for PCIe switches in the BIOS, or boot with pci=disable_acs_redir=ADDRESS;ADDRESS and all those ports; a finding has the whole line",
	},
	Refs: []string{
		"https://docs.kernel.org/driver-api/pci/p2pdma.html",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#pci-access-control-services-acs",
		"https://github.com/NVIDIA/nccl/issues/304",
		"https://github.com/NVIDIA/nccl/issues/949",
	},
	Subjects: EachPair,
	Eval:     evalACS,
}

func evalACS(c *Case) {
	gpu := c.Subject.GPU.Addr
	end, ok := needPathEnd(c)
	if !ok {
		return
	}
	if c.Platform.Virt == Guest {
		evalACSGuest(c, end)
		return
	}
	if !c.placed(gpu, end) {
		return
	}
	common := c.Graph.Common(gpu, end)
	if common == nil {
		// p2pdma's rule: without a common bridge traffic crosses the root complex
		// whatever the ports' ACS bits say; then its whitelist of host bridges
		// decides, and gpu-nic-path speaks of the cost.
		mustSee(c, "hypervisor", c.Machine.Host.Hypervisor) // a guest's bridges are not the host's
		c.NotApplicable("GPU and NIC share no switch: their traffic crosses the root complex whatever ACS says")
		return
	}
	bridges := c.Graph.Bridges(gpu, end)
	if len(bridges) == 0 {
		mustSee(c, "hypervisor", c.Machine.Host.Hypervisor)
		c.Pass("no bridge between the GPU, the NIC and their common port")
		return
	}
	if c.passedThrough(gpu) {
		evalACSHost(c, c.below(common, end), end)
		return
	}
	if c.Subject.NIC.DataDirect.State == fact.Known {
		evalACSDataDirect(c, gpu, end, common)
		return
	}
	var redirecting []pci.Address
	for _, b := range bridges {
		if ctl, ok := readACS(c, b); ok && ctl&pci.ACSRedirectMask != 0 {
			redirecting = append(redirecting, b.Address)
			c.Want("ReqRedir- CmpltRedir- EgressCtrl-")
		}
	}
	if redirecting == nil {
		needACS(c, bridges)
		mustSee(c, "hypervisor", c.Machine.Host.Hypervisor)
		c.Pass("no redirection on the %d port%s between GPU and NIC", len(bridges), plural(len(bridges)))
		return
	}
	message := fmt.Sprintf("ACS redirection on %s sends GPU–NIC traffic up to the root complex", list(redirecting))
	if c.Platform.Virt == VirtUnknown {
		c.Warn("%s", message)
		c.Unsure("whether this is bare metal could not be seen; in a guest, leave ACS as it is")
	} else {
		c.Fail("%s", message)
	}
	c.Fix(clearACS(c, redirecting)...)
}

// readACS reads one bridge's ACS control register; false where it has none or
// could not be read.
func readACS(c *Case, b *pci.Function) (ctl uint16, ok bool) {
	acs, state := See(c, "ACS control of "+b.Address.String(), b.Config.ACS, b.Dir)
	return acs.Ctl, state == fact.Known
}

// needACS ends the check where a bridge's register could not be seen.
func needACS(c *Case, bridges []*pci.Function) {
	c.finding.Evidence = nil
	for _, b := range bridges {
		Need(c, "ACS control of "+b.Address.String(), b.Config.ACS, b.Dir)
	}
}

// clearACS are the steps that clear the redirect bits alone: the others do not
// send peer traffic up, and clearing them would weaken more than is needed.
func clearACS(c *Case, ports []pci.Address) []string {
	var out, names []string
	for _, a := range ports {
		out = append(out, fmt.Sprintf("Until the next boot: sudo setpci -v -s %s ECAP_ACS+6.w=0:%x", a, pci.ACSRedirectMask))
	}
	for _, a := range c.redirectingPorts() {
		names = append(names, a.String())
	}
	return append(out,
		fmt.Sprintf(`For good, all ports at once, in /etc/default/grub: GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=disable_acs_redir=\"%s\""`, strings.Join(names, ";")),
		"Then: sudo update-grub",
		"Or, on RHEL 9: sudo grub2-mkconfig -o /boot/grub2/grub.cfg --update-bls-cmdline",
		"It takes effect with the next boot",
		"Or turn ACS off for PCIe switches in the BIOS",
		"Not on a host that passes these devices to virtual machines: it merges their IOMMU groups")
}

// redirectingPorts are those of all pairs: of several disable_acs_redir on one
// kernel command line only the last counts.
func (c *Case) redirectingPorts() []pci.Address {
	var out []pci.Address
	for _, p := range c.preferred() {
		g, _ := c.Graph.Device(p.GPU)
		nic, _ := c.Graph.Device(p.NIC)
		end, ok := c.pathEnd(nic.RDMA)
		if !ok || c.Graph.Common(*g.Addr, end) == nil {
			continue
		}
		for _, b := range c.Graph.Bridges(*g.Addr, end) {
			if acs, known := b.Config.ACS.Get(); known && acs.Ctl&pci.ACSRedirectMask != 0 && !slices.Contains(out, b.Address) {
				out = append(out, b.Address)
			}
		}
	}
	return out
}

// evalACSGuest: a guest sees emulated bridges at most. What decides is on the
// host: there ACS must stay on for isolation, and direct translated peer traffic
// needs ATS on the NIC and DirectTrans on its port.
func evalACSGuest(c *Case, end pci.Address) {
	if !c.placed(end) {
		return
	}
	f := c.Graph.Function(end)
	ats, state := See(c, "ATS of the NIC", f.Config.ATS, f.Dir)
	const host = "a guest cannot see the host's ACS, and must not change it"
	switch {
	case state == fact.Known && ats:
		c.Pass("ATS is on, so that the host's switches can pass peer traffic directly")
	case state == fact.Known:
		c.Warn("ATS is off on the NIC: if the host's IOMMU translates, peer traffic takes the way over the root complex at about half the bandwidth")
		c.Fix("On the host, for a ConnectX: sudo mlxconfig -d DEVICE set ATS_ENABLED=1, then a cold reboot",
			"On the host, the ports above GPU and NIC should show: SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+ DirectTrans+")
		c.Unsure("%s; a bandwidth test between GPU and NIC tells", host)
	default:
		c.Info("%s; a bandwidth test between GPU and NIC tells", host)
	}
}

// acsVirtualised are the bits of the port above a NIC that is passed to a virtual
// machine together with a GPU: isolated, but translated requests (ATS) may turn
// at the switch.
const acsVirtualised = pci.ACSDirectTranslated | pci.ACSUpstreamForwarding | pci.ACSCompletionRedirect |
	pci.ACSRequestRedirect | pci.ACSSourceValidation

// passedThrough says whether a function is reserved for a virtual machine.
func (n *Node) passedThrough(a pci.Address) bool {
	f := n.Graph.Function(a)
	return f != nil && f.Driver.Or("") == "vfio-pci"
}

// evalACSHost judges a host that gives the GPU to a virtual machine: there ACS
// must isolate, and DirectTrans with ATS keeps peer traffic on the switch.
func evalACSHost(c *Case, port *pci.Function, nic pci.Address) {
	if port == nil {
		c.NotApplicable("the GPU is reserved for a virtual machine (vfio-pci)")
		return
	}
	acs, ok := Need(c, "ACS control of "+port.Address.String(), port.Config.ACS, port.Dir)
	c.Want("%s", showACS(acsVirtualised))
	if !ok {
		c.NotApplicable("the port above the NIC has no ACS")
		return
	}
	f := c.Graph.Function(nic)
	ats, state := See(c, "ATS of the NIC", f.Config.ATS, f.Dir)
	c.Want("yes")
	if acs.Ctl&acsVirtualised == acsVirtualised && state == fact.Known && ats {
		c.Pass("isolated for virtual machines, and translated peer traffic stays on the switch")
		return
	}
	c.Warn("in a virtual machine, traffic between this GPU and NIC takes the way over the root complex at about half the bandwidth")
	c.Unsure("it matters where both are given to one virtual machine")
	if acs.Ctl&acsVirtualised != acsVirtualised {
		c.Fix(fmt.Sprintf("Until the next boot: sudo setpci -v -s %s ECAP_ACS+6.w=%x:%x", port.Address, acsVirtualised, acsVirtualised),
			fmt.Sprintf("For good, from kernel 6.11 on: boot with pci=config_acs=1x111x1@%s, and with all ports in this one option, separated by ;", port.Address))
	}
	if state != fact.Known || !ats {
		c.Fix(fmt.Sprintf("ATS of a ConnectX: sudo mlxconfig -d %s set ATS_ENABLED=1, then a cold reboot", nic))
	}
}

// The rules of Data Direct, where the NIC's DMA function and the GPU stand below
// one switch of the NIC's: UpstreamFwd, CmpltRedir, ReqRedir and SrcValid as
// rdma-core's kernel-boot/rdma_topo sets them. Requests must turn at the shared
// switch on the DMA function's side and completions on the GPU's; all else goes
// up for the IOMMU to translate.
const (
	dataDirectMask = pci.ACSUpstreamForwarding | pci.ACSCompletionRedirect | pci.ACSRequestRedirect | pci.ACSSourceValidation
	dataDirectNIC  = pci.ACSUpstreamForwarding | pci.ACSCompletionRedirect | pci.ACSSourceValidation
	dataDirectGPU  = pci.ACSUpstreamForwarding | pci.ACSRequestRedirect | pci.ACSSourceValidation
	dataDirectRoot = pci.ACSUpstreamForwarding | pci.ACSCompletionRedirect | pci.ACSRequestRedirect
)

func evalACSDataDirect(c *Case, gpu, nic pci.Address, common *pci.Function) {
	ports := []struct {
		what       string
		port       *pci.Function
		want, stop uint16 // the rule, and the bit that breaks peer traffic
	}{
		{"towards the Data Direct function", c.below(common, nic), dataDirectNIC, pci.ACSRequestRedirect},
		{"towards the GPU", c.below(common, gpu), dataDirectGPU, pci.ACSCompletionRedirect},
		{"the root port", c.below(nil, nic), dataDirectRoot, 0},
	}
	var broken, odd []string
	for _, p := range ports {
		if p.port == nil {
			continue
		}
		acs, ok := Need(c, fmt.Sprintf("ACS control of %s, %s", p.port.Address, p.what), p.port.Config.ACS, p.port.Dir)
		c.Want("%s", showACS(p.want))
		if !ok || acs.Ctl&dataDirectMask == p.want {
			continue
		}
		odd = append(odd, p.port.Address.String())
		if acs.Ctl&p.stop != 0 {
			broken = append(broken, p.port.Address.String())
		}
	}
	switch {
	case broken != nil:
		c.Fail("ACS on %s redirects Data Direct traffic to the root complex", strings.Join(broken, ", "))
	case odd != nil:
		c.Warn("ACS on %s is not as Data Direct wants it", strings.Join(odd, ", "))
	default:
		c.Pass("ACS is as Data Direct wants it")
		return
	}
	c.Fix("Let rdma-core's tool write pci=config_acs= for this machine, then reboot: sudo rdma_topo write-grub-acs",
		"Then see: sudo rdma_topo check")
}

// below is the bridge just under common on the way to a function, where common
// is above it; of all its bridges the topmost where common is nil.
func (c *Case) below(common *pci.Function, a pci.Address) *pci.Function {
	var last *pci.Function
	for _, up := range c.Graph.Upstream(a) {
		if up == common {
			break
		}
		last = up
	}
	return last
}

// list joins addresses for a sentence.
func list(addrs []pci.Address) string {
	var s []string
	for _, a := range addrs {
		s = append(s, a.String())
	}
	return strings.Join(s, ", ")
}
