package checks

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/gdrcheck/gdrcheck/topo"
)

// MaxPolicyBytes bounds a policy file: a larger one is some other file.
const MaxPolicyBytes = 1 << 20

// Policy is what a site expects of its nodes, and how it weighs findings.
type Policy struct {
	// Preset is the platform whose preset holds; empty: the one that the machine
	// itself shows. PresetNone: none.
	Preset string `yaml:"preset"`
	Expect Expect `yaml:"expect"`
	// Network is the site's RoCE network; nil: nothing is said of it.
	Network *Network `yaml:"network"`
	// Severity replaces the severity of checks, by ID. At "error" a warning of
	// the check counts as a failure.
	Severity   map[string]Severity `yaml:"severity"`
	Thresholds Thresholds          `yaml:"thresholds"` // only what the file names is laid over the preset's
	Off        []string            `yaml:"off"`        // IDs or areas of checks that do not run
	Waivers    []Waiver            `yaml:"waivers"`

	thresholds overlay
}

// PresetNone is the name that stands for no preset.
const PresetNone = "none"

// Expect is what must be there. What is left out is not judged.
type Expect struct {
	GPUs GPUExpect `yaml:"gpus,omitempty"`
	NICs NICExpect `yaml:"nics,omitempty"`
	// Path is the worst class of the path from a GPU to its best NIC that is
	// accepted: PIX, PXB, PHB, NODE or SYS.
	Path topo.Class `yaml:"path,omitempty"`
}

// GPUExpect is what the node's GPUs must be.
type GPUExpect struct {
	Count *int   `yaml:"count,omitempty"` // exactly
	Min   int    `yaml:"min,omitempty"`   // at least
	Model string `yaml:"model,omitempty"` // part of the name of each
}

// NICExpect is what the node's RDMA NICs must be. Count and Min are of RDMA
// devices on hardware whose model is Model, where that is given; Rate and
// Firmware then bind those alone.
type NICExpect struct {
	Count    *int    `yaml:"count,omitempty"`     // exactly
	Min      int     `yaml:"min,omitempty"`       // at least
	Model    string  `yaml:"model,omitempty"`     // part of the model's name: "ConnectX-7"
	RateGbps float64 `yaml:"rate_gbps,omitempty"` // each port that is up, at least; 10^9 bit/s
	Firmware string  `yaml:"firmware,omitempty"`  // version; the first parts suffice: "28.39"
}

// Waiver accepts the findings of a check on some subjects until a day.
type Waiver struct {
	Check   string `yaml:"check" json:"check"`
	Subject string `yaml:"subject" json:"subject"` // as reports show it; * and ? stand for others
	Reason  string `yaml:"reason" json:"reason"`
	Expires string `yaml:"expires" json:"expires"` // last day on which it holds, UTC: 2026-12-31
}

// Holds says whether the waiver still holds at a time.
func (w Waiver) Holds(at time.Time) bool { return at.UTC().Format(time.DateOnly) <= w.Expires }

func (w Waiver) covers(f Finding) bool {
	ok, err := path.Match(w.Subject, f.Subject)
	return w.Check == f.Check && ok && err == nil
}

// PolicyError is a fault in a policy with its place.
type PolicyError struct {
	Line, Column int // from 1; 0: the file as a whole
	Message      string
}

// Error implements error: "3:5: unknown field".
func (e *PolicyError) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// ParsePolicy reads a policy, one YAML document. The error is a *PolicyError.
func ParsePolicy(text []byte) (p *Policy, err error) {
	// The YAML library panics on some broken documents; to the caller that is
	// one more way in which the file is no policy.
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, &PolicyError{Message: fmt.Sprintf("no YAML that can be read: %v", r)}
		}
	}()
	return parsePolicy(text)
}

func parsePolicy(text []byte) (*Policy, error) {
	if len(text) > MaxPolicyBytes {
		return nil, &PolicyError{Message: fmt.Sprintf("too large for a policy: more than %d bytes", MaxPolicyBytes)}
	}
	text, err := policyText(text)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, yamlError(err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, &PolicyError{Message: "want one YAML document with a policy in it"}
	}
	for _, odd := range []struct {
		node ast.NodeType
		name string
	}{{ast.AliasType, "aliases"}, {ast.AnchorType, "anchors"}, {ast.TagType, "tags"}, {ast.MergeKeyType, "merge keys"}} {
		// A policy needs none, and aliases make small files expand to huge ones.
		if found := ast.Filter(odd.node, file.Docs[0].Body); len(found) > 0 {
			return nil, faultAt(found[0], "%s are not taken in a policy", odd.name)
		}
	}
	if err := formed(file.Docs[0].Body, reflect.TypeFor[Policy]()); err != nil {
		return nil, err
	}
	var p Policy
	if err := strictYAML(text, &p); err != nil {
		return nil, yamlError(err)
	}
	var raw struct {
		Thresholds overlay `yaml:"thresholds"`
	}
	if err := yaml.Unmarshal(text, &raw); err != nil {
		return nil, yamlError(err)
	}
	p.thresholds = raw.Thresholds
	if err := p.valid(file); err != nil {
		return nil, err
	}
	return &p, nil
}

func yamlError(err error) error {
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		if t := ye.GetToken(); t != nil {
			message := strings.ReplaceAll(ye.GetMessage(), "character '\t' that", "a tab, which")
			return &PolicyError{Line: t.Position.Line, Column: t.Position.Column, Message: message}
		}
		return &PolicyError{Message: ye.GetMessage()}
	}
	return &PolicyError{Message: err.Error()}
}

func faultAt(n ast.Node, format string, args ...any) error {
	e := &PolicyError{Message: fmt.Sprintf(format, args...)}
	if t := n.GetToken(); t != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	return e
}

// valid checks what the YAML's form does not say, with the place of each fault.
func (p *Policy) valid(file *ast.File) error {
	fault := func(where []any, format string, args ...any) error {
		b := (&yaml.PathBuilder{}).Root()
		for _, w := range where {
			switch x := w.(type) {
			case string:
				b = b.Child(x)
			case int:
				b = b.Index(uint(x))
			}
		}
		if n, err := b.Build().FilterFile(file); err == nil {
			return faultAt(n, format, args...)
		}
		return &PolicyError{Message: fmt.Sprintf(format, args...)}
	}
	place := func(steps ...any) []any { return steps }
	if p.Preset != "" && p.Preset != PresetNone && presetNamed(p.Preset) == nil {
		return fault(place("preset"), "no preset is called %q; there are: %s", p.Preset, strings.Join(presetNames(), ", "))
	}
	for _, c := range []struct {
		where []any
		class topo.Class
	}{
		{place("expect", "path"), p.Expect.Path},
		{place("thresholds", "path_good"), p.Thresholds.PathGood}, {place("thresholds", "path_promised"), p.Thresholds.PathPromised},
	} {
		if c.class != "" && !slices.Contains(pathClasses, c.class) {
			return fault(c.where, "%q is no path class; there are: PIX, PXB, PHB, NODE, SYS", c.class)
		}
	}
	for _, c := range []struct {
		name     string
		count    *int
		min      int
		rateGbps float64
	}{{"gpus", p.Expect.GPUs.Count, p.Expect.GPUs.Min, 0}, {"nics", p.Expect.NICs.Count, p.Expect.NICs.Min, p.Expect.NICs.RateGbps}} {
		if c.count != nil && *c.count < 0 || c.min < 0 || c.rateGbps < 0 {
			return fault(place("expect", c.name), "a number below zero")
		}
		if c.count != nil && c.min > 0 {
			return fault(place("expect", c.name), "count is exact: no min beside it")
		}
	}
	if p.Network != nil {
		if key, message := p.Network.fault(); key != "" {
			return fault(place("network", key), "%s", message)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.Severity)) {
		if _, ok := Lookup(id); !ok {
			return fault(place("severity", id), "no check is called %q", id)
		}
		if s := p.Severity[id]; severityRank(s) == 0 && s != SeverityInfo {
			return fault(place("severity", id), "%q is no severity; there are: error, warning, info", s)
		}
	}
	for i, name := range p.Off {
		if !slices.ContainsFunc(all, func(c Check) bool { return named(c, name) }) {
			return fault(place("off", i), "no check or area is called %q", name)
		}
	}
	for i, w := range p.Waivers {
		_, known := Lookup(w.Check)
		_, badPattern := path.Match(w.Subject, "")
		_, badDay := time.Parse(time.DateOnly, w.Expires)
		switch {
		case w.Check == "" || w.Subject == "" || strings.TrimSpace(w.Reason) == "" || w.Expires == "":
			return fault(place("waivers", i), "a waiver wants check, subject, reason and expires")
		case !known:
			return fault(place("waivers", i, "check"), "no check is called %q", w.Check)
		case badPattern != nil:
			return fault(place("waivers", i, "subject"), "%q: %v", w.Subject, badPattern)
		case badDay != nil:
			return fault(place("waivers", i, "expires"), "%q is no day; want one as in 2026-12-31", w.Expires)
		}
	}
	return nil
}

var pathClasses = []topo.Class{topo.ClassPIX, topo.ClassPXB, topo.ClassPHB, topo.ClassNODE, topo.ClassSYS}

// overlay lays the policy's thresholds over those of the preset. An accepted
// path class is a promise, and no better one is asked for.
func (p *Policy) overlay(th *Thresholds) error {
	if p.Expect.Path != "" {
		th.PathGood, th.PathPromised = p.Expect.Path, p.Expect.Path
	}
	if len(p.thresholds) == 0 {
		return nil
	}
	return overlayThresholds(p.thresholds, th)
}

// adapt leaves out the checks that are off and gives the others their severity.
func (p *Policy) adapt(list []Check, rules *Rules) []Check {
	if p == nil {
		return list
	}
	rules.Policy, rules.Severity = true, p.Severity
	out := make([]Check, 0, len(list))
	for _, c := range list {
		if slices.ContainsFunc(p.Off, func(name string) bool { return named(c, name) }) {
			rules.Off = append(rules.Off, c.ID)
			continue
		}
		if s, ok := p.Severity[c.ID]; ok {
			c.Severity = s
		}
		out = append(out, c)
	}
	return out
}

// weigh makes a warning a failure where the policy gave the check severity error.
func (p *Policy) weigh(f Finding) Finding {
	if p != nil && p.Severity[f.Check] == SeverityError && f.Verdict == Warn && f.Severity == SeverityError {
		f.Verdict = Fail
	}
	return f
}

// waive marks the findings that a waiver accepts and says what became of each.
func (p *Policy) waive(findings []Finding, now time.Time) []WaiverUse {
	if p == nil {
		return nil
	}
	var out []WaiverUse
	for _, w := range p.Waivers {
		use := WaiverUse{Waiver: w, State: WaiverUnused}
		holds := w.Holds(now)
		for i := range findings {
			f := &findings[i]
			if !w.covers(*f) || f.Verdict != Fail && f.Verdict != Warn && f.Verdict != Unknown {
				continue
			}
			use.Findings++
			if holds && f.Waived == nil {
				f.Waived = &w
			}
		}
		switch {
		case !holds:
			use.State = WaiverExpired
		case use.Findings > 0:
			use.State = WaiverApplied
		}
		out = append(out, use)
	}
	return out
}

// rules says what the node is judged by.
func (n *Node) rules() Rules {
	if n.Preset != nil {
		return Rules{Preset: n.Preset.Name, PresetTitle: n.Preset.Title}
	}
	return Rules{Note: noPreset(n.Machine, n.chosenPreset)}
}

// promisedBy says for a message who promises a path.
func (n *Node) promisedBy() string {
	if n.Policy != nil && (n.Policy.Expect.Path != "" || n.Policy.Thresholds.PathPromised != "") {
		return "the policy says that"
	}
	return "on a " + n.Platform.Preset
}
