package checks

var numaNode = Check{
	ID: "numa-node", Title: "the kernel knows the NUMA node of GPUs and NICs", Area: AreaPCIe, Severity: SeverityInfo,
	Why: "Programs bind their threads and buffers to the device's NUMA node. Where the kernel knows none (-1), distances are guessed.",
	Fix: []string{"See what the kernel knows: cat /sys/bus/pci/devices/ADDRESS/numa_node", "No command tells the kernel for good: look for NUMA and ACPI SLIT or SRAT settings in the BIOS; in a guest, give the devices' buses a NUMA node (pxb-pcie)"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-testing.html",
	},
	Subjects: EachEndpoint,
	Eval: func(c *Case) {
		f := c.Subject.Function
		if f == nil {
			c.NotApplicable("no PCI function is known for it")
			return
		}
		// With one node there is nothing to know; a count that was not seen leaves
		// the device's own node to judge.
		if nodes, ok := c.Machine.Host.NUMA.Get(); ok && len(nodes) < 2 {
			c.NotApplicable("the machine has one NUMA node")
			return
		}
		node, ok := Need(c, "NUMA node", f.NUMANode, f.Dir)
		switch {
		case ok:
			c.Pass("node %d", node)
		case c.Platform.Virt == Guest:
			c.Info("the guest gives it no NUMA node; the host's is not visible")
		default:
			c.Info("the kernel knows no NUMA node for it")
		}
	},
}
