package checks

import "github.com/gdrcheck/gdrcheck/internal/fact"

var peermemLegacy = Check{
	ID: "peermem-legacy", Title: "the old nv_peer_mem module does no harm", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	Why: "nv_peer_mem is the forerunner of nvidia-peermem, which comes with the GPU driver since R470. Both register for the same memory and conflict, and versions before 1.2 deadlock in registration on MLNX_OFED 5.1 and newer.",
	Fix: []string{"sudo rmmod nv_peer_mem && sudo modprobe nvidia-peermem"},
	Refs: []string{
		"https://github.com/Mellanox/nv_peer_memory/issues/92",
		"https://download.nvidia.com/XFree86/Linux-x86_64/525.60.11/README/nvidia-peermem.html",
	},
	UnknownIs: SeverityWarning, // gdr-way decides
	Subjects:  eachNVIDIANode,
	Eval: func(c *Case) {
		old, loaded := Need(c, "nv_peer_mem", c.module("nv_peer_mem"))
		if !loaded {
			c.Pass("not loaded")
			return
		}
		replace := []string{
			"sudo rmmod nv_peer_mem && sudo modprobe nvidia-peermem",
			"Remove it for good: sudo apt remove nvidia-peer-memory-dkms (RHEL: sudo dnf remove nvidia_peer_memory)",
			"echo nvidia-peermem | sudo tee /etc/modules-load.d/nvidia-peermem.conf",
		}
		if _, state := See(c, "nvidia_peermem", c.module("nvidia_peermem")); state == fact.Known {
			c.Want("only one of the two")
			c.Warn("nv_peer_mem and nvidia_peermem are both loaded and conflict")
			c.Fix("sudo rmmod nv_peer_mem, then load the other anew: sudo rmmod nvidia_peermem && sudo modprobe nvidia-peermem", replace[1])
			return
		}
		version, versionState := See(c, "its version", old.Version)
		c.Want("1.2 or newer")
		ofed, ofedState := See(c, "MLNX_OFED (mlx5_core's version)", c.moduleVersion("mlx5_core"))
		const fixedIn, since = "1.2", "5.1"
		switch {
		case versionState != fact.Known:
			c.Warn("nv_peer_mem is loaded, and its version is not known: before 1.2 it deadlocks on MLNX_OFED 5.1 and newer")
			c.Unsure("its version: dpkg -s nvidia-peer-memory-dkms, or rpm -q nvidia_peer_memory")
		case !older(version, fixedIn):
			c.Info("nv_peer_mem %s is loaded; nvidia-peermem, which comes with the driver, has replaced it", version)
			return
		case ofedState == fact.Known && older(ofed, since):
			c.Info("nv_peer_mem %s is loaded, with MLNX_OFED %s, on which it works", version, ofed)
			return
		case ofedState == fact.Known:
			c.Fail("nv_peer_mem %s deadlocks in registration on MLNX_OFED %s", version, ofed)
		default:
			c.Warn("nv_peer_mem %s deadlocks in registration on MLNX_OFED 5.1 and newer", version)
			c.Unsure("the release of MLNX_OFED: ofed_info -s")
		}
		c.Fix(replace...)
	},
}

// moduleVersion is the version of a loaded module. In-tree drivers carry none.
func (n *Node) moduleVersion(name string) fact.Value[string] {
	m := n.module(name)
	if m.State != fact.Known {
		return fact.As(m, "")
	}
	return m.V.Version
}
