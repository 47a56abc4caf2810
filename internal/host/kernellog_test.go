package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Messages as they stand in public reports.
func TestParseKernelLog(t *testing.T) {
	records := []string{
		"6,0,0,-;Linux version 6.8.0",
		"3,900,12000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n SUBSYSTEM=pci\n",
		"3,901,13000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=train, GPU has fallen off the bus.",
		"4,902,14000000,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 46 egress non-posted PRIV error (First)",
		"4,903,15000000,-;nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client",
		"4,904,15000001,-;nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)",
		"4,905,15000002,-;someones_driver: Unknown symbol foo (err -2)",
		"3,906,16000000,-;NVRM: dma-buf attach failed: PCI topology not supported for dma-buf",
		"3,907,16000000,-;NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE",
		"3,908,16000000,-;NVRM: dma-buf attach failed: importer unable to handle MMIO without struct page",
		"4,909,17000000,-;NVRM: BAR1 is 0M @ 0x0 (PCI:0000:0a:00.0)",
		"4,910,17000000,-;pci 0000:0a:00.0: BAR 1 [mem size 0x2000000000 64bit pref]: can't assign; no space",
		"4,911,17000000,-;pci 0000:0b:00.0: BAR 1: no space for [mem size 0x4000000000 64bit pref]",
		"3,912,18000000,-;nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
		"4,913,19000000,-;mlx5_core 0000:01:00.0: mlx5_pcie_event:301:(pid 17): Detected insufficient power on the PCIe slot (27W).",
		"3,914,20000000,-;DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xfd000000 [fault reason 0x05] PTE Write access is not set",
		"1,915,21000000,-;mlx5_core 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001c address=0x3c0 flags=0x0020]",
		"5,916,22000000,-;Loading of unsigned module is rejected",
		"3,917,23000000,-;gdrdrv: version magic '5.15.0 SMP mod_unload ' should be '6.8.0 SMP preempt mod_unload '",
		"3,918,24000000,-;NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0x40:2393)",
		"broken record",
		"6,919,25000000,-;usb 1-1: new device",
	}
	got := ParseKernelLog(records)
	if !got.Complete || got.Messages != len(records)-1 {
		t.Errorf("complete %v, %d messages", got.Complete, got.Messages)
	}
	var short []LogEvent
	for _, e := range got.Events {
		if strings.Contains(e.Text, "train") || strings.Contains(e.Text, "pid=") {
			t.Errorf("names a process: %q", e.Text)
		}
		e.Text, e.SinceBootSec = "", 0
		short = append(short, e)
	}
	want := []LogEvent{
		{Kind: LogXid, Count: 2, Device: "0000:3b:00.0", Code: 79},
		{Kind: LogSXid, Count: 1, Device: "0000:c1:00.0", Code: 12028},
		{Kind: LogSymbolVersion, Count: 1, Module: "nvidia_peermem", Symbol: "ib_register_peer_memory_client"},
		{Kind: LogSymbolUnknown, Count: 1, Module: "nvidia_peermem", Symbol: "ib_register_peer_memory_client"},
		{Kind: LogDMABufTopology, Count: 1},
		{Kind: LogDMABufDirect, Count: 1},
		{Kind: LogDMABufImporter, Count: 1},
		{Kind: LogBARZero, Count: 1, Device: "0000:0a:00.0"},
		{Kind: LogBARUnassigned, Count: 1, Device: "0000:0a:00.0"},
		{Kind: LogBARUnassigned, Count: 1, Device: "0000:0b:00.0"},
		{Kind: LogPeermemContext, Count: 1},
		{Kind: LogPower, Count: 1, Device: "0000:01:00.0", Code: 27},
		{Kind: LogIOMMUFault, Count: 1, Device: "0000:3b:00.0"},
		{Kind: LogIOMMUFault, Count: 1, Device: "0000:c1:00.0"},
		{Kind: LogUnsigned, Count: 1},
		{Kind: LogVersionMagic, Count: 1, Module: "gdrdrv"},
		{Kind: LogInitFailed, Count: 1, Device: "0000:5d:00.0"},
	}
	if diff := cmp.Diff(want, short); diff != "" {
		t.Error(diff)
	}
	if got.Events[0].SinceBootSec != 13 || got.Events[0].Text != "NVRM: Xid (PCI:0000:3b:00): 79" {
		t.Errorf("%+v", got.Events[0])
	}
	if ParseKernelLog(records[1:]).Complete {
		t.Error("a log that lost its beginning is complete")
	}
}

func FuzzParseKernelLog(f *testing.F) {
	f.Add("3,900,12000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.")
	f.Add("4,0,1,-;nvidia: Unknown symbol x\n K=v")
	f.Fuzz(func(t *testing.T, s string) {
		log := ParseKernelLog([]string{s, s})
		for _, e := range log.Events {
			if e.Count != 2 || len(e.Text) > 3*200 || e.Kind == "" {
				t.Errorf("%+v", e)
			}
		}
		if len(log.Events) > 1 {
			t.Error("one message, two events")
		}
	})
}
