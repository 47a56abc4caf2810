package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

var gpuNICPath = Check{
	ID: "gpu-nic-path", Title: "each GPU has a NIC below its own switch", Area: AreaPCIe, Severity: SeverityError, Rung: RungPath,
	DependsOn: []string{"gpu-present", "rdma-device-present"},
	Why:       "Below a shared PCIe switch GPU and NIC exchange data without touching the CPU. Across a host bridge it is slower on many platforms, and NCCL does not use GPUDirect RDMA there unless told to.",
	Fix:       []string{"See what stands where, and choose the pairs that are marked: gdrcheck topo", "No command moves a card: put the NIC into a slot below the GPU's switch"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/#supported-systems",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-gdr-level-formerly-nccl-ib-gdr-level",
		"https://github.com/NVIDIA/nccl/issues/1151",
		"https://github.com/NVIDIA/nccl/issues/1464",
	},
	Subjects: EachGPU,
	Eval:     evalGPUNICPath,
}

func evalGPUNICPath(c *Case) {
	if c.sharesMemory(c.Subject.GPU) {
		c.NotApplicable("GPU and CPU share their memory: a NIC reaches it by its own path to the CPU")
		return
	}
	best := c.Graph.Affinity()[c.Subject.ID]
	if len(best) == 0 {
		if len(c.Machine.RDMA.Devices) == 0 {
			c.Unknown("cannot tell: no RDMA NIC could be seen")
		} else {
			c.Unknown("cannot tell: none of the RDMA NICs is one for compute")
		}
		return
	}
	class := c.Graph.Class(c.Subject.ID, best[0])
	c.Row("path to "+strings.Join(best, ", "), string(class), "topo:PCI tree and NUMA nodes")
	c.Want("%s or better", c.Thresholds.PathGood)
	nics := strings.Join(best, ", ")
	switch {
	case class.Rank() <= c.Thresholds.PathGood.Rank():
		c.Pass("%s to %s", class, nics)
	case class != topo.ClassUnknown && class.Rank() > c.Thresholds.PathPromised.Rank(): // of no promise, nothing ranks behind
		c.Fail("%s to its best NIC (%s): %s every GPU has one at %s", class, nics, c.promisedBy(), c.Thresholds.PathPromised)
		c.Fix("Look for a NIC that is missing from the bus: lspci | grep -Ei 'mellanox|infiniband'; gdrcheck topo",
			"Reseat the NIC of this GPU's switch; see: gdrcheck topo -o tree")
	case coherent(c.Subject.GPU) && class.Rank() <= topo.ClassNODE.Rank():
		c.Pass("%s to %s, over the coherent CPU link (C2C)", class, nics)
	case c.Platform.Virt == Guest && c.Thresholds.PathPromised == "":
		c.Info("%s to %s, as the guest's flat PCI topology shows it; the real path is the host's", class, nics)
		c.Unsure("unless the topology is mirrored or NCCL_TOPO_FILE gives it, NCCL takes this path for what it looks like and may copy through the CPU")
	case class == topo.ClassUnknown:
		c.Lower(SeverityWarning)
		c.Unknown("cannot tell the path to %s: no common bridge, and the kernel gives a side no NUMA node", nics)
		c.Fix("Look for a NUMA or ACPI SLIT setting in the BIOS; see: gdrcheck topo --explain " + c.Subject.ID + " " + best[0])
	default:
		c.Warn("%s to its best NIC (%s): the path %s", class, nics, crossing(class))
		if sw := c.switchAbove(); sw != nil {
			c.Fix(fmt.Sprintf("Move a NIC to a slot below the GPU's switch (%s); see: gdrcheck topo --explain %s %s", sw.Address, c.Subject.ID, best[0]))
		} else {
			c.Fix("No PCIe switch is above this GPU: no slot gives a better class unless the chassis has a riser or board with a switch; see: gdrcheck topo -o tree")
		}
		if class == topo.ClassPHB || class == topo.ClassNODE {
			c.Fix("NCCL uses GPUDirect RDMA at this distance only with NCCL_NET_GDR_LEVEL=PHB: measure both")
		} else {
			c.Fix("NCCL uses GPUDirect RDMA at this distance only with NCCL_NET_GDR_LEVEL=SYS, which is seldom faster: measure both")
			if nic, _ := c.Graph.Device(best[0]); nic.NUMA != nil {
				c.Fix(fmt.Sprintf("Bind processes that drive %s to its own NUMA node: numactl --cpunodebind=%d --membind=%d", best[0], *nic.NUMA, *nic.NUMA))
			}
		}
		if c.clientCPU() {
			// Intel's client CPUs forward a peer's writes and drop its reads, without an error.
			c.Unsure("CPUs for desktops may forward a peer's writes and not its reads: test both, ib_write_bw and ib_read_bw with --use_cuda")
		} else {
			c.Unsure("some CPUs forward peer traffic at full speed: a bandwidth test tells")
		}
	}
}

// clientCPU says whether the CPU is one of Intel's for desktops and laptops.
func (c *Case) clientCPU() bool {
	model := c.Machine.Host.CPU.Model.Or("")
	return c.Machine.Host.CPU.Vendor.Or("") == "GenuineIntel" && strings.Contains(model, "Core(TM)")
}

// switchAbove is the upstream port of the switch next above the GPU; nil where
// the GPU stands directly below a root port.
func (c *Case) switchAbove() *pci.Function {
	for _, up := range c.Graph.Upstream(c.Subject.GPU.Addr) {
		if c.Graph.BridgeKind(up.Address) == "upstream port" {
			return up
		}
	}
	return nil
}

func crossing(class topo.Class) string {
	switch class {
	case topo.ClassPHB:
		return "crosses a host bridge in the CPU"
	case topo.ClassNODE:
		return "crosses two host bridges of one NUMA node"
	default:
		return "crosses the link between CPU sockets"
	}
}
