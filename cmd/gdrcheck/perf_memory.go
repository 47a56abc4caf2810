package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// addMemoryFlags adds the flags that say what an end's data is to be in; whose
// is "" for this end, or "peer-".
func addMemoryFlags(cmd *cobra.Command, a *perftest.MemoryAsk, whose, usage string) {
	f := cmd.Flags()
	f.StringVar(&a.Memory, whose+"mem", "", usage)
	f.StringVar(&a.GPU, whose+"gpu", "", "`GPU` whose memory it is, by number, UUID or PCI address (default: the nearest to the NIC)")
}

const memoryUsage = "`KIND[,WAY]` of the memory: host, cuda, cuda-vmm, rocm, auto; ways to register a GPU's: auto, dmabuf, dmabuf-pcie, data-direct, peermem"

// checkMemory says what is wrong with an ask, before a machine is read for it.
func checkMemory(a perftest.MemoryAsk, whose string) error {
	if _, _, err := a.Parse(); err != nil {
		return usagef("--%smem %s: %w", whose, a.Memory, err)
	}
	return nil
}

// memory settles what an end's data is in; the zero ask is host memory.
func (b *perfBackend) memory(ctx context.Context, l *perftest.Local, a perftest.MemoryAsk) error {
	kind, way, err := a.Parse()
	if err != nil || kind == perftest.MemoryHost {
		l.Memory = kind
		return err
	}
	m, err := b.machine(ctx)
	if err != nil {
		return err
	}
	return chooseMemory(m, l, kind, way, a.GPU)
}

func chooseMemory(m *topo.Machine, l *perftest.Local, kind string, way perftest.Way, name string) error {
	return chooseMemoryIn(topo.New(m), m, l, kind, way, name)
}

// chooseMemoryIn is chooseMemory where the machine's graph is at hand.
func chooseMemoryIn(g *topo.Graph, m *topo.Machine, l *perftest.Local, kind string, way perftest.Way, name string) error {
	d, err := chooseGPU(g, l.Device, kind, name)
	switch {
	case errors.Is(err, errNoGPU) && unseenGPUs(m) != "":
		return fmt.Errorf("%w: %s", errNotCollected, unseenGPUs(m))
	case errors.Is(err, errNoGPU) && kind == perftest.MemoryAuto && name == "":
		l.Memory = perftest.MemoryHost
		return nil
	case err != nil:
		return err
	}
	if kind == perftest.MemoryAuto {
		kind = kindOf(d)
	}
	l.Memory, l.Way = kind, way
	l.GPU = &perftest.GPU{Index: d.GPU.Index, Addr: d.GPU.Addr, UUID: d.GPU.UUID.Or(""), Name: d.Name}
	if p, ok := g.Pair(d.ID, l.Device); ok {
		l.GPU.Path = p.Path
	}
	if nic, ok := g.Device(l.Device); ok && nic.RDMA != nil {
		_, l.DataDirect = nic.RDMA.DataDirect.Get()
	}
	return nil
}

// unseenGPUs says why there may be GPUs that nobody saw; empty: all were seen.
func unseenGPUs(m *topo.Machine) string {
	for _, p := range m.Problems {
		if p.Part == "pci" || p.Part == "gpu" {
			return fmt.Sprintf("%s could not be collected: %s", p.Part, p.Reason)
		}
	}
	for i := range m.PCI {
		f := &m.PCI[i]
		if slices.Contains([]fact.State{fact.Denied, fact.Failed, fact.NotCollected}, f.Class.State) && f.Class.Reason != "" {
			return fmt.Sprintf("the class of %s was not seen: %s", f.Address, f.Class.Reason)
		}
	}
	return ""
}

// kindOf is the kind of memory that a GPU has.
func kindOf(d topo.Device) string {
	if d.GPU.Vendor == gpu.VendorAMD {
		return perftest.MemoryROCm
	}
	return perftest.MemoryCUDA
}

// noGPU is errNoGPU of a vendor.
type noGPU struct{ vendor string }

func (e noGPU) Error() string        { return "there is no " + e.vendor + "GPU here" }
func (e noGPU) Is(target error) bool { return target == errNoGPU }

var errNoGPU = error(noGPU{})

// chooseGPU finds the GPU that a name means; empty: the one nearest to the NIC,
// the first of several.
func chooseGPU(g *topo.Graph, nic, kind, name string) (topo.Device, error) {
	list := gpusOf(g, kind)
	if len(list) == 0 {
		return topo.Device{}, noGPU{map[string]string{perftest.MemoryCUDA: "NVIDIA ", perftest.MemoryROCm: "AMD "}[vendorKind(kind)]}
	}
	if name == "" {
		return nearestGPU(g, nic, list), nil
	}
	var known []string
	for _, d := range list {
		if isGPU(d, name) {
			return d, nil
		}
		known = append(known, fmt.Sprintf("%s (%s)", d.ID, d.GPU.Addr))
	}
	return topo.Device{}, fmt.Errorf("there is no GPU %s here; there are: %s", name, strings.Join(known, ", "))
}

// gpusOf are the GPUs with memory of a kind.
func gpusOf(g *topo.Graph, kind string) []topo.Device {
	return slices.DeleteFunc(g.GPUs(), func(d topo.Device) bool {
		return kind != perftest.MemoryAuto && kindOf(d) != vendorKind(kind)
	})
}

// vendorKind is the plain kind of memory of the vendor whose kind it is.
func vendorKind(kind string) string {
	if kind == perftest.MemoryCUDAVMM {
		return perftest.MemoryCUDA
	}
	return kind
}

// nearestGPU takes the best path. NICs that have the same GPUs near get one each.
func nearestGPU(g *topo.Graph, nic string, list []topo.Device) topo.Device {
	near := func(nic string) []topo.Device {
		best := topo.ClassUnknown.Rank() + 1
		var out []topo.Device
		for _, d := range list {
			rank := topo.ClassUnknown.Rank()
			if p, ok := g.Pair(d.ID, nic); ok {
				rank = p.Path.Rank()
			}
			if rank < best {
				best, out = rank, nil
			}
			if rank == best {
				out = append(out, d)
			}
		}
		return out
	}
	ours, place := near(nic), 0
	for _, n := range g.NICs() {
		if n.ID == nic {
			break
		}
		if n.RDMA != nil && slices.EqualFunc(near(n.ID), ours, func(a, b topo.Device) bool { return a.ID == b.ID }) {
			place++
		}
	}
	return ours[place%len(ours)]
}

func isGPU(d topo.Device, name string) bool {
	if n, err := strconv.Atoi(strings.TrimPrefix(strings.ToUpper(name), "GPU")); err == nil {
		return n == d.GPU.Index
	}
	if a, err := pci.ParseAddress(name); err == nil {
		return a == d.GPU.Addr
	}
	return strings.EqualFold(name, d.GPU.UUID.Or(""))
}

// adapted are plans for the memory of both ends, with a note where one had to change.
type adapted struct {
	perftest.Plan
	Note string
}

// adaptPlans changes what cannot be measured on a GPU's memory.
func adaptPlans(plans []perftest.Plan, onGPU bool) []adapted {
	var out []adapted
	has := func(op perftest.Operation, m perftest.Measure) bool {
		return slices.ContainsFunc(plans, func(p perftest.Plan) bool { return p.Operation == op && p.Measure == m })
	}
	for _, p := range plans {
		a := adapted{Plan: p}
		if onGPU && p.Polls() {
			if has(perftest.WriteImm, perftest.Latency) {
				continue // it is measured anyway
			}
			a.Plan, _ = p.ForGPU()
			a.Note = perftest.PollNote
		}
		out = append(out, a)
	}
	return out
}
