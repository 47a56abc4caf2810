package gpu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Vendor numbers of the PCI SIG.
const (
	vendorNVIDIA pci.ID = 0x10de
	vendorAMD    pci.ID = 0x1002
)

// classOtherDisplay is subclass 0x80 of display controllers: Instinct cards up
// to the MI200 series.
const classOtherDisplay = 0x0380

// Options say what Collect asks of libraries.
type Options struct {
	NVML, CUDA bool
	// Brief asks NVML only what a topology needs.
	Brief bool
	// Always asks the libraries also where neither an NVIDIA function nor the
	// driver is there: a test double may know better.
	Always bool
}

// Collect puts together what the PCI tree, the drivers' procfs and sysfs, NVML
// and CUDA know of the node's GPUs. functions are what pci.Collect returned.
// Nothing here fails as a whole: what could not be learnt says so in its value.
func Collect(ctx context.Context, src fact.Source, functions []pci.Function, opt Options) Facts {
	c := collector{functions: map[pci.Address]*pci.Function{}}
	for i := range functions {
		c.functions[functions[i].Address] = &functions[i]
	}
	var wg sync.WaitGroup
	if !opt.Always && !present(src, functions) {
		const none = "no NVIDIA device"
		c.nvml.system = fact.Missing[NVMLSystem](fact.Absent, fact.AskNVML, none)
		c.cuda.system = fact.Missing[CUDASystem](fact.Absent, fact.AskCUDA, none)
	} else {
		var args []string
		if opt.Brief {
			args = []string{Brief}
		}
		wg.Go(func() {
			c.nvml = fact.Guarded(src, func(src fact.Source) answers[NVMLSystem, NVMLDevice] {
				return ask[NVMLSystem](ctx, src, opt.NVML, fact.AskNVML, args, func(d NVMLDevice) pci.Address { return d.Addr })
			})
		})
		wg.Go(func() {
			c.cuda = fact.Guarded(src, func(src fact.Source) answers[CUDASystem, CUDADevice] {
				return ask[CUDASystem](ctx, src, opt.CUDA, fact.AskCUDA, nil, func(d CUDADevice) pci.Address { return d.Addr })
			})
		})
	}
	f := Facts{NVIDIA: procfs(src)}
	f.AMD.Version = fact.Text(src, "", "/sys/module/amdgpu/version")
	var nodes map[pci.Address]fact.Value[KFDNode]
	nodes, f.AMD.KFD = kfd(src)
	wg.Wait()

	f.NVIDIA.NVML, f.NVIDIA.CUDA = c.nvml.system, c.cuda.system
	f.NVIDIA.Doubles = slices.Concat(c.nvml.doubles, c.cuda.doubles)
	f.GPUs = c.nvidia(src)
	next := 0
	if n := len(f.GPUs); n > 0 {
		next = f.GPUs[n-1].Index + 1
	}
	f.GPUs = append(f.GPUs, c.amd(nodes, f.AMD.KFD, next)...)
	return f
}

type collector struct {
	functions map[pci.Address]*pci.Function
	nvml      answers[NVMLSystem, NVMLDevice]
	cuda      answers[CUDASystem, CUDADevice]
}

// answers are what a library said of the node and of each GPU.
type answers[S, D any] struct {
	system  fact.Value[S]
	devices map[pci.Address]device[D]
	strays  []device[D] // broken ones, of which no address is known
	doubles []string
}

type device[D any] struct {
	index int
	value fact.Value[D]
}

// ask puts a question to a library. A GPU that failed is known by its address
// if the worker learnt it in time.
func ask[S, D any](ctx context.Context, src fact.Source, wanted bool, name string, args []string, addrOf func(D) pci.Address) answers[S, D] {
	a := answers[S, D]{devices: map[pci.Address]device[D]{}}
	if !wanted {
		a.system = fact.Missing[S](fact.NotCollected, name, "not asked for")
		return a
	}
	recs, err := src.Ask(ctx, name, args...)
	if len(args) > 0 && errors.Is(err, fact.ErrNotCollected) { // a recording of the whole question
		recs, err = src.Ask(ctx, name)
	}
	if err != nil {
		a.system = fact.FromError[S](err, name)
	} else {
		a.system = fact.Missing[S](fact.NotCollected, name, "no answer")
	}
	for _, r := range recs {
		switch r.Subject {
		case SubjectSystem:
			a.system = sourced(fact.Decode[S](r), name)
			continue
		case SubjectDouble:
			if path, ok := fact.Decode[string](r).Get(); ok {
				a.doubles = append(a.doubles, path)
			}
			continue
		}
		index, ok := parseSubject(r.Subject)
		if !ok {
			continue
		}
		d := device[D]{index, sourced(fact.Decode[D](r), name)}
		var known D
		if json.Unmarshal(r.Data, &known) != nil {
			a.strays = append(a.strays, d)
			continue
		}
		if _, twice := a.devices[addrOf(known)]; !twice { // MIG devices share their GPU's address
			a.devices[addrOf(known)] = d
		}
	}
	return a
}

func sourced[T any](v fact.Value[T], name string) fact.Value[T] {
	v.Source = cmp.Or(v.Source, name)
	return v
}

// nvidia lists the NVIDIA GPUs in NVML's order. GPUs that NVML does not know
// follow by address; where NVML lost some of which it told no address, these
// take the numbers that are free.
func (c *collector) nvidia(src fact.Source) []GPU {
	addrs := map[pci.Address]bool{}
	for addr, f := range c.functions {
		if isNVIDIA(f) {
			addrs[addr] = true
		}
	}
	for addr := range c.nvml.devices {
		addrs[addr] = true
	}
	sorted := slices.SortedFunc(maps.Keys(addrs), pci.Address.Compare)
	c.placeStrays(sorted)

	var out []GPU
	used := map[int]bool{}
	for _, addr := range sorted {
		g := c.gpu(src, addr)
		if d, ok := c.nvml.devices[addr]; ok {
			g.Index = d.index
			used[d.index] = true
		} else {
			g.Index = -1
		}
		out = append(out, g)
	}
	next := 0
	for i := range out {
		if out[i].Index >= 0 {
			continue
		}
		for used[next] {
			next++
		}
		out[i].Index = next
		used[next] = true
	}
	slices.SortFunc(out, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return out
}

// placeStrays gives failures without an address to the GPUs that NVML said
// nothing of, in order of address, if there are as many of both: NVML numbers
// GPUs by address.
func (c *collector) placeStrays(sorted []pci.Address) {
	var silent []pci.Address
	for _, addr := range sorted {
		if _, ok := c.nvml.devices[addr]; !ok {
			silent = append(silent, addr)
		}
	}
	if len(silent) != len(c.nvml.strays) {
		return
	}
	slices.SortFunc(c.nvml.strays, func(a, b device[NVMLDevice]) int { return cmp.Compare(a.index, b.index) })
	for i, addr := range silent {
		c.nvml.devices[addr] = c.nvml.strays[i]
	}
	c.nvml.strays = nil
}

func (c *collector) gpu(src fact.Source, addr pci.Address) GPU {
	g := GPU{Vendor: VendorNVIDIA, Addr: addr, Proc: information(src, addr)}
	g.NVML = perGPU(c.nvml, addr, "NVML")
	g.CUDA = perGPU(c.cuda, addr, "CUDA")
	g.UUID = fact.As(g.NVML, "")
	if g.NVML.State == fact.Known {
		g.UUID = g.NVML.V.UUID
	}
	if p := procUUID(g.Proc); g.UUID.State != fact.Known && p.State == fact.Known {
		g.UUID = p
	}
	g.Name = cmp.Or(g.NVML.V.Name.V, g.Proc.V.Model)
	if f := c.functions[addr]; g.Name == "" && f != nil {
		g.Name = f.DeviceName
	}
	return g
}

// perGPU is a library's answer for one GPU, or why there is none.
func perGPU[S, D any](a answers[S, D], addr pci.Address, library string) fact.Value[D] {
	var none D
	switch d, ok := a.devices[addr]; {
	case ok:
		return d.value
	case a.system.State != fact.Known:
		return fact.As(a.system, none)
	case len(a.strays) > 0:
		var lost []string
		for _, s := range a.strays {
			lost = append(lost, Subject(s.index)+": "+s.value.Reason)
		}
		return fact.Missing[D](fact.Failed, a.system.Source, library+" failed for GPUs of which it told no address: "+strings.Join(lost, "; "))
	}
	return fact.Missing[D](fact.Absent, a.system.Source, library+" does not list this GPU")
}

func isNVIDIA(f *pci.Function) bool {
	class := f.Class.Or(0).Sub()
	return f.Vendor.Or(0) == vendorNVIDIA && (class == pci.ClassVGA || class == pci.Class3D)
}

// amd lists the AMD GPUs that KFD knows; where KFD cannot be asked, those whose
// class says that they compute. first is the number of the first one.
func (c *collector) amd(nodes map[pci.Address]fact.Value[KFDNode], kfd fact.Value[bool], first int) []GPU {
	var out []GPU
	for _, addr := range slices.SortedFunc(maps.Keys(c.functions), pci.Address.Compare) {
		f := c.functions[addr]
		class := f.Class.Or(0).Sub()
		accelerator := class == pci.ClassAccelerator || class == classOtherDisplay
		if f.Vendor.Or(0) != vendorAMD || !accelerator && class != pci.ClassVGA {
			continue
		}
		node, known := nodes[addr]
		if !known && (kfd.State == fact.Known || !accelerator) {
			continue
		}
		if !known {
			node = fact.As(kfd, KFDNode{})
		}
		out = append(out, GPU{Index: first + len(out), Vendor: VendorAMD, Addr: addr, Name: f.DeviceName, KFD: node})
	}
	return out
}
