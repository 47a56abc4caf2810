package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var rdmaCharDevice = Check{
	ID: "rdma-char-device", Title: "programs can open the RDMA device", Area: AreaRDMA, Severity: SeverityError, Rung: RungPort,
	Why: "libibverbs opens /dev/infiniband/uverbsN. Where the node is missing, as in a container started without it, or not writable, applications say \"no device found\" and fall back to TCP.",
	Fix: []string{"sudo modprobe ib_uverbs", "In a container: start it with --device=/dev/infiniband"},
	Refs: []string{
		"https://docs.kernel.org/infiniband/user_verbs.html",
		"https://github.com/NVIDIA/nccl/issues/451",
		"https://github.com/NVIDIA/nccl/issues/2428",
	},
	Subjects: EachRDMA,
	Eval:     evalCharDevice,
}

func evalCharDevice(c *Case) {
	nic := c.Subject.NIC
	if nic.Software || !c.matters(nic) {
		c.Lower(SeverityWarning)
	}
	if len(nic.Uverbs) == 0 {
		c.Row("uverbs", "none", nic.Dir+"/device/infiniband_verbs")
		c.Want("one")
		switch _, loaded := See(c, "ib_uverbs", c.module("ib_uverbs")); {
		case loaded == fact.Known:
			c.Fail("the kernel shows no uverbs device for it, although ib_uverbs is loaded")
			c.Fix("See why: dmesg -T | grep -iE 'uverbs|infiniband'",
				"Load the NIC's driver anew while nothing uses it, or reboot")
		case loaded != fact.Absent && c.Machine.Origin == "tree":
			c.Unknown("cannot tell: the tree that was read shows neither uverbs devices nor the loaded modules")
			c.Fix("Run on the live node: gdrcheck check --only rdma-char-device")
		case loaded != fact.Absent:
			c.Fail("the kernel shows no uverbs device for it; whether ib_uverbs is loaded could not be seen")
			c.Fix("See: lsmod | grep ib_uverbs; if it is not there: sudo modprobe ib_uverbs")
		default:
			c.Fail("the kernel shows no uverbs device for it: ib_uverbs is not loaded")
			c.Fix("sudo modprobe ib_uverbs", "To keep it: echo ib_uverbs | sudo tee /etc/modules-load.d/ib_uverbs.conf")
		}
		return
	}
	dev := nic.Uverbs[0]
	path := "/dev/infiniband/" + dev.Name
	if _, ok := Need(c, path, dev.Node); !ok {
		c.Want("there")
		if c.Machine.Origin == "tree" && len(c.Machine.Host.Nodes) == 0 {
			c.Unknown("cannot tell: the tree that was read holds no device nodes")
			c.Fix("Run on the live node: gdrcheck check --only rdma-char-device")
			return
		}
		c.Fail("%s is missing", path)
		if c.Platform.Container != "" {
			c.Fix(fmt.Sprintf("Start the container with --device=%s --device=/dev/infiniband/rdma_cm (Kubernetes: an RDMA device plugin or DRA claim)", path))
			return
		}
		c.Fix("Let udev make it: sudo udevadm trigger --subsystem-match=infiniband_verbs",
			fmt.Sprintf("If it stays away: sudo mkdir -p /dev/infiniband && sudo mknod -m 666 %s c %s", path, mknodNumbers(dev.Dev)))
		return
	}
	access, ok := Need(c, "this process may open it", dev.Access)
	c.Want("yes")
	if !ok || !access {
		c.Fail("%s may not be opened by this user", path)
		c.Fix(fmt.Sprintf("See its mode: ls -l %s; rdma-core's udev rules make it 0666", path),
			"sudo chmod 666 "+path+"  (until the next boot)")
		if c.Platform.Container != "" {
			c.Fix("In a container: the device cgroup must admit it: --device=" + path)
		}
		return
	}
	if nic.Verbs.State == fact.Denied {
		// The mode bits admit it: something above them does not.
		See(c, "ibv_open_device", nic.Verbs)
		c.Want("opened")
		c.Fail("%s is there, but opening it is refused: the device cgroup or a security module does not admit it", path)
		if c.Platform.Container != "" {
			c.Fix(fmt.Sprintf("Start the container with --device=%s (each NIC's own; a mounted /dev is not enough), or Kubernetes: a device plugin that gives all NICs to the pod", path))
		} else {
			c.Fix("A job's cgroup (Slurm: ConstrainDevices) must admit it: add /dev/infiniband/* to cgroup.conf's allowed devices, or look for a denial: sudo ausearch -m avc -ts recent; dmesg | grep -i apparmor")
		}
		return
	}
	if nic.Verbs.State == fact.Failed {
		See(c, "ibv_open_device", nic.Verbs)
		c.Warn("%s is there, but libibverbs could not open the device%s", path, because(nic.Verbs.Reason))
		c.Fix(fmt.Sprintf("See what it says: ibv_devinfo -d %s; the kernel: dmesg -T | tail -50", nic.Name),
			"Container and host may have different rdma-core or OFED versions: use the same on both")
		return
	}
	if nic.Verbs.State == fact.NotCollected {
		See(c, "ibv_open_device", nic.Verbs)
		c.Info("%s may be opened; whether it opens was not tried%s", path, because(nic.Verbs.Reason))
		return
	}
	mustSee(c, "/dev/infiniband/rdma_cm", c.Machine.RDMA.RDMACM.Node)
	if cm := c.Machine.RDMA.RDMACM; cm.Node.State == fact.Absent {
		See(c, "/dev/infiniband/rdma_cm", cm.Node)
		c.Warn("%s can be opened, but /dev/infiniband/rdma_cm is missing: programs that connect through librdmacm fail", path)
		c.Fix("sudo modprobe rdma_ucm; in a container: --device=/dev/infiniband/rdma_cm")
		return
	}
	c.Pass("%s can be opened", path)
}

// mknodNumbers turns "231:192" into mknod's arguments.
func mknodNumbers(dev fact.Value[string]) string {
	var maj, minor int
	if _, err := fmt.Sscanf(dev.Or(""), "%d:%d", &maj, &minor); err != nil {
		return "MAJOR MINOR"
	}
	return fmt.Sprintf("%d %d", maj, minor)
}
