package report

import (
	"strings"
	"unicode"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwarp"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// page collects the text of one document.
type page struct {
	strings.Builder
	Style
}

// line writes one line as it is, without control characters.
func (p *page) line(text string) {
	if p.ASCII {
		text = ascii(text)
	}
	p.WriteString(strings.TrimRight(text, " ") + "\n")
}

// ascii spells text, which comes from checks and from the machine, for a locale
// that is not UTF-8. Widths stay.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < unicode.MaxASCII:
			return r
		case r == '–' || r == '—':
			return '-'
		case r == '→':
			return '>'
		case r == '←':
			return '<'
		case r == '×':
			return 'x'
		}
		return '?'
	}, text)
}

// blank sets the next line apart; two in a row are one.
func (p *page) blank() {
	if s := p.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		p.line("")
	}
}

// textWidth is where sentences wrap: on a wide screen tables grow, but lines
// longer than this are hard to read.
func (p *page) textWidth() int { return min(p.width(), 120) }

// para wraps text to the width, every line after the first one indented like
// the first's label: "  why   …".
func (p *page) para(label, text string) {
	indent := strings.Repeat(" ", twwidth.Width(label))
	for i, l := range wrap(text, p.textWidth()-len(indent)) {
		if i == 0 {
			p.line(label + l)
			continue
		}
		p.line(indent + l)
	}
}

// wrap breaks text into lines of at most width columns; a word longer than that
// stays whole, so that paths and commands can be copied.
func wrap(text string, width int) []string {
	lines, _ := twwarp.WrapString(clean(text), max(width, 1))
	return lines
}

const maxText = 16 << 10 // bytes

// clean replaces characters that are not drawn, and cuts what no kernel file is
// as long as: names come from devices and recordings, and must not be able to
// steer a terminal, nor to reverse or to drown what stands beside them.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsGraphic(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, s)
}

// grid is a table without borders. Columns are as wide as their cells; when the
// page is too narrow the widest give way and their cells wrap.
type grid struct {
	head   []string
	rows   [][]cell
	indent int
	gap    int // blank columns between two cells; 0: two
}

// cell is plain text, perhaps of several lines; the ink comes after the layout.
type cell struct {
	text string
	ink  ink
}

func (g *grid) add(texts ...string) {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i].text = clean(t)
	}
	g.rows = append(g.rows, row)
}

func (g *grid) between() int {
	if g.gap > 0 {
		return g.gap
	}
	return 2
}

// natural returns the width of each column's longest line.
func (g *grid) natural() []int {
	widths := make([]int, len(g.head))
	for i, h := range g.head {
		widths[i] = twwidth.Width(h)
	}
	for _, row := range g.rows {
		for i, c := range row {
			for l := range strings.SplitSeq(c.text, "\n") {
				widths[i] = max(widths[i], twwidth.Width(l))
			}
		}
	}
	return widths
}

// width is what the table takes when nothing more wraps.
func (g *grid) width() int { return g.total(g.natural()) }

func (g *grid) total(widths []int) int {
	sum := g.indent + g.between()*(len(widths)-1)
	for _, w := range widths {
		sum += w
	}
	return sum
}

// fit returns the columns' widths with the widest narrowed until the table has
// at most room columns.
func (g *grid) fit(room int) []int {
	const least = 8
	widths := g.natural()
	for g.total(widths) > room {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			break
		}
		widths[widest]--
	}
	return widths
}

func (p *page) table(g grid) {
	widths := g.fit(p.width())
	var out strings.Builder
	off := tw.Off
	t := tablewriter.NewTable(&out,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: off, BetweenRows: off, ShowHeader: off, ShowFooter: off},
				Lines:      tw.LinesNone,
			},
		})),
		tablewriter.WithHeaderAutoFormat(off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithTrimSpace(off),
		tablewriter.WithPadding(tw.Padding{Right: strings.Repeat(" ", g.between()), Overwrite: true}),
	)
	heads := make([]string, len(g.head))
	for i, h := range g.head {
		heads[i] = p.paint(dim, h)
	}
	t.Header(heads)
	for _, row := range g.rows {
		texts := make([]string, len(row))
		for i, c := range row {
			var lines []string
			for l := range strings.SplitSeq(c.text, "\n") {
				for _, part := range breakCell(l, widths[i]) {
					lines = append(lines, p.paint(c.ink, part))
				}
			}
			texts[i] = strings.Join(lines, "\n")
		}
		_ = t.Append(texts) // fails only for a type that cannot be printed
	}
	_ = t.Render() // a Builder takes every write
	for l := range strings.Lines(out.String()) {
		p.line(strings.Repeat(" ", g.indent) + strings.TrimSuffix(l, "\n"))
	}
}

// breakCell wraps a line at spaces, and a longer word wherever it must, after a
// slash or comma where one is near.
func breakCell(text string, width int) []string {
	if twwidth.Width(text) <= width {
		return []string{text}
	}
	var out []string
	for _, l := range wrap(text, width) {
		for twwidth.Width(l) > width {
			head := twwidth.Truncate(l, width)
			if i := strings.LastIndexAny(head, "/,"); i > 0 {
				head = head[:i+1]
			}
			out, l = append(out, head), strings.TrimPrefix(l, head)
		}
		out = append(out, l)
	}
	return out
}
