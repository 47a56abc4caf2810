package checks

import (
	"slices"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Area groups checks; --only and --skip take its name like an ID.
type Area string

// Areas.
const (
	AreaPCIe   Area = "pcie"
	AreaGPU    Area = "gpu"
	AreaDriver Area = "driver"
	AreaRDMA   Area = "rdma"
	AreaHost   Area = "host"
	AreaPolicy Area = "policy" // what a site or the platform promises
	AreaPerf   Area = "perf"   // what was measured; left out where nothing was
)

// Check is one thing that must hold for GPUDirect RDMA to work well. It is data
// and two functions: which subjects there are, and the verdict on one of them.
type Check struct {
	ID       string // kebab-case, never reused for another meaning
	Title    string // what is true when it passes, a few words
	Area     Area
	Severity Severity
	Rung     Rung // RungNone: on no pair's ladder
	// DependsOn are IDs of checks whose failure explains this one's: where one
	// failed for a part of the subject or for the node, this one is Blocked.
	DependsOn []string
	Why       string   // what goes wrong otherwise, one or two sentences
	Fix       []string // in general; Case.Fix replaces it with this machine's names
	Refs      []string // URLs
	// UnsupportedIsNotApplicable: a fact that the driver cannot tell means that
	// the check does not concern this device. Otherwise it is Unknown.
	UnsupportedIsNotApplicable bool
	// UnknownIs is the severity of an Unknown where that is less than the
	// check's: it explains what another check decides, and cannot put it in doubt.
	UnknownIs Severity

	Subjects func(*Node) []Subject
	Eval     func(*Case)
}

// Node is what checks may look at: the machine, the graph over it, the platform
// that was derived from it and the thresholds that hold for that platform.
type Node struct {
	Machine    *topo.Machine
	Graph      *topo.Graph
	Platform   Platform
	Thresholds Thresholds
	Preset     *Preset // nil: none holds
	Policy     *Policy // nil: none was given
	Network    NetworkProfile

	chosenPreset string             // as the options or the policy name it
	Results      []*perftest.Result // measurements that this machine took part in
	Rails        []perftest.RailPair
}

// All returns every check, in the order of reports: from the hardware upward.
func All() []Check { return slices.Clone(all) }

// Lookup finds a check by its ID.
func Lookup(id string) (Check, bool) {
	i := slices.IndexFunc(all, func(c Check) bool { return c.ID == id })
	if i < 0 {
		return Check{}, false
	}
	return all[i], true
}
