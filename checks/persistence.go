package checks

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var persistence = Check{
	ID: "persistence", Title: "the GPU driver stays initialised between jobs", Area: AreaGPU, Severity: SeverityInfo,
	Why: "Without persistence the driver shuts the GPU down when its last client ends: each start takes seconds, and settings are lost.",
	Fix: []string{"sudo systemctl enable --now nvidia-persistenced"},
	Refs: []string{
		"https://docs.nvidia.com/deploy/driver-persistence/",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval: func(c *Case) {
		on, ok := Need(c, "persistence mode", nvml(c.Subject.GPU, func(d *gpu.NVMLDevice) fact.Value[bool] { return d.Persistence }))
		switch {
		case !ok:
			c.NotApplicable("this GPU has no persistence mode")
		case on:
			c.Pass("on")
		default:
			c.Info("persistence is off; on: sudo systemctl enable --now nvidia-persistenced")
		}
	},
}
