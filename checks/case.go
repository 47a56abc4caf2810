package checks

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Case is one check at work on one subject. A check reads facts through Need
// and See, then gives one verdict.
type Case struct {
	*Node
	Subject Subject

	check   *Check
	finding Finding
	decided bool
}

// stop ends a check from inside Need.
type stop struct{}

// Need returns a fact and adds its evidence row. Known and Absent (false) come
// back; every other state ends the check for this subject, since nothing can be
// judged on a fact that was not seen: Denied, Failed and NotCollected as
// Unknown, Unsupported as the check declares.
//
// dir is the directory that the fact's source is relative to; left out, that of
// the subject's NIC, else of its PCI function.
func Need[T any](c *Case, name string, v fact.Value[T], dir ...string) (T, bool) {
	got, state := See(c, name, v, dir...)
	switch state {
	case fact.Known:
		return got, true
	case fact.Absent:
		return got, false
	case fact.Unsupported:
		if c.check.UnsupportedIsNotApplicable {
			c.NotApplicable("%s not supported here%s", name, because(v.Reason))
			panic(stop{})
		}
		c.Unknown("cannot tell: %s not supported here%s", name, because(v.Reason))
	case fact.Denied:
		c.Unknown("cannot tell: %s may not be read%s", name, because(v.Reason))
	case fact.Failed:
		c.Unknown("cannot tell: reading %s failed%s", name, because(v.Reason))
	case fact.NotCollected:
		c.Unknown("cannot tell: %s not collected%s", name, because(v.Reason))
	}
	c.Fix(c.howToSee(state)...)
	panic(stop{})
}

// See returns a fact with its state and adds its evidence row; it never ends
// the check. For checks that weigh several facts against each other.
func See[T any](c *Case, name string, v fact.Value[T], dir ...string) (T, fact.State) {
	e := Evidence{Name: name, Source: c.source(v.Source, dir...)}
	if v.State == fact.Known {
		e.Got = show(v.V)
	} else {
		e.Got = strings.ReplaceAll(v.State.String(), "_", " ")
		if v.State != fact.Absent && v.Reason != "" {
			e.Got += " (" + v.Reason + ")"
		}
	}
	c.finding.Evidence = append(c.finding.Evidence, e)
	return v.V, v.State
}

// mustSee is for a fact that changes a verdict where there is one: it ends the
// check where the fact was not seen, as Need does, and leaves no trace where it
// was, or where this machine or driver has no such thing (false).
func mustSee[T any](c *Case, name string, v fact.Value[T], dir ...string) (T, bool) {
	if notSeen(v.State) {
		Need(c, name, v, dir...)
	}
	return v.Get()
}

// notSeen: there may be such a thing, and nobody saw it.
func notSeen(s fact.State) bool {
	return s == fact.Denied || s == fact.Failed || s == fact.NotCollected
}

// none says that there is nothing to judge; where a part of the machine was not
// collected, that cannot be told.
func (c *Case) none(format string, args ...any) {
	if why := c.incomplete(); why != "" {
		c.Unknown("cannot tell whether there is anything to judge: %s", why)
		return
	}
	c.NotApplicable(format, args...)
}

// Row adds an evidence row for something derived rather than read.
func (c *Case) Row(name, got, source string) {
	c.finding.Evidence = append(c.finding.Evidence, Evidence{Name: name, Got: got, Source: source})
}

// Want says what the last evidence row should have been.
func (c *Case) Want(format string, args ...any) {
	if n := len(c.finding.Evidence); n > 0 {
		c.finding.Evidence[n-1].Want = fmt.Sprintf(format, args...)
	}
}

// Pass says that the check holds.
func (c *Case) Pass(format string, args ...any) { c.decide(Pass, format, args...) }

// Warn says that it works with a cost, or perhaps not.
func (c *Case) Warn(format string, args ...any) { c.decide(Warn, format, args...) }

// Fail says that it does not work, or not as it should.
func (c *Case) Fail(format string, args ...any) { c.decide(Fail, format, args...) }

// Info states something that is neither good nor bad.
func (c *Case) Info(format string, args ...any) { c.decide(Info, format, args...) }

// NotApplicable says that the check does not concern this subject.
func (c *Case) NotApplicable(format string, args ...any) { c.decide(NotApplicable, format, args...) }

// Unknown says that the facts do not suffice for a verdict, and why.
func (c *Case) Unknown(format string, args ...any) { c.decide(Unknown, format, args...) }

// Fix adds steps and commands that hold for this very machine.
func (c *Case) Fix(lines ...string) { c.finding.Fix = append(c.finding.Fix, lines...) }

// Unsure says why the verdict may be wrong and how to make sure.
func (c *Case) Unsure(format string, args ...any) { c.finding.Unsure = fmt.Sprintf(format, args...) }

// Lower lowers the finding's severity for a subject that matters less than the
// check's usual ones (the port of a storage NIC). It never raises it.
func (c *Case) Lower(s Severity) {
	c.finding.Severity = slices.MinFunc([]Severity{c.finding.Severity, s}, func(a, b Severity) int {
		return severityRank(a) - severityRank(b)
	})
}

func severityRank(s Severity) int {
	switch s {
	case SeverityError:
		return 2
	case SeverityWarning:
		return 1
	case SeverityInfo:
	}
	return 0
}

// decide sets the verdict once: a check with two has a bug, and a bug must end
// as Unknown rather than as whichever verdict came last.
func (c *Case) decide(v Verdict, format string, args ...any) {
	if c.decided {
		panic(fmt.Sprintf("two verdicts: %q, then %q", c.finding.Message, fmt.Sprintf(format, args...)))
	}
	c.decided = true
	c.finding.Verdict, c.finding.Message = v, fmt.Sprintf(format, args...)
}

// judge runs the check on one subject. Whatever happens, one finding comes back.
func judge(check *Check, n *Node, s Subject) Finding {
	c := &Case{Node: n, Subject: s, check: check, finding: Finding{
		Check: check.ID, Subject: s.ID, Severity: check.Severity, Parts: s.Parts, Rung: check.Rung,
	}}
	c.run()
	f := c.finding
	switch f.Verdict {
	case Warn, Fail:
		if f.Fix == nil {
			f.Fix = check.Fix
		}
		f.Why, f.Refs = check.Why, check.Refs
	case Unknown:
		f.Why, f.Refs = check.Why, check.Refs
		if check.UnknownIs != "" {
			f.Severity = check.UnknownIs
		}
	case Pass, Info, NotApplicable, Blocked:
	}
	return f
}

func (c *Case) run() {
	defer func() {
		switch p := recover(); p.(type) {
		case nil, stop:
		default:
			c.finding.Verdict, c.finding.Fix, c.finding.Unsure = Unknown, nil, ""
			c.finding.Message = fmt.Sprintf("gdrcheck's own error in this check: %v", p)
			c.Row("panic", fmt.Sprint(p), culprit(debug.Stack()))
		}
	}()
	c.check.Eval(c)
	if !c.decided {
		c.Unknown("gdrcheck's own error: the check ended without a verdict")
	}
}

// culprit names the first stack frame below the panic, as file:line.
func culprit(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	for i, l := range lines {
		// The frame that panicked follows the last "panic(" and its file line.
		if strings.HasPrefix(l, "panic(") && i+3 < len(lines) {
			file, _, _ := strings.Cut(strings.TrimSpace(lines[i+3]), " ")
			return file[strings.LastIndex(file, "/")+1:]
		}
	}
	return ""
}

// howToSee says what makes a fact of this state visible.
func (c *Case) howToSee(state fact.State) []string {
	again := "gdrcheck check --only " + c.check.ID
	switch state {
	case fact.Denied:
		if c.Platform.Container != "" || c.Machine.Host.Root.Or(false) {
			return []string{"Run on the host itself as root: sudo " + again + " (in a container: docker run --privileged --net=host --pid=host)"}
		}
		return []string{"Run as root: sudo " + again}
	case fact.NotCollected:
		if c.Machine.Origin != "live" {
			return []string{"Run on the live node: sudo " + again}
		}
		return []string{"Run again with more time: sudo " + again + " --timeout 60s"}
	case fact.Failed:
		return []string{"See the kernel log around the read: dmesg -T | tail -50", "Run again: sudo " + again}
	case fact.Known, fact.Absent, fact.Unsupported:
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}
