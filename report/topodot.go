package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// TopoDot draws the tree for Graphviz: a box for each NUMA node, links as
// edges, and dashed edges between each GPU and its best NICs.
func TopoDot(w io.Writer, doc *Topo) error {
	var b strings.Builder
	b.WriteString("graph gdrcheck {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=9];\n")
	t := newTree(doc.Graph)
	clusters := map[string][]string{}
	var order []string
	for _, root := range t.roots {
		note := t.rootNote(root)
		if clusters[note] == nil {
			order = append(order, note)
		}
		clusters[note] = append(clusters[note], root)
	}
	for i, note := range order {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=%s;\n", i, quote(note))
		for _, root := range clusters[note] {
			fmt.Fprintf(&b, "    %s [shape=house];\n", quote(root))
			t.dot(&b, root, t.below[root])
		}
		b.WriteString("  }\n")
	}
	for _, p := range doc.Pairs {
		if a, z := dotID(doc.Graph, p.GPU), dotID(doc.Graph, p.NIC); p.Preferred && a != "" && z != "" {
			fmt.Fprintf(&b, "  %s -- %s [style=dashed, color=darkgreen, constraint=false, label=%s];\n", quote(a), quote(z), quote(string(p.Path)))
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *tree) dot(b *strings.Builder, above string, list []*pci.Function) {
	for _, f := range list {
		id := f.Address.String()
		label := t.what(f) + "\n" + id
		style := ""
		if len(t.devices[f.Address]) > 0 {
			style = ", style=filled, fillcolor=" + dotColour(t.devices[f.Address][0].Kind)
			if name := t.name(f); name != "" {
				label += "\n" + name
			}
		} else if acs := acsCell(t.g, f.Address).text; acs != "" {
			label += "\nACS " + acs
		}
		fmt.Fprintf(b, "    %s [label=%s%s];\n", quote(id), quote(label), style)
		fmt.Fprintf(b, "    %s -- %s [label=%s];\n", quote(above), quote(id), quote(t.link(f)))
		t.dot(b, id, t.below[id])
	}
}

func dotColour(k topo.Kind) string {
	if k == topo.KindGPU {
		return "palegreen"
	}
	return "lightblue"
}

// dotID is the node that stands for a device.
func dotID(g *topo.Graph, id string) string {
	d, _ := g.Device(id)
	if a := deviceAddresses(d); len(a) > 0 {
		return a[len(a)-1].String()
	}
	return ""
}

// quote writes a DOT string: only the quote needs an escape, "\n" is a line break.
func quote(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(strings.ReplaceAll(clean(l), `\`, `\\`), `"`, `\"`)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
