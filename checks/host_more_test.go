package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/topo"
)

func module(name, version string) host.Module {
	m := host.Module{Name: name}
	if version != "" {
		m.Version = known(version)
	}
	return m
}

func TestNUMABalancing(t *testing.T) {
	on := func(m *topo.Machine) { m.Host.NUMABalancing.V = 1 }
	runCases(t, "numa-balancing", []verdictCase{
		{"off", nil, "node", Pass, "off", ""},
		{"on", on, "node", Warn, "is on (1)", "sysctl kernel.numa_balancing=0"},
		{"one node", all2(on, func(m *topo.Machine) { m.Host.NUMA.V = []host.NUMANode{{CPUs: "0-31"}, {ID: 1}} }), "node", NotApplicable, "one memory node", ""},
		{"kernel without", func(m *topo.Machine) { m.Host.NUMABalancing = absent[int]() }, "node", NotApplicable, "none", ""},
		{"no GPU", all2(on, func(m *topo.Machine) { m.GPU.GPUs = nil }), "node", NotApplicable, "GPU nodes", ""},
		{"nodes not seen", all2(on, func(m *topo.Machine) { denied(&m.Host.NUMA) }), "node", Unknown, "may not be read", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.NUMABalancing) }, "node", Unknown, "may not be read", ""},
		{"no nodes shown", all2(on, func(m *topo.Machine) { m.Host.NUMA = absent[[]host.NUMANode]() }), "node", Unknown, "no memory nodes", ""},
	})
}

func TestCPUPower(t *testing.T) {
	idle := func(list ...host.IdleState) func(*topo.Machine) {
		return func(m *topo.Machine) { m.Host.CPU.Idle.V = list }
	}
	runCases(t, "cpu-power", []verdictCase{
		{"good", nil, "node", Pass, "no deep sleep", ""},
		{"powersave", func(m *topo.Machine) { m.Host.CPU.Governor.V = "powersave" }, "node", Info, "governor powersave", ""},
		{"deep sleep", idle(host.IdleState{Name: "C6", LatencyUs: 290}), "node", Info, "C6 (290 us)", ""},
		{"deep sleep off", idle(host.IdleState{Name: "C6", LatencyUs: 290, Disabled: true}), "node", Pass, "", ""},
		{"at the threshold", idle(host.IdleState{Name: "C1E", LatencyUs: 20}), "node", Pass, "", ""},
		{"guest", func(m *topo.Machine) {
			m.Host.CPU.Governor, m.Host.CPU.Idle = absent[string](), absent[[]host.IdleState]()
		}, "node", NotApplicable, "below this kernel", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.CPU.Idle) }, "node", Unknown, "may not be read", ""},
		{"no governor here", func(m *topo.Machine) { m.Host.CPU.Governor = absent[string]() }, "node", Pass, "", ""},
		{"no idle states here", func(m *topo.Machine) { m.Host.CPU.Idle = absent[[]host.IdleState]() }, "node", Pass, "", ""},
	})
}

func TestHugePages(t *testing.T) {
	runCases(t, "huge-pages", []verdictCase{
		{"none", nil, "node", Info, "does not need them", ""},
		{"some", func(m *topo.Machine) { m.Host.HugePages.V = 512 }, "node", Pass, "512", ""},
		{"kernel without", func(m *topo.Machine) { m.Host.HugePages = absent[int]() }, "node", NotApplicable, "none", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.HugePages) }, "node", Unknown, "may not be read", ""},
	})
}

func TestLockdown(t *testing.T) {
	runCases(t, "lockdown", []verdictCase{
		{"off", nil, "node", Pass, "off", ""},
		{"integrity", func(m *topo.Machine) { m.Host.Lockdown.V = "integrity" }, "node", Info, "integrity: setpci", ""},
		{"kernel without", func(m *topo.Machine) { m.Host.Lockdown = absent[string]() }, "node", NotApplicable, "shows no lockdown", ""},
		{"not seen", func(m *topo.Machine) { denied(&m.Host.Lockdown) }, "node", Unknown, "may not be read", ""},
	})
}
