package checks

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var peermemContexts = Check{
	ID: "peermem-contexts", Title: "nvidia-peermem does not fill the kernel log", Area: AreaDriver, Severity: SeverityInfo,
	Why: "nvidia-peermem of drivers before R560 writes \"detected invalid context, skipping further processing\" for each buffer that a program freed before its registration. It is harmless (bug 4272659), but hides other messages.",
	Fix: []string{"No command is needed, the message does no harm: GPU driver R560 or newer does not write it"},
	Refs: []string{
		"https://github.com/Mellanox/nv_peer_memory/issues/120",
	},
	Subjects: eachNVIDIANode,
	Eval: func(c *Case) {
		if _, loaded := Need(c, "nvidia_peermem", c.module("nvidia_peermem")); !loaded {
			c.NotApplicable("not loaded")
			return
		}
		if _, state := seeLog(c); state != fact.Known {
			Need(c, "kernel log", c.Machine.Host.KernelLog)
			c.Unknown("cannot tell: the kernel log is not there")
			return
		}
		events := c.logOf("", host.LogPeermemContext)
		if len(events) == 0 {
			c.Pass("no such message")
			return
		}
		c.Row("kernel log, "+sinceBoot(events[0]), events[0].Text, c.Machine.Host.KernelLog.Source)
		c.Info("\"detected invalid context\", %d times: harmless; GPU driver R560 and newer do not write it (this is %s)", events[0].Count, c.driverVersion())
	},
}
