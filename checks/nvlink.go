package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var nvlinkActive = Check{
	ID: "nvlink", Title: "the GPU has as many NVLinks up as its siblings", Area: AreaGPU, Severity: SeverityWarning,
	Why: "A GPU that lost an NVLink slows down every collective of the node. Links that no GPU of the kind uses are no fault: bridges connect some of them only.",
	Fix: []string{"See which: nvidia-smi nvlink -s", "Drain the node and reset all GPUs: sudo nvidia-smi -r", "If the link stays down, have the GPU, bridge or baseboard looked at"},
	Refs: []string{
		"https://docs.nvidia.com/deploy/nvidia-smi/",
		"https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval: func(c *Case) {
		list, ok := Need(c, "NVLinks", nvlinks(c.Subject.GPU))
		if !ok || len(list) == 0 {
			c.NotApplicable("this GPU has no NVLink")
			return
		}
		c.finding.Evidence = nil
		up, most := activeLinks(list), 0
		for _, s := range eachNVIDIAGPU(c.Node) {
			if s.GPU.Name == c.Subject.GPU.Name {
				most = max(most, activeLinks(nvlinks(s.GPU).Or(nil)))
			}
		}
		c.Row("NVLinks up", fmt.Sprintf("%d of %d", up, len(list)), orElse(nvlinks(c.Subject.GPU).Source, "nvml"))
		c.Want("%d, as the node's other GPUs of its kind", most)
		switch {
		case most == 0:
			c.Info("no NVLink is up on any GPU of this kind")
		case up < most:
			c.Warn("%d NVLinks are up, and %d on others of the node", up, most)
			c.Fix(fmt.Sprintf("See which: nvidia-smi nvlink -s -i %s; nvidia-smi nvlink -e -i %s", c.Subject.GPU.Addr, c.Subject.GPU.Addr),
				"Drain the node and reset all GPUs: sudo nvidia-smi -r",
				"If it stays down: have the GPU and its bridge or baseboard looked at")
		default:
			c.Pass("%d up", up)
		}
	},
}

func nvlinks(g *gpu.GPU) fact.Value[[]gpu.NVLink] {
	return nvml(g, func(d *gpu.NVMLDevice) fact.Value[[]gpu.NVLink] { return d.NVLinks })
}

func activeLinks(list []gpu.NVLink) (n int) {
	for _, l := range list {
		if l.Active {
			n++
		}
	}
	return n
}
