package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/pci"
)

var pcieReadRequest = Check{
	ID: "pcie-read-request", Title: "NICs read in large PCIe requests", Area: AreaPCIe, Severity: SeverityWarning, Rung: RungLink,
	Why: "A NIC that sends from GPU memory reads it over PCIe. Small read requests keep fewer bytes in flight, so that fast ports do not reach their rate.",
	Fix: []string{"Set Max_Read_Request_Size of the NIC to 4096 bytes, until the next boot: sudo setpci -s ADDRESS CAP_EXP+8.w=5000:7000", "For good: in the BIOS, or repeat the command in a boot script"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/kernel-parameters.html",
		"https://github.com/Mellanox/nic-configuration-operator",
		"https://enterprise-support.nvidia.com/s/article/understanding-pcie-configuration-for-maximum-performance",
	},
	Subjects: eachHardwareNIC,
	Eval:     evalReadRequest,
}

// eachHardwareNIC has every RDMA device that stands on hardware.
func eachHardwareNIC(n *Node) []Subject {
	var out []Subject
	for _, s := range EachRDMA(n) {
		if !s.NIC.Software {
			out = append(out, s)
		}
	}
	return out
}

func evalReadRequest(c *Case) {
	if !c.matters(c.Subject.NIC) {
		c.NotApplicable("not a NIC that a GPU uses")
		return
	}
	end, ok := needPathEnd(c)
	if !ok {
		return
	}
	if c.Platform.Virt == Guest {
		c.NotApplicable("a guest sees an emulated register: the host sets it")
		return
	}
	f := c.physical(end)
	mustSee(c, "vendor", f.Vendor, f.Dir)
	if f.Vendor.Or(0) != mellanoxID {
		c.NotApplicable("for NICs other than ConnectX and BlueField no size is recommended")
		return
	}
	size, ok := Need(c, "Max_Read_Request_Size", f.Config.MRRSBytes, f.Dir)
	want := c.Thresholds.ReadRequestMinBytes
	c.Want("%d or more", want)
	switch {
	case !ok:
		c.NotApplicable("not a PCI Express device")
	case size >= want:
		c.Pass("%d bytes", size)
	default:
		c.Warn("reads in requests of %d bytes; %d are recommended", size, want)
		c.Unsure("on slow ports it costs nothing: a bandwidth test tells")
		c.Fix(fmt.Sprintf("Until the next boot: sudo setpci -s %s CAP_EXP+8.w=%x:7000", f.Address, readRequestCode(want)),
			"For good: set PCIe Max Read Request Size to 4096 in the BIOS, or repeat the command in a boot script")
	}
}

const mellanoxID pci.ID = 0x15b3

// readRequestCode is the size in the Device Control register, bits 14 to 12:
// 128 bytes shifted left by the code (PCIe Base Spec 7.5.3.4).
func readRequestCode(bytes int) int {
	code := 0
	for size := 128; size < bytes; size *= 2 {
		code++
	}
	return code << 12
}
