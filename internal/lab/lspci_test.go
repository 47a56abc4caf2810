package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/pci"
)

// lspciFunction is what "lspci -D -nn -vvv" says of a function; nil and empty
// where it says nothing.
type lspciFunction struct {
	class, vendor, device string // hex digits
	driver                string
	numa, group           *int
	linkCap, linkSta      *lspciLink
	acsCap, acsCtl        *uint16
	mps, mpsSup, mrrs     *int
	relaxed               *bool
	regions               map[int]uint64 // bytes, by index
	accessDenied          bool
}

type lspciLink struct {
	speed float64 // GT/s
	width int
}

var (
	lspciHead   = regexp.MustCompile(`^([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: .*?\[([0-9a-f]{4}):([0-9a-f]{4})\]`)
	lspciLinkRE = regexp.MustCompile(`^(LnkCap|LnkSta):.*Speed ([0-9.]+)GT/s.*Width x(\d+)`)
	lspciACS    = regexp.MustCompile(`^(ACSCap|ACSCtl):\s*(.*)$`)
	lspciDevCap = regexp.MustCompile(`^DevCap:\s*MaxPayload (\d+) bytes`)
	lspciDevCtl = regexp.MustCompile(`^MaxPayload (\d+) bytes, MaxReadReq (\d+) bytes`)
	lspciRegion = regexp.MustCompile(`^Region (\d): .*\[size=(\d+)([KMG]?)\]`)
	lspciRO     = regexp.MustCompile(`^RlxdOrd([+-]) `)
)

// acsOrder is the order in which lspci prints the ACS bits.
var acsOrder = []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}

func parseLspci(t *testing.T, text string) map[pci.Address]*lspciFunction {
	t.Helper()
	out := map[pci.Address]*lspciFunction{}
	var f *lspciFunction
	for sc := lines(text); sc.Scan(); {
		line := sc.Text()
		if m := lspciHead.FindStringSubmatch(line); m != nil {
			f = &lspciFunction{class: m[2], vendor: m[3], device: m[4], regions: map[int]uint64{}}
			out[address(t, m[1])] = f
			continue
		}
		if f != nil {
			f.take(t, strings.TrimSpace(line))
		}
	}
	if len(out) == 0 {
		t.Fatalf("no function in lspci's output: %.200s", text)
	}
	return out
}

func (f *lspciFunction) take(t *testing.T, line string) {
	t.Helper()
	intOf := func(s string) *int { n := number(t, s); return &n }
	if strings.Contains(line, "Capabilities: <access denied>") {
		f.accessDenied = true
	}
	if v, ok := strings.CutPrefix(line, "Kernel driver in use: "); ok {
		f.driver = v
	}
	if v, ok := strings.CutPrefix(line, "NUMA node: "); ok {
		f.numa = intOf(v)
	}
	if v, ok := strings.CutPrefix(line, "IOMMU group: "); ok {
		f.group = intOf(v)
	}
	if m := lspciLinkRE.FindStringSubmatch(line); m != nil {
		speed, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		link := &lspciLink{speed, number(t, m[3])}
		if m[1] == "LnkCap" {
			f.linkCap = link
		} else {
			f.linkSta = link
		}
	}
	if m := lspciACS.FindStringSubmatch(line); m != nil {
		bits := acsBits(m[2])
		if m[1] == "ACSCap" {
			f.acsCap = &bits
		} else {
			f.acsCtl = &bits
		}
	}
	if m := lspciDevCap.FindStringSubmatch(line); m != nil {
		f.mpsSup = intOf(m[1])
	}
	if m := lspciDevCtl.FindStringSubmatch(line); m != nil {
		f.mps, f.mrrs = intOf(m[1]), intOf(m[2])
	}
	if m := lspciRO.FindStringSubmatch(line); m != nil {
		on := m[1] == "+"
		f.relaxed = &on
	}
	if m := lspciRegion.FindStringSubmatch(line); m != nil {
		shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[m[3]]
		f.regions[number(t, m[1])] = uint64(number(t, m[2])) << shift
	}
}

func acsBits(flags string) (bits uint16) {
	for i, name := range acsOrder {
		if strings.Contains(flags, name+"+") {
			bits |= 1 << i
		}
	}
	return bits
}

// parseLspciPaths reads "lspci -D -n -PP", where each function follows the
// bridges above it, and returns each function's parent; the zero address below
// a host bridge.
func parseLspciPaths(t *testing.T, text string) map[pci.Address]pci.Address {
	t.Helper()
	out := map[pci.Address]pci.Address{}
	for sc := lines(text); sc.Scan(); {
		path, _, _ := strings.Cut(sc.Text(), " ")
		parts := strings.Split(path, "/")
		domain, _, _ := strings.Cut(parts[0], ":")
		for i := range parts[1:] {
			parts[i+1] = domain + ":" + parts[i+1] // only the first has its domain
		}
		var parent pci.Address
		if len(parts) > 1 {
			parent = address(t, parts[len(parts)-2])
		}
		out[address(t, parts[len(parts)-1])] = parent
	}
	return out
}

func address(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestParseLspci(t *testing.T) {
	const text = `0000:20:00.0 PCI bridge [0604]: Red Hat, Inc. QEMU PCIe Root port [1b36:000c] (prog-if 00 [Normal decode])
	NUMA node: 0
	IOMMU group: 17
	Region 0: Memory at fea02000 (32-bit, non-prefetchable) [size=4K]
	Capabilities: [54] Express (v2) Root Port (Slot+), MSI 00
		DevCap:	MaxPayload 256 bytes, PhantFunc 0
		DevCtl:	CorrErr+ NonFatalErr+ FatalErr+ UnsupReq+
			RlxdOrd- ExtTag- PhantFunc- AuxPwr- NoSnoop-
			MaxPayload 128 bytes, MaxReadReq 512 bytes
		LnkCap:	Port #0, Speed 16GT/s, Width x32, ASPM L0s, Exit Latency L0s <64ns
		LnkSta:	Speed 2.5GT/s (downgraded), Width x1 (downgraded)
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
	Kernel driver in use: pcieport
0000:23:00.0 Unassigned class [00ff]: Device [1b36:0005]
	Capabilities: <access denied>
`
	got := parseLspci(t, text)
	f := got[address(t, "0000:20:00.0")]
	if f == nil {
		t.Fatalf("got %v", got)
	}
	s := fmt.Sprint(f.class, f.vendor, f.device, f.driver, *f.numa, *f.group, *f.linkCap, *f.linkSta, *f.acsCap, *f.acsCtl, *f.mps, *f.mpsSup, *f.mrrs, *f.relaxed, f.regions)
	if want := "06041b36000cpcieport0 17 {16 32} {2.5 1} 95 29 128 256 512 false map[0:4096]"; s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	if f := got[address(t, "0000:23:00.0")]; f == nil || !f.accessDenied || f.numa != nil || f.linkCap != nil {
		t.Errorf("0000:23:00.0: %+v", f)
	}
	paths := parseLspciPaths(t, "0000:20:00.0 0604: 1b36:000c\n0000:20:00.0/21:00.0/22:01.0 0604: 104c:8233\n")
	if p := paths[address(t, "0000:22:01.0")]; p != address(t, "0000:21:00.0") {
		t.Errorf("parent of 22:01.0: %v", p)
	}
	if p := paths[address(t, "0000:20:00.0")]; p != (pci.Address{}) {
		t.Errorf("parent of 20:00.0: %v", p)
	}
}
