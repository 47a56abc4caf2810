package netif

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// memory reads a half page of a module's memory: offset 0 or 128.
type memory func(page, offset uint8) ([]byte, error)

// moduleKinds are the identifiers of SFF-8024 table 4-1 that NICs have, and how
// each one's memory is laid out.
var moduleKinds = map[byte]struct {
	name   string
	decode func(m *qos.Module, lower, upper []byte, read memory)
}{
	0x03: {"SFP", decodeSFP},
	0x0c: {"QSFP", decodeQSFP},
	0x0d: {"QSFP+", decodeQSFP},
	0x11: {"QSFP28", decodeQSFP},
	0x18: {"QSFP-DD", decodeCMIS},
	0x19: {"OSFP", decodeCMIS},
	0x1a: {"SFP-DD", decodeCMIS},
	0x1b: {"DSFP", decodeCMIS},
	0x1e: {"QSFP+ with CMIS", decodeCMIS},
	0x1f: {"SFP-DD with CMIS", decodeCMIS},
	0x20: {"SFP+ with CMIS", decodeCMIS},
}

// decodeModule reads what is needed of a module's memory. What the module's
// kind has no place for is Unsupported.
func decodeModule(read memory) qos.Module {
	var m qos.Module
	lower, err := read(0, 0)
	if err == nil && len(lower) != halfPage {
		err = errShort
	}
	if err != nil {
		qos.Fill(&m, fromError[bool](err, srcEEPROM))
		return m
	}
	kind, known := moduleKinds[lower[0]]
	if !known {
		m.Type = fact.Of(fmt.Sprintf("identifier %#02x", lower[0]), srcEEPROM)
		qos.Fill(&m, fact.Missing[bool](fact.Unsupported, srcEEPROM, "the memory of this kind of module is not known here"))
		return m
	}
	m.Type = fact.Of(kind.name, srcEEPROM)
	upper, err := read(0, halfPage)
	if err == nil && len(upper) != halfPage {
		err = errShort
	}
	if err == nil {
		kind.decode(&m, lower, upper, read)
		err = nil
	} else {
		qos.Fill(&m, fromError[bool](err, srcEEPROM))
	}
	qos.Fill(&m, fact.Missing[bool](fact.Unsupported, srcEEPROM, "a module of this kind does not say"))
	return m
}

// ascii is text in a module's memory, padded with blanks.
func ascii(b []byte) fact.Value[string] {
	s := strings.TrimRight(string(b), " \x00")
	for _, r := range s {
		if r < ' ' || r > '~' {
			return fact.Missing[string](fact.Failed, srcEEPROM, fmt.Sprintf("not ASCII: %q", s))
		}
	}
	if s == "" {
		return fact.Missing[string](fact.Absent, srcEEPROM, "empty")
	}
	return fact.Of(s, srcEEPROM)
}

// technologies are the transmitter's: SFF-8636 table 6-20 (the upper half of
// byte 147) and CMIS table 8-39 (byte 212) agree where both have one.
func technology(code byte) fact.Value[string] {
	switch {
	case code <= 0x09, code == 0x10, code == 0x11:
		return fact.Of("optical", srcEEPROM)
	case code == 0x0a, code == 0x0b:
		return fact.Of("copper", srcEEPROM)
	case code <= 0x16:
		return fact.Of("active copper", srcEEPROM)
	}
	return fact.Missing[string](fact.Unsupported, srcEEPROM, fmt.Sprintf("technology %#02x is not known here", code))
}

// Temperature and supply voltage are alike in both layouts: a signed word of
// 1/256 °C, a word of 100 µV. No module runs without a supply, so a zero says
// that nothing is measured.
func (x monitors) set(m *qos.Module) {
	if x.volts == 0 {
		none := fact.Missing[bool](fact.Absent, srcEEPROM, "the module measures nothing")
		m.TemperatureC, m.SupplyVolts = fact.As(none, 0.0), fact.As(none, 0.0)
		m.Lanes = fact.As[[]qos.ModuleLane](none, nil)
		return
	}
	const perDegree, perVolt = 256.0, 10_000.0
	m.TemperatureC = fact.Of(float64(x.temperature)/perDegree, srcEEPROM)
	m.SupplyVolts = fact.Of(float64(x.volts)/perVolt, srcEEPROM)
}

type monitors struct {
	temperature int16
	volts       uint16
}

func word(b []byte, at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }

// lanes reads power (words of 0.1 µW) and bias (words of 2 µA).
func lanes(rx, tx, bias []byte, n int, biasScale float64) []qos.ModuleLane {
	const perMilliwatt, perMilliamp = 10_000.0, 500.0
	out := make([]qos.ModuleLane, n)
	for i := range out {
		out[i] = qos.ModuleLane{
			RxMilliwatt: new(float64(word(rx, 2*i)) / perMilliwatt),
			TxMilliwatt: new(float64(word(tx, 2*i)) / perMilliwatt),
			BiasMilliA:  new(float64(word(bias, 2*i)) / perMilliamp * biasScale),
		}
	}
	return out
}

// The four thresholds, in the order of the bits from the highest.
var thresholds = []string{"high alarm", "low alarm", "high warning", "low warning"}

// decodeSFP reads SFF-8472 (table 4-1): who made the module. Its monitors are at
// another address on the bus, which is not read.
func decodeSFP(m *qos.Module, lower, _ []byte, _ memory) {
	m.Vendor, m.PartNumber, m.Revision = ascii(lower[20:36]), ascii(lower[40:56]), ascii(lower[56:60])
	const passive, active = 1 << 2, 1 << 3
	switch cable := lower[8]; {
	case cable&passive != 0:
		m.Medium = fact.Of("copper", srcEEPROM)
	case cable&active != 0:
		m.Medium = fact.Of("active copper", srcEEPROM)
	default:
		m.Medium = fact.Of("optical", srcEEPROM)
	}
}

// decodeQSFP reads SFF-8636 revision 2.10a.
func decodeQSFP(m *qos.Module, lower, upper []byte, _ memory) {
	at := func(from, to int) []byte { return upper[from-halfPage : to-halfPage] }
	m.Vendor, m.PartNumber, m.Revision = ascii(at(148, 164)), ascii(at(168, 184)), ascii(at(184, 186))
	m.Medium = technology(at(147, 148)[0] >> 4)
	if n := at(146, 147)[0]; n > 0 {
		m.LengthM = fact.Of(float64(n), srcEEPROM)
	}
	monitors{int16(word(lower, 22)), word(lower, 26)}.set(m)
	if m.SupplyVolts.State != fact.Known {
		return
	}
	const count = 4
	m.Lanes = fact.Of(lanes(lower[34:42], lower[50:58], lower[42:50], count, 1), srcEEPROM)

	alarms := []string{}
	four := func(what string, b byte, shift int) {
		for i, name := range thresholds {
			if b>>(shift-i)&1 == 1 {
				alarms = append(alarms, what+" "+name)
			}
		}
	}
	four("temperature", lower[6], 7)
	four("supply", lower[7], 7)
	for lane := range count {
		name := fmt.Sprintf("lane %d ", lane+1)
		// Two lanes a byte, the first in the upper half.
		pair, shift := lane/2, 7-4*(lane%2)
		four(name+"rx power", lower[9+pair], shift)
		four(name+"tx bias", lower[11+pair], shift)
		four(name+"tx power", lower[13+pair], shift)
		bit := func(at, n int, what string) {
			if lower[at]>>n&1 == 1 {
				alarms = append(alarms, name+what)
			}
		}
		bit(3, lane, "rx loss of signal")
		bit(3, lane+4, "tx loss of signal")
		bit(4, lane, "tx fault")
		bit(5, lane, "rx loss of lock")
		bit(5, lane+4, "tx loss of lock")
	}
	m.Alarms = fact.Of(alarms, srcEEPROM)
}

var cmisStates = map[byte]string{1: "ModuleLowPwr", 2: "ModulePwrUp", 3: "ModuleReady", 4: "ModulePwrDn", 5: "ModuleFault"}

// decodeCMIS reads CMIS revision 5.2: the lower memory, page 00h, and of a
// module with pages what page 01h says is measured on page 11h.
func decodeCMIS(m *qos.Module, lower, upper []byte, read memory) {
	at := func(from, to int) []byte { return upper[from-halfPage : to-halfPage] }
	m.Vendor, m.PartNumber, m.Revision = ascii(at(129, 145)), ascii(at(148, 164)), ascii(at(164, 166))
	m.Medium = technology(at(212, 213)[0])
	// Table 8-33: six bits of length, two of what they are multiplied by.
	if n := at(202, 203)[0]; n&0x3f > 0 {
		m.LengthM = fact.Of(float64(n&0x3f)*[]float64{0.1, 1, 10, 100}[n>>6], srcEEPROM)
	}
	if s := cmisStates[lower[3]>>1&7]; s != "" {
		m.State = fact.Of(s, srcEEPROM)
	}
	if lower[39] != 0 || lower[40] != 0 {
		m.Firmware = fact.Of(fmt.Sprintf("%d.%d", lower[39], lower[40]), srcEEPROM)
	}
	monitors{int16(word(lower, 14)), word(lower, 16)}.set(m)
	if m.SupplyVolts.State != fact.Known {
		return
	}
	alarms := []string{}
	for i, name := range []string{"temperature high alarm", "temperature low alarm", "temperature high warning", "temperature low warning", "supply high alarm", "supply low alarm", "supply high warning", "supply low warning"} {
		if lower[9]>>i&1 == 1 {
			alarms = append(alarms, name)
		}
	}
	const flat = 1 << 7
	if lower[2]&flat != 0 { // no pages: a cable
		m.Lanes = fact.Missing[[]qos.ModuleLane](fact.Absent, srcEEPROM, "the module measures no lanes")
		m.Alarms = fact.Of(alarms, srcEEPROM)
		return
	}
	more, err := cmisLanes(m, at(210, 211)[0], read)
	if err != nil {
		m.Lanes, m.Alarms = fromError[[]qos.ModuleLane](err, srcEEPROM), fromError[[]string](err, srcEEPROM)
		return
	}
	m.Alarms = fact.Of(slices.Concat(alarms, more), srcEEPROM)
}

// cmisLanes reads the monitors and flags of the lanes that missing does not
// rule out (page 00h byte 210, tables 8-58 to 8-61).
func cmisLanes(m *qos.Module, missing byte, read memory) (alarms []string, err error) {
	const advertised, state = 0x01, 0x11
	adv, err := read(advertised, halfPage)
	if err != nil {
		return nil, err
	}
	page, err := read(state, halfPage)
	if err != nil {
		return nil, err
	}
	if len(adv) != halfPage || len(page) != halfPage {
		return nil, errShort
	}
	at := func(n int) int { return n - halfPage }
	const count, bytesOfLanes = 8, 16
	monitored := adv[at(160)]
	scale := []float64{1, 2, 4, 1}[monitored>>3&3]
	all := lanes(page[at(186):][:bytesOfLanes], page[at(154):][:bytesOfLanes], page[at(170):][:bytesOfLanes], count, scale)
	var have []qos.ModuleLane
	for i, l := range all {
		if missing>>i&1 == 1 {
			continue
		}
		if monitored&1 == 0 {
			l.BiasMilliA = nil
		}
		if monitored&2 == 0 {
			l.TxMilliwatt = nil
		}
		if monitored&4 == 0 {
			l.RxMilliwatt = nil
		}
		have = append(have, l)
		for _, f := range cmisFlags {
			if page[at(f.at)]>>i&1 == 1 {
				alarms = append(alarms, fmt.Sprintf("lane %d %s", i+1, f.name))
			}
		}
	}
	m.Lanes = fact.Of(have, srcEEPROM)
	if monitored&7 == 0 {
		m.Lanes = fact.Missing[[]qos.ModuleLane](fact.Absent, srcEEPROM, "the module measures no lanes")
	}
	return alarms, nil
}

// cmisFlags are those of page 11h that tell of trouble, a bit for each lane
// (tables 8-59 and 8-60).
var cmisFlags = []struct {
	at   int
	name string
}{
	{135, "tx fault"}, {136, "tx loss of signal"}, {137, "tx loss of lock"},
	{139, "tx power high alarm"}, {140, "tx power low alarm"}, {141, "tx power high warning"}, {142, "tx power low warning"},
	{143, "tx bias high alarm"}, {144, "tx bias low alarm"}, {145, "tx bias high warning"}, {146, "tx bias low warning"},
	{147, "rx loss of signal"}, {148, "rx loss of lock"},
	{149, "rx power high alarm"}, {150, "rx power low alarm"}, {151, "rx power high warning"}, {152, "rx power low warning"},
}
