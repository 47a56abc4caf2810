package checks

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// What is said against machines that were recorded whole, and why it is right;
// nothing else is. (Machines on which nothing is wrong: TestBasesAreHealthy, those
// of each preset: TestPresetMachinesAreHealthy, what lspci printed of real ones:
// TestRecordedXE9680, TestRecordedWorkstations.)
func TestHealthyRecordings(t *testing.T) {
	for name, want := range map[string][]string{
		// The example node was given these two faults, to be shown; the redirecting
		// port is above both NICs of its switch.
		"../cmd/gdrcheck/example.rec": {
			"fail pcie-link-width mlx5_2", "fail acs-redirect GPU4 mlx5_4", "fail acs-redirect GPU4 mlx5_5",
		},
		// A real virtual machine with two H200, redacted. It has no RDMA NIC, which is
		// what its owner should hear; and it was recorded before the kernel log, idle
		// states and huge pages were, which must not pass then.
		"../cmd/gdrcheck/testdata/h200x2.rec": {
			"fail rdma-device-present node", "unknown gpu-errors GPU0", "unknown gpu-errors GPU1", "unknown cpu-power node", "unknown huge-pages node",
		},
	} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := fact.OpenRecording(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		opt := collect.All()
		opt.AskNVIDIA, opt.Origin = true, "live"
		var got []string
		for _, g := range mustRun(t, collect.Machine(t.Context(), rec, opt), Options{}).Findings {
			if troubled(g) || g.Verdict == Unknown {
				got = append(got, g.Verdict.String()+" "+g.Check+" "+g.Subject)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}
