package checks

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var dataDirectGroup = Check{
	ID: "data-direct-group", Title: "GPU and Data Direct function are in one IOMMU group", Area: AreaPCIe, Severity: SeverityError, Rung: RungACS,
	DependsOn: []string{"acs-redirect"},
	Why:       "With Data Direct the NIC reaches GPU memory past the CPU. The GPU driver allows it only where the kernel keeps GPU and NIC function in one IOMMU group, which depends on the ACS settings between them.",
	Fix:       []string{"Let rdma-core's tool write the ACS settings of this machine, then reboot: sudo rdma_topo write-grub-acs"},
	Refs: []string{
		"https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-pci.c",
		"https://github.com/meta-pytorch/torchcomms/issues/3104",
	},
	Subjects: eachDataDirectPair,
	Eval:     evalDataDirectGroup,
}

// eachDataDirectPair has the pairs whose NIC has a Data Direct function.
func eachDataDirectPair(n *Node) []Subject {
	return slices.DeleteFunc(EachPair(n), func(s Subject) bool {
		a, ok := s.NIC.DataDirect.Get()
		return noDataDirect(s.NIC) || ok && n.Graph.Function(a) == nil
	})
}

func evalDataDirectGroup(c *Case) {
	end, _ := mustSee(c, "Data Direct function", c.Subject.NIC.DataDirect)
	gpu := c.Graph.Function(c.Subject.GPU.Addr)
	if gpu == nil || c.Platform.Virt == Guest {
		c.NotApplicable("the host's IOMMU groups are not in sight")
		return
	}
	params := c.Machine.GPU.NVIDIA.Params
	switch params.V["GrdmaPciTopoCheckOverride"] {
	case "1":
		c.Row("GrdmaPciTopoCheckOverride", "1", params.Source)
		c.Info("the driver's check is switched off (GrdmaPciTopoCheckOverride=1)")
		return
	case "2":
		c.Row("GrdmaPciTopoCheckOverride", "2", params.Source)
		c.Fail("GrdmaPciTopoCheckOverride=2 refuses Data Direct")
		c.Fix("Remove NVreg_GrdmaPciTopoCheckOverride from modprobe.d, rebuild the initramfs and reboot")
		return
	}
	nic := c.Graph.Function(end)
	a, hasA := Need(c, "IOMMU group of the GPU", gpu.IOMMUGroup, gpu.Dir)
	b, hasB := Need(c, "IOMMU group of "+end.String(), nic.IOMMUGroup, nic.Dir)
	switch {
	case !hasA && !hasB:
		c.Pass("no IOMMU is active")
	case hasA && hasB && a == b:
		c.Pass("both in group %d", a)
	default:
		c.Want("that of the GPU")
		c.Fail("the GPU is in IOMMU group %s and the NIC's Data Direct function %s in %s: the GPU driver refuses to map its memory for it",
			groupText(gpu.IOMMUGroup), end, groupText(nic.IOMMUGroup))
		c.Fix("Let rdma-core's tool write pci=config_acs= for this machine, then reboot: sudo rdma_topo write-grub-acs",
			"Then see: sudo rdma_topo check",
			"Until then NCCL_IB_DATA_DIRECT=0 takes the way over the CPU")
	}
}

func groupText(v fact.Value[int]) string {
	if g, ok := v.Get(); ok {
		return fmt.Sprint(g)
	}
	return "none"
}
