package checks

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml"

	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

const policyHead = `# What gdrcheck expects of a node: gdrcheck check --policy FILE
# Written from one node: look it over before other nodes are held to it.
# docs/policy.md explains every field.
`

const policyTail = `
# preset: dgx-h100            # instead of the one that the machine shows; none: none
# network:                    # what the switches are set to
#   profile: lossless         # lossless, lossy, spectrum-x; or values: dscp, priority, cnp_dscp, cnp_priority
# severity:
#   rdma-port-rate: error     # error, warning or info
# thresholds:
#   memlock_min_bytes: 17179869184
# off: [gdrdrv]               # checks or areas that do not run
# waivers:
#   - check: acs-redirect
#     subject: "GPU4 *"       # as reports show it; * and ? stand for others
#     reason: waits for the BIOS update, ticket 7
#     expires: 2030-12-31     # last day on which it holds
`

// PolicyOf writes the policy that a machine meets. An error says that too
// little of the machine was seen to say what belongs there.
func PolicyOf(m *topo.Machine) ([]byte, error) {
	n, err := NewNode(m, Options{})
	if err != nil {
		return nil, err
	}
	if why := n.incomplete(); why != "" {
		return nil, fmt.Errorf("not all of the machine was seen: %s", why)
	}
	var p struct {
		Expect Expect `yaml:"expect"`
	}
	p.Expect = Expect{GPUs: n.foundGPUs(), NICs: n.foundNICs(), Path: n.foundPath()}
	b, err := yaml.Marshal(p)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(policyHead), b, []byte(policyTail)), nil
}

func (n *Node) foundGPUs() GPUExpect {
	var names []string
	for _, g := range n.Machine.GPU.GPUs {
		names = append(names, g.Name)
	}
	count := len(names)
	return GPUExpect{Count: &count, Model: same(names)}
}

func (n *Node) foundNICs() NICExpect {
	var e NICExpect
	var models []string // of the NICs for compute; others have a rate and firmware of their own
	for _, d := range n.Graph.NICs() {
		if d.Role == topo.RoleCompute {
			models = append(models, d.RDMA.Model.V.Name)
		}
	}
	e.Model = same(models)
	nics := expectedNICs(n, e)
	count := len(nics)
	e.Count = &count
	var firmware []string
	var rates []float64
	for _, d := range nics {
		firmware = append(firmware, d.Firmware.Or(""))
		if d.Transport.Or("") == rdma.EFA {
			continue
		}
		for _, p := range d.Ports {
			if rate, ok := p.Rate.Get(); ok && p.State.Or("") == "ACTIVE" {
				rates = append(rates, rate.BitsPerSec/1e9)
			}
		}
	}
	if rates != nil {
		e.RateGbps = slices.Min(rates)
	}
	e.Firmware = same(firmware)
	return e
}

// same returns what all have in common; empty: they differ.
func same(list []string) string {
	if len(list) == 0 || slices.ContainsFunc(list, func(s string) bool { return s != list[0] }) {
		return ""
	}
	return list[0]
}

// foundPath is the worst of the GPUs' best paths; empty: one cannot be told.
func (n *Node) foundPath() topo.Class {
	worst := -1 // in pathClasses, which goes from the best to the worst
	for gpu, nics := range n.Graph.Affinity() {
		if len(nics) == 0 {
			continue
		}
		at := slices.Index(pathClasses, n.Graph.Class(gpu, nics[0]))
		if at < 0 {
			return ""
		}
		worst = max(worst, at)
	}
	if worst < 0 {
		return ""
	}
	return pathClasses[worst]
}
