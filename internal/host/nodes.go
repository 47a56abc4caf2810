package host

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// singleNodes are those of which a machine has one or none: where /dev was
// seen, a missing one is an entry that says Absent.
var singleNodes = []string{"/dev/gdrdrv", "/dev/kfd", "/dev/nvidiactl"}

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
			if !d.matters(n) {
				continue
			}
			if node := deviceNode(src, caller, d.dir+"/"+n); !node.Info.V.Mode.IsDir() {
				out = append(out, node)
			}
		}
	}
	if names(src, "/dev").State == fact.Known {
		for _, path := range singleNodes {
			if !slices.ContainsFunc(out, func(n DeviceNode) bool { return n.Path == path }) {
				out = append(out, deviceNode(src, caller, path))
			}
		}
	}
	slices.SortFunc(out, func(a, b DeviceNode) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func deviceNode(src fact.Source, caller fact.Value[fact.Caller], path string) DeviceNode {
	info := fact.StatOf(src, path)
	return DeviceNode{Path: path, Info: info, Access: fact.Access(caller, info)}
}
