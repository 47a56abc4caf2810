package lab

import (
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/report"
)

// TestFrozen has NVML sleep where no signal wakes it: the program must end in
// time all the same, and say what hung.
func TestFrozen(t *testing.T) {
	dir := boot(t, Guest{Script: frozenScript, Machine: []string{"-machine", "q35", "-m", "512M"}})

	if !strings.Contains(read(t, dir, "states"), "D (disk sleep)") {
		t.Error("no thread is in uninterruptible sleep: the double did not do what it is for")
	}
	for _, command := range []string{"check", "topo"} {
		// The guest passes 5 s as time limit; emulation on a busy machine is slow.
		const limit = 5 + 10
		if took := seconds(t, read(t, dir, command+".times")); took > limit {
			t.Errorf("%s took %.1f s, want at most %d", command, took, limit)
		}
		if rc := number(t, read(t, dir, command+".rc")); rc == 2 || rc > 3 {
			t.Errorf("%s: exit code %d: %s", command, rc, read(t, dir, command+".err"))
		}
	}
	nvml := decode[report.Check](t, dir, "check.json").Machine.GPU.NVIDIA.NVML
	if nvml.State != fact.Failed || !strings.Contains(nvml.Reason, "nvmlInit") {
		t.Errorf("NVML: %v %q, want failed with the call that hung", nvml.State, nvml.Reason)
	}
}

// seconds is the time between two readings of /proc/uptime on one line.
func seconds(t *testing.T, line string) float64 {
	t.Helper()
	f := strings.Fields(line)
	if len(f) != 2 {
		t.Fatalf("not two times: %q", line)
	}
	begin, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	end, err := strconv.ParseFloat(f[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return end - begin
}
