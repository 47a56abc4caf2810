package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
)

// CatalogueEntry is a check as "gdrcheck list -o json" and "explain" show it.
type CatalogueEntry struct {
	ID        string          `json:"id"`
	Area      checks.Area     `json:"area"`
	Severity  checks.Severity `json:"severity"`
	Title     string          `json:"title"`
	Rung      checks.Rung     `json:"rung,omitempty"`
	DependsOn []string        `json:"depends_on,omitempty"`
	Why       string          `json:"why"`
	Fix       []string        `json:"fix"`
	Refs      []string        `json:"refs"`
}

// Catalogue describes checks in the order given.
func Catalogue(list []checks.Check) []CatalogueEntry {
	out := make([]CatalogueEntry, len(list))
	for i, c := range list {
		out[i] = CatalogueEntry{ID: c.ID, Area: c.Area, Severity: c.Severity, Title: c.Title, Rung: c.Rung,
			DependsOn: c.DependsOn, Why: c.Why, Fix: c.Fix, Refs: c.Refs}
	}
	return out
}

// CatalogueTable lists checks, one a row.
func CatalogueTable(w io.Writer, list []CatalogueEntry, s Style) error {
	p := &page{Style: s}
	g := grid{head: []string{"check", "area", "severity", "passes when"}}
	for _, c := range list {
		g.add(c.ID, string(c.Area), string(c.Severity), c.Title)
	}
	p.table(g)
	_, err := io.WriteString(w, p.String())
	return err
}

// Explain tells all of one check.
func Explain(w io.Writer, c CatalogueEntry, s Style) error {
	p := &page{Style: s}
	p.line(p.paint(bold, c.ID))
	p.para("", c.Title)
	p.blank()
	about := fmt.Sprintf("area %s, severity %s", c.Area, c.Severity)
	if c.Rung != checks.RungNone {
		about += ", rung " + rungTitles[c.Rung].long + " of the ladder"
	}
	p.para("  ", about)
	if len(c.DependsOn) > 0 {
		p.para("  not judged where one of these fails: ", strings.Join(c.DependsOn, ", "))
	}
	p.para("  why  ", c.Why)
	p.list("  fix  ", c.Fix, p.fix)
	p.list("  see  ", c.Refs, p.para)
	_, err := io.WriteString(w, p.String())
	return err
}
