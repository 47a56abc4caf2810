package render

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// bus is a place in a drawn tree: a bus, and the bridge above it.
type bus struct {
	domain uint32
	number uint8
	bridge string
}

var (
	reRoot   = regexp.MustCompile(`^[- |+\\]*-\[([0-9a-f]{4,8}):([0-9a-f]{2})(?:-[0-9a-f]{2})?\]`)
	reBranch = regexp.MustCompile(`^[ |]*[+\\]-[0-9a-f]{2}\.[0-7]`)
	reSlot   = regexp.MustCompile(`^([0-9a-f]{2})\.([0-7])`)
	reRange  = regexp.MustCompile(`^\[([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]`)
)

// treeLine reads a line of "lspci -t" or "-tv": branches hang on the column of
// the "+" that opened them.
func (r *reader) treeLine(line string) bool {
	root := reRoot.FindStringSubmatchIndex(line)
	if root == nil && (!r.tree || !reBranch.MatchString(line)) {
		return false
	}
	if root != nil && !r.tree {
		r.tree, r.columns = true, map[int]bus{}
	}
	at, pos := bus{}, 0
	if root != nil {
		pos = root[1]
		at = bus{domain: uint32(parseHex(line[root[2]:root[3]])), number: uint8(parseHex(line[root[4]:root[5]]))}
	} else {
		pos = strings.IndexAny(line, `+\`)
		at = r.columns[pos]
	}
	for pos < len(line) {
		rest := line[pos:]
		if m := reSlot.FindStringSubmatch(rest); m != nil {
			f := r.function(fmt.Sprintf("%04x:%02x:%s.%s", at.domain, at.number, m[1], m[2]))
			f.Parent = at.bridge
			pos += len(m[0])
			rest = line[pos:]
			if next := strings.TrimPrefix(rest, "-"); reRange.MatchString(next) {
				m := reRange.FindStringSubmatch(next)
				f.Secondary, f.Subordinate = uint8(parseHex(m[1])), uint8(parseHex(m[1]))
				if m[2] != "" {
					f.Subordinate = uint8(parseHex(m[2]))
				}
				if !r.detailed[f.Addr] {
					f.Class = pci.ClassPCIBridge << 8
				}
				at = bus{at.domain, f.Secondary, f.Addr}
				pos += len(rest) - len(next) + len(m[0])
				continue
			}
			r.describe(f, strings.TrimSpace(rest))
			return true
		}
		if line[pos] == '+' || line[pos] == '\\' {
			r.columns[pos] = at
		}
		pos++
	}
	return true
}

// describe takes the model that "-tv" prints behind an endpoint.
func (r *reader) describe(f *Function, model string) {
	if r.detailed[f.Addr] || model == "" {
		return
	}
	f.Vendor, f.Device = r.names.ids(model)
	f.Class = 0x088000
	for text, class := range map[string]pci.Class{"Audio": 0x040300, "NVMe": 0x010802, "Ethernet": 0x020000, "Graphics Family": 0x030000} {
		if strings.Contains(model, text) {
			f.Class = class
		}
	}
}

// parentsByBus finds bridges by bus number where no tree was drawn.
func (r *reader) parentsByBus() {
	if r.tree {
		return
	}
	type key struct {
		domain uint32
		bus    uint8
	}
	above := map[key]string{}
	for _, f := range r.fns {
		if f.Class.Sub() == pci.ClassPCIBridge && f.Secondary > 0 {
			above[key{address(f.Addr).Domain, f.Secondary}] = f.Addr
		}
	}
	for _, f := range r.fns {
		a := address(f.Addr)
		if p := above[key{a.Domain, a.Bus}]; p != f.Addr {
			f.Parent = p
		}
	}
}

// complete fills in what the text does not tell; see FromLspci.
func (r *reader) complete() {
	var sorted []*Function
	for _, f := range r.fns {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b *Function) int { return address(a.Addr).Compare(address(b.Addr)) })
	for _, f := range sorted {
		if !r.detailed[f.Addr] {
			r.takeAfterSibling(f)
		}
	}
	nodes := map[string]int{}
	for _, f := range sorted {
		if f.Node >= 0 {
			nodes[r.rootBus(f)] = f.Node
		}
	}
	quiet := len(r.acsLoose) > 0 && !slices.ContainsFunc(r.acsLoose, func(b uint16) bool { return b != 0 })
	for _, f := range sorted {
		if n, ok := nodes[r.rootBus(f)]; ok && !r.detailed[f.Addr] {
			f.Node = n
		}
		if f.Class.Sub() == pci.ClassPCIBridge && !r.detailed[f.Addr] {
			r.completeBridge(f, sorted, quiet)
		}
	}
}

func (r *reader) takeAfterSibling(f *Function) {
	slot := f.Addr[:len(f.Addr)-1]
	for addr := range r.detailed {
		s := r.fns[addr]
		if strings.HasPrefix(addr, slot) && s.Vendor == f.Vendor && s.Device == f.Device {
			keep := *f
			*f = *s
			f.Addr, f.Parent, f.BARs = keep.Addr, keep.Parent, nil
			return
		}
	}
}

func (r *reader) completeBridge(f *Function, all []*Function, quiet bool) {
	e := &Express{Port: pci.PortDownstream}
	switch parent := r.fns[f.Parent]; {
	case parent == nil:
		e.Port = pci.PortRoot
	case parent.Express == nil || parent.Express.Port != pci.PortUpstream:
		e.Port = pci.PortUpstream
	}
	for _, child := range all {
		if child.Parent == f.Addr && child.Express != nil && child.Express.Link.MaxWidth > 0 && e.Port != pci.PortUpstream {
			e.Link = child.Express.Link
			break
		}
	}
	f.Express = e
	if quiet && e.Port != pci.PortUpstream {
		f.ACS = &pci.ACS{Cap: 0x5f}
	}
}

func (r *reader) rootBus(f *Function) string {
	for depth := 0; f.Parent != "" && r.fns[f.Parent] != nil && depth < 64; depth++ {
		f = r.fns[f.Parent]
	}
	return f.Addr[:strings.LastIndex(f.Addr, ":")]
}
