package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

// enrolKey makes the key of DKMS one that the kernel knows.
var enrolKey = []string{
	"Enrol the key that DKMS signs with, then reboot and confirm it at the console: sudo mokutil --import /var/lib/dkms/mok.pub (Ubuntu: /var/lib/shim-signed/mok/MOK.der)",
	"Or turn Secure Boot off in the firmware's setup",
}

var moduleSignature = Check{
	ID: "module-signature", Title: "Secure Boot admits the modules", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	Why: "With Secure Boot the kernel loads only modules that are signed with a key it knows. Those that DKMS built on this machine are unsigned, or signed with a key that must be enrolled by hand (\"Key was rejected by service\").",
	Fix: enrolKey,
	Refs: []string{
		"https://docs.kernel.org/admin-guide/module-signing.html",
		"https://wiki.debian.org/SecureBoot",
		"https://github.com/secureblue/secureblue/issues/1043",
	},
	UnknownIs: SeverityWarning, // gdr-way decides
	Subjects:  eachNVIDIANode,
	Eval:      evalSignature,
}

// signedModules are those that GPUDirect needs or can use, beside the kernel's own.
var signedModules = []string{"nvidia", "nvidia_peermem", "gdrdrv", "nvidia_fs"}

func evalSignature(c *Case) {
	if c.module("nvidia").State == fact.Known {
		c.Lower(SeverityWarning) // the kernel admitted the driver that matters
	}
	on, ok := Need(c, "Secure Boot", c.Machine.Host.SecureBoot)
	if !ok || !on {
		c.Pass("Secure Boot is off")
		return
	}
	if m := c.Machine.Host.Modules; m.State != fact.Known {
		Need(c, "loaded modules", m)
	}
	var unsigned, refused []string
	for _, name := range signedModules {
		if c.module(name).State == fact.Known {
			continue
		}
		f := c.moduleFileOf(name)
		if f.Path.State != fact.Known {
			continue
		}
		switch signed, known := f.Signed.Get(); {
		case known && !signed:
			c.Row("signature of "+name, "none", f.Path.V)
			c.Want("one of a key that the kernel knows")
			unsigned = append(unsigned, name)
		case name == "nvidia":
			c.Row(name, "not loaded", "/sys/module/nvidia")
			refused = append(refused, name)
		}
	}
	gpu := c.module("nvidia").State == fact.Known
	switch {
	case len(unsigned) > 0 && !gpu:
		c.Fail("Secure Boot is on, and the GPU driver's modules are not signed (%s): the kernel refuses them", strings.Join(unsigned, ", "))
		c.Fix("Sign them: sudo dkms status, then sudo dkms build and install anew with a signing key set up (Ubuntu: sudo update-secureboot-policy --new-key)")
		c.Fix(enrolKey...)
	case len(unsigned) > 0:
		c.Warn("Secure Boot is on, and modules are not signed: %s cannot be loaded", strings.Join(unsigned, ", "))
		c.Fix("Build anew with the key that the GPU driver is signed with: sudo dkms status")
		c.Fix(enrolKey...)
	case len(refused) > 0 && len(c.logOf("", host.LogUnsigned)) > 0:
		e := c.logOf("", host.LogUnsigned)[0]
		c.Row("kernel log, "+sinceBoot(e), e.Text, c.Machine.Host.KernelLog.Source)
		c.Fail("Secure Boot is on, the GPU driver is not loaded, and the kernel has refused a module for its signature")
		c.Fix(enrolKey...)
	case len(refused) > 0:
		c.Warn("Secure Boot is on and the GPU driver is not loaded though its module is there: its key may not be enrolled")
		c.Unsure("sudo modprobe nvidia says \"Key was rejected by service\" if it is so")
		c.Fix(enrolKey...)
	default:
		for _, f := range c.Machine.Host.ModuleFiles {
			if c.module(f.Name).State == fact.Known || !slices.Contains(signedModules, f.Name) {
				continue
			}
			if _, there := mustSee(c, "file of "+f.Name, f.Path); there {
				mustSee(c, "signature of "+f.Name, f.Signed)
			}
		}
		c.Pass("Secure Boot is on, and what is needed is loaded or signed")
	}
}
