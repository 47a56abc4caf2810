package pci

import (
	"encoding/binary"
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Registers and capability numbers, include/uapi/linux/pci_regs.h.
const (
	regStatus     = 0x06
	statusCapList = 0x10
	regHeaderType = 0x0e
	regCapPtr     = 0x34
	regCardBusCap = 0x14
	headerBytes   = 0x40
	cardBusBytes  = 0x80
	conventional  = 0x100 // configuration space of conventional PCI ends here

	capPCIe   = 0x10
	ecapACS   = 0x0d
	ecapATS   = 0x0f
	ecapReBAR = 0x15

	pcieFlags, pcieDevCap, pcieDevCtl = 0x02, 0x04, 0x08
	pcieLnkCap, pcieLnkSta            = 0x0c, 0x12
)

// speeds by the code of Link Capabilities and Link Status; 7 is PCIe 7.0.
var speeds = [...]float64{0, 2.5, 5, 8, 16, 32, 64, 128}

// gap says why a register or a capability could not be seen.
type gap struct {
	state  fact.State
	reason string
}

var needsRoot = gap{fact.Denied, "needs root: the kernel serves 64 bytes without CAP_SYS_ADMIN"}

// config is a configuration space with what bounds it: beyond says what holds
// for bytes that are not there.
type config struct {
	b      []byte
	beyond gap
}

// u16 and u32 read little-endian registers; ok is false beyond the end.
func (c *config) u16(at int) (v uint16, ok bool) {
	if at < 0 || at+2 > len(c.b) {
		return 0, false
	}
	return binary.LittleEndian.Uint16(c.b[at:]), true
}

func (c *config) u32(at int) (v uint32, ok bool) {
	if at < 0 || at+4 > len(c.b) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(c.b[at:]), true
}

// caps is one capability list: where each number was found first, and what
// holds for those that were not: Absent after a complete walk.
type caps struct {
	at   map[uint16]int
	miss gap
}

// ParseConfig reads a function's configuration space as sysfs "config" serves
// it. What lies beyond the bytes that the kernel serves an ordinary user is
// Denied; a capability that a complete list lacks is Absent; a list that is
// cut off, loops or points astray makes what it did not reach Failed.
func ParseConfig(b []byte) Config {
	if g, bad := unusable(b); bad {
		return missingConfig(fact.Missing[[]byte](g.state, "config", g.reason))
	}
	c := &config{b: b, beyond: gap{fact.Failed, fmt.Sprintf("configuration space ends at byte %#x", len(b))}}
	if n := len(b); n == headerBytes || n == cardBusBytes && headerType(b) == 2 {
		c.beyond = needsRoot
	}
	out := Config{Length: fact.Of(len(b), "config")}
	std := c.walk()
	pcie, gone := lookup(std, capPCIe, "the function has no PCI Express capability")
	c.readExpress(&out, pcie, gone)

	ext := c.walkExtended(gone)
	at, gone := lookup(ext, ecapACS, "no Access Control Services capability")
	out.ACS = c.readACS(at, gone)
	at, gone = lookup(ext, ecapATS, "no Address Translation Services capability")
	out.ATS = c.readATS(at, gone)
	at, gone = lookup(ext, ecapReBAR, "no Resizable BAR capability")
	out.ReBAR = c.readReBAR(at, gone)
	return out
}

func headerType(b []byte) byte { return b[regHeaderType] & 0x7f }

// unusable says whether the bytes tell nothing at all. A virtual function's
// vendor and device read as ones by design, so a header of ones is asked for.
func unusable(b []byte) (gap, bool) {
	if len(b) < headerBytes {
		return gap{fact.Failed, fmt.Sprintf("only %d bytes of configuration space", len(b))}, true
	}
	for _, x := range b[:headerBytes] {
		if x != 0xff {
			return gap{}, false
		}
	}
	return gap{fact.Failed, "the device does not answer: configuration space reads as all ones"}, true
}

// lookup finds a capability, or says what holds for it.
func lookup(l caps, id uint16, absent string) (at int, missing *gap) {
	if at, ok := l.at[id]; ok {
		return at, nil
	}
	g := l.miss
	if g.state == fact.Absent && g.reason == "" {
		g.reason = absent
	}
	return 0, &g
}

// walk follows the capability list (PCI Local Bus Specification 6.7), as
// __pci_find_next_cap does.
func (c *config) walk() caps {
	l := caps{at: map[uint16]int{}, miss: gap{state: fact.Absent}}
	if status, _ := c.u16(regStatus); status&statusCapList == 0 {
		return l
	}
	ptr := regCapPtr
	if headerType(c.b) == 2 {
		ptr = regCardBusCap
	}
	seen := [conventional]bool{}
	for pos := int(c.b[ptr]) &^ 3; pos != 0; {
		entry, ok := c.u16(pos)
		switch {
		case pos < headerBytes:
			l.miss = gap{fact.Failed, fmt.Sprintf("capability list points into the header, at %#x", pos)}
			return l
		case !ok:
			l.miss = c.beyond
			return l
		case seen[pos]:
			l.miss = gap{fact.Failed, fmt.Sprintf("capability list loops at %#x", pos)}
			return l
		case entry&0xff == 0xff:
			l.miss = gap{fact.Failed, fmt.Sprintf("capability list is broken at %#x", pos)}
			return l
		}
		seen[pos] = true
		l.found(entry&0xff, pos)
		pos = int(entry>>8) &^ 3
	}
	return l
}

func (l *caps) found(id uint16, pos int) {
	if _, dup := l.at[id]; !dup {
		l.at[id] = pos
	}
}

// walkExtended follows the extended list from 0x100 (PCIe Base Spec 7.6.3).
// Only PCI Express functions have it, so a function without that capability
// has none of these; where the capability itself could not be seen, neither
// can they.
func (c *config) walkExtended(noPCIe *gap) caps {
	l := caps{at: map[uint16]int{}, miss: gap{state: fact.Absent}}
	if noPCIe != nil {
		l.miss = *noPCIe
		return l
	}
	if len(c.b) == conventional {
		l.miss = gap{fact.Unsupported, "the kernel reaches only 256 bytes of this PCI Express function (no MMCONFIG)"}
		return l
	}
	seen := map[int]bool{}
	for pos := conventional; pos != 0; {
		header, ok := c.u32(pos)
		switch {
		case pos < conventional:
			l.miss = gap{fact.Failed, fmt.Sprintf("extended capability list points to %#x", pos)}
			return l
		case !ok:
			l.miss = c.beyond
			return l
		case seen[pos]:
			l.miss = gap{fact.Failed, fmt.Sprintf("extended capability list loops at %#x", pos)}
			return l
		case header == 0xffffffff:
			l.miss = gap{fact.Failed, fmt.Sprintf("extended capability list reads as all ones at %#x", pos)}
			return l
		case header == 0: // nothing here: the end
			return l
		}
		seen[pos] = true
		if id := uint16(header); id != 0 { // 0 is a place holder
			l.found(id, pos)
		}
		pos = int(header >> 20 &^ 3)
	}
	return l
}

func missing[T any](g gap) fact.Value[T] { return fact.Missing[T](g.state, "config", g.reason) }

// readExpress reads the PCI Express capability (PCIe Base Spec 7.5.3).
func (c *config) readExpress(out *Config, at int, gone *gap) {
	flags, ok0 := c.u16(at + pcieFlags)
	devCap, ok1 := c.u32(at + pcieDevCap)
	devCtl, ok2 := c.u16(at + pcieDevCtl)
	if gone == nil && (!ok0 || !ok1 || !ok2) {
		gone = &c.beyond
	}
	if gone != nil {
		setExpress(out, *gone)
		return
	}
	port := PortType(flags >> 4 & 0xf)
	out.PortType = fact.Of(port, "config")
	out.MPSSupportedBytes = payload(devCap&7, "Max_Payload_Size Supported")
	out.MPSBytes = payload(uint32(devCtl)>>5&7, "Max_Payload_Size")
	out.MRRSBytes = payload(uint32(devCtl)>>12&7, "Max_Read_Request_Size")
	out.RelaxedOrdering = fact.Of(devCtl&0x10 != 0, "config")
	out.ExtendedTag = fact.Of(devCtl&0x100 != 0, "config")
	out.Link = c.readLink(at, port)
}

// payload reads a three-bit size field, 128 bytes times a power of two.
func payload(code uint32, name string) fact.Value[int] {
	if code > 5 {
		return fact.Missing[int](fact.Failed, "config", fmt.Sprintf("%s has the reserved code %d", name, code))
	}
	return fact.Of(128<<code, "config")
}

func (c *config) readLink(at int, port PortType) fact.Value[Link] {
	if port == PortRCIntegratedEP || port == PortRCEventCollector {
		return missing[Link](gap{fact.Absent, "a root complex integrated function has no link"})
	}
	lnkCap, ok1 := c.u32(at + pcieLnkCap)
	lnkSta, ok2 := c.u16(at + pcieLnkSta)
	if !ok1 || !ok2 {
		return missing[Link](c.beyond)
	}
	maxCode, code := lnkCap&0xf, lnkSta&0xf
	if int(maxCode) >= len(speeds) || int(code) >= len(speeds) {
		return missing[Link](gap{fact.Failed, fmt.Sprintf("unknown link speed code %d or %d", maxCode, code)})
	}
	return makeLink(Link{
		SpeedGTPerSec: speeds[code], Width: int(lnkSta >> 4 & 0x3f),
		MaxSpeedGTPerSec: speeds[maxCode], MaxWidth: int(lnkCap >> 4 & 0x3f),
	}, "config")
}

func (c *config) readACS(at int, gone *gap) fact.Value[ACS] {
	cap16, ok1 := c.u16(at + 4)
	ctl, ok2 := c.u16(at + 6)
	switch {
	case gone != nil:
		return missing[ACS](*gone)
	case !ok1 || !ok2:
		return missing[ACS](c.beyond)
	}
	return fact.Of(ACS{Cap: cap16, Ctl: ctl}, "config")
}

func (c *config) readATS(at int, gone *gap) fact.Value[bool] {
	ctl, ok := c.u16(at + 6)
	switch {
	case gone != nil:
		return missing[bool](*gone)
	case !ok:
		return missing[bool](c.beyond)
	}
	return fact.Of(ctl&0x8000 != 0, "config")
}

// readReBAR reads up to six entries; the first one's control register has
// their number in bits 7:5.
func (c *config) readReBAR(at int, gone *gap) fact.Value[[]ReBAR] {
	if gone != nil {
		return missing[[]ReBAR](*gone)
	}
	var out []ReBAR
	for i, n := 0, 1; i < n; i++ {
		sizes, ok1 := c.u32(at + 4 + 8*i)
		ctl, ok2 := c.u32(at + 8 + 8*i)
		if !ok1 || !ok2 {
			return missing[[]ReBAR](c.beyond)
		}
		if i == 0 {
			n = int(ctl >> 5 & 7)
		}
		size := ctl >> 8 & 0x3f
		if n < 1 || n > 6 || size > 43 {
			return missing[[]ReBAR](gap{fact.Failed, fmt.Sprintf("impossible Resizable BAR control register %#x", ctl)})
		}
		e := ReBAR{BAR: int(ctl & 7), SizeBytes: 1 << (size + 20)}
		// Bits 31:4 of the capability are 1 MB to 128 TB, bits 31:16 of the
		// control register 256 TB and up.
		for bit := range 28 {
			if sizes>>(bit+4)&1 != 0 {
				e.SupportedBytes = append(e.SupportedBytes, 1<<(bit+20))
			}
		}
		for bit := range 16 {
			if ctl>>(bit+16)&1 != 0 {
				e.SupportedBytes = append(e.SupportedBytes, 1<<(bit+48))
			}
		}
		out = append(out, e)
	}
	return fact.Of(out, "config")
}

// missingConfig is a Config whose every value is in the state of raw.
func missingConfig(raw fact.Value[[]byte]) Config {
	var out Config
	setExpress(&out, gap{raw.State, raw.Reason})
	out.Length = fact.As(raw, 0)
	out.ACS = fact.As(raw, ACS{})
	out.ATS = fact.As(raw, false)
	out.ReBAR = fact.As(raw, []ReBAR(nil))
	return out
}

func setExpress(out *Config, g gap) {
	out.PortType = missing[PortType](g)
	out.MPSBytes, out.MPSSupportedBytes, out.MRRSBytes = missing[int](g), missing[int](g), missing[int](g)
	out.RelaxedOrdering, out.ExtendedTag = missing[bool](g), missing[bool](g)
	out.Link = missing[Link](g)
}

// reservedInVF takes back the registers that read as zero in a virtual
// function (PCIe Base Spec 9.3.5): its physical function's rule.
func (c *Config) reservedInVF(reason string) {
	g := gap{fact.Unsupported, reason}
	for _, v := range []*fact.Value[int]{&c.MPSBytes, &c.MRRSBytes} {
		if v.State == fact.Known {
			*v = missing[int](g)
		}
	}
	for _, v := range []*fact.Value[bool]{&c.RelaxedOrdering, &c.ExtendedTag} {
		if v.State == fact.Known {
			*v = missing[bool](g)
		}
	}
	if c.Link.State == fact.Known {
		c.Link = missing[Link](g)
	}
}
