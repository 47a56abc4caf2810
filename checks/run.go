package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Options choose checks and how strictly they count.
type Options struct {
	Only []string // IDs or areas; empty: all
	Skip []string // IDs or areas, taken out after Only
	// Strict makes warnings fail the node.
	Strict bool
	// Results are measurements to judge beside the machine. Without any, the
	// checks of the area perf are left out unless Only names them.
	Results []*perftest.Result
	// Rails are the ports that were to be measured, whatever came of it.
	Rails []perftest.RailPair
	// Policy is what the site expects; nil: no policy.
	Policy *Policy
	// Network is what is said of the RoCE network, before the policy's own; nil:
	// what the policy says.
	Network *Network
	// Preset is the name of the preset that holds, before the policy's own;
	// PresetNone: none; empty: what policy or machine say.
	Preset string
}

func (o Options) network() *Network {
	if o.Network == nil && o.Policy != nil {
		return o.Policy.Network
	}
	return o.Network
}

func (o Options) preset() string {
	if o.Preset == "" && o.Policy != nil {
		return o.Policy.Preset
	}
	return o.Preset
}

// Validate says whether every name in Only and Skip is a check's or an area's,
// before a machine is collected for nothing. The error is an UnknownNameError.
func (o Options) Validate() error {
	if name := o.Preset; name != "" && name != PresetNone && presetNamed(name) == nil {
		return &UnknownPresetError{Name: name, Valid: presetNames()}
	}
	_, err := choose(all, o)
	return err
}

// UnknownPresetError is a preset that does not exist.
type UnknownPresetError struct {
	Name  string
	Valid []string
}

// Error implements error.
func (e *UnknownPresetError) Error() string {
	return fmt.Sprintf("no preset is called %q; there are: %s", e.Name, strings.Join(e.Valid, ", "))
}

// UnknownNameError is a name in Only or Skip that no check and no area has.
type UnknownNameError struct {
	Name  string
	Valid []string // areas, then IDs
}

// Error implements error.
func (e *UnknownNameError) Error() string {
	return fmt.Sprintf("no check or area is called %q; there are: %s", e.Name, strings.Join(e.Valid, ", "))
}

// Run judges a machine. The error is for the options alone (UnknownNameError);
// whatever the machine is like, an Outcome comes back.
func Run(m *topo.Machine, opt Options) (Outcome, error) {
	chosen, err := choose(all, opt)
	if err != nil {
		return Outcome{}, err
	}
	n, err := NewNode(m, opt)
	if err != nil {
		return Outcome{}, err
	}
	n.Results, n.Rails = opt.Results, opt.Rails
	return run(n, chosen, opt.Strict), nil
}

// NewNode derives from a machine what checks look at. An error is a fault in
// the embedded thresholds or in the options.
func NewNode(m *topo.Machine, opt Options) (*Node, error) {
	g := topo.New(m)
	n := &Node{Machine: m, Graph: g, Platform: derivePlatform(m), Policy: opt.Policy, chosenPreset: opt.preset()}
	if _, err := presets(); err != nil {
		return nil, err
	}
	switch name := opt.preset(); name {
	case "":
		n.Preset = findPreset(m, n.Platform)
	case PresetNone:
	default:
		if n.Preset = presetNamed(name); n.Preset == nil {
			return nil, &UnknownPresetError{Name: name, Valid: presetNames()}
		}
	}
	var err error
	if n.Thresholds, err = defaultThresholds(); err != nil {
		return nil, err
	}
	if n.Network, err = opt.network().profile(); err != nil {
		return nil, err
	}
	if n.Preset != nil {
		n.Platform.Preset = n.Preset.Name
		if err := n.Preset.overlay(&n.Thresholds); err != nil {
			return nil, err
		}
	}
	if n.Policy != nil {
		err = n.Policy.overlay(&n.Thresholds)
	}
	return n, err
}

func run(n *Node, chosen []Check, strict bool) Outcome {
	rules := n.rules()
	chosen = n.Policy.adapt(chosen, &rules)
	byCheck := map[string][]Finding{}
	for _, i := range evalOrder(chosen) {
		c := &chosen[i]
		byCheck[c.ID] = runCheck(n, c, byCheck)
	}
	o := Outcome{Findings: []Finding{}, Counts: map[Verdict]int{}}
	for _, c := range chosen {
		o.Findings = append(o.Findings, byCheck[c.ID]...)
	}
	rules.Waivers = n.Policy.waive(o.Findings, n.Machine.CollectedAt)
	o.Rules = rules
	for _, f := range o.Findings {
		if f.Waived == nil {
			o.Counts[f.Verdict]++
		}
	}
	o.Verdict = overall(o.Findings, strict)
	o.ExitCode = ExitOf(o.Result()).Code
	o.Ladders = ladders(n, o.Findings)
	return o
}

func runCheck(n *Node, c *Check, done map[string][]Finding) []Finding {
	subjects, broken := subjectsOf(n, c)
	if broken != "" {
		return []Finding{{Check: c.ID, Subject: nodeID, Severity: c.Severity, Rung: c.Rung,
			Message: "gdrcheck's own error in this check: " + broken}}
	}
	if len(subjects) == 0 {
		return []Finding{nothingToJudge(n, c)}
	}
	out := make([]Finding, 0, len(subjects))
	for _, s := range subjects {
		if by := blocker(c, s, done); by != "" {
			out = append(out, Finding{Check: c.ID, Subject: s.ID, Verdict: Blocked, Severity: c.Severity,
				Message: "not judged: " + by + " comes first", BlockedBy: by, Parts: s.Parts, Rung: c.Rung})
			continue
		}
		out = append(out, n.Policy.weigh(judge(c, n, s)))
	}
	return out
}

func subjectsOf(n *Node, c *Check) (subjects []Subject, broken string) {
	defer func() {
		if p := recover(); p != nil {
			broken = fmt.Sprint(p)
		}
	}()
	return c.Subjects(n), ""
}

// nothingToJudge stands for a check without subjects. Where a part of the
// machine could not be collected, the subjects may only have been overlooked.
func nothingToJudge(n *Node, c *Check) Finding {
	f := Finding{Check: c.ID, Subject: nodeID, Verdict: NotApplicable, Severity: c.Severity,
		Message: "this node has nothing that the check judges", Rung: c.Rung}
	if why := n.incomplete(); why != "" {
		f.Verdict = Unknown
		f.Message = "cannot tell whether this node has anything to judge: " + why
	}
	return f
}

// incomplete names the parts that devices come from and that were not collected,
// and the devices whose place or kind was not seen.
func (n *Node) incomplete() string {
	var parts []string
	for _, p := range n.Machine.Problems {
		if slices.Contains([]string{"pci", "rdma", "gpu"}, p.Part) {
			parts = append(parts, p.Part+" could not be collected ("+p.Reason+")")
		}
	}
	unseen := func(what string, state fact.State, reason string) {
		if reason != "" && notSeen(state) {
			parts = append(parts, what+" was not seen"+because(reason))
		}
	}
	for _, d := range n.Machine.RDMA.Devices {
		if !d.Software {
			unseen("the PCI function of "+d.Name, d.PCI.State, d.PCI.Reason)
		}
	}
	for _, f := range n.Machine.PCI {
		unseen("the class of "+f.Address.String(), f.Class.State, f.Class.Reason)
	}
	return strings.Join(parts, "; ")
}

// blocker returns "check subject" of a failure that c depends on and that
// concerns this subject: of the node, or of devices that are all part of it.
// A check that was itself blocked passes its own blocker on.
func blocker(c *Check, s Subject, done map[string][]Finding) string {
	for _, id := range c.DependsOn {
		for _, f := range done[id] {
			if f.Verdict != Fail && f.Verdict != Blocked || !within(f.Parts, s.Parts) {
				continue
			}
			if f.Verdict == Blocked {
				return f.BlockedBy
			}
			return f.Check + " " + f.Subject
		}
	}
	return ""
}

// within says whether every part is among those of whole; the node (no parts)
// is within everything.
func within(parts, whole []string) bool {
	for _, p := range parts {
		if !slices.Contains(whole, p) {
			return false
		}
	}
	return true
}

// evalOrder returns the indexes of list so that each check comes after those
// it depends on; otherwise in list's own order.
func evalOrder(list []Check) []int {
	order := make([]int, 0, len(list))
	seen := map[string]bool{}
	var visit func(i int)
	visit = func(i int) {
		if seen[list[i].ID] {
			return
		}
		seen[list[i].ID] = true
		for j := range list {
			if slices.Contains(list[i].DependsOn, list[j].ID) {
				visit(j)
			}
		}
		order = append(order, i)
	}
	for i := range list {
		visit(i)
	}
	return order
}

func choose(list []Check, opt Options) ([]Check, error) {
	for _, name := range slices.Concat(opt.Only, opt.Skip) {
		if !slices.ContainsFunc(list, func(c Check) bool { return named(c, name) }) {
			return nil, &UnknownNameError{Name: name, Valid: names(list)}
		}
	}
	in := func(c Check, sel []string) bool {
		return slices.ContainsFunc(sel, func(name string) bool { return named(c, name) })
	}
	var out []Check
	for _, c := range list {
		wanted := in(c, opt.Only) || len(opt.Only) == 0 && (c.Area != AreaPerf || len(opt.Results)+len(opt.Rails) > 0)
		if wanted && !in(c, opt.Skip) {
			out = append(out, c)
		}
	}
	return out, nil
}

func named(c Check, name string) bool { return c.ID == name || string(c.Area) == name }

func names(list []Check) []string {
	var areas, ids []string
	for _, c := range list {
		if !slices.Contains(areas, string(c.Area)) {
			areas = append(areas, string(c.Area))
		}
		ids = append(ids, c.ID)
	}
	return append(areas, ids...)
}
