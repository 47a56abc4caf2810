package checks

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/perftest"
)

var dmabufRefused = Check{
	ID: "dmabuf-refused", Title: "the GPU driver has refused no DMA-BUF", Area: AreaDriver, Severity: SeverityError,
	DependsOn: []string{"gdr-way", "data-direct-group"},
	Why:       "The GPU driver decides for each pair whether a NIC may map GPU memory by DMA-BUF; where it refuses, it says so in the kernel log alone, and the application sees an unspecific error.",
	Fix:       []string{"See what stands below one switch: gdrcheck topo -o tree", "Put GPU and NIC below one PCIe switch, or with DOCA-OFED: sudo modprobe nvidia-peermem"},
	Refs: []string{
		"https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-dmabuf.c",
		"https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-pci.c",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalDMABufRefused,
}

func evalDMABufRefused(c *Case) {
	if len(EachPair(c.Node)) == 0 {
		c.none("no GPU and NIC that belong together")
		return
	}
	log, state := seeLog(c)
	if state != fact.Known {
		c.Lower(SeverityWarning)
		Need(c, "kernel log", c.Machine.Host.KernelLog)
		c.Unknown("cannot tell: the kernel log is not there")
		return
	}
	events := c.logOf("", host.LogDMABufDirect, host.LogDMABufTopology, host.LogDMABufImporter)
	if len(events) == 0 {
		c.Row("kernel log", "no refusal", c.Machine.Host.KernelLog.Source)
		if !log.Complete {
			c.Info("none in what is left of the kernel log")
			return
		}
		c.Pass("none since boot")
		return
	}
	for _, e := range events {
		c.Row("kernel log, "+sinceBoot(e), e.Text, c.Machine.Host.KernelLog.Source)
		c.Want("no refusal")
	}
	if n := c.registeredByDMABuf(); n > 0 {
		c.Row("registrations by DMA-BUF", fmt.Sprintf("%d of %d work", n, n), fact.AskRegistration)
		c.Info("the kernel log tells of a refusal, but every pair that was tried registers by DMA-BUF now")
		return
	}
	message := "the GPU driver refused to map GPU memory for a device: "
	switch events[0].Kind {
	case host.LogDMABufDirect:
		message += "for Data Direct, GPU and NIC are not in one IOMMU group"
		c.Fix("Let rdma-core's tool write the ACS settings of this machine, then reboot: sudo rdma_topo write-grub-acs",
			"Until then NCCL_IB_DATA_DIRECT=0 takes the way over the CPU")
	case host.LogDMABufImporter:
		message += "its driver cannot do peer-to-peer"
		c.Fix("Use a NIC driver that maps peer memory: mlx5 of kernel 5.12, or DOCA-OFED; update it and rdma-core")
	default:
		message += "this CPU does not forward peer traffic, and they share no PCIe switch"
		c.Fix("Put GPU and NIC below one PCIe switch: see gdrcheck topo",
			"NVreg_GrdmaPciTopoCheckOverride=1 only skips the driver's check: transfers may then be lost")
	}
	c.Unsure("it may have been another pair, or a setting that was changed since: a registration tells")
	if c.module("nvidia_peermem").State == fact.Known {
		c.Lower(SeverityWarning)
		c.Warn("%s; nvidia-peermem is there as another way", message)
		return
	}
	c.Fail("%s", message)
}

// registeredByDMABuf is how many pairs of a GPU and a NIC register by DMA-BUF; 0
// where one of those that were tried does not.
func (n *Node) registeredByDMABuf() int {
	good := 0
	for _, r := range n.Machine.Registrations {
		p, ok := r.Probe.Get()
		if d, found := n.Graph.Device(r.Device); !ok || !found || d.RDMA.Software {
			continue
		}
		if !slices.Contains(works(p, perftest.MemoryCUDA), registrationWay(string(perftest.WayDMABuf))) {
			return 0
		}
		good++
	}
	return good
}
