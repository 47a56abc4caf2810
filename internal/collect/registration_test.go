package collect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// A GPU in use is left alone unless that is forced; what nobody asked for is not
// there, and a recording gives again what was asked.
func TestRegistrations(t *testing.T) {
	subject := "0000:01:00.0 mlx5_0 cuda,cuda-vmm dmabuf,peermem"
	probe := rdma.RegistrationProbe{Bytes: 1, Ways: []rdma.WayProbe{{Memory: "cuda", Way: "dmabuf"}}}
	for name, tt := range map[string]struct {
		processes, load fact.Value[int]
		probe           Probe
		asked           int
		state           fact.State
		reason          string
	}{
		"idle":             {fact.Of(0, "nvml"), fact.Of(0, "nvml"), ProbeIdle, 1, fact.Known, ""},
		"processes":        {fact.Of(2, "nvml"), fact.Of(0, "nvml"), ProbeIdle, 0, fact.NotCollected, "in use by 2 processes"},
		"busy":             {fact.Of(0, "nvml"), fact.Of(40, "nvml"), ProbeIdle, 0, fact.NotCollected, "40 % busy"},
		"not known":        {fact.Value[int]{}, fact.Value[int]{}, ProbeIdle, 0, fact.NotCollected, "not known"},
		"forced":           {fact.Of(2, "nvml"), fact.Of(90, "nvml"), ProbeForced, 1, fact.Known, ""},
		"nobody asked for": {fact.Of(0, "nvml"), fact.Of(0, "nvml"), ProbeNone, 0, fact.NotCollected, ""},
	} {
		t.Run(name, func(t *testing.T) {
			src := node(t)
			d := gpu.NVMLDevice{Addr: pci.Address{Bus: 1}, Name: fact.Of("NVIDIA Test", "nvml:x"), ComputeProcesses: tt.processes, UtilizationPercent: tt.load}
			src.Answers[fact.AskNVML][1] = answer(t, "gpu0", d)
			src.Answers[fact.AskRegistration] = []fact.Record{answer(t, subject, probe)}
			rec := fact.NewRecorder(src)
			o := opts()
			o.Probe = tt.probe
			m := Machine(t.Context(), rec, o)
			if tt.probe != ProbeNone {
				tt.asked++ // whether at all
			}
			if n := src.Asked[fact.AskRegistration]; n != tt.asked {
				t.Errorf("asked %d times, want %d", n, tt.asked)
			}
			checkRegistrations(t, m.Registrations, tt.probe != ProbeNone, tt.state, tt.reason, probe)

			var b bytes.Buffer
			if err := rec.Save(&b, when); err != nil {
				t.Fatal(err)
			}
			replay, err := fact.OpenRecording(&b)
			if err != nil {
				t.Fatal(err)
			}
			o.Probe = ProbeForced
			again := Machine(t.Context(), replay, o)
			if diff := cmp.Diff(m.Registrations, again.Registrations); diff != "" {
				t.Errorf("the recording: %s", diff)
			}
		})
	}
}

func checkRegistrations(t *testing.T, got []rdma.Registration, want bool, state fact.State, reason string, probe rdma.RegistrationProbe) {
	t.Helper()
	if !want {
		if len(got) > 0 {
			t.Errorf("%+v", got)
		}
		return
	}
	if len(got) != 1 || got[0].Device != "mlx5_0" || got[0].GPU != (pci.Address{Bus: 1}) {
		t.Fatalf("%+v", got)
	}
	if v := got[0].Probe; v.State != state || !strings.Contains(v.Reason, reason) {
		t.Errorf("%+v", v)
	} else if state == fact.Known && !cmp.Equal(v.V, probe) {
		t.Errorf("%+v", v.V)
	}
}
