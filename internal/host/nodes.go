package host

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// deviceNodes lists the nodes of GPUs and their helpers; those of RDMA belong
// to package rdma.
func deviceNodes(src fact.Source, caller fact.Value[fact.Caller]) []DeviceNode {
	var out []DeviceNode
	for _, d := range []struct {
		dir     string
		matters func(string) bool
	}{
		{"/dev", func(n string) bool {
			return n == "gdrdrv" || n == "kfd" || strings.HasPrefix(n, "nvidia")
		}},
		{"/dev/dri", func(n string) bool { return strings.HasPrefix(n, "renderD") }},
		{"/dev/nvidia-caps", func(string) bool { return true }},
		{"/dev/nvidia-caps-imex-channels", func(string) bool { return true }},
	} {
		for _, n := range names(src, d.dir).V {
			path := d.dir + "/" + n
			if !d.matters(n) {
				continue
			}
			info := fact.StatOf(src, path)
			if info.V.Mode.IsDir() {
				continue
			}
			out = append(out, DeviceNode{Path: path, Info: info, Access: fact.Access(caller, info)})
		}
	}
	slices.SortFunc(out, func(a, b DeviceNode) int { return strings.Compare(a.Path, b.Path) })
	return out
}
