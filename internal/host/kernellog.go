package host

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// KernelLog answers fact.AskKernelLog's subject "system": of what the kernel's
// ring buffer holds, the messages that gdrcheck knows, and nothing else.
type KernelLog struct {
	Events []LogEvent `json:"events"` // by first appearance
	// Complete: the buffer still reaches back to boot. Otherwise older messages
	// are gone, and that there is no event proves nothing.
	Complete bool `json:"complete"`
	// Messages is how many were looked at.
	Messages int `json:"messages"`
}

// LogEvent is one message, or several that differ in time alone.
type LogEvent struct {
	Kind LogKind `json:"kind"`
	// SinceBootSec is when the last of them came, seconds of the kernel's clock.
	SinceBootSec uint64 `json:"since_boot_sec"`
	Count        int    `json:"count"`
	Device       string `json:"device,omitempty"` // PCI address, "0000:3b:00.0"
	Module       string `json:"module,omitempty"` // kernel module that could not be loaded
	Symbol       string `json:"symbol,omitempty"` // that it asked for
	Code         int    `json:"code,omitempty"`   // of an Xid or SXid; watts of LogPower
	// Text is the first message, cut at 200 bytes and before the name of a process.
	Text string `json:"text"`
}

// LogKind says what a message tells.
type LogKind string

// Kinds of messages and who writes them.
const (
	LogXid            LogKind = "xid"             // NVIDIA driver: GPU error, Code
	LogSXid           LogKind = "sxid"            // NVIDIA driver: NVSwitch error, Code
	LogInitFailed     LogKind = "init_failed"     // NVIDIA driver: RmInitAdapter failed
	LogBARZero        LogKind = "bar_zero"        // NVIDIA driver: "BAR1 is 0M @ 0x0"
	LogBARUnassigned  LogKind = "bar_unassigned"  // kernel: no space for a BAR
	LogSymbolVersion  LogKind = "symbol_version"  // kernel: Module disagrees about the version of Symbol
	LogSymbolUnknown  LogKind = "symbol_unknown"  // kernel: Module, unknown Symbol
	LogVersionMagic   LogKind = "version_magic"   // kernel: Module is of another kernel
	LogUnsigned       LogKind = "unsigned"        // kernel: an unsigned module was refused
	LogDMABufTopology LogKind = "dmabuf_topology" // NVIDIA driver: "PCI topology not supported for dma-buf"
	LogDMABufDirect   LogKind = "dmabuf_direct"   // NVIDIA driver: "topology not supported for mapping type FORCE_PCIE"
	LogDMABufImporter LogKind = "dmabuf_importer" // NVIDIA driver: "importer unable to handle MMIO without struct page"
	LogPeermemContext LogKind = "peermem_context" // nvidia-peermem: "detected invalid context"
	LogPower          LogKind = "power"           // mlx5: insufficient power of the slot, Code in watts
	LogIOMMUFault     LogKind = "iommu_fault"     // DMAR, AMD-Vi or SMMU refused an access of Device
)

// logPattern is a kind with the message that tells of it; named groups fill a
// LogEvent.
type logPattern struct {
	kind LogKind
	re   *regexp.Regexp
}

const addrPattern = `(?P<device>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)`

// logPatterns: the wording is the source's of Linux (kernel/module, drivers/pci,
// drivers/iommu, mlx5/core/events.c) and of NVIDIA's open modules
// (kernel-open/nvidia/nv-dmabuf.c, nv-pci.c, nvidia-peermem).
var logPatterns = sync.OnceValue(func() []logPattern {
	return []logPattern{
		{LogXid, regexp.MustCompile(`NVRM: Xid \(PCI:` + addrPattern + `\): (?P<code>\d+)`)},
		{LogSXid, regexp.MustCompile(`SXid \(PCI:` + addrPattern + `\): (?P<code>\d+)`)},
		{LogInitFailed, regexp.MustCompile(`NVRM: GPU ` + addrPattern + `: RmInitAdapter failed!`)},
		{LogBARZero, regexp.MustCompile(`BAR1 is 0M @ 0x0 \(PCI:` + addrPattern)},
		{LogBARUnassigned, regexp.MustCompile(addrPattern + `: BAR \d+.*(?:no space for|can't assign; no space|failed to assign)`)},
		{LogSymbolVersion, regexp.MustCompile(`^(?P<module>\w+): disagrees about version of symbol (?P<symbol>\w+)`)},
		{LogSymbolUnknown, regexp.MustCompile(`^(?P<module>\w+): Unknown symbol (?P<symbol>\w+)`)},
		{LogVersionMagic, regexp.MustCompile(`^(?P<module>\w+): version magic '`)},
		{LogUnsigned, regexp.MustCompile(`^(?:Loading of (?:unsigned module|module with unavailable key) is rejected|Lockdown: .*: unsigned module loading is restricted)`)},
		{LogDMABufTopology, regexp.MustCompile(`PCI topology not supported for dma-buf`)},
		{LogDMABufDirect, regexp.MustCompile(`topology not supported for mapping type FORCE_PCIE`)},
		{LogDMABufImporter, regexp.MustCompile(`importer unable to handle MMIO without struct page`)},
		{LogPeermemContext, regexp.MustCompile(`nvidia-peermem .*detected invalid context`)},
		{LogPower, regexp.MustCompile(`mlx5_core ` + addrPattern + `.*Detected insufficient power on the PCIe slot \((?P<code>\d+)W\)`)},
		{LogIOMMUFault, regexp.MustCompile(`^DMAR: \[DMA .*Request device \[` + addrPattern + `\] .*fault`)},
		{LogIOMMUFault, regexp.MustCompile(`AMD-Vi: Event logged \[IO_PAGE_FAULT device=` + addrPattern)},
		{LogIOMMUFault, regexp.MustCompile(`AMD-Vi ` + addrPattern + `: Event logged \[IO_PAGE_FAULT`)},
		{LogIOMMUFault, regexp.MustCompile(addrPattern + `: AMD-Vi: Event logged \[IO_PAGE_FAULT`)},
	}
})

// maxLogEvents bounds the kinds times devices that a log can hold.
const maxLogEvents = 512

// ParseKernelLog takes records as /dev/kmsg gives them, one a string
// (Documentation/ABI/testing/dev-kmsg: "priority,sequence,microseconds,flags;text",
// then lines of keys that start with a space). Records in another form are passed over.
func ParseKernelLog(records []string) KernelLog {
	log := KernelLog{Events: []LogEvent{}}
	for _, r := range records {
		head, text, ok := strings.Cut(r, ";")
		fields := strings.Split(head, ",")
		if !ok || len(fields) < 3 {
			continue
		}
		if log.Messages == 0 {
			log.Complete = fields[1] == "0"
		}
		log.Messages++
		usec, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			continue
		}
		text, _, _ = strings.Cut(text, "\n")
		if e, ok := logEvent(text); ok {
			const usecPerSec = 1e6
			e.SinceBootSec = usec / usecPerSec
			log.add(e)
		}
	}
	return log
}

func (l *KernelLog) add(e LogEvent) {
	i := slices.IndexFunc(l.Events, func(o LogEvent) bool {
		return o.Kind == e.Kind && o.Device == e.Device && o.Module == e.Module && o.Symbol == e.Symbol && o.Code == e.Code
	})
	switch {
	case i >= 0:
		l.Events[i].Count++
		l.Events[i].SinceBootSec = max(l.Events[i].SinceBootSec, e.SinceBootSec)
	case len(l.Events) < maxLogEvents:
		e.Count = 1
		l.Events = append(l.Events, e)
	}
}

// logEvent recognises one message.
func logEvent(text string) (LogEvent, bool) {
	for _, p := range logPatterns() {
		m := p.re.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		e := LogEvent{Kind: p.kind, Text: shorten(text)}
		for i, name := range p.re.SubexpNames() {
			switch name {
			case "device":
				e.Device = fullAddress(m[i])
			case "module":
				e.Module = m[i]
			case "symbol":
				e.Symbol = m[i]
			case "code":
				e.Code, _ = strconv.Atoi(m[i])
			}
		}
		if e.Module != "" && !matters(e.Module) { // somebody else's module
			return LogEvent{}, false
		}
		return e, true
	}
	return LogEvent{}, false
}

// fullAddress completes an address that the kernel or driver writes without its
// domain or function.
func fullAddress(s string) string {
	s = strings.ToLower(s)
	if strings.Count(s, ":") == 1 {
		s = "0000:" + s
	}
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// shorten cuts what the driver tells of the process at fault: its name is its
// owner's.
func shorten(text string) string {
	const most = 200
	for _, at := range []string{", pid=", ", Pid:", ", name="} {
		text, _, _ = strings.Cut(text, at)
	}
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "?")
}
