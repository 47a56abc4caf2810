package pci_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/pci"
)

// counting counts the bytes that were read of a configuration space.
type counting struct {
	io.ReaderAt
	n int
}

func (c *counting) ReadAt(b []byte, at int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, at)
	c.n += n
	return n, err
}

// TestReadConfigLosesNothing: what is decoded of the parts that ReadConfig
// reads equals what is decoded of the whole, on real machines' dumps.
func TestReadConfigLosesNothing(t *testing.T) {
	full := 0
	for _, name := range []string{"PCI-X-bridges-and-domains", "cap-aer-root", "cap-dpc", "cap-exp-lnkcap2",
		"cap-multicast", "cap-vc-and-rcl", "tree-asus-p6t6"} {
		for addr, image := range hexDump(t, fixture(t, "lspci/pciutils-tests/"+name)) {
			r := &counting{ReaderAt: bytes.NewReader(image)}
			got, err := pci.ReadConfig(r)
			if err != nil {
				t.Fatalf("%s %s: %v", name, addr, err)
			}
			if d := cmp.Diff(pci.ParseConfig(image), pci.ParseConfig(got)); d != "" {
				t.Errorf("%s %s (-whole +read):\n%s", name, addr, d)
			}
			if len(image) == 4096 {
				full++
				if r.n > 512 {
					t.Errorf("%s %s: read %d bytes of 4096", name, addr, r.n)
				}
			}
		}
	}
	if full < 30 {
		t.Errorf("%d functions with extended space: the dumps hold more", full)
	}
}

// TestReadConfigBounds: short spaces, lists that loop and devices that have
// fallen off the bus (all ones) end the read.
func TestReadConfigBounds(t *testing.T) {
	for _, n := range []int{0, 64, 128, 256} {
		got, err := pci.ReadConfig(bytes.NewReader(make([]byte, n)))
		if err != nil || len(got) != n {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	loop := make([]byte, 4096)
	copy(loop[0x100:], []byte{0x0d, 0, 0x01, 0x20}) // ACS, next 0x200
	copy(loop[0x200:], []byte{0x0f, 0, 0x01, 0x10}) // ATS, next 0x100
	for name, image := range map[string][]byte{"loop": loop, "all ones": bytes.Repeat([]byte{0xff}, 4096)} {
		got, err := pci.ReadConfig(bytes.NewReader(image))
		if err != nil || len(got) != 4096 {
			t.Fatalf("%s: %d bytes, %v", name, len(got), err)
		}
		if d := cmp.Diff(pci.ParseConfig(image), pci.ParseConfig(got)); d != "" {
			t.Errorf("%s (-whole +read):\n%s", name, d)
		}
	}
}
