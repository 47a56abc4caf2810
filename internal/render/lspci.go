package render

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// Windows' flags, include/linux/ioport.h.
const (
	flagIO       = 0x100
	flagMem      = 0x200
	flagPrefetch = 0x2000
	flagMem64    = 0x100000
)

// FromLspci reads a machine from what people post of it: "lspci -vvv" of all
// or some functions, "lspci -tv", "numactl --hardware" and "ibv_devinfo", in
// any order, with or without prose and code fences around them.
//
// Bridges come from the tree, or else from the "Bus: … secondary=" lines. What
// the text does not tell is filled in like this: a function takes after its
// sibling of the same model; a bridge's link is the one that its child has; a
// NUMA node holds for the whole root bus; where "ACSCtl" was listed without
// addresses and nothing is set in it, every bridge has ACS with nothing set.
// Names become numbers by the embedded list, 0xffff where it has none.
func FromLspci(text string) (Tree, error) {
	names, err := newNames()
	if err != nil {
		return Tree{}, err
	}
	r := &reader{names: names, detailed: map[string]bool{}, fns: map[string]*Function{}}
	r.read(text)
	if len(r.fns) == 0 {
		return Tree{}, errors.New("no lspci output found")
	}
	r.parentsByBus()
	r.complete()
	t := Tree{NUMA: r.numa}
	for _, f := range r.fns {
		t.Functions = append(t.Functions, *f)
	}
	slices.SortFunc(t.Functions, func(a, b Function) int { return address(a.Addr).Compare(address(b.Addr)) })
	if len(t.NUMA) == 0 {
		t.NUMA = nodesOf(t.Functions)
	}
	t.RDMA = r.assignRDMA(t.Functions)
	return t, nil
}

// reader collects functions while it walks over the lines.
type reader struct {
	names    *names
	fns      map[string]*Function
	detailed map[string]bool // functions that lspci -vvv told about
	tree     bool            // a tree was drawn
	columns  map[int]bus     // open branches of the tree by column
	numa     []NUMANode
	rdma     []RDMA
	acsLoose []uint16 // ACSCtl lines without an address

	fn      *Function // function being read, nil between them
	section string    // last "Word:" of its capability
}

var (
	header  = regexp.MustCompile(`^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([^:]+): (.+)$`)
	keyword = regexp.MustCompile(`^([A-Z][A-Za-z0-9]+):\s*(.*)$`)
)

func (r *reader) read(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if m := header.FindStringSubmatch(line); m != nil && r.names.class(m[2]) >= 0 {
			r.begin(m[1], m[2], m[3])
			continue
		}
		if line != "" && line[0] != ' ' && line[0] != '\t' || strings.HasPrefix(strings.TrimSpace(line), "```") {
			r.fn = nil
		}
		switch trimmed := strings.TrimSpace(line); {
		case r.fn != nil:
			r.detail(trimmed)
		case r.treeLine(line):
		case strings.HasPrefix(trimmed, "ACSCtl:"):
			r.acsLoose = append(r.acsLoose, parseACS(trimmed))
		default:
			r.hostLine(trimmed)
		}
	}
}

func (r *reader) begin(addr, class, rest string) {
	f := r.function(addr)
	r.fn, r.section, r.detailed[f.Addr] = f, "", true
	f.Class = pci.Class(r.names.class(class)) << 8
	if m := regexp.MustCompile(`\(prog-if ([0-9a-f]{2})`).FindStringSubmatch(rest); m != nil {
		f.Class |= pci.Class(parseHex(m[1]))
	}
	if m := regexp.MustCompile(`\(rev ([0-9a-f]{2})\)`).FindStringSubmatch(rest); m != nil {
		f.Revision = uint8(parseHex(m[1]))
	}
	model, _, _ := strings.Cut(rest, " (rev ")
	model, _, _ = strings.Cut(model, " (prog-if ")
	f.Vendor, f.Device = r.names.ids(model)
}

// function returns the one at an address, in the kernel's spelling.
func (r *reader) function(addr string) *Function {
	addr = address(addr).String()
	if r.fns[addr] == nil {
		r.fns[addr] = &Function{Addr: addr, Node: -1}
	}
	return r.fns[addr]
}

var (
	reRegion = regexp.MustCompile(`^Region (\d): (Memory|I/O ports) at ([0-9a-f]+)?(.*)\[size=(\w+)\]`)
	reROM    = regexp.MustCompile(`^Expansion ROM at ([0-9a-f]+) .*\[size=(\w+)\]`)
	reBus    = regexp.MustCompile(`^Bus: primary=\w+, secondary=(\w+), subordinate=(\w+)`)
	reLink   = regexp.MustCompile(`Speed ([0-9.]+)GT/s.*Width x(\d+)`)
	reSizes  = regexp.MustCompile(`MaxPayload (\d+) bytes`)
	reMRRS   = regexp.MustCompile(`MaxReadReq (\d+) bytes`)
	reReBAR  = regexp.MustCompile(`^BAR (\d): current size: (\w+), supported: (.*)$`)
)

// leastReBAR is the smallest size that the capability can express, 1 MiB (PCIe 6.0, 7.8.6).
const leastReBAR = 1 << 20

// detail reads one line below a function.
func (r *reader) detail(line string) {
	f := r.fn
	if v, ok := strings.CutPrefix(line, "Capabilities: "); ok {
		r.capability(v)
		return
	}
	if v, ok := strings.CutPrefix(line, "Kernel driver in use: "); ok {
		f.Driver = v
	} else if v, ok := strings.CutPrefix(line, "NUMA node: "); ok {
		f.Node = number(v)
	} else if v, ok := strings.CutPrefix(line, "IOMMU group: "); ok {
		f.IOMMUGroup = new(number(v))
	} else if v, ok := strings.CutPrefix(line, "Subsystem: "); ok {
		f.SubVendor, f.SubDevice = r.names.ids(v)
	} else if v, ok := strings.CutPrefix(line, "Control: "); ok {
		f.Disabled = strings.Contains(v, "Mem- ")
	} else if m := reBus.FindStringSubmatch(line); m != nil {
		f.Secondary, f.Subordinate = uint8(parseHex(m[1])), uint8(parseHex(m[2]))
	} else if m := reRegion.FindStringSubmatch(line); m != nil {
		f.BARs = append(f.BARs, region(m))
	} else if m := reROM.FindStringSubmatch(line); m != nil {
		f.BARs = append(f.BARs, pci.BAR{Index: 6, Start: parseHex(m[1]), SizeBytes: size(m[2]), Flags: flagMem})
	} else if m := reReBAR.FindStringSubmatch(line); m != nil && r.section == "rebar" {
		e := pci.ReBAR{BAR: number(m[1]), SizeBytes: size(m[2])}
		for s := range strings.FieldsSeq(m[3]) {
			if b := size(s); b >= leastReBAR {
				e.SupportedBytes = append(e.SupportedBytes, b)
			}
		}
		if e.SizeBytes >= leastReBAR {
			f.ReBAR = append(f.ReBAR, e)
		}
	}
	if m := keyword.FindStringSubmatch(line); m != nil {
		r.section, line = m[1], m[2]
	}
	r.register(line)
}

// capability starts one: "[78] Express (v2) Legacy Endpoint, MSI 00".
func (r *reader) capability(v string) {
	_, name, _ := strings.Cut(v, "] ")
	r.section = ""
	switch {
	case strings.HasPrefix(name, "Express"):
		r.fn.Express = &Express{Port: portType(name)}
	case strings.HasPrefix(name, "Physical Resizable BAR"):
		r.section = "rebar"
	}
}

// register reads the text of a register, which may go over several lines.
func (r *reader) register(line string) {
	f, e := r.fn, r.fn.Express
	switch r.section {
	case "ACSCap", "ACSCtl":
		if f.ACS == nil {
			f.ACS = &pci.ACS{}
		}
		if r.section == "ACSCap" {
			f.ACS.Cap = parseACS(line)
		} else {
			f.ACS.Ctl = parseACS(line)
		}
		r.section = ""
	case "ATSCtl":
		f.ATS = new(strings.HasPrefix(line, "Enable+"))
		r.section = ""
	}
	if e == nil {
		return
	}
	switch r.section {
	case "DevCap":
		if m := reSizes.FindStringSubmatch(line); m != nil {
			e.MPSSupportedBytes = number(m[1])
		}
	case "DevCtl":
		e.RelaxedOrdering = e.RelaxedOrdering || strings.Contains(line, "RlxdOrd+")
		e.ExtendedTag = e.ExtendedTag || strings.Contains(line, "ExtTag+")
		if m := reSizes.FindStringSubmatch(line); m != nil {
			e.MPSBytes = number(m[1])
		}
		if m := reMRRS.FindStringSubmatch(line); m != nil {
			e.MRRS = number(m[1])
		}
	case "LnkCap":
		if m := reLink.FindStringSubmatch(line); m != nil {
			e.Link.MaxSpeedGTPerSec, e.Link.MaxWidth = float(m[1]), number(m[2])
		}
	case "LnkSta":
		if m := reLink.FindStringSubmatch(line); m != nil {
			e.Link.SpeedGTPerSec, e.Link.Width = float(m[1]), number(m[2])
		}
	}
}

func region(m []string) pci.BAR {
	b := pci.BAR{Index: number(m[1]), Start: parseHex(m[3]), SizeBytes: size(m[5]), Flags: flagMem}
	if m[2] != "Memory" {
		b.Flags = flagIO | 1
		return b
	}
	if strings.Contains(m[4], "64-bit") {
		b.Flags |= flagMem64 | 4
	}
	if strings.Contains(m[4], " prefetchable") {
		b.Flags |= flagPrefetch | 8
	}
	return b
}

func portType(name string) pci.PortType {
	for _, p := range []struct {
		text string
		port pci.PortType
	}{
		{"Legacy Endpoint", pci.PortLegacyEndpoint},
		{"Root Complex Integrated Endpoint", pci.PortRCIntegratedEP},
		{"Root Complex Event Collector", pci.PortRCEventCollector},
		{"Root Port", pci.PortRoot},
		{"Upstream Port", pci.PortUpstream},
		{"Downstream Port", pci.PortDownstream},
		{"to PCI/PCI-X Bridge", pci.PortPCIeToPCI},
		{"PCI/PCI-X to PCI-Express Bridge", pci.PortPCIToPCIe},
	} {
		if strings.Contains(name, p.text) {
			return p.port
		}
	}
	return pci.PortEndpoint
}

// parseACS reads "SrcValid+ TransBlk- …".
func parseACS(s string) (bits uint16) {
	for i, name := range []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"} {
		if strings.Contains(s, name+"+") {
			bits |= 1 << i
		}
	}
	return bits
}

// size reads lspci's "512", "64K", "128GB".
func size(s string) uint64 {
	num := strings.TrimRight(s, "KMGTPEB")
	n, _ := strconv.ParseUint(num, 10, 64)
	unit := strings.TrimSuffix(s[len(num):], "B")
	if i := strings.Index("KMGTPE", unit); unit != "" && i >= 0 {
		n <<= 10 * (i + 1)
	}
	return n
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

func float(s string) float64 { n, _ := strconv.ParseFloat(s, 64); return n }

func parseHex(s string) uint64 { n, _ := strconv.ParseUint(s, 16, 64); return n }

// address parses one that a regular expression or Write has found well-formed.
func address(s string) pci.Address {
	a, err := pci.ParseAddress(s)
	if err != nil {
		return pci.Address{}
	}
	return a
}

func nodesOf(fns []Function) []NUMANode {
	last := -1
	for _, f := range fns {
		last = max(last, f.Node)
	}
	var out []NUMANode
	for i := range min(last+1, 64) {
		n := NUMANode{ID: i, CPUs: fmt.Sprint(i)} // the text names no CPUs: one a node
		for j := range last + 1 {
			n.Distances = append(n.Distances, map[bool]int{true: 10, false: 21}[i == j])
		}
		out = append(out, n)
	}
	return out
}
