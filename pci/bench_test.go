package pci_test

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
)

// BenchmarkCollect reads rendered trees: a GPU server of 400 functions, and
// 4,096 functions.
func BenchmarkCollect(b *testing.B) {
	server := render.EightGPU()
	server.AddUncore(400 - len(server.Functions))
	for _, bm := range []struct {
		name string
		tree render.Tree
		opt  pci.Options
	}{
		{"400", server, pci.Options{}},
		{"400/paths", server, pci.Options{Config: pci.ConfigPaths}},
		{"400/none", server, pci.Options{Config: pci.ConfigNone, NoNames: true}},
		{"4096", render.Many(4096), pci.Options{}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			src, _ := bm.tree.Open(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pci.Collect(b.Context(), src, bm.opt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
