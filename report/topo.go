package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/topo"
)

// NewTopo puts a machine's topology into a document.
func NewTopo(m *topo.Machine, version string) *Topo {
	g := topo.New(m)
	doc := &Topo{
		Header:   NewHeader(KindTopo, m, version),
		Devices:  append([]topo.Device{}, g.Devices()...), // [] in JSON, not null
		Matrix:   map[string]map[string]topo.Class{},
		Pairs:    append([]topo.Pair{}, g.Pairs()...),
		Affinity: g.Affinity(),
		GPUsOf:   map[string][]string{},
		Shared:   append([]string{}, g.Shared()...),
		Idle:     append([]string{}, g.Idle()...),
		Locality: map[string]topo.Affinity{},
		Graph:    g,
	}
	for _, a := range doc.Devices {
		row := map[string]topo.Class{}
		for _, b := range doc.Devices {
			row[b.ID] = g.Class(a.ID, b.ID)
		}
		doc.Matrix[a.ID] = row
		doc.Locality[a.ID] = g.AffinityOf(a.ID)
		if a.RDMA != nil {
			doc.GPUsOf[a.ID] = append([]string{}, g.GPUsOf(a.ID)...)
		}
	}
	return doc
}

// TopoTable draws the matrix as nvidia-smi topo -m does, with the pairs that
// GPUDirect RDMA should use marked, and below it each GPU's best NICs.
func TopoTable(w io.Writer, doc *Topo, s Style) error {
	p := &page{Style: s}
	p.topoTop(doc)
	shown := shownDevices(doc.Devices)
	if len(shown) == 0 {
		p.line("No GPU and no NIC was seen.")
	} else {
		p.matrix(doc, shown)
		p.legend(doc, shown)
		p.best(doc)
	}
	p.apart(doc)
	_, err := io.WriteString(w, p.String())
	return err
}

func (p *page) topoTop(doc *Topo) {
	m := doc.Graph.Machine()
	for _, l := range wrap(nodeLine(m), p.width()) {
		p.line(p.paint(bold, l))
	}
	for _, problem := range m.Problems {
		p.para("", problem.Part+" could not be collected: "+problem.Reason)
	}
	p.line("")
}

// shownDevices are the GPUs and the NICs with an RDMA device; all NICs where
// none has one, as on a machine without RDMA drivers.
func shownDevices(all []topo.Device) []topo.Device {
	rdma := slices.ContainsFunc(all, func(d topo.Device) bool { return d.RDMA != nil })
	var out []topo.Device
	for _, d := range all {
		if d.Kind == topo.KindGPU || d.RDMA != nil || !rdma {
			out = append(out, d)
		}
	}
	return out
}

func ofKind(devices []topo.Device, k topo.Kind) []topo.Device {
	var out []topo.Device
	for _, d := range devices {
		if d.Kind == k {
			out = append(out, d)
		}
	}
	return out
}

// matrix draws one table where it fits. Else it draws the columns that GPUDirect
// RDMA is about, those of the GPUs, in as many parts as the width asks for: cells
// never wrap. The classes between NICs are left out then.
func (p *page) matrix(doc *Topo, shown []topo.Device) {
	gpus := ofKind(shown, topo.KindGPU)
	if g := p.block(doc, shown, shown, len(gpus) > 0); g.width() <= p.width() {
		p.table(g)
		return
	}
	if len(gpus) == 0 {
		p.parts(doc, shown, shown)
		return
	}
	if g := p.block(doc, shown, gpus, true); g.width() <= p.width() {
		p.table(g)
	} else {
		p.parts(doc, shown, gpus)
		p.line("")
		p.table(p.block(doc, gpus, nil, true))
	}
	p.line("")
	p.para("", "The classes between NICs want more width; they are in -o json.")
}

// parts draws columns in as few tables as fit, each about as wide as the others.
func (p *page) parts(doc *Topo, rows, cols []topo.Device) {
	n := 1
	for ; n < len(cols); n++ {
		wide := func(part []topo.Device) bool {
			g := p.block(doc, rows, part, false)
			return g.width() > p.width()
		}
		if !slices.ContainsFunc(slices.Collect(slices.Chunk(cols, (len(cols)+n-1)/n)), wide) {
			break
		}
	}
	first := true
	for part := range slices.Chunk(cols, (len(cols)+n-1)/n) {
		if !first {
			p.line("")
		}
		first = false
		p.table(p.block(doc, rows, part, false))
	}
}

func (p *page) block(doc *Topo, rows, cols []topo.Device, places bool) grid {
	g := grid{head: []string{""}}
	for _, d := range cols {
		g.head = append(g.head, clean(d.ID))
	}
	if places {
		g.head = append(g.head, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
	}
	for _, r := range rows {
		row := []cell{{text: clean(r.ID), ink: bold}}
		for _, c := range cols {
			row = append(row, p.classCell(doc, r, c))
		}
		if places {
			for _, t := range affinityCells(doc.Graph, r) {
				row = append(row, cell{text: t})
			}
		}
		g.rows = append(g.rows, row)
	}
	return g
}

func (p *page) classCell(doc *Topo, r, c topo.Device) cell {
	class := doc.Matrix[r.ID][c.ID]
	out := cell{text: string(class)}
	switch {
	case class == topo.ClassSelf:
		out.ink = dim
	case class == topo.ClassUnknown:
		out.text, out.ink = "?", yellow
	case slices.Contains(doc.Affinity[r.ID], c.ID) || slices.Contains(doc.Affinity[c.ID], r.ID):
		out.text, out.ink = string(class)+"*", green
	}
	return out
}

// affinityCells are nvidia-smi's last three columns; empty for a NIC.
func affinityCells(g *topo.Graph, d topo.Device) []string {
	if d.Kind != topo.KindGPU {
		return []string{"", "", ""}
	}
	a := g.AffinityOf(d.ID)
	return []string{orNA(a.CPUs), orNA(a.NUMANodes), orNA(a.GPUNode)}
}

func orNA(s string) string {
	if s == "" {
		return "N/A"
	}
	return clean(s)
}

// legend explains the classes that the matrix shows.
func (p *page) legend(doc *Topo, shown []topo.Device) {
	p.line("")
	seen := map[topo.Class]bool{}
	marked := false
	for _, a := range shown {
		for _, b := range shown {
			c := doc.Matrix[a.ID][b.ID]
			if strings.HasPrefix(string(c), "NV") {
				c = "NV#"
			}
			seen[c] = true
			marked = marked || slices.Contains(doc.Affinity[a.ID], b.ID)
		}
	}
	order := []topo.Class{topo.ClassSelf, "NV#", topo.ClassPIX, topo.ClassPXB, topo.ClassPHB, topo.ClassNODE, topo.ClassSYS, topo.ClassUnknown}
	for _, c := range order {
		if !seen[c] {
			continue
		}
		name := string(c)
		if c == topo.ClassUnknown {
			name = "?"
		}
		p.para(fmt.Sprintf("  %-4s = ", name), c.Meaning())
	}
	if marked {
		p.para("  *    = ", "a NIC that GPUDirect RDMA should use from this GPU")
	}
}

// best lists each GPU's best NICs with what the path carries.
func (p *page) best(doc *Topo) {
	g := grid{head: []string{"GPU", "Best NIC", "Path", "NCCL", "Carries", "At best", "Limited by"}}
	for _, gpu := range ofKind(doc.Devices, topo.KindGPU) {
		for _, pair := range doc.Pairs {
			if pair.GPU == gpu.ID && pair.Preferred {
				g.add(pair.GPU, pair.NIC, string(pair.Path), pair.NCCL, gbps(pair.CeilingBytesPerSec), gbps(pair.BestBytesPerSec), limit(pair))
			}
		}
	}
	if len(g.rows) > 0 {
		p.line("")
		p.table(foldBest(g))
	}
	for _, d := range ofKind(doc.Devices, topo.KindGPU) {
		if len(doc.Affinity[d.ID]) == 0 {
			p.line("")
			p.line("No NIC for GPUDirect RDMA was seen.")
			return
		}
	}
}

// foldBest joins the NICs of a GPU whose rows are alike, as on flat machines.
func foldBest(g grid) grid {
	var rows [][]cell
	for _, row := range g.rows {
		if len(rows) > 0 {
			last := rows[len(rows)-1]
			alike := last[0].text == row[0].text
			for i := 2; i < 6; i++ {
				alike = alike && last[i].text == row[i].text
			}
			if alike {
				last[1].text += ", " + row[1].text
				if last[6].text != row[6].text {
					last[6].text = "each its own"
				}
				continue
			}
		}
		rows = append(rows, row)
	}
	g.rows = rows
	return g
}

// gbps draws a rate for people: 10^9 bit/s.
func gbps(bytesPerSec float64) string {
	if bytesPerSec == 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f Gb/s", bytesPerSec*8/1e9)
}

func limit(p topo.Pair) string {
	if p.CeilingReason != "" {
		return p.CeilingReason
	}
	return p.LimitedBy
}

// apart names what the table does not speak of.
func (p *page) apart(doc *Topo) {
	var lines []string
	say := func(what string, ids []string) {
		if len(ids) > 0 {
			lines = append(lines, what+": "+strings.Join(ids, ", "))
		}
	}
	if len(ofKind(doc.Devices, topo.KindGPU)) > 0 {
		say("Shared by several GPUs", doc.Graph.Shared())
		say("Not the best NIC of any GPU", doc.Graph.Idle())
	}
	var other, management []string
	for _, d := range doc.Devices {
		switch d.Role {
		case topo.RoleOther:
			other = append(other, d.ID)
		case topo.RoleManagement:
			management = append(management, d.ID)
		case topo.RoleCompute:
		}
	}
	say("RDMA NICs, not for compute", other)
	say("NICs without an RDMA device", management)
	if len(lines) == 0 {
		return
	}
	p.line("")
	for _, l := range lines {
		p.para("", l)
	}
}
