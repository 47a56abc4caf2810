package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// TopoTree draws the PCIe tree, pruned to GPUs, NICs and what is above them,
// with each link now and at its best, and ACS of each bridge.
func TopoTree(w io.Writer, doc *Topo, s Style) error {
	p := &page{Style: s}
	p.topoTop(doc)
	t := newTree(doc.Graph)
	if len(t.roots) == 0 {
		p.line("No GPU and no NIC was seen.")
	} else {
		out := grid{head: []string{"PCI Express", "Device", "Link", "ACS", "Name"}}
		for _, root := range t.roots {
			out.add(root, t.rootNote(root), "", "", "")
			t.draw(&out, p.Style, t.below[root], "")
		}
		p.treeTable(out)
		p.line("")
		text := acsLegend
		if slices.ContainsFunc(out.rows, func(row []cell) bool { return row[3].text == "?" }) {
			text += " ? could not be read: configuration space beyond 64 bytes needs root."
		}
		p.para("ACS: ", text)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// treeTable draws columns while they fit: names are cut first, for a branch that
// wraps is none. Where even that is too wide, as in a deep tree, cells follow
// each other without columns.
func (p *page) treeTable(g grid) {
	name := len(g.head) - 1
	bare := grid{head: g.head[:name]}
	for _, row := range g.rows {
		bare.rows = append(bare.rows, row[:name])
	}
	if bare.width() > p.width() {
		for _, row := range g.rows {
			var cells []string
			for _, c := range row[:name] {
				if c.text != "" {
					cells = append(cells, p.paint(c.ink, c.text))
				}
			}
			p.line(strings.Join(cells, "  "))
		}
		return
	}
	room := p.width() - bare.width() - bare.between()
	if room < twwidth.Width(g.head[name]) {
		p.table(bare)
		return
	}
	for _, row := range g.rows {
		if twwidth.Width(row[name].text) > room {
			row[name].text = strings.TrimSpace(twwidth.Truncate(row[name].text, room))
		}
	}
	p.table(g)
}

// tree holds what is drawn: the functions below each root bus or function.
type tree struct {
	g       *topo.Graph
	roots   []string
	below   map[string][]*pci.Function // by root bus or address
	devices map[pci.Address][]topo.Device
}

func newTree(g *topo.Graph) *tree {
	t := &tree{g: g, below: map[string][]*pci.Function{}, devices: map[pci.Address][]topo.Device{}}
	placed := map[pci.Address]bool{}
	for _, d := range g.Devices() {
		for _, a := range deviceAddresses(d) {
			t.devices[a] = append(t.devices[a], d)
			f := g.Function(a)
			if f == nil {
				continue
			}
			for _, up := range append(g.Upstream(a), nil) {
				if placed[f.Address] {
					break
				}
				placed[f.Address] = true
				key := g.HostBridge(f.Address)
				if up != nil {
					key = up.Address.String()
				} else if !slices.Contains(t.roots, key) {
					t.roots = append(t.roots, key)
				}
				t.below[key] = append(t.below[key], f)
				f = up
			}
		}
	}
	slices.Sort(t.roots)
	for _, list := range t.below {
		slices.SortFunc(list, func(a, b *pci.Function) int { return a.Address.Compare(b.Address) })
	}
	return t
}

// deviceAddresses are a device's function and its Data Direct one.
func deviceAddresses(d topo.Device) []pci.Address {
	var out []pci.Address
	if d.Addr != nil {
		out = append(out, *d.Addr)
	}
	if d.RDMA != nil {
		if a, ok := d.RDMA.DataDirect.Get(); ok {
			out = append(out, a)
		}
	}
	return out
}

func (t *tree) rootNote(root string) string {
	for _, f := range t.below[root] {
		if n, ok := t.g.NUMA(f.Address); ok {
			return fmt.Sprintf("NUMA node %d", n)
		}
	}
	return "no NUMA node"
}

func (t *tree) draw(out *grid, s Style, list []*pci.Function, indent string) {
	branch, last, bar := "├─ ", "└─ ", "│  "
	if s.ASCII {
		branch, last, bar = "|- ", "`- ", "|  "
	}
	for i, f := range list {
		lead, next := branch, bar
		if i == len(list)-1 {
			lead, next = last, "   "
		}
		out.rows = append(out.rows, []cell{
			{text: indent + lead + f.Address.String()},
			{text: clean(t.what(f)), ink: t.ink(f)},
			{text: t.link(f)},
			acsCell(t.g, f.Address),
			{text: clean(t.name(f))},
		})
		t.draw(out, s, t.below[f.Address.String()], indent+next)
	}
}

func (t *tree) what(f *pci.Function) string {
	var ids []string
	for _, d := range t.devices[f.Address] {
		id := d.ID
		if d.Addr != nil && *d.Addr != f.Address {
			id += " Data Direct"
		}
		ids = append(ids, id)
	}
	if len(ids) > 0 {
		return strings.Join(ids, ", ")
	}
	return t.g.BridgeKind(f.Address)
}

func (t *tree) ink(f *pci.Function) ink {
	if len(t.devices[f.Address]) > 0 {
		return bold
	}
	return plain
}

func (t *tree) name(f *pci.Function) string {
	for _, d := range t.devices[f.Address] {
		if d.Name != "" {
			return d.Name
		}
	}
	return strings.TrimSpace(f.VendorName + " " + f.DeviceName)
}

func (t *tree) link(f *pci.Function) string {
	link, has, why := t.g.UpwardLink(f.Address)
	switch {
	case why != "":
		return "?"
	case !has:
		return ""
	}
	return linkText(link)
}

// linkText is "Gen4 x8 of Gen5 x16", or "Gen5 x16" at its best.
func linkText(l pci.Link) string {
	if l.SpeedGTPerSec == 0 || l.Width == 0 {
		return "down"
	}
	now := fmt.Sprintf("%s x%d", gen(l.SpeedGTPerSec), l.Width)
	most := fmt.Sprintf("%s x%d", gen(l.MaxSpeedGTPerSec), l.MaxWidth)
	if now == most {
		return now
	}
	return now + " of " + most
}

func gen(speed float64) string {
	if n := pci.Generation(speed); n > 0 {
		return fmt.Sprintf("Gen%d", n)
	}
	return fmt.Sprintf("%g GT/s", speed)
}

const acsLegend = "SV source validation, TB translation blocking, RR request redirect, CR completion redirect, " +
	"UF upstream forwarding, EC egress control, DT direct translated; RR, CR and EC send peer traffic up to the root complex."

// acsCell is a bridge's ACS control; empty for what is no bridge.
func acsCell(g *topo.Graph, a pci.Address) cell {
	f := g.Function(a)
	if f == nil || g.BridgeKind(a) == "" {
		return cell{}
	}
	acs, ok := f.Config.ACS.Get()
	switch {
	case ok && acs.Ctl&pci.ACSRedirectMask != 0:
		return cell{text: acsText(acs.Ctl), ink: yellow}
	case ok:
		return cell{text: acsText(acs.Ctl)}
	case f.Config.ACS.State == fact.Absent:
		return cell{text: "none"}
	}
	return cell{text: "?", ink: yellow}
}

func acsText(ctl uint16) string {
	var on []string
	for i, name := range []string{"SV", "TB", "RR", "CR", "UF", "EC", "DT"} {
		if ctl&(1<<i) != 0 {
			on = append(on, name)
		}
	}
	if len(on) == 0 {
		return "off"
	}
	return strings.Join(on, " ")
}
