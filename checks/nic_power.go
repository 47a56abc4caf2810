package checks

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var nicPower = Check{
	ID: "nic-power", Title: "the slot gives the NIC enough power", Area: AreaPCIe, Severity: SeverityWarning,
	Why: "A ConnectX that the slot promises too little power may cap its ports' throughput or keep optical modules off.",
	Fix: []string{"See what its driver says: sudo dmesg -T | grep -i 'power on the PCIe slot'", "No command gives a slot power: move the NIC to a slot with enough, or see the BIOS for the slot's power limit"},
	Refs: []string{
		"https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html",
		"https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/events.c",
	},
	Subjects: eachHardwareNIC,
	Eval: func(c *Case) {
		if driver, _ := mustSee(c, "driver", c.Subject.NIC.Driver); driver != "mlx5_core" {
			c.NotApplicable("its driver does not say")
			return
		}
		f, ok := needFunction(c)
		if !ok {
			return
		}
		log, state := seeLog(c)
		if state != fact.Known {
			Need(c, "kernel log", c.Machine.Host.KernelLog)
			c.Unknown("cannot tell: the kernel log is not there")
			return
		}
		events := c.logOf(f.Address.String(), host.LogPower)
		if len(events) == 0 {
			c.Row("kernel log", "no complaint", c.Machine.Host.KernelLog.Source)
			if !log.Complete {
				c.Info("no complaint in what is left of the kernel log")
				return
			}
			c.Pass("no complaint since boot")
			return
		}
		c.Row("kernel log", events[0].Text, c.Machine.Host.KernelLog.Source)
		c.Warn("the slot gives it %d W, which its driver calls insufficient", events[0].Code)
		c.Unsure("on some systems the message is harmless (DGX Spark): a bandwidth test tells")
	},
}
