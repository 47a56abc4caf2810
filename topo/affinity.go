package topo

import "strconv"

// Affinity is where a GPU's CPU side is, as nvidia-smi topo -m shows it.
type Affinity struct {
	CPUs      string `json:"cpus"`          // list, "0-31,64-95"; empty: not known
	NUMANodes string `json:"numa_nodes"`    // list; empty: not known
	GPUNode   string `json:"gpu_numa_node"` // memory node of a coherent GPU; empty: none
}

// AffinityOf returns a device's affinity: NVML's word for a GPU, else the
// kernel's for its function.
func (g *Graph) AffinityOf(id string) Affinity {
	var a Affinity
	d := g.byID[id]
	if d == nil {
		return a
	}
	if d.GPU != nil {
		if nv, ok := d.GPU.NVML.Get(); ok {
			a.CPUs, a.NUMANodes = nv.CPUAffinity.Or(""), nv.NUMAAffinity.Or("")
			a.GPUNode = text(nv.NUMANode)
		}
	}
	f := g.locality(d)
	if f == nil {
		return a
	}
	node, ok := g.numa(f)
	if a.NUMANodes == "" && ok {
		a.NUMANodes = strconv.Itoa(node)
	}
	if a.CPUs == "" {
		a.CPUs = f.LocalCPUs.Or("")
	}
	if a.CPUs == "" && ok {
		for _, n := range g.m.Host.NUMA.Or(nil) {
			if n.ID == node {
				a.CPUs = n.CPUs
			}
		}
	}
	return a
}
