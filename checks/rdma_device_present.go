package checks

import (
	"fmt"
	"slices"
	"strings"
)

var rdmaDevicePresent = Check{
	ID: "rdma-device-present", Title: "the node has an RDMA NIC", Area: AreaRDMA, Severity: SeverityError, Rung: RungPath,
	Why: "GPUDirect RDMA needs a NIC whose hardware reads and writes GPU memory. Without an RDMA device applications fall back to TCP, and software RDMA (rxe, siw) copies with the CPU.",
	Fix: []string{
		"See whether the PCI bus shows an RDMA NIC: lspci -nn | grep -Ei 'mellanox|infiniband|connectx|bcm57|e810|efa|pensando'",
		"If it does, load its RDMA driver, for ConnectX: sudo modprobe mlx5_ib; then: ls /sys/class/infiniband",
		"In a guest: pass the NIC or one of its VFs through; in a container: start it with --device=/dev/infiniband",
	},
	Refs: []string{
		"https://github.com/linux-rdma/rdma-core",
		"https://github.com/NVIDIA/nccl/issues/451",
	},
	Subjects: TheNode,
	Eval:     evalRDMADevicePresent,
}

func evalRDMADevicePresent(c *Case) {
	var hard, soft []string
	for _, d := range c.Machine.RDMA.Devices {
		if d.Software {
			soft = append(soft, d.Name)
		} else {
			hard = append(hard, d.Name)
		}
	}
	if len(hard) > 0 {
		c.Row("RDMA devices", strings.Join(hard, ", "), "/sys/class/infiniband")
		c.Pass("%d RDMA NIC%s", len(hard), plural(len(hard)))
		return
	}
	if why := c.incomplete(); why != "" && len(soft) == 0 {
		c.Unknown("cannot tell whether this node has an RDMA NIC: %s", why)
		return
	}
	Need(c, "RDMA devices", c.Machine.RDMA.Listed)
	c.Want("at least 1 that is not software")
	if len(soft) > 0 {
		c.Fail("only software RDMA (%s): the CPU moves the data, so this is no GPUDirect RDMA", strings.Join(soft, ", "))
		return
	}
	c.Fail("no RDMA NIC on this node: GPUDirect RDMA cannot work here")
	suggestDrivers(c)
}

// rdmaDrivers names the module that makes an RDMA device of a NIC driver's function.
var rdmaDrivers = map[string]string{
	"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma", "mana": "mana_ib",
	"qede": "qedr", "cxgb4": "iw_cxgb4", "hns3": "hns_roce_hw_v2", "ionic": "ionic_rdma",
}

// suggestDrivers names the modules that are missing for NICs that are there.
func suggestDrivers(c *Case) {
	var seen []string
	for _, d := range c.Graph.NICs() { // without RDMA, all of them are PCI functions alone
		f := c.Graph.Function(*d.Addr)
		mod := rdmaDrivers[f.Driver.Or("")]
		if mod == "" || slices.Contains(seen, mod) {
			continue
		}
		seen = append(seen, mod)
		c.Fix(fmt.Sprintf("%s (%s, driver %s) may have RDMA: sudo modprobe %s", d.ID, f.Address, f.Driver.V, mod))
	}
	if seen != nil {
		c.Fix("Then see that the devices are there: ls /sys/class/infiniband")
	}
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
