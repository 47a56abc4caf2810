package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var moduleHolders = Check{
	ID: "module-holders", Title: "nothing stands in the way of reloading the drivers", Area: AreaDriver, Severity: SeverityInfo,
	Why: "A module that others hold cannot be unloaded: an update of the GPU driver ends with \"driver is in use\", one of DOCA-OFED with \"module is in use\", and the old driver stays in force.",
	Fix: []string{"See who holds what: lsmod | grep -E '^(nvidia|ib_core|ib_uverbs) '", "Unload the holders first, or reboot: sudo modprobe -r MODULE"},
	Refs: []string{
		"https://github.com/NVIDIA/gpu-driver-container/issues/869",
		"https://github.com/openshift/openshift-docs/issues/91003",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalHolders,
}

// unloadFirst are the modules that hold another and are not a part of it.
var unloadFirst = map[string][]string{
	"nvidia":    {"gdrdrv", "nvidia_fs", "nvidia_peermem", "nv_peer_mem"},
	"ib_uverbs": {"nvidia_peermem", "nv_peer_mem", "irdma", "bnxt_re", "efa", "mana_ib", "qedr"},
	"ib_core":   {"nvidia_peermem", "nv_peer_mem", "irdma", "bnxt_re", "efa", "mana_ib", "qedr", "nvidia_fs"},
}

func evalHolders(c *Case) {
	if _, ok := Need(c, "nvidia", c.module("nvidia")); !ok {
		c.NotApplicable("the NVIDIA driver is not loaded")
		return
	}
	gpuHolders := heldBy(c, "nvidia")
	var rdmaHolders []string
	if c.moduleVersion("mlx5_core").State == fact.Known { // a vendor's RDMA stack, which is updated by itself
		rdmaHolders = append(heldBy(c, "ib_uverbs"), heldBy(c, "ib_core")...)
		slices.Sort(rdmaHolders)
		rdmaHolders = slices.Compact(rdmaHolders)
	}
	switch {
	case len(gpuHolders) == 0 && len(rdmaHolders) == 0:
		c.Pass("no module outside of the drivers themselves holds them")
	default:
		var text []string
		if len(gpuHolders) > 0 {
			text = append(text, "to reload the GPU driver, unload first: "+strings.Join(gpuHolders, ", "))
		}
		if len(rdmaHolders) > 0 {
			text = append(text, "to reload DOCA-OFED, unload first: "+strings.Join(rdmaHolders, ", "))
		}
		c.Info("%s", strings.Join(text, "; "))
	}
}

// reloadGPU are the steps that load the GPU driver anew without a reboot.
func (n *Node) reloadGPU() []string {
	holders := n.holdersOf("nvidia").V
	holders = slices.DeleteFunc(holders, func(h string) bool { return !slices.Contains(unloadFirst["nvidia"], h) })
	return []string{
		"Stop what uses the GPUs: sudo systemctl stop nvidia-persistenced nvidia-fabricmanager; sudo fuser -v /dev/nvidia*",
		"sudo modprobe -r " + strings.Join(append(holders, "nvidia_uvm nvidia_drm nvidia_modeset nvidia"), " ") + " && sudo modprobe nvidia; or reboot",
	}
}

func heldBy(c *Case, name string) []string {
	v := c.holdersOf(name)
	if v.State != fact.Known || len(v.V) == 0 {
		return nil
	}
	c.Row("holders of "+name, strings.Join(v.V, ", "), "/sys/module/"+name+"/holders")
	return slices.DeleteFunc(v.V, func(h string) bool { return !slices.Contains(unloadFirst[name], h) })
}
