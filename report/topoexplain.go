package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/topo"
)

// TopoExplain tells hop by hop how two devices are joined, and why the path has
// its class. It fails for an ID that is no device.
func TopoExplain(w io.Writer, doc *Topo, s Style, from, to string) error {
	path, ok := doc.Graph.Path(from, to)
	if !ok {
		return fmt.Errorf("no device %q or %q", from, to)
	}
	p := &page{Style: s}
	p.line(p.paint(bold, clean(fmt.Sprintf("%s to %s: %s", from, to, path.Path))))
	p.para("", fmt.Sprintf("%s is %s. Here %s.", path.Path, path.Path.Meaning(), doc.Graph.Why(from, to)))
	a, _ := doc.Graph.Device(from)
	b, _ := doc.Graph.Device(to)
	nvlink := strings.HasPrefix(string(path.Path), "NV")
	if a.Kind != b.Kind {
		p.para("", ncclText(path.NCCL))
	}
	if nvlink {
		p.para("", "Beside the NVLinks there is this path:")
	}
	p.hops(doc.Graph, path)
	if !nvlink && from != to {
		p.ceiling(path)
	}
	p.better(doc, from, to)
	_, err := io.WriteString(w, p.String())
	return err
}

func ncclText(class string) string {
	switch class {
	case "PIX", "PXB", "P2C":
		return "NCCL calls it " + class + " and by default uses GPUDirect RDMA on it."
	case "PHB", "SYS":
		return "NCCL calls it " + class + " and by default does not use GPUDirect RDMA on it; NCCL_NET_GDR_LEVEL=" + class + " makes it."
	}
	return "What NCCL calls it cannot be told."
}

func (p *page) hops(graph *topo.Graph, path topo.Pair) {
	if len(path.Hops) == 0 {
		return
	}
	p.line("")
	g := grid{head: []string{"Hop", "What", "Link upward", "ACS", "Name"}}
	for _, h := range path.Hops {
		row := []cell{{text: clean(h.ID)}, {text: clean(h.Kind)}, {}, {}, {text: clean(h.Name)}}
		if h.Link != nil {
			row[2].text = linkText(*h.Link)
		}
		if h.Addr != nil {
			row[3] = acsCell(graph, *h.Addr)
		}
		g.rows = append(g.rows, row)
	}
	p.table(g)
	p.line("")
}

func (p *page) ceiling(path topo.Pair) {
	if path.CeilingReason != "" {
		p.para("", "What the path can carry cannot be told: "+path.CeilingReason+".")
		return
	}
	payload := fmt.Sprintf("payload of %d bytes a packet", path.MPSBytes)
	if path.MPSAssumed {
		payload += ", assumed where it could not be read"
	}
	text := fmt.Sprintf("The path carries %s (%.1f GB/s) one way; the link of %s sets it (%s).",
		gbps(path.CeilingBytesPerSec), path.CeilingBytesPerSec/1e9, path.LimitedBy, payload)
	if path.BestBytesPerSec > path.CeilingBytesPerSec {
		text += fmt.Sprintf(" With every link at its best it would be %s.", gbps(path.BestBytesPerSec))
		if slices.ContainsFunc(path.Hops, func(h topo.Hop) bool { return h.ID == path.LimitedBy && h.Kind == string(topo.KindGPU) }) {
			text += " GPUs lower their link when idle: look again under load."
		}
	}
	p.para("", text)
}

func (p *page) better(doc *Topo, from, to string) {
	for _, gpu := range []string{from, to} {
		nics, ok := doc.Affinity[gpu]
		if !ok || len(nics) == 0 {
			continue
		}
		p.para("", fmt.Sprintf("Best for %s: %s (%s).", gpu, strings.Join(nics, ", "), doc.Matrix[gpu][nics[0]]))
	}
}
