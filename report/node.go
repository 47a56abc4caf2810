package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// nodeLine says in one line what the node is: its GPUs and NICs; its driver and
// kernel; what it runs on. What was not seen is left out or called unknown,
// never called none.
func nodeLine(m *topo.Machine) string {
	devices := slices.Concat(gpuNames(m), nicNames(m))
	parts := []string{strings.Join(devices, ", ")}
	var software []string
	if v, ok := m.GPU.NVIDIA.Version.Get(); ok {
		if f, ok := m.GPU.NVIDIA.Flavour.Get(); ok {
			v += " (" + f + ")"
		}
		software = append(software, "NVIDIA driver "+v)
	}
	if v, ok := m.GPU.AMD.Version.Get(); ok {
		software = append(software, "amdgpu "+v)
	}
	if v, ok := m.Host.KernelRelease.Get(); ok {
		software = append(software, "kernel "+v)
	}
	if len(software) > 0 {
		parts = append(parts, strings.Join(software, ", "))
	}
	if p := platform(m); p != "" {
		parts = append(parts, p)
	}
	return strings.Join(parts, "; ")
}

func gpuNames(m *topo.Machine) []string {
	var names tally
	for _, g := range m.GPU.GPUs {
		name := g.Name
		if name == "" {
			name = string(g.Vendor) + " GPU"
		}
		names.count(name)
	}
	switch {
	case len(names) > 0:
		return names.lines()
	case hasProblem(m, "pci", "gpu"):
		return []string{"GPUs unknown"}
	}
	return []string{"no GPU"}
}

func nicNames(m *topo.Machine) []string {
	var names tally
	software := 0
	for _, d := range m.RDMA.Devices {
		if d.Software {
			software++
			continue
		}
		names.count(nicName(m, d))
	}
	lines := names.lines()
	switch {
	case len(lines) > 0:
	case hasProblem(m, "rdma") || m.RDMA.Listed.State != fact.Known && m.RDMA.Listed.State != fact.Absent:
		lines = []string{"RDMA NICs unknown"}
	default:
		lines = []string{"no RDMA NIC"}
	}
	if software > 0 {
		lines = append(lines, fmt.Sprintf("%d software RDMA (no GPUDirect)", software))
	}
	return lines
}

func nicName(m *topo.Machine, d rdma.Device) string {
	if model, ok := d.Model.Get(); ok && model.Name != "" {
		return model.Name
	}
	if addr, ok := d.PCI.Get(); ok {
		for _, f := range m.PCI {
			if f.Address == addr && f.DeviceName != "" {
				return f.DeviceName
			}
		}
	}
	if t, ok := d.HCAType.Get(); ok && t != "" {
		return t
	}
	if drv, ok := d.Driver.Get(); ok && drv != "" {
		return drv + " NIC"
	}
	return "RDMA NIC"
}

func platform(m *topo.Machine) string {
	var parts []string
	vendor, product := m.Host.DMI.SysVendor.Or(""), m.Host.DMI.ProductName.Or("")
	if strings.HasPrefix(product, vendor) {
		vendor = ""
	}
	if name := strings.TrimSpace(vendor + " " + product); name != "" {
		parts = append(parts, name)
	}
	switch h := m.Host.Hypervisor; h.State {
	case fact.Known:
		if h.V == "unknown" { // a guest of something
			h.V = "virtual machine"
		} else {
			h.V += " guest"
		}
		parts = append(parts, h.V)
	case fact.Absent:
		parts = append(parts, "bare metal")
	case fact.NotCollected, fact.Unsupported, fact.Denied, fact.Failed:
	}
	if c, ok := m.Host.Container.Get(); ok {
		parts = append(parts, "seen from a "+c+" container")
	}
	return strings.Join(parts, ", ")
}

func hasProblem(m *topo.Machine, parts ...string) bool {
	return slices.ContainsFunc(m.Problems, func(p topo.Problem) bool { return slices.Contains(parts, p.Part) })
}

// tally counts names in the order they first came.
type tally []struct {
	name string
	n    int
}

func (t *tally) count(name string) {
	for i := range *t {
		if (*t)[i].name == name {
			(*t)[i].n++
			return
		}
	}
	*t = append(*t, struct {
		name string
		n    int
	}{name, 1})
}

func (t tally) lines() []string {
	var out []string
	for _, x := range t {
		out = append(out, fmt.Sprintf("%d x %s", x.n, x.name))
	}
	return out
}
