package checks

import "github.com/gdrcheck/gdrcheck/rdma"

var nicFirmware = Check{
	ID: "nic-firmware", Title: "equal NICs run equal firmware", Area: AreaRDMA, Severity: SeverityWarning,
	Why: "NICs of one board with different firmware differ in defaults and in mended faults; one odd card in a job shows as errors that nobody can place (error 12, vendor 249) or as one slow rank.",
	Fix: append([]string{"Bring all NICs of the board to one firmware, in a maintenance window"}, firmwareFixes()...),
	Refs: []string{
		"https://github.com/NVIDIA/nccl/issues/1353",
		"https://docs.nvidia.com/networking/display/mftv4290/mlxfwmanager+%E2%80%93+firmware+update+and+query+tool",
	},
	Subjects: EachRDMA,
	Eval: func(c *Case) {
		nic := c.Subject.NIC
		if nic.Software || nic.Transport.Or("") == rdma.EFA {
			c.NotApplicable("no firmware of its own")
			return
		}
		mine, ok := Need(c, "firmware", nic.Firmware)
		if !ok {
			c.NotApplicable("its driver shows no firmware version")
			return
		}
		newest, of := mine, ""
		for i := range c.Machine.RDMA.Devices {
			d := &c.Machine.RDMA.Devices[i]
			if v := d.Firmware.Or(""); sameModel(d, nic) && older(newest, v) {
				newest, of = v, d.Name
			}
		}
		if of == "" {
			c.Pass("%s", mine)
			return
		}
		c.Want("%s, as %s has", newest, of)
		c.Warn("firmware %s, while %s of the same board runs %s", mine, of, newest)
		c.Fix(c.updateFirmware("Update it")...)
	},
}
