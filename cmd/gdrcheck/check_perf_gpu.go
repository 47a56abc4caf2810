package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// withGPUs has each port measured in the memory of its nearest GPU, by the way that
// the registration found to work. Where none does, the port's pair says why.
func (t *nodeTest) withGPUs(ports []port) []port {
	for i := range ports {
		p := &ports[i]
		pair := &t.what.Rails[p.index]
		l := p.local
		if err := chooseMemoryIn(t.graph, t.machine, &l, perftest.MemoryAuto, perftest.WayAuto, ""); err != nil {
			pair.GPUNotMeasured, pair.GPUUnknown = cmp.Or(unseenGPUs(t.machine), err.Error()), true
			continue
		}
		if l.GPU == nil {
			continue
		}
		pair.GPU = fmt.Sprintf("GPU%d", l.GPU.Index)
		way, known, why := workingWay(t.machine, &l)
		if why != "" {
			pair.GPUNotMeasured, pair.GPUUnknown = why, !known
			continue
		}
		l.Way = way
		p.local, p.host = l, true
	}
	return ports
}

// workingWay is the first way by which the memory was registered with the device, in
// the order of perftest.Local.Ways, or why there is none; known: the registration was
// tried, and gdr-registration judges what came of it.
func workingWay(m *topo.Machine, l *perftest.Local) (way perftest.Way, known bool, why string) {
	probe, asked := fact.Value[rdma.RegistrationProbe]{}, false
	for i := range m.Registrations {
		if r := &m.Registrations[i]; r.GPU == l.GPU.Addr && r.Device == l.Device {
			probe, asked = r.Probe, true
		}
	}
	p, ok := probe.Get()
	switch {
	case !asked && slices.ContainsFunc(m.Problems, isRegistration):
		p := m.Problems[slices.IndexFunc(m.Problems, isRegistration)]
		return "", false, "whether its memory can be registered is not known: it could not be collected: " + p.Reason
	case !asked:
		return "", false, "whether its memory can be registered was not tried"
	case !ok:
		return "", false, "whether its memory can be registered is not known: " + probe.Reason
	case p.Failed != nil:
		return "", true, "its memory cannot be registered: " + callText(p.Failed, l.Device)
	}
	var failed []string
	for _, w := range p.Ways {
		switch {
		case w.Memory != l.Memory:
		case w.Error == nil:
			return perftest.Way(w.Way), true, ""
		default:
			failed = append(failed, w.Way+": "+callText(w.Error, l.Device))
		}
	}
	return "", true, "its memory cannot be registered: " + strings.Join(failed, "; ")
}

func isRegistration(p topo.Problem) bool { return p.Part == "registration" }

// callText is a failed call with its cause.
func callText(e *rdma.CallError, subject string) string {
	switch {
	case e.Code != 0:
		return perftest.LibraryFailure(e.Library, e.Call, e.Code, e.Name).Error()
	case e.Errno != 0:
		return perftest.CallFailure(e.Call, subject, syscall.Errno(e.Errno)).Error()
	}
	return e.Call + ": " + e.Text
}
