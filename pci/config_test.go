package pci_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
)

// TestParseConfigAgainstLspci parses raw configuration space of real machines
// and compares with what lspci says of the same bytes.
func TestParseConfigAgainstLspci(t *testing.T) {
	fixture(t, "lspci/pciutils-tests")
	lspci(t, "--version")
	functions, express, acs := 0, 0, 0
	for _, name := range []string{"PCI-X-bridges-and-domains", "cap-aer-root", "cap-dpc", "cap-exp-lnkcap2",
		"cap-multicast", "cap-vc-and-rcl", "tree-asus-p6t6"} {
		t.Run(name, func(t *testing.T) {
			path := fixture(t, "lspci/pciutils-tests/"+name)
			want, err := render.FromLspci(lspci(t, "-D", "-vvv", "-F", path))
			if err != nil {
				t.Fatal(err)
			}
			dump := hexDump(t, path)
			if len(dump) != len(want.Functions) {
				t.Fatalf("%d functions in the dump, lspci sees %d", len(dump), len(want.Functions))
			}
			for _, f := range want.Functions {
				c := pci.ParseConfig(dump[f.Addr])
				compareConfig(t, f, c, len(dump[f.Addr]))
				functions++
				if c.PortType.State == fact.Known {
					express++
				}
				if c.ACS.State == fact.Known {
					acs++
				}
			}
		})
	}
	if functions != 108 || express != 34 || acs != 6 {
		t.Errorf("compared %d functions, %d PCI Express, %d with ACS; the dumps hold 108, 34, 6", functions, express, acs)
	}
}

// TestParseConfigAgainstRecordedText does so with the text that lspci printed
// on those machines themselves, for the dumps that have it.
func TestParseConfigAgainstRecordedText(t *testing.T) {
	for _, name := range []string{"cap-aer-root", "cap-dpc", "cap-exp-lnkcap2", "cap-vc-and-rcl"} {
		t.Run(name, func(t *testing.T) {
			path := fixture(t, "lspci/pciutils-tests/"+name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := render.FromLspci(string(text))
			if err != nil {
				t.Fatal(err)
			}
			dump := hexDump(t, path)
			for _, f := range want.Functions {
				compareConfig(t, f, pci.ParseConfig(dump[f.Addr]), len(dump[f.Addr]))
			}
		})
	}
}

// compareConfig checks what a function's bytes gave against lspci's words.
// Extended capabilities can be missing from the bytes only.
func compareConfig(t *testing.T, want render.Function, got pci.Config, length int) {
	t.Helper()
	known := func(state fact.State, has bool) bool {
		switch {
		case has && state != fact.Known, !has && state == fact.Known:
			t.Errorf("%s: lspci shows it: %v, state %v", want.Addr, has, state)
		}
		return has && state == fact.Known
	}
	eq := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-lspci +parsed):\n%s", what, diff)
		}
	}
	at := want.Addr + ": "
	if e := want.Express; known(got.PortType.State, e != nil) {
		eq(at+"port type", e.Port, got.PortType.V)
		eq(at+"MaxPayload supported", e.MPSSupportedBytes, got.MPSSupportedBytes.V)
		eq(at+"MaxPayload", e.MPSBytes, got.MPSBytes.V)
		eq(at+"MaxReadReq", e.MRRS, got.MRRSBytes.V)
		eq(at+"RlxdOrd", e.RelaxedOrdering, got.RelaxedOrdering.V)
		eq(at+"ExtTag", e.ExtendedTag, got.ExtendedTag.V)
		link := e.Link
		if link.Width == 0 {
			link.SpeedGTPerSec = 0 // a link that is down has no speed
		}
		if known(got.Link.State, link.MaxWidth > 0) {
			eq(at+"link", link, got.Link.V)
		}
	}
	if length < 4096 {
		return
	}
	if known(got.ACS.State, want.ACS != nil) {
		eq(at+"ACS", *want.ACS, got.ACS.V)
	}
	if known(got.ATS.State, want.ATS != nil) {
		eq(at+"ATS", *want.ATS, got.ATS.V)
	}
	if known(got.ReBAR.State, want.ReBAR != nil) {
		eq(at+"Resizable BAR", want.ReBAR, got.ReBAR.V)
	}
}

// hexDump reads the bytes of "lspci -xxxx" by address.
func hexDump(t *testing.T, path string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	addr := ""
	for line := range strings.Lines(string(text)) {
		first, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if a, err := pci.ParseAddress(first); err == nil && line[0] != '\t' {
			addr = a.String()
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
		if err == nil && first == fmt.Sprintf("%02x:", len(out[addr])) {
			out[addr] = append(out[addr], b...)
		}
	}
	return out
}

// space is a PCI Express endpoint's configuration space for the cases below:
// capability 0x10 at 0x60, ACS at 0x100, ATS at 0x110.
func space() []byte {
	b := make([]byte, 4096)
	copy(b, []byte{0xde, 0x10, 0x30, 0x23, 0x06, 0, 0x10, 0})
	b[0x34] = 0x60
	copy(b[0x60:], []byte{
		0x10, 0, 0x02, 0, 0x01, 0, 0, 0, 0x30, 0x29, 0, 0, // v2 endpoint, 256 supported; RO, MPS 256, ExtTag, MRRS 512
		0x05, 0x01, 0, 0, 0, 0, 0x04, 0x01, // Gen5 x16, now Gen4 x16
	})
	copy(b[0x100:], []byte{0x0d, 0, 0x01, 0x11, 0x5f, 0, 0x1d, 0})
	copy(b[0x110:], []byte{0x0f, 0, 0x01, 0, 0, 0, 0, 0x80})
	return b
}

func TestParseConfigStates(t *testing.T) {
	edit := func(f func(b []byte)) []byte { b := space(); f(b); return b }
	const root = "needs root: the kernel serves 64 bytes without CAP_SYS_ADMIN"
	type state struct {
		state  fact.State
		reason string // part of it
	}
	ok := state{fact.Known, ""}
	tests := []struct {
		name               string
		b                  []byte
		port, acs, ats, re state
	}{
		{"whole", space(), ok, ok, ok, state{fact.Absent, "no Resizable BAR"}},
		{"ordinary user", space()[:64], state{fact.Denied, root}, state{fact.Denied, root}, state{fact.Denied, root}, state{fact.Denied, root}},
		{
			"no capability list, 64 bytes", edit(func(b []byte) { b[6] = 0 })[:64],
			state{fact.Absent, "no PCI Express"}, state{fact.Absent, "no PCI Express"}, state{fact.Absent, "no PCI Express"}, state{fact.Absent, ""},
		},
		{
			"CardBus, ordinary user", edit(func(b []byte) { b[0x0e] = 2; b[0x14] = 0x90 })[:128],
			state{fact.Denied, root}, state{fact.Denied, root}, state{fact.Denied, root}, state{fact.Denied, root},
		},
		{
			"no MMCONFIG", space()[:256], ok,
			state{fact.Unsupported, "256 bytes"}, state{fact.Unsupported, "256 bytes"}, state{fact.Unsupported, "256 bytes"},
		},
		{
			"conventional", edit(func(b []byte) { b[0x60] = 0x01 })[:256],
			state{fact.Absent, "no PCI Express"}, state{fact.Absent, ""}, state{fact.Absent, ""}, state{fact.Absent, ""},
		},
		{
			"cut after the first capability", edit(func(b []byte) { b[0x60] = 0x05; b[0x61] = 0xa0 })[:128],
			state{fact.Failed, "ends at byte 0x80"}, state{fact.Failed, ""}, state{fact.Failed, ""}, state{fact.Failed, ""},
		},
		{
			"list loops before PCI Express", edit(func(b []byte) { b[0x60] = 0x05; b[0x61] = 0x60 }),
			state{fact.Failed, "loops at 0x60"}, state{fact.Failed, "loops"}, state{fact.Failed, "loops"}, state{fact.Failed, "loops"},
		},
		{
			"list into the header", edit(func(b []byte) { b[0x34] = 0x20 }),
			state{fact.Failed, "into the header, at 0x20"}, state{fact.Failed, ""}, state{fact.Failed, ""}, state{fact.Failed, ""},
		},
		{
			"list of ones", edit(func(b []byte) { b[0x60] = 0xff }),
			state{fact.Failed, "broken at 0x60"}, state{fact.Failed, ""}, state{fact.Failed, ""}, state{fact.Failed, ""},
		},
		{
			"extended list loops", edit(func(b []byte) { b[0x112], b[0x113] = 0x01, 0x10 }),
			ok, ok, ok, state{fact.Failed, "loops at 0x100"},
		},
		{
			"extended list points below", edit(func(b []byte) { b[0x102], b[0x103] = 0x01, 0x04 }),
			ok, ok, state{fact.Failed, "points to 0x40"}, state{fact.Failed, "points to 0x40"},
		},
		{
			"extended list of ones", edit(func(b []byte) { copy(b[0x100:], []byte{0xff, 0xff, 0xff, 0xff}) }),
			ok, state{fact.Failed, "all ones at 0x100"}, state{fact.Failed, ""}, state{fact.Failed, ""},
		},
		{
			"extended list cut", space()[:0x108],
			ok, ok, state{fact.Failed, "ends at byte 0x108"}, state{fact.Failed, ""},
		},
		{
			"no extended capability", edit(func(b []byte) { clear(b[0x100:]) }),
			ok, state{fact.Absent, "no Access Control"}, state{fact.Absent, "no Address Translation"}, state{fact.Absent, "no Resizable"},
		},
		{
			"device gone", slices.Repeat([]byte{0xff}, 4096),
			state{fact.Failed, "does not answer"}, state{fact.Failed, ""}, state{fact.Failed, ""}, state{fact.Failed, ""},
		},
		{"empty", nil, state{fact.Failed, "only 0 bytes"}, state{fact.Failed, ""}, state{fact.Failed, ""}, state{fact.Failed, ""}},
		{
			"impossible Resizable BAR", edit(func(b []byte) { copy(b[0x110:], []byte{0x15, 0, 1, 0, 0, 0, 0, 0, 0xe0, 0, 0, 0}) }),
			ok, ok, state{fact.Absent, ""}, state{fact.Failed, "impossible Resizable BAR"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := pci.ParseConfig(tt.b)
			check := func(what string, want state, got fact.State, reason string) {
				t.Helper()
				if got != want.state || !strings.Contains(reason, want.reason) {
					t.Errorf("%s: got %v %q, want %v %q", what, got, reason, want.state, want.reason)
				}
			}
			check("port", tt.port, c.PortType.State, c.PortType.Reason)
			check("MPS", tt.port, c.MPSBytes.State, c.MPSBytes.Reason)
			check("link", tt.port, c.Link.State, c.Link.Reason)
			check("ACS", tt.acs, c.ACS.State, c.ACS.Reason)
			check("ATS", tt.ats, c.ATS.State, c.ATS.Reason)
			check("ReBAR", tt.re, c.ReBAR.State, c.ReBAR.Reason)
		})
	}
}

func TestParseConfigValues(t *testing.T) {
	of := func(v int) fact.Value[int] { return fact.Of(v, "config") }
	want := pci.Config{
		Length: of(4096), PortType: fact.Of(pci.PortEndpoint, "config"),
		MPSBytes: of(256), MPSSupportedBytes: of(256), MRRSBytes: of(512),
		RelaxedOrdering: fact.Of(true, "config"), ExtendedTag: fact.Of(true, "config"),
		Link: fact.Of(pci.Link{SpeedGTPerSec: 16, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}, "config"),
		ACS:  fact.Of(pci.ACS{Cap: 0x5f, Ctl: 0x1d}, "config"), ATS: fact.Of(true, "config"),
		ReBAR: fact.Missing[[]pci.ReBAR](fact.Absent, "config", "no Resizable BAR capability"),
	}
	if diff := cmp.Diff(want, pci.ParseConfig(space())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
