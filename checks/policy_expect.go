package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

// These checks compare the node with what its policy or, where that is silent,
// its platform's preset says must be there. Without either they do not apply.

const policyRef = "https://github.com/gdrcheck/gdrcheck/blob/main/docs/policy.md"

var policyGPUs = Check{
	ID: "policy-gpus", Title: "the node has as many GPUs as expected", Area: AreaPolicy, Severity: SeverityError,
	Why: "A GPU that fell off the bus shows nowhere: only a number that was written down tells that it is missing, and a job that counts on it does not start.",
	Fix: []string{
		"Look for Xid 79 and PCIe errors in the kernel log: sudo dmesg -T | grep -iE 'xid|aer|fallen off'",
		"Power-cycle the node (not only reboot it); if the GPU stays away, have it reseated or replaced",
	},
	Refs:     []string{policyRef, "https://docs.nvidia.com/deploy/xid-errors/"},
	Subjects: TheNode,
	Eval: func(c *Case) {
		e, preset := c.expectGPUs()
		if e.Count == nil && e.Min == 0 && c.Preset != nil { // a policy that says nothing of numbers
			e, preset = c.Preset.Expect.GPUs, true
		}
		if e.Count == nil && e.Min == 0 {
			c.NotApplicable("neither a policy nor a preset says how many GPUs there are")
			return
		}
		if why := c.incomplete(); why != "" {
			c.Unknown("cannot tell how many GPUs there are: %s", why)
			return
		}
		c.count("GPU", len(c.Machine.GPU.GPUs), e.Count, e.Min, "/sys/bus/pci/devices", preset)
	},
}

var policyGPUModel = Check{
	ID: "policy-gpu-model", Title: "each GPU is of the expected model", Area: AreaPolicy, Severity: SeverityError,
	DependsOn: []string{"gpu-present"},
	Why:       "A node with another GPU than its peers slows or breaks every job that spans them.",
	Fix:       []string{"Compare with the node's order or with the policy: nvidia-smi -L"},
	Refs:      []string{policyRef},
	Subjects: func(n *Node) []Subject {
		if e, _ := n.expectGPUs(); e.Model == "" {
			return TheNode(n)
		}
		return EachGPU(n)
	},
	Eval: func(c *Case) {
		e, _ := c.expectGPUs()
		if e.Model == "" {
			c.NotApplicable("neither a policy nor a preset names the GPUs' model")
			return
		}
		name := c.Subject.GPU.Name
		if name == "" {
			c.Unknown("cannot tell: the GPU's name is not known")
			return
		}
		c.Row("model", name, "nvml, procfs or pci.ids")
		c.Want("%s", e.Model)
		if !strings.Contains(name, e.Model) {
			c.Fail("%s, expected %s", name, e.Model)
			return
		}
		c.Pass("%s", name)
	},
}

var policyNICs = Check{
	ID: "policy-nics", Title: "the node has as many RDMA NICs as expected", Area: AreaPolicy, Severity: SeverityError,
	Why: "A NIC that is missing shows nowhere: the other NICs take its GPU's traffic, and every collective slows down.",
	Fix: []string{
		"See which NICs the bus shows: lspci -nn | grep -Ei 'mellanox|infiniband|connectx|efa'; which of them the RDMA core has: rdma dev",
		"A NIC that is on the bus and not here has no driver: sudo dmesg -T | grep -iE 'mlx5|bnxt|efa'",
	},
	Refs:     []string{policyRef},
	Subjects: TheNode,
	Eval: func(c *Case) {
		e, preset := c.expectNICs()
		if e.Count == nil && e.Min == 0 && e.Model == "" && c.Preset != nil { // a policy that says nothing of numbers
			e, preset = c.Preset.Expect.NICs, true
		}
		if e.Model != "" && e.Count == nil && e.Min == 0 {
			e.Min = 1
		}
		if e.Count == nil && e.Min == 0 {
			c.NotApplicable("neither a policy nor a preset says how many RDMA NICs there are")
			return
		}
		if why := c.incomplete(); why != "" {
			c.Unknown("cannot tell how many RDMA NICs there are: %s", why)
			return
		}
		Need(c, "RDMA devices", c.Machine.RDMA.Listed)
		what := "RDMA NIC"
		if e.Model != "" {
			what = e.Model + " NIC"
		}
		nics := expectedNICs(c.Node, e)
		for _, d := range nics {
			c.seeModel(e, d)
		}
		c.count(what, len(nics), e.Count, e.Min, "/sys/class/infiniband", preset)
		if preset && c.finding.Verdict == Fail {
			c.finding.Verdict = Warn
			c.Unsure("the number is the platform's; if this node was ordered or launched with fewer, a policy says so")
		}
	},
}

var policyNICRate = Check{
	ID: "policy-nic-rate", Title: "each RDMA port runs at the expected rate", Area: AreaPolicy, Severity: SeverityError,
	DependsOn: []string{"rdma-device-present", "rdma-port-state"},
	Why:       "A port below the rate that the fabric was built for slows every collective down to itself, and where all ports are alike no sibling shows it.",
	Fix:       []string{"Compare cable, transceiver and switch port with those of a port at full rate: ethtool INTERFACE; sudo mlxlink -d ADDRESS -m"},
	Refs:      []string{policyRef},
	Subjects:  eachExpected(EachPort, func(e NICExpect) bool { return e.RateGbps != 0 }),
	Eval: func(c *Case) {
		e, _ := c.expectNICs()
		switch {
		case e.RateGbps == 0:
			c.NotApplicable("no policy says at which rate RDMA ports run")
			return
		case c.Subject.NIC.Transport.Or("") == rdma.EFA:
			c.NotApplicable("EFA's driver reports a fixed rate that says nothing about the instance")
			return
		}
		c.seeModel(e, c.Subject.NIC)
		if state, known := mustSee(c, "state", c.Subject.Port.State); known && state != "ACTIVE" {
			c.NotApplicable("the port is %s: its rate says nothing", state)
			return
		}
		rate, ok := Need(c, "rate", c.Subject.Port.Rate)
		c.Want("%s or more", gbps(e.RateGbps*1e9))
		switch {
		case !ok:
			c.Unknown("cannot tell: the kernel shows no rate for this port")
		case rate.BitsPerSec < e.RateGbps*1e9:
			c.Fail("%s, expected %s", gbps(rate.BitsPerSec), gbps(e.RateGbps*1e9))
			c.Fix(fixRate(c)...)
		default:
			c.Pass("%s", rate.Text)
		}
	},
}

var policyNICFirmware = Check{
	ID: "policy-nic-firmware", Title: "each RDMA NIC runs the expected firmware", Area: AreaPolicy, Severity: SeverityError,
	DependsOn: []string{"rdma-device-present"},
	Why:       "NICs with different firmware behave differently under the same settings, and errors follow the node rather than the job.",
	Fix:       append([]string{"Bring the NIC to the expected firmware, in a maintenance window"}, firmwareFixes()...),
	Refs:      []string{policyRef, "https://docs.nvidia.com/networking/display/mftv4310/mlxfwmanager"},
	Subjects:  eachExpected(EachRDMA, func(e NICExpect) bool { return e.Firmware != "" }),
	Eval: func(c *Case) {
		e, _ := c.expectNICs()
		if e.Firmware == "" {
			c.NotApplicable("no policy names the RDMA NICs' firmware")
			return
		}
		c.seeModel(e, c.Subject.NIC)
		fw, ok := Need(c, "firmware", c.Subject.NIC.Firmware)
		c.Want("%s", e.Firmware)
		switch {
		case !ok:
			c.Unknown("cannot tell: the driver shows no firmware version")
		case fw == e.Firmware || strings.HasPrefix(fw, e.Firmware+"."):
			c.Pass("%s", fw)
		default:
			c.Fail("%s, expected %s", fw, e.Firmware)
			c.Fix(c.updateFirmware("In a maintenance window, bring it to " + e.Firmware)...)
		}
	},
}

// count compares a number with the expected one and gives the verdict.
func (c *Case) count(what string, got int, exact *int, least int, source string, preset bool) {
	what += plural(got)
	c.Row(what, fmt.Sprint(got), source)
	by := "the policy says"
	if preset {
		by = "a " + c.Preset.Title + " has"
	}
	switch {
	case exact != nil:
		c.Want("%d", *exact)
		if got != *exact {
			c.Fail("%d %s, %s %d", got, what, by, *exact)
			return
		}
	default:
		c.Want("%d or more", least)
		if got < least {
			c.Fail("%d %s, %s %d", got, what, by, least)
			return
		}
	}
	c.Pass("%d %s", got, what)
}

// expectGPUs returns what the policy says of GPUs, or the preset where the
// policy does not; preset tells which.
func (n *Node) expectGPUs() (e GPUExpect, preset bool) {
	if n.Policy != nil && n.Policy.Expect.GPUs != (GPUExpect{}) {
		return n.Policy.Expect.GPUs, false
	}
	if n.Preset != nil {
		e = n.Preset.Expect.GPUs
	}
	return e, true
}

// expectNICs is expectGPUs for RDMA NICs.
func (n *Node) expectNICs() (e NICExpect, preset bool) {
	if n.Policy != nil && n.Policy.Expect.NICs != (NICExpect{}) {
		return n.Policy.Expect.NICs, false
	}
	if n.Preset != nil {
		e = n.Preset.Expect.NICs
	}
	return e, true
}

// eachExpected has the subjects that an expectation of NICs is about; the node,
// where nothing is asked.
func eachExpected(each func(*Node) []Subject, asked func(NICExpect) bool) func(*Node) []Subject {
	return func(n *Node) []Subject {
		e, _ := n.expectNICs()
		if !asked(e) {
			return TheNode(n)
		}
		return slices.DeleteFunc(each(n), func(s Subject) bool { return !e.covers(s.NIC) })
	}
}

// covers says whether a NIC is one that the expectation is about, or may be one:
// its model was not seen.
func (e NICExpect) covers(d *rdma.Device) bool {
	return !d.Software && (e.Model == "" || notSeen(d.Model.State) || strings.Contains(d.Model.V.Name, e.Model))
}

// seeModel ends the check where the model decides whether a NIC is meant and was
// not seen.
func (c *Case) seeModel(e NICExpect, d *rdma.Device) {
	if e.Model != "" {
		mustSee(c, "model of "+d.Name, d.Model, d.Dir)
	}
}

// expectedNICs are the NICs that an expectation is about.
func expectedNICs(n *Node, e NICExpect) []*rdma.Device {
	var out []*rdma.Device
	for i := range n.Machine.RDMA.Devices {
		if d := &n.Machine.RDMA.Devices[i]; e.covers(d) {
			out = append(out, d)
		}
	}
	return out
}
