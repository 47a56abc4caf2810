package checks

import (
	"fmt"
	"math"

	"github.com/gdrcheck/gdrcheck/internal/host"
)

var memlock = Check{
	ID: "memlock", Title: "processes may lock enough memory", Area: AreaHost, Severity: SeverityWarning,
	Why: "Registering memory locks it. With the usual default of 8 MiB ibv_reg_mr and queue creation answer ENOMEM (\"Cannot allocate memory\") although memory is free.",
	Fix: []string{"Log-ins: printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/90-rdma.conf", "Services: LimitMEMLOCK=infinity in the unit, with: sudo systemctl edit SERVICE", "Containers: docker run --ulimit memlock=-1:-1"},
	Refs: []string{
		"https://man7.org/linux/man-pages/man2/getrlimit.2.html",
		"https://github.com/NVIDIA/nccl-tests/issues/206",
		"https://slurm.schedmd.com/faq.html#memlock",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		lim, ok := Need(c, "memlock limit", c.Machine.Host.Limits)
		c.Want("unlimited, or %s at least", showBytes(c.Thresholds.MemlockMinBytes))
		const capIPCLock = 1 << 14 // include/uapi/linux/capability.h
		switch {
		case !ok:
			c.Unknown("cannot tell: the process has no memlock limit to read")
		case lowService(c) != nil:
			s := lowService(c)
			c.Row(s.Name+"'s memlock limit", showBytes(s.Memlock.V), fmt.Sprintf("/proc/%d/limits", s.PID))
			c.Want("unlimited")
			c.Warn("%s, which hands its limits to its jobs, may lock only %s", s.Name, showBytes(s.Memlock.V))
			c.Fix(fmt.Sprintf("printf '[Service]\\nLimitMEMLOCK=infinity\\n' | sudo install -D -m 644 /dev/stdin /etc/systemd/system/%s.service.d/memlock.conf", s.Name),
				"sudo systemctl daemon-reload && sudo systemctl restart "+s.Name)
			if s.Name == "slurmd" {
				c.Fix("In slurm.conf: PropagateResourceLimitsExcept=MEMLOCK, or srun hands down the limit of the log-in shell")
			}
		case lim.MemlockSoft == math.MaxUint64:
			c.seeServices()
			c.Pass("unlimited")
		case lim.MemlockSoft >= c.Thresholds.MemlockMinBytes:
			c.seeServices()
			c.Pass("%s", showBytes(lim.MemlockSoft))
		case lim.CapEff&capIPCLock != 0:
			c.Info("%s, which does not bind this process (CAP_IPC_LOCK); a user's job has its own limit", showBytes(lim.MemlockSoft))
		default:
			c.Warn("a process like this one may lock only %s", showBytes(lim.MemlockSoft))
			c.Unsure("this is the limit of the shell that started gdrcheck; a job's is set by its launcher: run gdrcheck check --only memlock inside a job")
			fixMemlock(c, lim)
		}
	},
}

// lowService is a service that starts jobs with too low a limit. Container
// engines are not judged: each container is given a limit of its own.
func lowService(c *Case) *host.Service {
	for i, s := range c.Machine.Host.Services {
		if n, known := s.Memlock.Get(); known && startsJobs(s) && n < c.Thresholds.MemlockMinBytes {
			return &c.Machine.Host.Services[i]
		}
	}
	return nil
}

func startsJobs(s host.Service) bool { return s.Name == "slurmd" || s.Name == "pbs" }

func (c *Case) seeServices() {
	for _, s := range c.Machine.Host.Services {
		if startsJobs(s) {
			mustSee(c, s.Name+"'s memlock limit", s.Memlock)
		}
	}
}

func fixMemlock(c *Case, lim host.Limits) {
	if c.Platform.Container != "" {
		c.Fix("Start the container with --ulimit memlock=-1:-1 (Kubernetes: set it in containerd's LimitMEMLOCK, or add the capability IPC_LOCK)")
		return
	}
	if lim.MemlockHard >= c.Thresholds.MemlockMinBytes {
		c.Fix("In this shell the limit may be raised at once: ulimit -l " + hardArg(lim.MemlockHard))
	}
	c.Fix("Log-ins: printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/90-rdma.conf, then log in anew (* leaves root out)",
		"Slurm: LimitMEMLOCK=infinity in slurmd's unit (sudo systemctl edit slurmd) and PropagateResourceLimitsExcept=MEMLOCK; then restart slurmd")
}

func hardArg(hard uint64) string {
	if hard == math.MaxUint64 {
		return "unlimited"
	}
	return "hard"
}
