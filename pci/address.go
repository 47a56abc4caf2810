package pci

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address is a PCI function's domain, bus, device and function. Domains are 32
// bits wide: Intel VMD and Hyper-V number theirs from 0x10000.
type Address struct {
	Domain   uint32
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// ParseAddress reads "0000:3b:00.0", "10000:01:00.0", "3b:00.0" (domain 0) and
// NVML's and CUDA's "00000000:3B:00.0", in either case.
func ParseAddress(s string) (Address, error) {
	bad := fmt.Errorf("bad PCI address %q: want domain:bus:device.function, as in 0000:3b:00.0", s)
	rest, domain := s, uint64(0)
	if strings.Count(s, ":") == 2 {
		d, tail, _ := strings.Cut(s, ":")
		n, err := parseHex(d, 8, 32)
		if err != nil {
			return Address{}, bad
		}
		rest, domain = tail, n
	}
	b, tail, ok := strings.Cut(rest, ":")
	d, f, ok2 := strings.Cut(tail, ".")
	if !ok || !ok2 {
		return Address{}, bad
	}
	bus, err1 := parseHex(b, 2, 8)
	dev, err2 := parseHex(d, 2, 5)
	fn, err3 := parseHex(f, 1, 3)
	if err1 != nil || err2 != nil || err3 != nil {
		return Address{}, bad
	}
	return Address{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(dev), Function: uint8(fn)}, nil
}

// parseHex takes plain hex digits only: strconv alone would take "+1" and "1_0".
func parseHex(s string, digits, bits int) (uint64, error) {
	if len(s) == 0 || len(s) > digits || strings.Trim(s, "0123456789abcdefABCDEF") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, 16, bits)
}

// String returns the kernel's form, "0000:3b:00.0".
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// Compare orders by domain, bus, device, function.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

// MarshalText implements encoding.TextMarshaler.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Address) UnmarshalText(b []byte) (err error) {
	*a, err = ParseAddress(string(b))
	return err
}

// MarshalText writes an ID as "0x10de".
func (i ID) MarshalText() ([]byte, error) { return []byte("0x" + i.String()), nil }

// UnmarshalText reads "0x10de".
func (i *ID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 16)
	*i = ID(n)
	return err
}

// MarshalText writes a class as "0x030200".
func (c Class) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "0x%06x", uint32(c)), nil }

// UnmarshalText reads "0x030200".
func (c *Class) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 24)
	*c = Class(n)
	return err
}
