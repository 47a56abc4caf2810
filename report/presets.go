package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
)

// PresetEntry is a platform as "gdrcheck list presets" shows it.
type PresetEntry struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Expects string   `json:"expects,omitempty"` // "8 GPUs, 8 ConnectX-7, path PXB"
	Sources []string `json:"sources"`
}

// Presets describes platforms in the order given.
func Presets(list []checks.Preset) []PresetEntry {
	out := make([]PresetEntry, len(list))
	for i, p := range list {
		out[i] = PresetEntry{Name: p.Name, Title: p.Title, Expects: expects(p), Sources: p.Sources}
	}
	return out
}

func expects(p checks.Preset) string {
	var parts []string
	if n := p.Expect.GPUs.Min; n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", n, strings.TrimSpace(p.Expect.GPUs.Model+" GPUs")))
	}
	if n := p.Expect.NICs.Min; n > 0 {
		parts = append(parts, fmt.Sprintf("%d %s", n, strings.TrimSpace(p.Expect.NICs.Model+" RDMA NICs")))
	}
	if c := p.Promises(); c != "" {
		parts = append(parts, "path "+string(c))
	}
	return strings.Join(parts, ", ")
}

// PresetTable lists platforms, one a row.
func PresetTable(w io.Writer, list []PresetEntry, s Style) error {
	p := &page{Style: s}
	g := grid{head: []string{"preset", "platform", "expects at least"}}
	for _, e := range list {
		g.add(e.Name, e.Title, e.Expects)
	}
	p.table(g)
	_, err := io.WriteString(w, p.String())
	return err
}
