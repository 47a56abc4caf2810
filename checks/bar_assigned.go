package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var barAssigned = Check{
	ID: "bar-assigned", Title: "GPUs and NICs have their address windows, within reach", Area: AreaPCIe, Severity: SeverityError, Rung: RungBAR1,
	DependsOn: []string{"bar1-size"},
	Why:       "A device's memory window (BAR) that firmware and kernel found no room for does not exist: the driver cannot start the GPU, or peers cannot reach it. Some NICs do not reach windows at very high addresses.",
	Fix:       []string{"See what was assigned: lspci -v -s ADDRESS | grep Memory", "No command assigns it: enable Above 4G Decoding in the BIOS and give it a larger, and not too high, 64-bit MMIO range"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://github.com/NVIDIA/gpu-operator/issues/492",
		"https://github.com/linux-rdma/perftest/issues/173",
	},
	Subjects: EachEndpoint,
	Eval:     evalBARAssigned,
}

func evalBARAssigned(c *Case) {
	f, ok := needFunction(c)
	if !ok {
		return
	}
	bars, ok := Need(c, "PCI windows", f.BARs, f.Dir)
	if !ok {
		c.NotApplicable("it has no windows")
		return
	}
	const memory, unset, lastBAR = 0x200, 0x20000000, 5 // include/linux/ioport.h; the ROM and bridge windows come after
	var high uint64
	for _, b := range bars {
		if b.Index > lastBAR || b.Flags&memory == 0 || b.SizeBytes == 0 {
			continue
		}
		if b.Start == 0 || b.Flags&unset != 0 {
			c.Row(fmt.Sprintf("window %d", b.Index), fmt.Sprintf("%s, no address", showBytes(b.SizeBytes)), c.source("resource", f.Dir))
			c.Want("an address")
			for _, e := range c.logOf(f.Address.String(), host.LogBARUnassigned, host.LogBARZero) {
				c.Row("kernel log", e.Text, "/dev/kmsg")
			}
			c.Fail("window %d (%s) has no address: firmware and kernel found no room", b.Index, showBytes(b.SizeBytes))
			fixMMIO(c)
			return
		}
		high = max(high, b.Start+b.SizeBytes)
	}
	reach := c.Thresholds.BARReachBytes
	c.Row("highest window ends at", fmt.Sprintf("%#x", high), c.source("resource", f.Dir))
	c.Want("below %#x", reach)
	if c.Subject.GPU != nil && high > reach && c.Platform.Virt != Guest {
		c.Lower(SeverityWarning)
		c.Warn("its window lies above %d TiB, where some NICs do not reach (vendor syndrome 0x51)", reach>>40)
		c.Fix("In the BIOS, lower MMIO High Base (often 56T by default; 12T or 1T suffice) and reboot")
		c.Unsure("newer NICs reach it: a transfer between GPU and NIC tells")
		return
	}
	c.Pass("all have addresses")
}

func fixMMIO(c *Case) {
	if c.Platform.Virt == Guest {
		c.Fix("In the guest's definition: give the firmware a 64-bit MMIO window of twice the GPUs' memory (OVMF: -fw_cfg name=opt/ovmf/X-PciMmio64Mb,string=262144)")
	} else {
		c.Fix("Enable Above 4G Decoding in the BIOS and enlarge MMIO High Size; if it is on, boot with pci=realloc")
	}
	c.Fix(fmt.Sprintf("Then see: lspci -v -s %s | grep Memory", c.Subject.Function.Address))
}

// logOf are the kernel log's events of some kinds on a device; none where the log
// could not be read.
func (n *Node) logOf(device string, kinds ...host.LogKind) []host.LogEvent {
	log, ok := n.Machine.Host.KernelLog.Get()
	if !ok {
		return nil
	}
	var out []host.LogEvent
	for _, e := range log.Events {
		for _, k := range kinds {
			if e.Kind == k && (device == "" || e.Device == device) {
				out = append(out, e)
			}
		}
	}
	return out
}

// seeLog adds the kernel log's evidence row; a log that is not known says so.
func seeLog(c *Case) (host.KernelLog, fact.State) {
	log := c.Machine.Host.KernelLog
	if log.State != fact.Known {
		_, state := See(c, "kernel log", log)
		return host.KernelLog{}, state
	}
	return log.V, fact.Known
}
