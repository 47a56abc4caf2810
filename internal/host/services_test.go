package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestServices(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max cpu time              unlimited            unlimited            seconds   \n"
	src := facttest.Tree(t, map[string]string{
		"/sys/fs/cgroup/system.slice/slurmd.service/cgroup.procs": "812\n813\n",
		"/proc/812/limits": limits + "Max locked memory         8388608              unlimited            bytes     \n",
		"/sys/fs/cgroup/systemd/system.slice/containerd.service/cgroup.procs": "77\n",
		"/proc/77/limits": limits + "Max locked memory         unlimited            unlimited            bytes     \n",
		"/sys/fs/cgroup/system.slice/docker.service/cgroup.procs": "\n",
	})
	want := []Service{
		{Name: "containerd", PID: 77, Memlock: fact.Of(uint64(1<<64-1), "/proc/77/limits")},
		{Name: "slurmd", PID: 812, Memlock: fact.Of(uint64(8<<20), "/proc/812/limits")},
	}
	if diff := cmp.Diff(want, services(src)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", limits, "Max locked memory\n", "Max locked memory x y bytes\n"} {
		if _, err := ParseMemlock(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func TestIdleStates(t *testing.T) {
	const dir = "/sys/devices/system/cpu/cpu0/cpuidle/"
	src := facttest.Tree(t, map[string]string{
		dir + "state0/name": "POLL\n", dir + "state0/latency": "0\n", dir + "state0/disable": "0\n",
		dir + "state1/name": "C6\n", dir + "state1/latency": "290\n", dir + "state1/disable": "1\n",
	})
	want := fact.Of([]IdleState{{Name: "POLL"}, {Name: "C6", LatencyUs: 290, Disabled: true}}, "/sys/devices/system/cpu/cpu0/cpuidle")
	if diff := cmp.Diff(want, idleStates(src)); diff != "" {
		t.Error(diff)
	}
	none := facttest.Tree(t, map[string]string{"/sys/devices/system/cpu/online": "0\n"})
	if v := idleStates(none); v.State != fact.Absent {
		t.Errorf("%+v", v)
	}
	if v := idleStates(facttest.Tree(t, nil)); v.State != fact.NotCollected {
		t.Errorf("%+v", v)
	}
}

func FuzzMemlock(f *testing.F) {
	f.Add("Max locked memory         8388608              unlimited            bytes     \n")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = ParseMemlock(s) })
}
