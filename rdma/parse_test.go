package rdma

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareNames(t *testing.T) {
	want := []string{"eth0", "mlx5_0", "mlx5_02", "mlx5_2", "mlx5_10", "mlx5_bond_0", "rdmap0s6", "rdmap16s27", "rxe0"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareNames)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseState(t *testing.T) {
	for in, want := range map[string]string{
		"4: ACTIVE": "ACTIVE", "1: DOWN": "DOWN", "2: INIT": "INIT", "5: LinkUp": "LinkUp",
		"6: LinkErrorRecovery": "LinkErrorRecovery",
		"":                     "", "ACTIVE": "", "x: ACTIVE": "", "4: ": "", "4:ACTIVE": "",
	} {
		got, err := ParseState(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ParseState(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in    string
		bits  float64
		lanes int
		speed string
	}{
		{"400 Gb/sec (4X NDR)", 400e9, 4, "NDR"},
		{"200 Gb/sec (2X NDR)", 200e9, 2, "NDR"},
		{"25 Gb/sec (1X EDR)", 25e9, 1, "EDR"},
		{"2.5 Gb/sec (1X SDR)", 2.5e9, 1, "SDR"},
		{"10 Gb/sec (4X)", 10e9, 4, ""},
		{"800 Gb/sec (4X XDR)", 800e9, 4, "XDR"},
		{"100 Gb/sec", 100e9, 0, ""},
		{"120 Gb/sec (12X SDR)", 120e9, 12, "SDR"},
	} {
		got, err := ParseRate(c.in)
		want := Rate{BitsPerSec: c.bits, Lanes: c.lanes, Speed: c.speed, Text: c.in}
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v", c.in, got, err)
		}
	}
	for _, bad := range []string{"", "400", "x Gb/sec (4X NDR)", "400 Gb/sec 4X NDR", "400 Gb/sec (4 NDR)", "-1 Gb/sec", "NaN Gb/sec", "400 Mb/sec"} {
		if got, err := ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) = %+v", bad, got)
		}
	}
}

func TestTransportOf(t *testing.T) {
	for _, c := range []struct {
		node, layer, driver, hca string
		want                     Transport
	}{
		{"1: CA", "InfiniBand", "mlx5_core", "MT4129", InfiniBand},
		{"1: CA", "Ethernet", "mlx5_core", "MT4129", RoCE},
		{"1: CA", "Ethernet", "bnxt_en", "", RoCE},
		{"4: RNIC", "Ethernet", "cxgb4", "", IWARP},
		{"4: RNIC", "Ethernet", "siw", "", IWARP},
		{"7: unspecified", "Unspecified", "efa", "", EFA},
		{"5: usNIC", "Ethernet", "usnic_verbs", "", Other},
		{"", "InfiniBand", "", "MT4129", InfiniBand},
		{"", "Ethernet", "", "MT41692", RoCE},
		{"", "Ethernet", "", "I40IW", IWARP},
		{"", "Ethernet", "", "", ""}, // RoCE or iWARP: nobody knows
		{"1: CA", "", "", "", ""},
	} {
		got, err := transportOf(c.node, c.layer, c.driver, c.hca)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
}

// The pairs are those that NVIDIA's and the kernel's documentation name: 1500
// carries 1024, 4200 and more carry 4096.
func TestRoCEMTU(t *testing.T) {
	for in, want := range map[int]int{1500: 1024, 4200: 4096, 9000: 4096, 2200: 2048, 4191: 2048, 4192: 4096, 600: 256, 300: 0} {
		got, err := roceMTU(in)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("roceMTU(%d) = %d, %v; want %d", in, got, err, want)
		}
	}
}

// vpd builds Vital Product Data: an identifier string, VPD-R with the fields,
// the end tag.
func vpd(fields ...string) string {
	body := ""
	for i := 0; i < len(fields); i += 2 {
		body += fields[i] + string(rune(len(fields[i+1]))) + fields[i+1]
	}
	return "\x82\x03\x00NIC" + "\x90" + string(rune(len(body))) + "\x00" + body + "\x78"
}

func TestVPDV3(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{vpd("PN", "900-9X81", "V3", "a1b2c3"), "a1b2c3"},
		{vpd("V3", "x\x00\x00"), "x"},
		{vpd("PN", "900-9X81"), ""},
		{"", ""},
		{"\x78", ""},
		{"\x90\xff\x00V3", ""},
		{"\x90\x04\x00V3\xffx", ""},
	} {
		got, err := vpdV3([]byte(c.in))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("vpdV3(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestRepresentor(t *testing.T) {
	for in, want := range map[string]bool{"pf0vf3": true, "c1pf0sf88": true, "p0": false, "pf0": false, "": false, "pf0hpf": false} {
		if isRepresentor(in) != want {
			t.Errorf("isRepresentor(%q) = %v", in, !want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"4: ACTIVE", "400 Gb/sec (4X NDR)", "N/A (no PMA)", "0x4b", vpd("V3", "u"), "fe80:0000:0000:0000:0000:0000:0000:0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, err := ParseState(s); err == nil && name == "" {
			t.Error("a state without a name")
		}
		if r, err := ParseRate(s); err == nil && (r.BitsPerSec < 0 || r.Lanes < 0 || r.Text != s) {
			t.Errorf("rate %+v", r)
		}
		if id, err := vpdV3([]byte(s)); err != nil && id != "" {
			t.Error("an error with a value")
		}
		_, _ = ParseCounter(s)
		_, _ = parseLID(s)
		if zeroGID(s) && strings.Contains(s, "1") {
			t.Error("not zero")
		}
		nearestPCI(s)
	})
}

func FuzzCompareNames(f *testing.F) {
	f.Add("mlx5_2", "mlx5_10", "mlx5_bond_0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if CompareNames(a, b) != -CompareNames(b, a) {
			t.Error("not antisymmetric")
		}
		if (CompareNames(a, b) == 0) != (a == b) {
			t.Error("equal names that differ, or the reverse")
		}
		if CompareNames(a, b) <= 0 && CompareNames(b, c) <= 0 && CompareNames(a, c) > 0 {
			t.Error("not transitive")
		}
	})
}

func FuzzNICTable(f *testing.F) {
	f.Add(nicTable)
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseNICs(s)
		if err != nil && m != nil {
			t.Error("an error with a value")
		}
	})
}
