package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var gpuMemory = Check{
	ID: "gpu-memory", Title: "the GPU's memory has no uncorrected errors and no repair pending", Area: AreaGPU, Severity: SeverityError,
	Why: "An uncorrected ECC error ends the job that used the memory. The GPU replaces the row at its next reset; until then, or where no spare row is left, it fails again.",
	Fix: []string{"See what was counted: nvidia-smi -q -i ADDRESS -d ROW_REMAPPER,ECC", "Drain the node and reset the GPU: sudo nvidia-smi -r -i ADDRESS", "Where remapping failed, have the GPU replaced"},
	Refs: []string{
		"https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
		"https://github.com/leptonai/gpud/issues/46",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval:                       evalGPUMemory,
}

func evalGPUMemory(c *Case) {
	g := c.Subject.GPU
	remapped := nvml(g, func(d *gpu.NVMLDevice) fact.Value[gpu.Remapped] { return d.RemappedRows })
	ecc := nvml(g, func(d *gpu.NVMLDevice) fact.Value[gpu.ECC] { return d.ECC })
	r := remapped.V
	if remapped.State == fact.Known {
		c.Row("row remapping", fmt.Sprintf("pending %s, failed %s", show(r.Pending), show(r.Failed)), remapped.Source)
		c.Want("pending no, failed no")
	}
	if ecc.State == fact.Known {
		c.Row("uncorrected errors since the driver started", fmt.Sprint(ecc.V.UncorrectedVolatile), ecc.Source)
		c.Want("0")
	}
	reset := fmt.Sprintf("Drain the node and reset the GPU: sudo nvidia-smi -r -i %s (or reboot)", g.Addr)
	switch {
	case remapped.State == fact.Known && r.Failed:
		c.Fail("row remapping failed: no spare row was left for a bad one")
		c.Fix(fmt.Sprintf("Have the GPU replaced (RMA) after: nvidia-smi -q -i %s -d ROW_REMAPPER,ECC", g.Addr))
	case remapped.State == fact.Known && r.Pending:
		c.Fail("a row remap is pending: the GPU needs a reset")
		c.Fix(reset)
	case ecc.State == fact.Known && ecc.V.UncorrectedVolatile > 0:
		c.Lower(SeverityWarning)
		c.Warn("%d uncorrected memory errors since the driver started", ecc.V.UncorrectedVolatile)
		c.Fix(reset, fmt.Sprintf("If they come again: nvidia-smi -q -i %s -d ECC,ROW_REMAPPER, and have the GPU replaced", g.Addr))
	case ecc.State == fact.Known && !ecc.V.Current:
		c.Info("ECC is off: memory errors go unseen")
	case ecc.State == fact.Known && !notSeen(remapped.State):
		c.Pass("no errors")
	default:
		// A state that could not be seen says nothing bad of a GPU that works.
		c.Lower(SeverityWarning)
		mustSee(c, "row remapping", remapped)
		if _, ok := Need(c, "ECC", ecc); !ok {
			c.NotApplicable("this GPU has no ECC")
		}
	}
}
