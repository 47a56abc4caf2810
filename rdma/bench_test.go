package rdma

import (
	"context"
	"fmt"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

// BenchmarkCollect reads 12 RoCE NICs with GID tables of 256 entries, as mlx5
// has, and 50 counters each.
func BenchmarkCollect(b *testing.B) {
	files, errs := map[string]string{}, map[string]error{}
	for i := range 12 {
		name := fmt.Sprintf("mlx5_%d", i)
		dir := classDir + "/" + name + "/"
		files[dir+"node_type"], files[dir+"ports/1/link_layer"] = "1: CA\n", "Ethernet\n"
		for g := range 256 {
			slotFile(files, errs, name, fmt.Sprint(g), "0000:0000:0000:0000:0000:0000:0000:0000", "", "")
		}
		for c := range 50 {
			files[fmt.Sprintf("%sports/1/hw_counters/c%d", dir, c)] = "1\n"
		}
	}
	src := facttest.Tree(b, files)
	for b.Loop() {
		if f := Collect(context.Background(), src, nil, Options{}); len(f.Devices[11].Ports[0].Counters) != 50 {
			b.Fatal("counters are missing")
		}
	}
}
