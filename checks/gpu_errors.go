package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var gpuErrors = Check{
	ID: "gpu-errors", Title: "the kernel log tells of no GPU or NVSwitch error", Area: AreaGPU, Severity: SeverityError,
	DependsOn: []string{"bar1-size", "bar-assigned"},
	Why:       "The driver reports each GPU fault as an Xid, NVSwitch faults as SXids. After some of them the GPU is of no use before a reset, though it is still listed.",
	Fix:       []string{"See them all: sudo dmesg -T | grep -E 'Xid|SXid'", "Drain the node and reset the GPU: sudo nvidia-smi -r -i ADDRESS; if it is refused, reboot", "If the Xid comes again, have the GPU looked at"},
	Refs: []string{
		"https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
		"https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
		"https://github.com/leptonai/gpud/issues/46",
	},
	Subjects: eachGPUAndSwitch,
	Eval:     evalGPUErrors,
}

// eachGPUAndSwitch has NVIDIA's GPUs and the NVSwitches that the log names.
func eachGPUAndSwitch(n *Node) []Subject {
	out := eachNVIDIAGPU(n)
	for _, e := range n.logOf("", host.LogSXid) {
		if !slices.ContainsFunc(out, func(s Subject) bool { return s.ID == e.Device }) {
			out = append(out, Subject{ID: e.Device, Parts: []string{e.Device}})
		}
	}
	return out
}

func evalGPUErrors(c *Case) {
	log, state := seeLog(c)
	if state != fact.Known {
		// Most nodes have no Xid in their log: one that may not be read, as by
		// ordinary users, does not put the node in doubt.
		c.Lower(SeverityWarning)
		Need(c, "kernel log", c.Machine.Host.KernelLog)
		c.Unknown("cannot tell: the kernel log is not there")
		return
	}
	device := c.Subject.ID
	if c.Subject.GPU != nil {
		device = c.Subject.GPU.Addr.String()
	}
	var fatal, other, app []string
	for _, e := range c.logOf(device, host.LogXid, host.LogSXid, host.LogInitFailed) {
		c.Row("kernel log, "+sinceBoot(e), e.Text, c.Machine.Host.KernelLog.Source)
		c.Want("no error")
		text := xidText(e)
		switch {
		case e.Kind == host.LogInitFailed, e.Kind == host.LogXid && slices.Contains(c.Thresholds.XidFatal, e.Code),
			e.Kind == host.LogSXid && strings.Contains(e.Text, ", Fatal"):
			fatal = append(fatal, text)
		case e.Kind == host.LogXid && slices.Contains(c.Thresholds.XidApplication, e.Code):
			app = append(app, text)
		default:
			other = append(other, text)
		}
	}
	const reset = "a reset or repair since then may have cured it: the log holds all since boot"
	switch {
	case fatal != nil:
		c.Fail("%s: it needs a reset", strings.Join(fatal, ", "))
		c.Unsure(reset)
		fixXid(c, device)
	case other != nil:
		c.Lower(SeverityWarning)
		c.Warn("the driver reported %s", strings.Join(other, ", "))
		c.Unsure(reset)
		fixXid(c, device)
	case app != nil:
		c.Info("%s: a restart of the application suffices", strings.Join(app, ", "))
	case !log.Complete:
		c.Row("kernel log", "no Xid; its beginning is overwritten", c.Machine.Host.KernelLog.Source)
		c.Info("none in what is left of the kernel log")
	default:
		c.Row("kernel log", "no Xid since boot", c.Machine.Host.KernelLog.Source)
		c.Pass("none since boot")
	}
}

func fixXid(c *Case, device string) {
	c.Fix(fmt.Sprintf("See them all: sudo dmesg -T | grep -E 'Xid|%s'", strings.TrimSuffix(device, ".0")),
		"Look the number up: https://docs.nvidia.com/deploy/xid-errors/")
	if c.Subject.GPU != nil {
		c.Fix(fmt.Sprintf("Drain the node and reset the GPU: sudo nvidia-smi -r -i %s; if it is refused, reboot", device))
		return
	}
	c.Fix("Drain the node and reset all GPUs and switches: sudo nvidia-smi -r; if it is refused, reboot")
}

func xidText(e host.LogEvent) string {
	name := "Xid " + fmt.Sprint(e.Code)
	if e.Kind == host.LogSXid {
		name = "S" + name
	}
	if e.Kind == host.LogInitFailed {
		name = "RmInitAdapter failed"
	}
	if e.Count > 1 {
		name += fmt.Sprintf(" (%d times)", e.Count)
	}
	return name
}

func sinceBoot(e host.LogEvent) string {
	return (time.Duration(e.SinceBootSec) * time.Second).String() + " after boot"
}
