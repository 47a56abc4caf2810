package checks

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// nodeID is the subject that is the node as a whole.
const nodeID = "node"

// TheNode is the node as the only subject.
func TheNode(*Node) []Subject { return []Subject{{ID: nodeID}} }

// EachGPU has every GPU as a subject.
func EachGPU(n *Node) []Subject {
	var out []Subject
	for _, d := range n.Graph.GPUs() {
		out = append(out, n.deviceSubject(d))
	}
	return out
}

// EachRDMA has every RDMA device as a subject.
func EachRDMA(n *Node) []Subject {
	var out []Subject
	for _, d := range n.Graph.NICs() {
		if d.RDMA != nil {
			out = append(out, n.deviceSubject(d))
		}
	}
	return out
}

// EachEndpoint has every GPU and every RDMA device that stands on hardware.
func EachEndpoint(n *Node) []Subject {
	return append(EachGPU(n), slices.DeleteFunc(EachRDMA(n), func(s Subject) bool { return s.NIC.Software })...)
}

// EachPort has every port of every RDMA device as a subject.
//
// A NIC whose ports could not be listed has one subject for all of them, so
// that a check of ports is unknown there and never without a word.
func EachPort(n *Node) []Subject {
	var out []Subject
	for _, s := range EachRDMA(n) {
		if listed := s.NIC.PortsListed; len(s.NIC.Ports) == 0 {
			unseen := &rdma.Port{State: fact.As(listed, ""), LinkLayer: fact.As(listed, ""), Rate: fact.As(listed, rdma.Rate{})}
			if listed.State == fact.Known {
				unseen.State = fact.Missing[string](fact.Absent, listed.Source, "the kernel lists no port")
				unseen.LinkLayer, unseen.Rate = fact.As(unseen.State, ""), fact.As(unseen.State, rdma.Rate{})
			}
			out = append(out, Subject{ID: s.ID + "/?", Parts: []string{s.ID}, NIC: s.NIC, Port: unseen, Function: s.Function})
		}
		for i := range s.NIC.Ports {
			p := &s.NIC.Ports[i]
			id := fmt.Sprintf("%s/%d", s.ID, p.Number)
			out = append(out, Subject{ID: id, Parts: []string{s.ID, id}, NIC: s.NIC, Port: p, Function: s.Function})
		}
	}
	return out
}

// EachPair has the GPU–NIC pairs that GPUDirect RDMA should use as subjects. A GPU
// whose memory is the CPU's is in none.
func EachPair(n *Node) []Subject {
	var out []Subject
	for _, p := range n.preferred() {
		g, _ := n.Graph.Device(p.GPU)
		nic, _ := n.Graph.Device(p.NIC)
		if n.sharesMemory(g.GPU) {
			continue
		}
		out = append(out, Subject{ID: p.GPU + " " + p.NIC, Parts: []string{p.GPU, p.NIC},
			GPU: g.GPU, NIC: nic.RDMA, Pair: &p})
	}
	return out
}

// EachPathBridge has every bridge on the path of a pair that matters.
func EachPathBridge(n *Node) []Subject {
	var out []Subject
	seen := map[pci.Address]bool{}
	for _, p := range n.preferred() {
		for _, h := range p.Hops {
			if h.Addr == nil || seen[*h.Addr] || h.Kind == string(topo.KindGPU) || h.Kind == string(topo.KindNIC) {
				continue
			}
			seen[*h.Addr] = true
			if f := n.Graph.Function(*h.Addr); f != nil {
				out = append(out, Subject{ID: h.ID, Parts: []string{h.ID}, Function: f})
			}
		}
	}
	return out
}

func (n *Node) deviceSubject(d topo.Device) Subject {
	s := Subject{ID: d.ID, Parts: []string{d.ID}, GPU: d.GPU, NIC: d.RDMA}
	if d.Addr != nil {
		s.Function = n.Graph.Function(*d.Addr)
	}
	return s
}

// preferred are the pairs that GPUDirect RDMA should use.
func (n *Node) preferred() []topo.Pair {
	return slices.DeleteFunc(slices.Clone(n.Graph.Pairs()), func(p topo.Pair) bool { return !p.Preferred })
}

// matters says whether a NIC is one that a GPU should use; the others (storage,
// management, idle) are judged with a lower severity. On a node without GPUs
// every NIC for compute counts.
func (n *Node) matters(nic *rdma.Device) bool {
	d, ok := n.Graph.Device(nic.Name)
	return ok && d.Role == topo.RoleCompute &&
		(len(n.Machine.GPU.GPUs) == 0 || len(n.Graph.GPUsOf(nic.Name)) > 0)
}

// pathEnd is the function whose place decides a NIC's paths: its Data Direct
// interface where it has one.
func (n *Node) pathEnd(nic *rdma.Device) (pci.Address, bool) {
	if a, ok := nic.DataDirect.Get(); ok && n.Graph.Function(a) != nil {
		return a, true
	}
	return nic.PCI.Get()
}

// noDataDirect says whether a NIC is known to have no Data Direct function. Of
// models that cannot have one nothing is collected, not even a reason.
func noDataDirect(nic *rdma.Device) bool {
	d := nic.DataDirect
	return d.State == fact.Absent || d.State == fact.Unsupported || d.State == fact.NotCollected && d.Reason == ""
}

// needPathEnd is pathEnd, or gives the verdict.
func needPathEnd(c *Case) (pci.Address, bool) {
	nic := c.Subject.NIC
	if !noDataDirect(nic) {
		mustSee(c, "Data Direct function", nic.DataDirect, nic.Dir)
	}
	end, ok := c.pathEnd(nic)
	if !ok {
		Need(c, "PCI function of the NIC", nic.PCI, nic.Dir)
		c.NotApplicable("the NIC is no PCI function")
	}
	return end, ok
}

// placed says whether functions stand in the PCI tree that was read, or gives
// the verdict.
func (c *Case) placed(list ...pci.Address) bool {
	for _, a := range list {
		if !c.Graph.Placed(a) {
			c.Unknown("cannot tell: where %s stands in the PCI tree is not in what was read", a)
			return false
		}
	}
	return true
}

// module returns a loaded module. Absent: it is not loaded.
func (n *Node) module(names ...string) fact.Value[host.Module] {
	mods := n.Machine.Host.Modules
	if mods.State != fact.Known {
		return fact.As(mods, host.Module{})
	}
	for _, name := range names {
		for _, m := range mods.V {
			if m.Name == name {
				return fact.Of(m, "/sys/module/"+name)
			}
		}
	}
	return fact.Missing[host.Module](fact.Absent, "/sys/module/"+names[0], "not loaded")
}

// moduleFile says whether a file exists from which a module could be loaded.
func (n *Node) moduleFile(name string) bool {
	return slices.ContainsFunc(n.Machine.Host.ModuleFiles, func(f host.ModuleFile) bool {
		return f.Name == name && f.Path.State == fact.Known
	})
}

// nvml returns one fact of NVML's answer on a GPU; where NVML did not answer at
// all, its state and reason.
func nvml[T any](g *gpu.GPU, field func(*gpu.NVMLDevice) fact.Value[T]) fact.Value[T] {
	if g.NVML.State == fact.Known {
		return field(&g.NVML.V)
	}
	var zero T
	return fact.As(g.NVML, zero)
}

// cuda is nvml for the CUDA driver's answer.
func cuda[T any](g *gpu.GPU, field func(*gpu.CUDADevice) fact.Value[T]) fact.Value[T] {
	if g.CUDA.State == fact.Known {
		return field(&g.CUDA.V)
	}
	var zero T
	return fact.As(g.CUDA, zero)
}

// coherent says whether one GPU's memory is coherent with the CPU's.
func coherent(g *gpu.GPU) bool { return topo.Coherent(g) || coherentName(g.Name) }

// needFunction returns the subject's PCI function, or gives the verdict: a GPU
// is one, and so is what has an address, so that without it too little was seen.
func needFunction(c *Case) (*pci.Function, bool) {
	if f := c.Subject.Function; f != nil {
		return f, true
	}
	if d, _ := c.Graph.Device(c.Subject.ID); d.Addr != nil {
		c.Unknown("cannot tell: its PCI function %s is not in what was read", d.Addr)
		return nil, false
	}
	Need(c, "PCI function", c.Subject.NIC.PCI, c.Subject.NIC.Dir)
	c.NotApplicable("it is no PCI function")
	return nil, false
}
