package checks

import (
	"fmt"
	"strings"
)

var gpuPresent = Check{
	ID: "gpu-present", Title: "the node has a GPU", Area: AreaGPU, Severity: SeverityError, Rung: RungPath,
	Why: "GPUDirect RDMA moves data between a GPU and a NIC; without a GPU that the kernel sees there is nothing to move it from.",
	Fix: []string{
		"See whether the PCI bus shows one: lspci -d 10de: ; lspci -d 1002:",
		"If it does not: reseat the card, look for PCIe link errors in dmesg, enable Above 4G Decoding in the BIOS",
		"In a guest: give it a GPU by PCI pass-through; in a container: start it with --gpus all",
	},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://github.com/NVIDIA/gpu-operator/issues/492",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		gpus := c.Machine.GPU.GPUs
		c.Row("GPUs", fmt.Sprint(len(gpus)), "/sys/bus/pci/devices")
		c.Want("at least 1")
		if len(gpus) == 0 {
			if why := c.incomplete(); why != "" {
				c.Unknown("cannot tell whether this node has a GPU: %s", why)
				return
			}
			c.Fail("no GPU on this node: GPUDirect RDMA cannot work here")
			return
		}
		var kinds []string
		count := map[string]int{}
		for _, g := range gpus {
			name := g.Name
			if name == "" {
				name = string(g.Vendor) + " GPU"
			}
			if count[name]++; count[name] == 1 {
				kinds = append(kinds, name)
			}
		}
		for i, k := range kinds {
			kinds[i] = fmt.Sprintf("%d x %s", count[k], k)
		}
		c.Pass("%s", strings.Join(kinds, ", "))
	},
}
