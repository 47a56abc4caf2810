package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
)

// rules says by which preset and policy the node was judged.
func (p *page) rules(r checks.Rules) {
	say := func(text string) {
		for _, l := range wrap(text, p.textWidth()) {
			p.line(p.paint(dim, l))
		}
	}
	if r.Preset != "" {
		say(fmt.Sprintf("preset %s (%s)", r.Preset, r.PresetTitle))
	} else if r.Note != "" {
		say(r.Note)
	}
	if !r.Policy {
		return
	}
	text := "judged by a policy"
	if len(r.Off) > 0 {
		text += "; off: " + strings.Join(r.Off, ", ")
	}
	if len(r.Severity) > 0 {
		var list []string
		for id, s := range r.Severity {
			list = append(list, id+" "+string(s))
		}
		slices.Sort(list)
		text += "; severity: " + strings.Join(list, ", ")
	}
	say(text)
}

// split tells findings that a waiver accepts from the others.
func split(findings []checks.Finding) (open, waived []checks.Finding) {
	for _, f := range findings {
		if f.Waived != nil {
			waived = append(waived, f)
		} else {
			open = append(open, f)
		}
	}
	return open, waived
}

// waivers draws what was accepted, until when and why, and the waivers that
// accept nothing any more.
func (p *page) waivers(list []checks.WaiverUse, waived []checks.Finding) {
	if len(list) == 0 {
		return
	}
	p.blank()
	for _, f := range waived {
		label := fmt.Sprintf("%s WAIVED until %s  ", p.mark(f.Verdict), f.Waived.Expires)
		p.para(label, fmt.Sprintf("%s, %s (%s): %s; reason: %s", f.Check, f.Subject, strings.ToLower(verdictWord(f.Verdict)), f.Message, f.Waived.Reason))
	}
	for _, w := range list {
		about := fmt.Sprintf("%s, %s (%s)", w.Check, w.Subject, w.Reason)
		switch w.State {
		case checks.WaiverExpired:
			p.para(p.mark(checks.Warn)+" ", fmt.Sprintf("waiver expired on %s, not applied: %s", w.Expires, about))
		case checks.WaiverUnused:
			p.para(p.mark(checks.Info)+" ", "waiver without a finding: "+about)
		case checks.WaiverApplied:
		}
	}
}

func verdictWord(v checks.Verdict) string {
	if w := verdictWords[v]; w != "" {
		return w
	}
	return v.String()
}
