package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
)

var rungTitles = map[checks.Rung]struct{ long, short string }{
	checks.RungLink: {"link", "link"},
	checks.RungPath: {"PCIe path", "path"},
	checks.RungACS:  {"ACS/IOMMU", "ACS"},
	checks.RungBAR1: {"BAR1", "BAR1"},
	checks.RungWay:  {"driver way", "way"},
	checks.RungPort: {"RDMA port", "port"},
}

// How a ladder is drawn, roomiest first; the first that fits the page is taken.
var ladderLooks = []ladderLook{
	{long: true, note: 100, gap: 2},
	{note: 100, gap: 2},
	{note: 8, gap: 1},
	{note: 0, gap: 1},
}

type ladderLook struct {
	long bool // long titles
	note int  // columns that a rung's note may take before it wraps; 0: no notes
	gap  int
}

func (l ladderLook) title(r checks.Rung) string {
	if l.long {
		return rungTitles[r].long
	}
	return rungTitles[r].short
}

// ladders draws each pair as one row, from the link to the port.
func (p *page) ladders(doc *Check) {
	p.blank()
	if len(doc.Ladders) == 0 {
		p.line("No GPU-NIC pair to judge.")
		return
	}
	var g grid
	for _, look := range ladderLooks {
		if g = p.ladderGrid(doc.Ladders, look); g.width() <= p.width() {
			break
		}
	}
	p.table(g)
	p.line(p.paint(dim, p.ladderLegend(doc.Ladders)))
}

// ladderLegend explains the marks that the ladders have.
func (p *page) ladderLegend(ladders []checks.Ladder) string {
	var there []checks.Verdict
	for _, l := range ladders {
		for _, s := range l.Steps {
			if s.Verdict == checks.NotApplicable {
				s.Verdict = checks.Blocked // one mark for both
			}
			there = append(there, s.Verdict)
		}
	}
	var parts []string
	for _, w := range legendWords {
		if slices.Contains(there, w.verdict) {
			parts = append(parts, p.mark(w.verdict)+" "+w.word)
		}
	}
	return strings.Join(parts, "  ")
}

var legendWords = []struct {
	verdict checks.Verdict
	word    string
}{
	{checks.Pass, "pass"},
	{checks.Info, "note"},
	{checks.Warn, "warning"},
	{checks.Fail, "fail"},
	{checks.Unknown, "not seen"},
	{checks.Blocked, "not judged"},
}

func (p *page) ladderGrid(ladders []checks.Ladder, look ladderLook) grid {
	arrow := " →"
	if p.ASCII {
		arrow = " >"
	}
	g := grid{head: []string{"GPU", "NIC"}, gap: look.gap}
	for i, r := range checks.Rungs {
		title := look.title(r)
		if i < len(checks.Rungs)-1 {
			title += arrow
		}
		g.head = append(g.head, title)
	}
	g.head = append(g.head, "broken")
	for _, l := range ladders {
		row := []cell{{text: cmp.Or(clean(l.GPU), "-")}, {text: cmp.Or(clean(l.NIC), "-")}}
		for _, r := range checks.Rungs {
			row = append(row, p.rung(l.Steps, r, look))
		}
		g.rows = append(g.rows, append(row, cell{text: look.title(l.Broken), ink: marks[checks.Fail].ink}))
	}
	return g
}

func (p *page) rung(steps []checks.Step, r checks.Rung, look ladderLook) cell {
	i := slices.IndexFunc(steps, func(s checks.Step) bool { return s.Rung == r })
	if i < 0 {
		return cell{"-", dim}
	}
	s := steps[i]
	text := p.mark(s.Verdict)
	if s.Note != "" && look.note > 0 {
		// Later lines stand below the note, not below the mark.
		text += " " + strings.Join(wrap(s.Note, look.note), "\n  ")
	}
	return cell{text, marks[s.Verdict].ink}
}
