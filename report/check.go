package report

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// NewHeader opens a document on a machine.
func NewHeader(kind Kind, m *topo.Machine, version string) Header {
	return Header{
		SchemaVersion: SchemaVersion,
		Kind:          kind,
		Tool:          "gdrcheck",
		Version:       version,
		CollectedAt:   m.CollectedAt,
		Origin:        m.Origin,
		Simulated:     m.Simulated,
	}
}

// NewCheck puts a machine and what the checks say of it into a document, with
// what was measured, if anything was.
func NewCheck(m *topo.Machine, o checks.Outcome, results []*perftest.Result, rails []perftest.RailPair, version string) *Check {
	doc := &Check{
		Header:   NewHeader(KindCheck, m, version),
		Verdict:  o.Verdict,
		ExitCode: o.ExitCode,
		Summary:  Summary{Node: nodeLine(m), Counts: map[string]int{}},
		Findings: append([]checks.Finding{}, o.Findings...), // [] in JSON, not null
		Ladders:  append([]checks.Ladder{}, o.Ladders...),
		Rules:    o.Rules,
		NotSeen:  []string{},
		Machine:  m,
		Results:  results,
		Rails:    rails,
	}
	doc.Simulated = doc.Simulated || simulated(results)
	for v := checks.Unknown; v <= checks.Blocked; v++ {
		doc.Summary.Counts[v.String()] = o.Counts[v]
	}
	for _, f := range o.Findings {
		if f.Waived != nil {
			doc.Summary.Waived++
			continue
		}
		if f.Verdict == checks.Unknown && !slices.Contains(doc.NotSeen, f.Check) {
			doc.NotSeen = append(doc.NotSeen, f.Check)
		}
	}
	if len(doc.NotSeen) > 0 {
		doc.HowToSee = howToSee(m)
	}
	return doc
}

// howToSee says what would let the checks see more on this machine.
func howToSee(m *topo.Machine) string {
	root, rootKnown := m.Host.Root.Get()
	switch {
	case m.Origin != "live":
		return "run gdrcheck as root on the live machine to see them"
	case len(m.Problems) > 0:
		return "parts of the machine could not be collected; more time may help, as in --timeout 2m"
	case m.Host.Container.State == fact.Known:
		return "run on the host itself, or in a privileged container that mounts its /sys and /proc, to see them"
	case rootKnown && !root:
		return "run with sudo to see them"
	}
	return "the reason stands beside each"
}
