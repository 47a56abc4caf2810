package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var gdrdrv = Check{
	ID: "gdrdrv", Title: "GDRCopy's driver works where it is loaded", Area: AreaDriver, Severity: SeverityWarning,
	Why: "UCX and NVSHMEM copy small messages through GDRCopy. Without its driver they are slower but work; with a driver that is half there, gdr_open fails.",
	Fix: []string{"Load it anew: sudo rmmod gdrdrv && sudo modprobe gdrdrv", "Where /dev/gdrdrv is missing, N from /proc/devices: sudo mknod -m 666 /dev/gdrdrv c N 0"},
	Refs: []string{
		"https://github.com/NVIDIA/gdrcopy",
		"https://github.com/NVIDIA/gdrcopy/issues/115",
		"https://github.com/NVIDIA/gdrcopy/issues/234",
		"https://github.com/NVIDIA/gdrcopy/issues/305",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalGDRDrv,
}

// eachNVIDIANode is the node, where it has a GPU of NVIDIA's.
func eachNVIDIANode(n *Node) []Subject {
	for _, g := range n.Machine.GPU.GPUs {
		if g.Vendor == gpu.VendorNVIDIA {
			return TheNode(n)
		}
	}
	return nil
}

func evalGDRDrv(c *Case) {
	mod, ok := Need(c, "gdrdrv", c.module("gdrdrv"))
	if !ok {
		if gdrdrvWillNotLoad(c) {
			return
		}
		c.Info("not loaded: GDRCopy is not available, and UCX and NVSHMEM do without")
		return
	}
	version, hasVersion := mod.Version.Get()
	driver, hasDriver := c.Machine.GPU.NVIDIA.Version.Get()
	th := c.Thresholds
	if hasVersion && hasDriver && !older(th.GDRDrvBadVersion, version) && major(driver) >= th.GDRDrvBadFromDriver {
		c.Row("GPU driver", driver, c.Machine.GPU.NVIDIA.Version.Source)
		c.Warn("gdrdrv %s fails on GPU drivers from R%d on (this is %s)", version, th.GDRDrvBadFromDriver, driver)
		c.Fix("Install GDRCopy 2.4.2 or newer and reload: sudo rmmod gdrdrv && sudo modprobe gdrdrv")
		return
	}
	majors := c.Machine.Host.CharMajors
	number, listed := majors.V["gdrdrv"]
	if majors.State == fact.Known {
		c.Row("major in /proc/devices", majorText(number, listed), "/proc/devices")
		if !listed {
			c.Warn("gdrdrv is loaded but has no device number: another driver took it")
			c.Fix("sudo rmmod gdrdrv && sudo modprobe gdrdrv; update GDRCopy to 2.4 or newer if it comes again")
			return
		}
	}
	node := findNode(c.Machine.Host.Nodes, "/dev/gdrdrv")
	if _, ok := Need(c, "/dev/gdrdrv", node.Info); !ok {
		c.Warn("gdrdrv is loaded but /dev/gdrdrv is missing: gdr_open fails")
		if c.Platform.Container != "" {
			c.Fix("Start the container with --device=/dev/gdrdrv (NVIDIA Container Toolkit: NVIDIA_GDRCOPY=enabled)")
		} else if listed {
			c.Fix(fmt.Sprintf("sudo mknod -m 666 /dev/gdrdrv c %d 0", number))
		}
		return
	}
	if access, known := node.Access.Get(); known && !access {
		c.Warn("/dev/gdrdrv may not be opened by this user")
		c.Fix("sudo chmod 666 /dev/gdrdrv")
		return
	}
	mustSee(c, "gdrdrv's version", mod.Version)
	mustSee(c, "driver version", c.Machine.GPU.NVIDIA.Version)
	mustSee(c, "device numbers", majors)
	mustSee(c, "this process may open it", node.Access)
	c.Pass("%s", show(mod))
}

// gdrdrvWillNotLoad: gdrdrv is built for the flavour of the GPU driver that it
// found ("… built for opensource NVIDIA driver", src/gdrdrv/gdrdrv.c). One for
// the open modules uses symbols that the kernel gives to GPL modules alone, and
// a module that uses a proprietary one's symbols is none to the kernel.
func gdrdrvWillNotLoad(c *Case) bool {
	f := c.moduleFileOf("gdrdrv")
	built, flavour := f.Description.Or(""), c.Machine.GPU.NVIDIA.Flavour.Or("")
	release, hasRelease := c.Machine.Host.KernelRelease.Get()
	again := "Build it anew against the driver that is there: sudo dkms build gdrdrv/" + f.Version.Or("VERSION") + " --force && sudo dkms install gdrdrv/" + f.Version.Or("VERSION") + " --force, then sudo modprobe gdrdrv"
	switch magic, ok := f.VerMagic.Get(); {
	case flavour == "proprietary" && strings.Contains(built, "built for opensource"):
		c.Row("gdrdrv's description", built, f.Path.V)
		c.Want("built for proprietary NVIDIA driver")
		c.Warn("gdrdrv will not load: it was built for the open GPU driver, and this one is proprietary")
	case ok && hasRelease && firstWord(magic) != release:
		c.Row("gdrdrv's vermagic", magic, f.Path.V)
		c.Want("%s …", release)
		c.Warn("gdrdrv will not load: it was built for kernel %s, this is %s", firstWord(magic), release)
	default:
		return false
	}
	c.Fix(again)
	return true
}

func majorText(number int, listed bool) string {
	if !listed {
		return "none"
	}
	return fmt.Sprint(number)
}

// findNode finds a device node among those that are there. That one is missing
// shows only where /dev could be listed at all.
func findNode(nodes []host.DeviceNode, path string) host.DeviceNode {
	for _, n := range nodes {
		if n.Path == path {
			return n
		}
	}
	if len(nodes) == 0 {
		return host.DeviceNode{Path: path, Info: fact.Missing[fact.Info](fact.NotCollected, path, "no device nodes were seen")}
	}
	return host.DeviceNode{Path: path, Info: fact.Missing[fact.Info](fact.Absent, path, "no such file")}
}
