package collect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// GDRCopy is tried where its driver has a node, on GPUs that nobody uses; a
// recording gives again what came of it.
func TestGDRCopies(t *testing.T) {
	probe := gpu.GDRCopyProbe{Library: "2.5", Driver: "2.5"}
	for name, tt := range map[string]struct {
		node      string // in /dev
		processes int
		probe     Probe
		asked     int
		state     fact.State
		source    string
	}{
		"idle":             {"gdrdrv", 0, ProbeIdle, 1, fact.Known, "gdrcopy"},
		"in use":           {"gdrdrv", 2, ProbeIdle, 0, fact.NotCollected, "gdrcopy"},
		"forced":           {"gdrdrv", 2, ProbeForced, 1, fact.Known, "gdrcopy"},
		"no driver":        {"nvidiactl", 0, ProbeIdle, 0, fact.Absent, "/dev/gdrdrv"},
		"nobody asked for": {"gdrdrv", 0, ProbeNone, 0, fact.NotCollected, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src := node(t, "/dev/"+tt.node)
			d := gpu.NVMLDevice{Addr: pci.Address{Bus: 1}, Name: fact.Of("NVIDIA Test", "nvml:x"), ComputeProcesses: fact.Of(tt.processes, "nvml"), UtilizationPercent: fact.Of(0, "nvml")}
			src.Answers[fact.AskNVML][1] = answer(t, "gpu0", d)
			src.Answers[fact.AskGDRCopy] = []fact.Record{answer(t, "0000:01:00.0", probe)}
			rec := fact.NewRecorder(src)
			o := opts()
			o.Probe = tt.probe
			m := Machine(t.Context(), rec, o)
			if tt.probe != ProbeNone {
				tt.asked++ // whether at all
			}
			v := m.GPU.GPUs[0].GDRCopy
			if n := src.Asked[fact.AskGDRCopy]; n != tt.asked || v.State != tt.state || v.Source != tt.source {
				t.Errorf("asked %d times; %+v", n, v)
			}
			if tt.processes > 0 && tt.probe == ProbeIdle && !strings.Contains(v.Reason, "in use by 2 processes") {
				t.Errorf("%+v", v)
			}
			var b bytes.Buffer
			if err := rec.Save(&b, when); err != nil {
				t.Fatal(err)
			}
			replay, err := fact.OpenRecording(&b)
			if err != nil {
				t.Fatal(err)
			}
			o.Probe = ProbeForced
			if diff := cmp.Diff(v, Machine(t.Context(), replay, o).GPU.GPUs[0].GDRCopy); diff != "" && tt.probe != ProbeNone {
				t.Errorf("the recording: %s", diff)
			}
		})
	}
}
