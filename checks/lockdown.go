package checks

var lockdown = Check{
	ID: "lockdown", Title: "the kernel is not locked down", Area: AreaHost, Severity: SeverityInfo,
	Why: "A kernel that is locked down, as with Secure Boot on most distributions, refuses unsigned modules and writes to PCI configuration space from user space: setpci (switching ACS off) and mlxconfig cannot do their work.",
	Fix: []string{"No command lifts it while the kernel runs: use kernel parameters and firmware settings in place of setpci, or switch Secure Boot off"},
	Refs: []string{
		"https://man7.org/linux/man-pages/man7/kernel_lockdown.7.html",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		mode, ok := Need(c, "lockdown", c.Machine.Host.Lockdown)
		switch {
		case !ok:
			c.NotApplicable("the kernel shows no lockdown: it has none, or securityfs is not mounted here")
		case mode == "none":
			c.Pass("off")
		default:
			c.Info("%s: setpci and mlxconfig cannot write to PCI devices, and unsigned modules are refused; change ACS by pci=config_acs= or in the BIOS", mode)
		}
	},
}
