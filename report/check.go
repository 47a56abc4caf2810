package report

import (
	"io"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/topo"
)

// NewCheck puts a machine and what the checks say of it into a document.
func NewCheck(m *topo.Machine, o checks.Outcome, version string) *Check {
	return &Check{Machine: m, Verdict: o.Verdict, ExitCode: o.ExitCode}
}

// CheckTable draws the document for people.
func CheckTable(w io.Writer, doc *Check, s Style) error { return nil }
