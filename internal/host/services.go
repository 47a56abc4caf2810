package host

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// servicesThatStartJobs hand their limits down to users' jobs or containers.
// Log-ins are not among them: pam_limits gives those their own.
var servicesThatStartJobs = []string{"containerd", "crio", "docker", "pbs", "slurmd"}

// services finds each service's main process by its control group (v2, else
// systemd's own v1 hierarchy) and reads that process' limits.
func services(src fact.Source) []Service {
	var out []Service
	for _, name := range servicesThatStartJobs {
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/systemd"} {
			procs := text(src, root+"/system.slice/"+name+".service/cgroup.procs")
			first, _, _ := strings.Cut(procs.V, "\n")
			pid, err := strconv.Atoi(strings.TrimSpace(first))
			if procs.State != fact.Known || err != nil || pid <= 0 {
				continue
			}
			out = append(out, Service{Name: name, PID: pid,
				Memlock: fact.Parsed(src, "", fmt.Sprintf("/proc/%d/limits", pid), ParseMemlock)})
			break
		}
	}
	return out
}

// ParseMemlock takes the soft limit out of /proc/PID/limits, "Max locked memory
// 8388608 8388608 bytes" (proc_pid_limits(5)).
func ParseMemlock(s string) (uint64, error) {
	for line := range strings.Lines(s) {
		rest, ok := strings.CutPrefix(line, "Max locked memory")
		if !ok {
			continue
		}
		f := strings.Fields(rest)
		if len(f) < 2 {
			return 0, fmt.Errorf("bad line %q", line)
		}
		if f[0] == "unlimited" {
			return 1<<64 - 1, nil
		}
		return strconv.ParseUint(f[0], 10, 64)
	}
	return 0, errors.New("no line \"Max locked memory\"")
}

const idleDir = "/sys/devices/system/cpu/cpu0/cpuidle"

// idleStates reads cpuidle's states of the first processor
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
func idleStates(src fact.Source) fact.Value[[]IdleState] {
	out := []IdleState{}
	for i := 0; ; i++ {
		dir := fmt.Sprintf("%s/state%d", idleDir, i)
		name := text(src, dir+"/name")
		if name.State == fact.Absent {
			break
		}
		latency := fact.Parsed(src, "", dir+"/latency", strconv.Atoi)
		disabled := fact.Parsed(src, "", dir+"/disable", strconv.Atoi)
		if name.State != fact.Known {
			return fact.As[[]IdleState](name, nil)
		}
		if latency.State != fact.Known {
			return fact.As[[]IdleState](latency, nil)
		}
		out = append(out, IdleState{Name: name.V, LatencyUs: latency.V, Disabled: disabled.Or(0) != 0})
	}
	if len(out) == 0 {
		return within(src, "/sys/devices/system/cpu", fact.Missing[[]IdleState](fact.Absent, idleDir, "the kernel manages no idle states"))
	}
	return fact.Of(out, idleDir)
}
