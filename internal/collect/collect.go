// Package collect reads one Machine from a Source. It never judges.
package collect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Options say what a command needs. What is not needed is left NotCollected.
type Options struct {
	// Origin and CollectedAt go into the Machine as they are: "live" and now,
	// or a recording's own time.
	Origin      string
	CollectedAt time.Time

	// Timeout bounds the collection as a whole; 0 leaves it to the context.
	Timeout time.Duration

	Config       pci.ConfigScope // whose configuration space is read
	NeedCUDA     bool            // CUDA's attributes; cuInit takes a quarter of a second
	NeedCounters bool            // counters of RDMA ports
	NeedMST      bool            // mstconfig, which takes a second a NIC
	NeedModules  bool            // what transceivers say of themselves; clears their latched alarms
	NeedSMP      bool            // InfiniBand neighbours, by a packet to each
	NeedLimits   bool            // this process's limits and capabilities
	NeedSymbols  bool            // whether the kernel has a function; where it has no BTF, 100 ms
	NeedNames    bool            // what ghw calls product and processor
	NeedLog      bool            // the kernel log
	NeedVerbs    bool            // libibverbs' and rdmamap's own view
	NeedQoS      bool            // settings of RDMA ports: flow and congestion control, link, module, firmware
	Brief        bool            // of NVML only what a topology needs
	Probe        Probe           // registration of GPUs' memory; makes contexts on them
	// AskNVIDIA asks NVIDIA's libraries though no NVIDIA device is there.
	AskNVIDIA bool

	lost map[string]string // parts that are given up from the start, with the reason
}

// All is what a check needs: everything.
func All() Options {
	return Options{NeedCUDA: true, NeedCounters: true, NeedLimits: true, NeedSymbols: true, NeedNames: true, NeedLog: true, NeedVerbs: true, NeedQoS: true, NeedModules: true, NeedMST: true, NeedSMP: true}
}

// Topology is what the topology command needs, in the time that it should take.
func Topology() Options { return Options{Config: pci.ConfigPaths, Brief: true} }

// Ports is what showing the RDMA ports' settings needs.
func Ports() Options {
	return Options{Config: pci.ConfigPaths, Brief: true, NeedVerbs: true, NeedQoS: true}
}

// Machine collects one Machine. It returns by the deadline: a part that is not
// through by then, or that panics, is a Problem, and its facts say that they
// were not collected, and why.
func Machine(ctx context.Context, src fact.Source, opt Options) *topo.Machine {
	if opt.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opt.Timeout)
		defer cancel()
	}
	// Questions end a little before the parts do, so that a part still has
	// time to take in what was answered.
	asking, cancel := early(ctx)
	defer cancel()

	// A recording of a collection that lost a part lacks it in the same way.
	if r, ok := src.(interface{ Lost() map[string]string }); ok {
		opt.lost = r.Lost()
	}
	m := &topo.Machine{CollectedAt: opt.CollectedAt, Origin: opt.Origin}
	s := newSource(src, opt)
	s.startAsks(asking, opt)

	functions, err := part(ctx, opt.lost, "pci", func() result[[]pci.Function] {
		f, err := pci.Collect(asking, s, pci.Options{Config: opt.Config, Late: opt.lost})
		return result[[]pci.Function]{f, err}
	})
	if err == nil {
		err = functions.err
	}
	switch {
	case err == nil:
	case fact.StateOf(err) != fact.Absent:
		m.Problems = append(m.Problems, topo.Problem{Part: "pci", Reason: fact.Cause(err)})
	case opt.Origin == "tree":
		// A kernel can be without PCI; a copied tree is rather partial.
		m.Problems = append(m.Problems, topo.Problem{Part: "pci", Reason: pci.Devices + " is not in what was read"})
	}
	m.PCI = functions.v

	var wg sync.WaitGroup
	var rdmaErr, qosErr, gpuErr, hostErr error
	wg.Go(func() {
		m.RDMA, rdmaErr = part(ctx, opt.lost, "rdma", func() rdma.Facts {
			return rdma.Collect(asking, s, m.PCI, rdma.Options{SkipCounters: !opt.NeedCounters})
		})
		if opt.NeedQoS && rdmaErr == nil { // without RDMA there are no ports
			m.QoS, qosErr = part(ctx, opt.lost, "qos", func() qos.Facts {
				return qos.Collect(asking, s, &m.RDMA, m.PCI, qos.Options{Stats: opt.NeedCounters, Modules: opt.NeedModules, MST: opt.NeedMST, Neighbours: opt.NeedSMP})
			})
		}
	})
	wg.Go(func() {
		m.GPU, gpuErr = part(ctx, opt.lost, "gpu", func() gpu.Facts {
			o := gpu.Options{NVML: true, CUDA: opt.NeedCUDA, Brief: opt.Brief, Always: opt.AskNVIDIA}
			return gpu.Collect(asking, s, m.PCI, o)
		})
	})
	wg.Go(func() {
		m.Host, hostErr = part(ctx, opt.lost, "host", func() host.Facts { return host.Collect(asking, s) })
	})
	wg.Wait()
	m.Problems = append(m.Problems, missing(m, rdmaErr, qosErr, gpuErr, hostErr)...)
	if opt.Probe != ProbeNone && len(m.GPU.GPUs) > 0 && len(m.RDMA.Devices) > 0 {
		known := *m // what goes on beyond its time must not see m change
		m.Registrations, err = part(ctx, opt.lost, "registration", func() []rdma.Registration {
			return registrations(asking, s, &known, opt.Probe)
		})
		if err != nil {
			m.Problems = append(m.Problems, topo.Problem{Part: "registration", Reason: err.Error()})
		}
	}
	if opt.Probe != ProbeNone {
		known := *m
		var copies []fact.Value[gpu.GDRCopyProbe]
		copies, err = part(ctx, opt.lost, "gdrcopy", func() []fact.Value[gpu.GDRCopyProbe] {
			return gdrcopies(asking, s, &known, opt.Probe)
		})
		if err != nil {
			m.Problems = append(m.Problems, topo.Problem{Part: "gdrcopy", Reason: err.Error()})
		}
		for i := range copies {
			m.GPU.GPUs[i].GDRCopy = copies[i]
		}
	}
	m.Simulated = s.simulated()
	return m
}

// early is a context that ends a tenth, and at most half a second, before ctx.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	d, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	const tenth, most = 10, 500 * time.Millisecond
	return context.WithDeadline(ctx, d.Add(-min(time.Until(d)/tenth, most)))
}

type result[T any] struct {
	v   T
	err error
}

// part runs f and gives up on it when ctx ends. f goes on by itself then, since
// a read that hangs in the kernel cannot be stopped; nobody sees what it makes.
func part[T any](ctx context.Context, lost map[string]string, name string, f func() T) (T, error) {
	var none T
	if why, ok := lost[name]; ok {
		return none, errors.New(why)
	}
	done := make(chan result[T], 1)
	go func() {
		var r result[T]
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("panic: %v%s", p, where(debug.Stack()))
			}
			done <- r
		}()
		r.v = f()
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return none, r.err
		}
		return r.v, nil
	case <-ctx.Done():
	}
	select { // both may be ready
	case r := <-done:
		if r.err == nil {
			return r.v, nil
		}
	default:
	}
	return none, fmt.Errorf("%s took longer than it was given: %w", name, context.Cause(ctx))
}

// where finds the line of ours that panicked in a stack, as " (file.go:12)".
func where(stack []byte) string {
	_, after, ok := strings.Cut(string(stack), "panic.go:")
	if !ok {
		return ""
	}
	for line := range strings.Lines(after) {
		file, _, ok := strings.Cut(strings.TrimSpace(line), " +0x")
		if ok && strings.Contains(file, ".go:") && !strings.Contains(file, "/runtime/") {
			return " (" + file[strings.LastIndexByte(file, os.PathSeparator)+1:] + ")"
		}
	}
	return ""
}

// missing names the parts that were lost and gives the facts that stand for
// each as a whole their reason, so that none is empty without a word.
func missing(m *topo.Machine, rdmaErr, qosErr, gpuErr, hostErr error) []topo.Problem {
	var out []topo.Problem
	for _, p := range []struct {
		part string
		err  error
		fill func(string)
	}{
		{"rdma", rdmaErr, func(why string) {
			m.RDMA.Listed = fact.Missing[int](fact.NotCollected, "/sys/class/infiniband", why)
			m.RDMA.LibIBVerbs = fact.Missing[string](fact.NotCollected, "libibverbs", why)
		}},
		{"qos", qosErr, func(why string) {
			m.QoS = qos.Collect(context.Background(), lostSource{why}, &m.RDMA, m.PCI, qos.Options{Stats: true, Modules: true})
		}},
		{"gpu", gpuErr, func(why string) { fillGPU(&m.GPU, m.PCI, why) }},
		{"host", hostErr, func(why string) { fillHost(&m.Host, why) }},
	} {
		if p.err == nil {
			continue
		}
		out = append(out, topo.Problem{Part: p.part, Reason: p.err.Error()})
		p.fill(p.err.Error())
	}
	return out
}
