package checks

import (
	"fmt"
	"strings"
)

var cpuPower = Check{
	ID: "cpu-power", Title: "CPUs keep their clock and wake at once", Area: AreaHost, Severity: SeverityInfo,
	Why: "A CPU that lowers its clock or sleeps deeply adds microseconds to each message that it starts or answers. Bandwidth between GPUs hardly suffers; latency does.",
	Fix: []string{"sudo cpupower frequency-set -g performance", "No idle state that takes more than 20 us to leave: sudo cpupower idle-set -D 20"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/pm/cpufreq.html",
		"https://docs.kernel.org/admin-guide/pm/cpuidle.html",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		governor, hasGovernor := Need(c, "governor of CPU 0", c.Machine.Host.CPU.Governor)
		c.Want("performance")
		idle, hasIdle := Need(c, "idle states of CPU 0", c.Machine.Host.CPU.Idle)
		c.Want("none that takes more than %d us to leave", c.Thresholds.IdleMaxLatencyUs)
		var say []string
		if hasGovernor && governor != "performance" {
			say = append(say, "governor "+governor+" (for latency: sudo cpupower frequency-set -g performance)")
		}
		var deep []string
		for _, s := range idle {
			if !s.Disabled && s.LatencyUs > c.Thresholds.IdleMaxLatencyUs {
				deep = append(deep, fmt.Sprintf("%s (%d us)", s.Name, s.LatencyUs))
			}
		}
		if deep != nil {
			say = append(say, fmt.Sprintf("CPUs may sleep deeply: %s (for latency: sudo cpupower idle-set -D %d)", strings.Join(deep, ", "), c.Thresholds.IdleMaxLatencyUs))
		}
		switch {
		case say != nil:
			c.Info("%s", strings.Join(say, "; "))
		case !hasGovernor && !hasIdle:
			c.NotApplicable("managed below this kernel, or not shown here")
		default:
			c.Pass("no deep sleep, and the clock is not lowered")
		}
	},
}
