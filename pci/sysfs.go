package pci

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Uevent holds the numbers of a PCI function's uevent file.
type Uevent struct {
	Vendor, Device, SubsystemVendor, SubsystemDevice ID
	Class                                            Class
}

// ParseUevent reads "uevent", whose lines PCI_CLASS, PCI_ID and PCI_SUBSYS_ID
// (pci_uevent in drivers/pci/pci-driver.c) must all be there.
func ParseUevent(s string) (Uevent, error) {
	var u Uevent
	missing := map[string]bool{"PCI_CLASS": true, "PCI_ID": true, "PCI_SUBSYS_ID": true}
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		var err error
		switch key {
		case "PCI_CLASS":
			var n uint64
			n, err = parseHex(value, 6, 24)
			u.Class = Class(n)
		case "PCI_ID":
			u.Vendor, u.Device, err = parseIDPair(value)
		case "PCI_SUBSYS_ID":
			u.SubsystemVendor, u.SubsystemDevice, err = parseIDPair(value)
		}
		if err != nil {
			return Uevent{}, fmt.Errorf("bad line %q", strings.TrimSpace(line))
		}
		delete(missing, key)
	}
	if len(missing) > 0 {
		return Uevent{}, fmt.Errorf("lacks %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return u, nil
}

func parseIDPair(s string) (vendor, device ID, err error) {
	v, d, _ := strings.Cut(s, ":")
	n, err1 := parseHex(v, 4, 16)
	m, err2 := parseHex(d, 4, 16)
	return ID(n), ID(m), errors.Join(err1, err2)
}

func parseID(s string) (ID, error) {
	n, err := parse0x(s, 4, 16)
	return ID(n), err
}

func parseClass(s string) (Class, error) {
	n, err := parse0x(s, 6, 24)
	return Class(n), err
}

func parseRevision(s string) (uint8, error) {
	n, err := parse0x(s, 2, 8)
	return uint8(n), err
}

// parse0x reads the kernel's "0x10de".
func parse0x(s string, digits, bits int) (uint64, error) {
	hex, ok := strings.CutPrefix(s, "0x")
	if !ok {
		return 0, fmt.Errorf("want a hexadecimal number, got %q", s)
	}
	n, err := parseHex(hex, digits, bits)
	if err != nil {
		return 0, fmt.Errorf("want a hexadecimal number of at most %d bits, got %q", bits, s)
	}
	return n, nil
}

func parseInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("want a number, got %q", s)
	}
	return n, nil
}

func parseGroup(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("want a group's number, got %q", s)
	}
	return int(n), nil
}

// ParseSpeed reads current_link_speed and max_link_speed: "32.0 GT/s PCIe",
// older kernels' "8 GT/s". "Unknown" is 0: the link is down, or there is none.
func ParseSpeed(s string) (gtPerSec float64, err error) {
	if strings.HasPrefix(s, "Unknown") {
		return 0, nil
	}
	num, unit, _ := strings.Cut(s, " ")
	if unit != "GT/s" && unit != "GT/s PCIe" {
		return 0, fmt.Errorf("want a link speed in GT/s, got %q", s)
	}
	for _, known := range speeds[1:] {
		if v, err := strconv.ParseFloat(num, 64); err == nil && v == known {
			return known, nil
		}
	}
	return 0, fmt.Errorf("no such PCI Express speed: %q", s)
}

// makeLink turns what a link's registers or files say into a value. A maximum
// of nothing (0 or 255 lanes, PCIE_LNK_WIDTH_UNKNOWN) is a function without a
// link, as root complex integrated ones are; nothing now is a link that is down.
func makeLink(l Link, source string) fact.Value[Link] {
	const unknownWidth = 0xff
	if l.MaxSpeedGTPerSec == 0 && (l.MaxWidth == 0 || l.MaxWidth == unknownWidth) {
		return fact.Missing[Link](fact.Absent, source, "the function has no link")
	}
	if !validWidth(l.MaxWidth) || l.MaxWidth == 0 || l.MaxSpeedGTPerSec == 0 {
		return fact.Missing[Link](fact.Failed, source,
			fmt.Sprintf("impossible maximum: %g GT/s x%d", l.MaxSpeedGTPerSec, l.MaxWidth))
	}
	if l.Width == 0 || l.Width == unknownWidth || l.SpeedGTPerSec == 0 {
		l.Width, l.SpeedGTPerSec = 0, 0
	}
	if !validWidth(l.Width) {
		return fact.Missing[Link](fact.Failed, source, fmt.Sprintf("impossible width x%d", l.Width))
	}
	return fact.Of(l, source)
}

func validWidth(n int) bool {
	switch n {
	case 0, 1, 2, 4, 8, 12, 16, 32:
		return true
	}
	return false
}

// ParseResource reads "resource", one line "start end flags" a window, and
// returns those in use. Windows not assigned have a start of 0.
func ParseResource(s string) ([]BAR, error) {
	out := []BAR{} // read and empty: [] in JSON, not null
	for i, line := range strings.Split(strings.TrimSpace(s), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d: want start, end and flags, got %q", i+1, line)
		}
		var n [3]uint64
		for j := range f {
			v, err := parse0x(f[j], 16, 64)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			n[j] = v
		}
		start, end, flags := n[0], n[1], n[2]
		if flags == 0 || end == 0 {
			continue
		}
		if end < start || end-start == ^uint64(0) {
			return nil, fmt.Errorf("line %d: window ends before it starts: %q", i+1, line)
		}
		out = append(out, BAR{Index: i, Start: start, SizeBytes: end - start + 1, Flags: flags})
	}
	return out, nil
}

// ParseAER reads aer_dev_correctable and its like, lines "NAME COUNT", and
// keeps what is not zero. The TOTAL line is their sum and left out.
func ParseAER(s string) (map[string]uint64, error) {
	var out map[string]uint64
	for line := range strings.Lines(s) {
		name, count, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.HasPrefix(name, "TOTAL_") {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("want a name and a count, got %q", strings.TrimSpace(line))
		}
		if n > 0 {
			if out == nil {
				out = map[string]uint64{}
			}
			out[name] = n
		}
	}
	return out, nil
}
