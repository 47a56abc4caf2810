package report

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/gdrcheck/gdrcheck/checks"
)

// What an admin sees, in this order, so that the screen's end answers first:
// what the node is; the ladder of each pair; failures, then warnings, each with
// evidence, reason and fix; what passed, in a line; what was not seen and how
// to see it; the verdict and what its exit code means.

// maxSubjects is how many different findings of one check are drawn in full; -v
// draws all.
const maxSubjects = 8

// CheckTable draws the document for people.
func CheckTable(w io.Writer, doc *Check, s Style) error {
	p := &page{Style: s}
	p.top(doc)
	p.ladders(doc)
	if len(doc.Rails) > 0 {
		p.blank()
		p.line(p.paint(bold, "measured:"))
		p.rails(doc.Rails, doc.Results)
	}
	open, waived := split(doc.Findings)
	groups := group(open)
	for _, v := range []checks.Verdict{checks.Fail, checks.Warn} {
		for _, g := range groups {
			if g.verdict == v {
				p.group(g)
			}
		}
	}
	p.waivers(doc.Rules.Waivers, waived)
	rest, aside := p.aside(groups)
	p.notes(rest)
	p.blank()
	p.folded(aside, checks.Info, "noted")
	p.folded(groups, checks.Pass, "passed")
	p.folded(groups, checks.Blocked, "not judged, since another check failed first")
	p.folded(groups, checks.NotApplicable, "not applicable here")
	p.notSeen(doc, groups)
	p.verdict(doc)
	_, err := io.WriteString(w, p.String())
	return err
}

func (p *page) top(doc *Check) {
	for _, l := range wrap(doc.Summary.Node, p.textWidth()) {
		p.line(p.paint(bold, l))
	}
	at := doc.CollectedAt.UTC().Format(time.RFC3339)
	about := fmt.Sprintf("%s, collected %s, gdrcheck %s", originText(doc.Header), at, clean(doc.Version))
	p.line(p.paint(dim, about))
	p.rules(doc.Rules)
	for _, problem := range doc.Machine.Problems {
		p.para(p.mark(checks.Unknown)+" ", problem.Part+" could not be collected: "+problem.Reason)
	}
}

func originText(h Header) string {
	text := map[string]string{"live": "live machine", "tree": "directory tree", "recording": "recording", "example": "example node"}[h.Origin]
	if text == "" {
		text = clean(h.Origin)
	}
	if h.Simulated {
		text += " (simulated)"
	}
	return text
}

// marks of the verdicts, for UTF-8 and for other locales.
var marks = map[checks.Verdict]struct {
	mark, ascii string
	ink         ink
}{
	checks.Pass:          {"✓", "+", green},
	checks.Warn:          {"!", "!", yellow},
	checks.Fail:          {"✗", "x", red},
	checks.Unknown:       {"?", "?", cyan},
	checks.Info:          {"i", "i", plain},
	checks.NotApplicable: {"-", "-", dim},
	checks.Blocked:       {"-", "-", dim},
}

// mark is one column wide and not coloured.
func (p *page) mark(v checks.Verdict) string {
	if p.ASCII {
		return marks[v].ascii
	}
	return marks[v].mark
}

// findings of one check with one verdict.
type findingGroup struct {
	check    string
	verdict  checks.Verdict
	findings []checks.Finding
}

func group(findings []checks.Finding) []findingGroup {
	var out []findingGroup
	for _, f := range findings {
		i := slices.IndexFunc(out, func(g findingGroup) bool { return g.check == f.Check && g.verdict == f.Verdict })
		if i < 0 {
			i = len(out)
			out = append(out, findingGroup{check: f.Check, verdict: f.Verdict})
		}
		out[i].findings = append(out[i].findings, f)
	}
	return out
}

var verdictWords = map[checks.Verdict]string{checks.Fail: "FAIL", checks.Warn: "WARN"}

func (p *page) group(g findingGroup) {
	head := fmt.Sprintf("%s %s  %s", p.mark(g.verdict), verdictWords[g.verdict], clean(g.check))
	if s := g.findings[0].Severity; s != checks.SeverityError {
		head += " (" + string(s) + ")"
	}
	p.blank()
	p.line(p.paint(bold, p.paint(marks[g.verdict].ink, head)))
	shown := alike(g.findings, p.Verbose)
	var hidden []checks.Finding
	if len(shown) > maxSubjects && !p.Verbose {
		hidden = slices.Concat(shown[maxSubjects:]...)
		shown = shown[:maxSubjects]
	}
	var first []checks.Finding // of each message
	var unsure, why, fix, refs []string
	for _, same := range shown {
		f := same[0]
		p.para("  ", subjects(same)+": "+f.Message)
		first = append(first, f)
		unsure, why, fix, refs = append(unsure, f.Unsure), append(why, f.Why), append(fix, f.Fix...), append(refs, f.Refs...)
		if others := fixedApart(same); others != nil {
			fix = append(fix, "Likewise for "+subjects(others)+" (-v writes out each)")
		}
	}
	if len(hidden) > 0 {
		p.para(fmt.Sprintf("  and %d more (-v draws them): ", len(hidden)), subjects(hidden))
	}
	p.evidence(first)
	p.list("  unsure: ", unsure, p.para)
	p.list("  why  ", why, p.para)
	p.list("  fix  ", fix, p.fix)
	p.list("  see  ", refs, p.para)
}

// alike gathers findings that say the same: one cause is told once, however
// many pairs it breaks. With each they all stay apart.
func alike(findings []checks.Finding, each bool) [][]checks.Finding {
	var out [][]checks.Finding
	for _, f := range findings {
		i := slices.IndexFunc(out, func(same []checks.Finding) bool { return same[0].Message == f.Message })
		if i < 0 || each {
			out = append(out, []checks.Finding{f})
			continue
		}
		out[i] = append(out[i], f)
	}
	return out
}

// fixedApart are the findings among those alike whose fix is not the first
// one's, as where it names the device.
func fixedApart(same []checks.Finding) []checks.Finding {
	var out []checks.Finding
	for _, f := range same[1:] {
		if !slices.Equal(f.Fix, same[0].Fix) {
			out = append(out, f)
		}
	}
	return out
}

// subjects lists what findings are about; what was measured more than once, which
// its number tells, stands there once.
func subjects(list []checks.Finding) string {
	var names []string
	first, times := map[string]int{}, map[string]int{}
	for _, f := range list {
		name := repeat.ReplaceAllString(f.Subject, "")
		if times[name]++; times[name] == 1 {
			first[name] = len(names)
			names = append(names, f.Subject)
		} else {
			names[first[name]] = fmt.Sprintf("%s (%d times)", name, times[name])
		}
	}
	if text, ok := byPort(names, all); ok {
		return text
	}
	return strings.Join(names, ", ")
}

func all(names []string) string { return strings.Join(names, ", ") }

var repeat = regexp.MustCompile(` \(\d+\)$`)

// evidence draws the rows of all findings in one table; where there are several
// findings, their subjects stand before their rows.
func (p *page) evidence(list []checks.Finding) {
	g := grid{head: []string{"evidence", "got", "want", "source"}, indent: 4}
	if len(list) > 1 {
		g.head = append([]string{"subject"}, g.head...)
	}
	for _, f := range list {
		subject := f.Subject
		for _, e := range f.Evidence {
			row := []string{e.Name, e.Got, e.Want, e.Source}
			if len(list) > 1 {
				row = append([]string{subject}, row...)
				subject = ""
			}
			g.add(row...)
		}
	}
	if len(g.rows) > 0 {
		p.table(g)
	}
}

// list draws the texts one after another, the label before the first and each once.
func (p *page) list(label string, texts []string, draw func(label, text string)) {
	seen := map[string]bool{"": true}
	for _, text := range texts {
		if seen[text] {
			continue
		}
		seen[text] = true
		draw(label, text)
		label = strings.Repeat(" ", len(label))
	}
}

// fix draws one step of a fix. A command stays on one line however long it is,
// so that it can be copied; a sentence wraps, but not the command at its end.
func (p *page) fix(label, text string) {
	text = clean(text)
	lead, command, split := strings.Cut(text, ": ")
	switch {
	case twwidth.Width(label+text) <= p.width(), !isSentence(text):
		p.line(label + text)
	case split && isCommand(command):
		p.para(label, lead+":")
		p.line(strings.Repeat(" ", len(label)+2) + command)
	default:
		p.para(label, text)
	}
}

// isSentence tells "Set it in the BIOS" from "setpci -s …" and "NAME=value command".
func isSentence(text string) bool {
	first, _, _ := strings.Cut(text, " ")
	return first != "" && first[0] >= 'A' && first[0] <= 'Z' && !strings.Contains(first, "=")
}

// isCommand knows the programs that fixes call. Where a sentence leads up to
// it, only a known one counts: "If not: reseat the card" is no command.
func isCommand(text string) bool {
	first, _, _ := strings.Cut(text, " ")
	return strings.ContainsAny(first, "=/_-") || slices.Contains([]string{
		"cat", "cp", "dcb", "devlink", "dmesg", "docker", "echo", "ethtool", "gdrcheck", "grep", "ibstat", "ip", "ls", "lspci", "modinfo",
		"modprobe", "mount", "numactl", "podman", "printf", "rdma", "rmmod", "sed", "setpci", "sudo", "sysctl", "systemctl",
		"ulimit", "uname", "unset", "apt", "dnf", "mst", "mlxconfig", "mlxfwmanager", "opensm", "sminfo", "ss", "tee", "test",
	}, first)
}

func (p *page) notes(groups []findingGroup) {
	if slices.ContainsFunc(groups, func(g findingGroup) bool { return g.verdict == checks.Info }) {
		p.blank()
		p.each(groups, checks.Info)
	}
}

// each draws the findings of one verdict in a line each, those alike in one.
func (p *page) each(groups []findingGroup, v checks.Verdict) {
	for _, g := range groups {
		if g.verdict != v {
			continue
		}
		for _, same := range alike(g.findings, p.Verbose) {
			names := make([]string, len(same))
			for i, f := range same {
				names[i] = f.Subject
			}
			who, ok := byPort(names, few)
			if !ok {
				who = few(names)
			}
			p.para(p.paint(marks[v].ink, p.mark(v))+" ", fmt.Sprintf("%s, %s: %s", g.check, who, same[0].Message))
		}
	}
}

// aside tells the notes that explain no mark in a ladder from all else. On a healthy
// node they would be in the way: without Verbose they are folded.
func (p *page) aside(groups []findingGroup) (rest, aside []findingGroup) {
	for _, g := range groups {
		if !p.Verbose && g.verdict == checks.Info && g.findings[0].Rung == checks.RungNone {
			aside = append(aside, g)
		} else {
			rest = append(rest, g)
		}
	}
	return rest, aside
}

// folded draws the findings of one verdict as a line, and with Verbose one by one.
func (p *page) folded(groups []findingGroup, v checks.Verdict, what string) {
	n := 0
	var names []string
	g := grid{head: []string{"check", "subject", ""}, indent: 2}
	for _, gr := range groups {
		if gr.verdict != v {
			continue
		}
		n += len(gr.findings)
		name := gr.check
		if len(gr.findings) > 1 {
			name += fmt.Sprintf("(%d)", len(gr.findings))
		}
		names = append(names, name)
		for _, f := range gr.findings {
			g.add(f.Check, f.Subject, f.Message)
		}
	}
	switch mark := p.paint(marks[v].ink, p.mark(v)); {
	case n == 0:
	case p.Verbose:
		p.line(fmt.Sprintf("%s %d %s", mark, n, what))
		p.table(g)
		p.blank()
	default:
		p.para(mark+" ", fmt.Sprintf("%d %s (-v lists them): %s", n, what, strings.Join(names, ", ")))
	}
}

func (p *page) notSeen(doc *Check, groups []findingGroup) {
	if len(doc.NotSeen) == 0 {
		return
	}
	p.blank()
	p.para(p.mark(checks.Unknown)+" ", fmt.Sprintf("not seen: %d %s; %s", len(doc.NotSeen), plural("check", len(doc.NotSeen)), doc.HowToSee))
	g := grid{head: []string{"check", "subject", "why not"}, indent: 2}
	for _, r := range reasons(groups, p.Verbose) {
		subject := r.subjects[0]
		if n := len(r.subjects); n > 1 {
			subject += fmt.Sprintf(" and %d more", n-1)
		}
		g.add(strings.Join(r.checks, ", "), subject, r.message)
	}
	p.table(g)
}

// reason is why something was not seen: of which checks and subjects.
type reason struct {
	message          string
	checks, subjects []string
}

// reasons gathers what was left unknown: checks with the same reason in one,
// each check's subjects under its first one's reason. each keeps all apart.
func reasons(groups []findingGroup, each bool) []reason {
	var out []reason
	for _, g := range groups {
		if g.verdict != checks.Unknown {
			continue
		}
		for i, f := range g.findings {
			at := slices.IndexFunc(out, func(r reason) bool { return r.message == f.Message })
			switch {
			case each:
				out = append(out, reason{f.Message, []string{f.Check}, []string{f.Subject}})
			case i > 0:
				last := slices.IndexFunc(out, func(r reason) bool { return slices.Contains(r.checks, f.Check) })
				out[last].subjects = appendNew(out[last].subjects, f.Subject)
			case at >= 0:
				out[at].checks = append(out[at].checks, f.Check)
				out[at].subjects = appendNew(out[at].subjects, f.Subject)
			default:
				out = append(out, reason{f.Message, []string{f.Check}, []string{f.Subject}})
			}
		}
	}
	return out
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func (p *page) verdict(doc *Check) {
	p.blank()
	var counts []string
	for _, v := range []checks.Verdict{checks.Fail, checks.Warn, checks.Unknown, checks.Pass} {
		if n := doc.Summary.Counts[v.String()]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, countWords[v])+inChecks(doc.Findings, v, n))
		}
	}
	if n := doc.Summary.Waived; n > 0 {
		counts = append(counts, fmt.Sprintf("%d waived", n))
	}
	word, meaning := exitText(doc)
	word = strings.ToUpper(word)
	switch {
	case counts == nil && doc.Verdict == checks.Unknown:
		counts, meaning = []string{"nothing was judged"}, "no check applies here"
	case counts == nil:
		counts = []string{fmt.Sprintf("%d noted", doc.Summary.Counts[checks.Info.String()])}
	}
	text := fmt.Sprintf("%s: %s; exit code %d", word, strings.Join(counts, ", "), doc.ExitCode)
	if doc.Verdict != checks.Fail || doc.Summary.Counts[checks.Fail.String()] == 0 {
		text += ": " + meaning // otherwise the failures above say it
	}
	for i, l := range wrap(text, p.textWidth()) {
		if i == 0 {
			l = p.paint(bold, p.paint(marks[doc.Verdict].ink, word)) + strings.TrimPrefix(l, word)
		}
		p.line(l)
	}
}

// inChecks says how many blocks above n failures or warnings stand in, where
// that is another number.
func inChecks(findings []checks.Finding, v checks.Verdict, n int) string {
	if v != checks.Fail && v != checks.Warn {
		return ""
	}
	ids := map[string]bool{}
	for _, f := range findings {
		if f.Verdict == v && f.Waived == nil {
			ids[f.Check] = true
		}
	}
	if len(ids) == n {
		return ""
	}
	return fmt.Sprintf(" in %d %s", len(ids), plural("check", len(ids)))
}

var countWords = map[checks.Verdict]string{
	checks.Fail: "failed", checks.Warn: "warned", checks.Unknown: "not seen", checks.Pass: "passed",
}

// exitText looks up what the exit code table says of the document's verdict.
func exitText(doc *Check) (word, meaning string) {
	e := checks.ExitOf(checks.Outcome{Verdict: doc.Verdict}.Result())
	return string(e.Result), e.Meaning
}
