// Package report draws one Document in several formats. A renderer computes no
// verdict, no exit code and no time.
package report

import (
	"fmt"
	"time"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// SchemaVersion is the version of the JSON document. A field added keeps it; a
// field removed or changed raises it.
const SchemaVersion = 1

// Kind is what a Document holds.
type Kind string

// Kinds of document.
const (
	KindCheck Kind = "check"
	KindTopo  Kind = "topo"
	KindPerf  Kind = "perf"
)

// Header opens every document.
type Header struct {
	SchemaVersion int       `json:"schema_version"`
	Kind          Kind      `json:"kind"`
	Tool          string    `json:"tool"`    // "gdrcheck"
	Version       string    `json:"version"` // of the binary
	CollectedAt   time.Time `json:"collected_at"`
	Origin        string    `json:"origin"` // live, tree, recording, example
	Simulated     bool      `json:"simulated"`
}

// Check is the document of "gdrcheck check".
type Check struct {
	Header
	Verdict  checks.Verdict   `json:"verdict"`
	ExitCode int              `json:"exit_code"`
	Summary  Summary          `json:"summary"`
	Findings []checks.Finding `json:"findings"`
	Ladders  []checks.Ladder  `json:"ladders"`
	Rules    checks.Rules     `json:"rules"`    // what it was judged by
	NotSeen  []string         `json:"not_seen"` // IDs of checks left unknown, for the closing line
	// HowToSee says what would let them see; only with NotSeen.
	HowToSee string        `json:"how_to_see,omitempty"`
	Machine  *topo.Machine `json:"machine"`
	// Results are measurements, and Rails the ports that were to be measured; only
	// with --perf.
	Results []*perftest.Result  `json:"results,omitempty"`
	Rails   []perftest.RailPair `json:"rails,omitempty"`
}

// Summary says in a line each what the node is and how the checks came out.
type Summary struct {
	Node   string         `json:"node"`   // "2 x NVIDIA H200, no RDMA NIC; driver 580.159.04 (open), kernel 6.18; KVM guest"
	Counts map[string]int `json:"counts"` // of every verdict, 0 included, without those that a waiver accepts
	Waived int            `json:"waived"` // findings that a waiver accepts
}

// Topo is the document of "gdrcheck topo".
type Topo struct {
	Header
	Devices  []topo.Device                    `json:"devices"`
	Matrix   map[string]map[string]topo.Class `json:"matrix"`
	Pairs    []topo.Pair                      `json:"pairs"`
	Affinity map[string][]string              `json:"affinity"` // best NICs of each GPU
	GPUsOf   map[string][]string              `json:"gpus_of"`  // GPUs that each RDMA NIC is best for
	Shared   []string                         `json:"shared"`   // compute NICs that are best for several GPUs
	Idle     []string                         `json:"idle"`     // compute NICs that are best for none
	Locality map[string]topo.Affinity         `json:"locality"` // CPUs and NUMA nodes next to each device

	Graph *topo.Graph `json:"-"` // for renderers that draw more than the document says
}

// Perf is the document of "gdrcheck perf".
type Perf struct {
	Header
	Verdict  checks.Verdict     `json:"verdict"`
	ExitCode int                `json:"exit_code"`
	Findings []checks.Finding   `json:"findings"`
	Rules    checks.Rules       `json:"rules"` // what it was judged by
	Results  []*perftest.Result `json:"results"`
	// Comparisons are of results by different routes; left out where there is one.
	Comparisons []*perftest.Comparison `json:"comparisons,omitempty"`
	// Rails are the ports that were to be measured with those of the other node.
	Rails []perftest.RailPair `json:"rails,omitempty"`
	// NotMade is left out where all was measured that was to be.
	NotMade *NotMade `json:"not_made,omitempty"`
}

// NotMade are the tests of a measurement that was lost or interrupted on its way.
type NotMade struct {
	Tests    int    `json:"tests"`
	Measured int    `json:"measured"` // those before
	Why      string `json:"why"`
}

// String says how many were not made, and why.
func (n *NotMade) String() string {
	was := "were"
	if n.Tests == 1 {
		was = "was"
	}
	return fmt.Sprintf("%d of %d tests %s not made: %s", n.Tests, n.Tests+n.Measured, was, n.Why)
}
