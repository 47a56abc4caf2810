package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var nvregOptions = Check{
	ID: "nvreg-options", Title: "NVIDIA driver options are in force and harmless", Area: AreaDriver, Severity: SeverityWarning,
	Why: "Options in modprobe.d count only once the module was loaded anew, from an initramfs that has them too. Names that the driver does not know are ignored without a word, and some values forbid peer access.",
	Fix: []string{"See what is in force, and what is asked for: cat /proc/driver/nvidia/params; modprobe -c | grep NVreg", "Remove the option, or put it into the initramfs and reboot: sudo update-initramfs -u (RHEL: sudo dracut -f)"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-reg.h",
		"https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1324",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalNVReg,
}

const paramsFile = "/proc/driver/nvidia/params"

// remark is one thing to say about the options.
type remark struct {
	text string
	fix  []string
}

func evalNVReg(c *Case) {
	live, ok := Need(c, "options in force", c.Machine.GPU.NVIDIA.Params)
	if !ok {
		c.NotApplicable("the NVIDIA driver is not loaded")
		return
	}
	var warns, infos []remark
	set, state := See(c, "options in modprobe.d", c.Machine.Host.Modprobe)
	if state == fact.Known {
		w, i := compareNVReg(c, lastOptions(set), live)
		warns, infos = append(warns, w...), append(infos, i...)
	}
	w, i := judgeNVReg(c, live)
	warns, infos = append(warns, w...), append(infos, i...)
	switch {
	case warns != nil:
		c.Warn("%s", join(append(warns, infos...)))
		for _, r := range warns {
			c.Fix(r.fix...)
		}
	case state != fact.Known && state != fact.Absent:
		Need(c, "options in modprobe.d", c.Machine.Host.Modprobe)
	case infos != nil:
		c.Info("%s", join(infos))
	default:
		c.Pass("what modprobe.d asks for is in force")
	}
}

func join(list []remark) string {
	var s []string
	for _, r := range list {
		s = append(s, r.text)
	}
	return strings.Join(s, "; ")
}

// lastOptions are the NVreg_ options of the nvidia module; of several with one
// name the last counts, as for the kernel.
func lastOptions(set []host.ModprobeOption) []host.ModprobeOption {
	var out []host.ModprobeOption
	for _, o := range set {
		module := strings.ReplaceAll(o.Module, "-", "_")
		if module != "nvidia" && module != "nvidia_current" || !strings.HasPrefix(o.Name, "NVreg_") {
			continue
		}
		out = slices.DeleteFunc(out, func(p host.ModprobeOption) bool { return p.Name == o.Name })
		out = append(out, o)
	}
	return out
}

// compareNVReg holds modprobe.d against what is in force.
func compareNVReg(c *Case, set []host.ModprobeOption, live map[string]string) (warns, infos []remark) {
	for _, o := range set {
		name := strings.TrimPrefix(o.Name, "NVreg_")
		where := fmt.Sprintf("%s:%d", o.File, o.Line)
		option, listed := nvregOptionOf(name)
		if listed {
			name = option.shown()
		}
		got, shown := live[name]
		lacking := option.lacking(major(c.Machine.GPU.NVIDIA.Version.Or("")))
		switch {
		case name == "":
		case !shown && lacking != "":
			c.Row(o.Name, o.Value, where)
			warns = append(warns, remark{o.Name + " " + lacking,
				[]string{fmt.Sprintf("Remove %s from %s", o.Name, where)}})
		case !shown && listed:
			c.Row(o.Name, o.Value, where)
			warns = append(warns, remark{o.Name + " is an option of other drivers than this one, and has no effect",
				[]string{fmt.Sprintf("Remove %s from %s", o.Name, where)}})
		case !shown:
			c.Row(o.Name, o.Value, where)
			infos = append(infos, remark{text: o.Name + " is not among the options that this driver shows, and may have no effect"})
		case !sameOption(o.Value, got):
			c.Row(o.Name+" in force", got, paramsFile)
			c.Want("%s, from %s", o.Value, where)
			warns = append(warns, remark{fmt.Sprintf("%s=%s waits for a reboot: in force is %s", o.Name, o.Value, orElse(strings.Trim(got, `"`), `""`)),
				[]string{"Put it into the initramfs: sudo update-initramfs -u (RHEL: sudo dracut -f), then reboot"}})
		}
	}
	return warns, infos
}

// sameOption compares values as the driver does: numbers in any base, texts
// without their quotes.
func sameOption(a, b string) bool {
	a, b = strings.Trim(a, `"`), strings.Trim(b, `"`)
	x, errA := strconv.ParseInt(a, 0, 64)
	y, errB := strconv.ParseInt(b, 0, 64)
	if errA == nil && errB == nil {
		return uint32(x) == uint32(y) // -1 is shown as 4294967295
	}
	return a == b
}

// judgeNVReg speaks of values in force that matter for GPUDirect RDMA.
func judgeNVReg(c *Case, live map[string]string) (warns, infos []remark) {
	if live["GrdmaPciTopoCheckOverride"] == "2" {
		c.Row("GrdmaPciTopoCheckOverride", "2", paramsFile)
		c.Want("0 or 1")
		warns = append(warns, remark{"GrdmaPciTopoCheckOverride=2 refuses every DMA-BUF mapping",
			[]string{"Remove NVreg_GrdmaPciTopoCheckOverride from modprobe.d, rebuild the initramfs and reboot"}})
	}
	if live["GrdmaPciTopoCheckOverride"] == "1" {
		infos = append(infos, remark{text: "GrdmaPciTopoCheckOverride=1 skips the driver's check of the PCIe topology"})
	}
	if live["DmaRemapPeerMmio"] == "0" {
		c.Row("DmaRemapPeerMmio", "0", paramsFile)
		c.Want("1")
		if translated(c) {
			warns = append(warns, remark{"DmaRemapPeerMmio=0 while the IOMMU translates: peer addresses are wrong and transfers get lost",
				[]string{"Remove NVreg_DmaRemapPeerMmio from modprobe.d, rebuild the initramfs and reboot"}})
		} else {
			infos = append(infos, remark{text: "DmaRemapPeerMmio=0 is dangerous should the IOMMU ever translate"})
		}
	}
	for _, o := range nvregTable() {
		value, shown := live[o.shown()]
		if what := o.Weakens[value]; shown && what != "" {
			c.Row(o.shown(), value, paramsFile)
			infos = append(infos, remark{text: fmt.Sprintf("NVreg_%s=%s weakens security: %s", o.Name, value, what)})
		}
	}
	if peerMappingOverride(live["RegistryDwords"]) {
		c.Row("RegistryDwords", live["RegistryDwords"], paramsFile)
		infos = append(infos, remark{text: "PeerMappingOverride=1 lets users that are not root map NIC registers on the GPU (full-GPU IBGDA needs it; it weakens security)"})
	}
	return warns, infos
}

// translated says whether an IOMMU is known to translate for a GPU or NIC.
func translated(c *Case) bool {
	return slices.ContainsFunc(EachEndpoint(c.Node), func(s Subject) bool {
		return s.Function != nil && strings.HasPrefix(s.Function.IOMMUGroupType.Or(""), "DMA")
	})
}
