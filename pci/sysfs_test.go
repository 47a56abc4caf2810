package pci_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/pci"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in   string
		want pci.Address
		text string // as the kernel writes it; "": an error
	}{
		{"0000:3b:00.0", pci.Address{Bus: 0x3b}, "0000:3b:00.0"},
		{"10000:e1:1f.7", pci.Address{Domain: 0x10000, Bus: 0xe1, Device: 31, Function: 7}, "10000:e1:1f.7"},
		{"00000000:3B:00.0", pci.Address{Bus: 0x3b}, "0000:3b:00.0"},
		{"c1:00.1", pci.Address{Bus: 0xc1, Function: 1}, "0000:c1:00.1"},
		{"4fb0:00:02.0", pci.Address{Domain: 0x4fb0, Device: 2}, "4fb0:00:02.0"},
		{in: ""}, {in: "0000:3b:00"}, {in: "0000:3b:20.0"}, {in: "0000:3b:00.8"}, {in: "0000:100:00.0"},
		{in: "+000:3b:00.0"}, {in: "0000:3b:00.0 "}, {in: "1:0000:3b:00.0"}, {in: "123456789:00:00.0"},
	}
	for _, tt := range tests {
		got, err := pci.ParseAddress(tt.in)
		if (err != nil) != (tt.text == "") || got != tt.want {
			t.Errorf("ParseAddress(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
		} else if err == nil && got.String() != tt.text {
			t.Errorf("ParseAddress(%q) writes %q, want %q", tt.in, got, tt.text)
		}
	}
}

func TestParseSpeed(t *testing.T) {
	for in, want := range map[string]float64{
		"32.0 GT/s PCIe": 32, "8 GT/s": 8, "2.5 GT/s PCIe": 2.5, "64.0 GT/s PCIe": 64, "Unknown": 0, "Unknown speed": 0,
	} {
		if got, err := pci.ParseSpeed(in); err != nil || got != want {
			t.Errorf("ParseSpeed(%q) = %g, %v; want %g", in, got, err, want)
		}
	}
	for _, in := range []string{"", "8", "GT/s", "7 GT/s", "66 MHz PCI", "8 GT/s PCI", "NaN GT/s"} {
		if got, err := pci.ParseSpeed(in); err == nil {
			t.Errorf("ParseSpeed(%q) = %g, want an error", in, got)
		}
	}
}

func TestParseResource(t *testing.T) {
	const (
		zero = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
		bar0 = "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n"
		bar1 = "0x0000002000000000 0x0000003fffffffff 0x000000000014220c\n"
		free = "0x0000000000000000 0x0000000001ffffff 0x0000000020040200\n" // IORESOURCE_UNSET: firmware gave no room
	)
	got, err := pci.ParseResource(bar0 + bar1 + zero + free + zero)
	want := []pci.BAR{
		{Index: 0, Start: 0xa0000000, SizeBytes: 16 << 20, Flags: 0x40200},
		{Index: 1, Start: 0x2000000000, SizeBytes: 128 << 30, Flags: 0x14220c},
		{Index: 3, SizeBytes: 32 << 20, Flags: 0x20040200},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, in := range []string{"", "0x1 0x2", "1 2 3", "0x2 0x1 0x200", "0x0 0xffffffffffffffff 0x200", "0x1 0x2 0xg"} {
		if got, err := pci.ParseResource(in); err == nil {
			t.Errorf("ParseResource(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseAER(t *testing.T) {
	got, err := pci.ParseAER("RxErr 3\nBadTLP 0\nBadDLLP 12\nTimeout 0\nTOTAL_ERR_COR 15\n")
	if diff := cmp.Diff(map[string]uint64{"RxErr": 3, "BadDLLP": 12}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, in := range []string{"RxErr", "RxErr x", "RxErr -1", "RxErr 1 2"} {
		if got, err := pci.ParseAER(in); err == nil {
			t.Errorf("ParseAER(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseUevent(t *testing.T) {
	got, err := pci.ParseUevent("DRIVER=nvme\nPCI_CLASS=10802\nPCI_ID=144D:A80A\nPCI_SUBSYS_ID=144D:A801\nPCI_SLOT_NAME=0000:01:00.0\n")
	want := pci.Uevent{Vendor: 0x144d, Device: 0xa80a, SubsystemVendor: 0x144d, SubsystemDevice: 0xa801, Class: 0x010802}
	if got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, in := range []string{"", "PCI_CLASS=10802\nPCI_ID=144D:A80A", "PCI_CLASS=x\n", "PCI_CLASS=10802\nPCI_ID=144D\nPCI_SUBSYS_ID=1:2"} {
		if got, err := pci.ParseUevent(in); err == nil {
			t.Errorf("ParseUevent(%q) = %+v, want an error", in, got)
		}
	}
}
