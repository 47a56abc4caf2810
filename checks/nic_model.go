package checks

import "github.com/gdrcheck/gdrcheck/internal/fact"

var nicModel = Check{
	ID: "nic-model", Title: "the NIC can do GPUDirect RDMA", Area: AreaRDMA, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"rdma-device-present"},
	Why:       "Only NICs whose driver registers GPU memory, by DMA-BUF or a peer memory client, read and write it themselves. Software RDMA copies with the CPU whatever the application asks for.",
	Fix:       []string{"See which model it is: lspci -nn | grep -Ei 'ethernet|infiniband'", "No command adds it, the driver has it or not: use a NIC whose driver registers GPU memory: ConnectX-4 and newer, Broadcom Thor, AWS EFA, AMD Pollara"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://docs.kernel.org/infiniband/index.html",
		"https://github.com/linux-rdma/rdma-core",
	},
	Subjects: EachRDMA,
	Eval: func(c *Case) {
		nic := c.Subject.NIC
		if nic.Software {
			c.Lower(SeverityInfo)
			See(c, "driver", nic.Driver)
			c.Info("software RDMA: no GPUDirect, the CPU moves the data")
			return
		}
		if !c.matters(nic) {
			c.Lower(SeverityWarning)
		}
		m, state := See(c, "model", nic.Model)
		driver, driverState := See(c, "driver", nic.Driver)
		switch {
		case state == fact.Known && m.GPUDirect == "none":
			c.Fail("%s cannot do GPUDirect RDMA%s", m.Name, because(m.Note))
		case state == fact.Known && m.GPUDirect != "unknown":
			c.Pass("%s, by %s", m.Name, wayName(m.GPUDirect))
		case driverState == fact.Known && c.Thresholds.DMABufNICDrivers[driver] == "none":
			c.Warn("the driver %s has no DMA-BUF registration", driver)
			c.Unsure("a vendor's driver may bring a peer memory client")
		case driverState == fact.Known && c.Thresholds.DMABufNICDrivers[driver] != "":
			c.Pass("not in the NIC table, but its driver %s registers DMA-BUF", driver)
		case state != fact.Known && state != fact.Absent:
			c.Lower(SeverityWarning)
			Need(c, "model", nic.Model)
		default:
			c.Info("not in the NIC table: whether it can do GPUDirect RDMA is not known")
		}
	},
}

func wayName(gpudirect string) string {
	switch gpudirect {
	case "dmabuf+peermem":
		return "DMA-BUF or peermem"
	case "dmabuf":
		return "DMA-BUF"
	}
	return gpudirect
}
