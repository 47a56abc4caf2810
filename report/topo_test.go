package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// bigNode has four switches of two GPUs and two NICs each, and on each socket a
// slower dual-port NIC; one switch port redirects, one NIC lost half its lanes.
func bigNode(t *testing.T) *topo.Machine {
	var b strings.Builder
	nic := 0
	for socket := range 2 {
		for sw := range 2 {
			bus := 0x10 + 0x60*socket + 0x20*sw
			fmt.Fprintf(&b, "pci0000:%02x numa=%d\n  %02x:01.0 root mps=512 acs=0x1d\n    %02x:00.0 up link=32x16 mps=512\n", bus, socket, bus, bus+1)
			for i, dev := range []string{"gpu nvlink=18", "gpu nvlink=18", "nic", "nic"} {
				acs, link := "0", "32x16"
				if dev == "nic" {
					dev = fmt.Sprintf("nic=mlx5_%d gbps=400", nic)
					if nic == 1 {
						acs, link = "0x1d", "32x8/32x16"
					}
					nic++
				}
				fmt.Fprintf(&b, "      %02x:%02x.0 down mps=512 acs=%s\n        %02x:00.0 %s link=%s mps=512\n", bus+2, i, acs, bus+3+i, dev, link)
			}
			if sw == 1 {
				fmt.Fprintf(&b, "  %02x:02.0 root mps=512\n    %02x:00.0 nic=mlx5_%d gbps=100 link=16x16 mps=512\n    %02x:00.1 nic=mlx5_%d gbps=100 link=16x16 mps=512\n",
					bus, bus+9, nic, bus+9, nic+1)
				nic += 2
			}
		}
	}
	b.WriteString("pci0000:00 numa=0\n  00:05.0 root\n    01:00.0 eth=eno1 link=8x4\n")
	m := topotest.NUMANodes(topotest.Machine(t, b.String()), 2)
	m.CollectedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m.RDMA.Listed = fact.Of(len(m.RDMA.Devices), "/sys/class/infiniband")
	return m
}

func draw(t *testing.T, format string, doc *Topo, s Style) string {
	t.Helper()
	var out bytes.Buffer
	var err error
	switch format {
	case "table":
		err = TopoTable(&out, doc, s)
	case "tree":
		err = TopoTree(&out, doc, s)
	case "dot":
		err = TopoDot(&out, doc)
	case "json":
		err = JSON(&out, doc)
	case "nccl-xml":
		err = doc.Graph.NCCL().Write(&out)
	default:
		from, to, _ := strings.Cut(format, " ")
		err = TopoExplain(&out, doc, s, from, to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTopoGolden(t *testing.T) {
	doc := NewTopo(bigNode(t), "1.2.3")
	for _, tt := range []struct {
		name, format string
		style        Style
	}{
		{"big.topo-80", "table", Style{Width: 80}},
		{"big.topo-100", "table", Style{}},
		{"big.topo-color", "table", Style{Color: true, Width: 240}},
		{"big.topo-tree", "tree", Style{}},
		{"big.topo-tree-ascii", "tree", Style{ASCII: true, Width: 80}},
		{"big.topo-dot", "dot", Style{}},
		{"big.topo-nccl-xml", "nccl-xml", Style{}},
		{"big.topo-explain-pix", "GPU0 mlx5_1", Style{}},
		{"big.topo-explain-sys", "GPU0 mlx5_9", Style{Width: 80}},
		{"big.topo-explain-nvlink", "GPU0 GPU7", Style{}},
		{"big.topo-explain-nic", "eno1 mlx5_10", Style{}},
	} {
		t.Run(tt.name, func(t *testing.T) { golden(t, tt.name, []byte(draw(t, tt.format, doc, tt.style))) })
	}
}

// Lines fit at every width, and no class or name is broken in two.
func TestTopoWidth(t *testing.T) {
	doc := NewTopo(bigNode(t), "1.2.3")
	words := map[string]bool{}
	for _, d := range doc.Devices {
		words[d.ID] = true
	}
	for _, width := range []int{72, 80, 100, 132, 200} {
		for _, format := range []string{"table", "tree", "GPU0 mlx5_9", "GPU0 mlx5_1"} {
			text := draw(t, format, doc, Style{Width: width})
			for l := range strings.Lines(text) {
				l = strings.TrimSuffix(l, "\n")
				if w := twwidth.Width(l); w > width {
					t.Errorf("%s, width %d: %d columns: %s", format, width, w, l)
				}
			}
			for w := range words {
				if format == "table" && !strings.Contains(text, w) {
					t.Errorf("width %d: %s is missing or broken", width, w)
				}
			}
		}
	}
}

func TestTopoOfNothing(t *testing.T) {
	doc := NewTopo(&topo.Machine{Origin: "tree"}, "1.2.3")
	for _, format := range []string{"table", "tree"} {
		if text := draw(t, format, doc, Style{}); !strings.Contains(text, "No GPU and no NIC was seen.") {
			t.Errorf("%s of an empty machine:\n%s", format, text)
		}
	}
	if text := draw(t, "json", doc, Style{}); strings.Contains(text, "null") {
		t.Errorf("null in the JSON of an empty machine:\n%s", text)
	}
	for _, format := range []string{"dot", "nccl-xml"} {
		if draw(t, format, doc, Style{}) == "" {
			t.Errorf("%s of an empty machine is empty", format)
		}
	}
}

// A branch of the tree is never broken, however deep and narrow.
func TestTreeKeepsBranches(t *testing.T) {
	drawing, indent := "pci0000:00\n", "  "
	for i := range 10 {
		drawing += fmt.Sprintf("%s%02x:01.0 bridge\n", indent, i)
		indent += "  "
	}
	doc := NewTopo(topotest.Machine(t, drawing+indent+"0b:00.0 gpu link=32x16\n"), "1.2.3")
	for _, width := range []int{60, 80, 100} {
		lines := strings.Split(draw(t, "tree", doc, Style{Width: width}), "\n")
		at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "0000:0b:00.0") })
		if at < 0 || !strings.HasPrefix(lines[at], strings.Repeat(" ", 30)+"└─ 0000:0b:00.0") || !strings.Contains(lines[at], "GPU0") {
			t.Errorf("width %d: the GPU's branch is broken:\n%s", width, strings.Join(lines, "\n"))
		}
	}
}

// A guest without NUMA and without RDMA: what was not seen must not look good.
func TestTopoGPUOnly(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:03.0 eth=eth0
  00:06.0 gpu nvlink=18 link=32x16
  00:07.0 gpu nvlink=18 link=32x16`)
	text := draw(t, "table", NewTopo(topotest.NUMANodes(m, 1), "1.2.3"), Style{Width: 120})
	for _, want := range []string{"NV18", "PHB", "No NIC for GPUDirect RDMA was seen.", "NICs without an RDMA device: eth0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "*") {
		t.Errorf("a pair is marked on a machine without RDMA NICs:\n%s", text)
	}
}

// The shape that scripts rely on.
func TestTopoJSON(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:01.0 root
    01:00.0 gpu link=32x16
pci0000:80 numa=1
  80:01.0 root
    81:00.0 nic=mlx5_0 link=32x16`)
	var got map[string]any
	if err := json.Unmarshal([]byte(draw(t, "json", NewTopo(topotest.NUMANodes(m, 2), "1.2.3"), Style{})), &got); err != nil {
		t.Fatal(err)
	}
	if got["kind"] != "topo" || got["schema_version"] != 1.0 {
		t.Errorf("kind %v, schema_version %v", got["kind"], got["schema_version"])
	}
	want := []any{
		map[string]any{"id": "GPU0", "kind": "gpu", "addr": "0000:01:00.0", "numa": nil, "name": "Test GPU"},
		map[string]any{"id": "mlx5_0", "kind": "nic", "addr": "0000:81:00.0", "numa": 1.0, "name": "", "role": "compute"},
	}
	if d := cmp.Diff(want, got["devices"]); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	matrix := map[string]any{
		"GPU0":   map[string]any{"GPU0": "X", "mlx5_0": "unknown"},
		"mlx5_0": map[string]any{"GPU0": "unknown", "mlx5_0": "X"},
	}
	if d := cmp.Diff(matrix, got["matrix"]); d != "" {
		t.Errorf("matrix (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]any{"GPU0": []any{"mlx5_0"}}, got["affinity"]); d != "" {
		t.Errorf("affinity (-want +got):\n%s", d)
	}
	pair := got["pairs"].([]any)[0].(map[string]any)
	for _, key := range []string{"gpu", "nic", "path", "nccl", "ceiling_bytes_per_sec", "limited_by", "hops"} {
		if _, ok := pair[key]; !ok {
			t.Errorf("no %q in the pair", key)
		}
	}
}

// Names come from devices and recordings.
func TestDotQuotes(t *testing.T) {
	if got, want := quote("a\"b\\c\x1b\nd"), `"a\"b\\c?\nd"`; got != want {
		t.Errorf("quote gives %s, want %s", got, want)
	}
}
