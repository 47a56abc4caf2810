package pci_test

import (
	"encoding/json"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// FuzzParseConfig: whatever the bytes, no panic, no endless list, a value that
// is Known lies within what its register can hold, and one that is not has a reason.
func FuzzParseConfig(f *testing.F) {
	for _, n := range []int{0, 64, 128, 256, 4096} {
		f.Add(space()[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := pci.ParseConfig(b)
		if _, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		for _, v := range []fact.Value[int]{c.MPSBytes, c.MPSSupportedBytes, c.MRRSBytes} {
			if v.State == fact.Known && (v.V < 128 || v.V > 4096) {
				t.Errorf("size %d", v.V)
			}
			if v.State != fact.Known && v.Reason == "" {
				t.Errorf("%v without a reason", v.State)
			}
		}
		if len(b) == 64 && c.ACS.State == fact.Known {
			t.Error("ACS out of 64 bytes")
		}
		if l, ok := c.Link.Get(); ok && (l.MaxWidth < 1 || l.MaxWidth > 32 || l.Width < 0 || l.Width > 32) {
			t.Errorf("link %+v", l)
		}
	})
}

// FuzzParseAddress: what parses, writes and parses to the same.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"0000:3b:00.0", "10000:e1:1f.7", "00000000:3B:00.0", "c1:00.1", ":::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pci.ParseAddress(s)
		if err != nil {
			return
		}
		if b, err := pci.ParseAddress(a.String()); err != nil || a != b {
			t.Errorf("%q: %v, then %v, %v", s, a, b, err)
		}
	})
}

// FuzzSysfs feeds one text to every parser of a sysfs file.
func FuzzSysfs(f *testing.F) {
	for _, s := range []string{
		"32.0 GT/s PCIe", "Unknown", "RxErr 3\nTOTAL_ERR_COR 3", "PCI_CLASS=10802\nPCI_ID=144D:A80A\nPCI_SUBSYS_ID=144D:A801",
		"0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := pci.ParseSpeed(s); err == nil && v != 0 && pci.Generation(v) == 0 {
			t.Errorf("ParseSpeed(%q) = %g", s, v)
		}
		if bars, err := pci.ParseResource(s); err == nil {
			for _, b := range bars {
				if b.SizeBytes == 0 || b.Flags == 0 {
					t.Errorf("ParseResource(%q): %+v", s, b)
				}
			}
		}
		if counts, err := pci.ParseAER(s); err == nil {
			for name, n := range counts {
				if n == 0 || name == "" {
					t.Errorf("ParseAER(%q): %q %d", s, name, n)
				}
			}
		}
		if u, err := pci.ParseUevent(s); err == nil && u.Class > 0xffffff {
			t.Errorf("ParseUevent(%q): %+v", s, u)
		}
	})
}
