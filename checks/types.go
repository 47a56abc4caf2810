// Package checks judges a Machine. A check states what must hold, reads only
// the Machine, and answers with a verdict, the evidence and the fix.
package checks

import (
	"encoding/json"
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Verdict is the outcome of one check on one subject. The zero value is
// Unknown: what nobody decided is never a pass.
type Verdict uint8

// Verdicts.
const (
	Unknown Verdict = iota
	Pass
	Warn
	Fail
	Info
	NotApplicable
	Blocked // a check it depends on failed; Finding.BlockedBy names it
)

var verdictNames = [...]string{"unknown", "pass", "warn", "fail", "info", "not_applicable", "blocked"}

// String returns the verdict's name as JSON shows it.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Verdict) UnmarshalText(b []byte) error {
	for i, name := range verdictNames {
		if string(b) == name {
			*v = Verdict(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}

// Severity says what a failure of the check means for the node.
type Severity string

// Severities.
const (
	SeverityError   Severity = "error"   // GPUDirect RDMA does not work, or not as it should: exit code 1
	SeverityWarning Severity = "warning" // it works, with a cost
	SeverityInfo    Severity = "info"
)

// Rung is the step of a pair's ladder that a check stands on.
type Rung string

// Rungs, in the order of the ladder.
const (
	RungNone Rung = ""
	RungLink Rung = "link"
	RungPath Rung = "path"
	RungACS  Rung = "acs"
	RungBAR1 Rung = "bar1"
	RungWay  Rung = "way"
	RungPort Rung = "port"
)

// Rungs is the ladder from bottom to top.
var Rungs = []Rung{RungLink, RungPath, RungACS, RungBAR1, RungWay, RungPort}

// Evidence is one row of what a finding rests on.
type Evidence struct {
	Name   string `json:"name"`
	Got    string `json:"got"`
	Want   string `json:"want"`   // empty: nothing in particular
	Source string `json:"source"` // file, register or call that gave Got
}

// Finding is the outcome of one check on one subject.
type Finding struct {
	Check     string     `json:"check"`
	Subject   string     `json:"subject"`
	Verdict   Verdict    `json:"verdict"`
	Severity  Severity   `json:"severity"`
	Message   string     `json:"message"`
	Evidence  []Evidence `json:"evidence"`
	Why       string     `json:"why"`
	Fix       []string   `json:"fix"` // commands and steps, with this machine's own names in them
	Refs      []string   `json:"refs"`
	BlockedBy string     `json:"blocked_by"` // "check subject"; empty: not blocked
	// Unsure says why a Warn or Fail may be wrong and how to make sure ("idle
	// GPUs lower their link: run it under load"). Empty: it is sure.
	Unsure string `json:"unsure,omitempty"`
	// Parts are the IDs of the devices that the subject is made of.
	Parts []string `json:"parts,omitempty"`
	Rung  Rung     `json:"rung,omitempty"`
	// Waived is the waiver that accepts this finding: it counts neither as a
	// failure nor as a warning nor as unseen.
	Waived *Waiver `json:"waived,omitempty"`
}

// MarshalJSON implements json.Marshaler: lists without an entry are [], not null.
func (f Finding) MarshalJSON() ([]byte, error) {
	type plain Finding
	p := plain(f)
	p.Evidence = append([]Evidence{}, p.Evidence...)
	p.Fix, p.Refs = append([]string{}, p.Fix...), append([]string{}, p.Refs...)
	return json.Marshal(p)
}

// Subject is what a check judges: the node, a device, a port or a pair.
type Subject struct {
	ID    string   // "node", "GPU0", "mlx5_0/1", "GPU0 mlx5_0", "0000:3a:00.0", "read latency mlx5_0/1 mlx5_1/1"
	Parts []string // device IDs; empty: the node as a whole

	GPU        *gpu.GPU
	NIC        *rdma.Device
	Port       *rdma.Port
	Leg        *qos.Port // the port's settings, one way out of it
	Pair       *topo.Pair
	Function   *pci.Function
	Result     *perftest.Result
	Results    []*perftest.Result // that ran at the same time
	Rail       *perftest.RailPair
	Comparison *perftest.Comparison
}

// Step is one rung of a pair's ladder with its verdict.
type Step struct {
	Rung    Rung    `json:"rung"`
	Verdict Verdict `json:"verdict"`
	// Checks that made the verdict, worst first: "acs-redirect 0000:3a:00.0".
	Checks []string `json:"checks,omitempty"`
	Note   string   `json:"note,omitempty"` // a few words for the drawing: "PIX", "Gen5 x16", "dma-buf"
}

// Ladder is the chain of one GPU–NIC pair that matters.
type Ladder struct {
	GPU   string `json:"gpu"`
	NIC   string `json:"nic"`
	Steps []Step `json:"steps"`
	// Broken is the first rung that failed; RungNone: none did.
	Broken Rung `json:"broken,omitempty"`
}

// Outcome is the verdict on the whole node.
type Outcome struct {
	Verdict  Verdict         `json:"verdict"` // pass, warn, fail or unknown
	ExitCode int             `json:"exit_code"`
	Counts   map[Verdict]int `json:"counts"`
	Findings []Finding       `json:"findings"`
	Ladders  []Ladder        `json:"ladders"`
	Rules    Rules           `json:"rules"`
}

// Rules are the preset and the policy that a node was judged by.
type Rules struct {
	Preset      string `json:"preset,omitempty"` // name; empty: none
	PresetTitle string `json:"preset_title,omitempty"`
	Note        string `json:"note,omitempty"`   // why there is no preset
	Policy      bool   `json:"policy,omitempty"` // one was given
	// Off are the IDs of the checks that the policy switched off.
	Off      []string            `json:"off,omitempty"`
	Severity map[string]Severity `json:"severity,omitempty"` // as the policy set it
	Waivers  []WaiverUse         `json:"waivers,omitempty"`
}

// WaiverUse is a waiver and what became of it.
type WaiverUse struct {
	Waiver
	State    WaiverState `json:"state"`
	Findings int         `json:"findings"` // that it accepts, or would if it had not expired
}

// WaiverState says what became of a waiver.
type WaiverState string

// States of a waiver.
const (
	WaiverApplied WaiverState = "applied"
	WaiverExpired WaiverState = "expired" // not applied
	WaiverUnused  WaiverState = "unused"  // nothing to accept
)
