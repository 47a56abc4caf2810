package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

var pcieErrors = Check{
	ID: "pcie-errors", Title: "no PCIe errors on GPUs, NICs and the ports above them", Area: AreaPCIe, Severity: SeverityWarning, Rung: RungLink,
	Why: "Each corrected error is a packet sent again; uncorrected ones end transfers or take the device off the bus. A link that runs and errs is often worse than one that is down.",
	Fix: []string{"See whether they rise under load: grep -H . /sys/bus/pci/devices/ADDRESS/aer_dev_*", "No command mends a link: reseat the card and its riser or cable, update firmware"},
	Refs: []string{
		"https://docs.kernel.org/PCI/pcieaer-howto.html",
		"https://docs.kernel.org/admin-guide/abi-testing.html",
	},
	Subjects: eachChainFunction,
	Eval:     evalPCIeErrors,
}

// eachChainFunction has GPUs and hardware NICs, then every bridge above them up
// to the root port.
func eachChainFunction(n *Node) []Subject {
	out := EachEndpoint(n)
	seen := map[pci.Address]bool{}
	for _, s := range slices.Clone(out) {
		if s.Function == nil {
			continue
		}
		for _, up := range n.Graph.Upstream(s.Function.Address) {
			if seen[up.Address] {
				continue
			}
			seen[up.Address] = true
			id := up.Address.String()
			out = append(out, Subject{ID: id, Parts: []string{id}, Function: up})
		}
	}
	return out
}

// notErrors are counters that probing a bus raises by itself.
var notErrors = []string{"AdvNonFatalErr", "UnsupReq"}

func evalPCIeErrors(c *Case) {
	f, ok := needFunction(c)
	if !ok {
		return
	}
	counts, ok := Need(c, "AER counters", f.AER, f.Dir)
	if !ok {
		c.NotApplicable("it counts no errors (no AER)")
		return
	}
	c.finding.Evidence = nil
	var corrected, lost uint64
	add := func(kind, file string, m map[string]uint64) (sum uint64) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !slices.Contains(notErrors, name) {
				c.Row(kind+" "+name, fmt.Sprint(m[name]), c.source(file, f.Dir))
				c.Want("0")
				sum += m[name]
			}
		}
		return sum
	}
	lost = add("fatal", "aer_dev_fatal", counts.Fatal) + add("non-fatal", "aer_dev_nonfatal", counts.NonFatal)
	corrected = add("corrected", "aer_dev_correctable", counts.Correctable)
	var what []string
	if lost > 0 {
		what = append(what, fmt.Sprintf("%d uncorrected", lost))
	}
	if corrected > 0 {
		what = append(what, fmt.Sprintf("%d corrected", corrected))
	}
	if what == nil {
		c.Row("AER counters", "all 0", c.source("aer_dev_correctable", f.Dir))
		c.Pass("no errors since boot")
		return
	}
	message := strings.Join(what, " and ") + " PCIe errors since boot"
	if lost == 0 && corrected < c.Thresholds.CorrectedErrorsMin {
		c.Info("%s", message)
		return
	}
	c.Warn("%s", message)
	c.Fix(fmt.Sprintf("See whether they rise under load: grep -H . %s/aer_dev_*", f.Dir),
		fmt.Sprintf("See which and when: dmesg -T | grep -E '%s|AER'", f.Address),
		"If they rise: power off, reseat the card and its riser or cable, update its firmware and the BIOS")
	c.Unsure("the counters run since boot: only those that rise tell of a fault that is there now")
}
