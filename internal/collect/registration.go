package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Probe says whether memory of GPUs is registered with RDMA devices, which needs
// a context on each GPU.
type Probe int

// Probes.
const (
	ProbeNone   Probe = iota
	ProbeIdle         // GPUs that nobody uses
	ProbeForced       // all GPUs
)

// registrations asks for each GPU with each RDMA device whether memory of the
// one can be registered with the other; each GPU in workers of its own. nil:
// nobody asked, now or when the recording was made.
func registrations(ctx context.Context, src fact.Source, m *topo.Machine, probe Probe) []rdma.Registration {
	// Without a pair: whether pairs are asked about at all, for recordings to tell.
	if _, err := src.Ask(ctx, fact.AskRegistration); errors.Is(err, fact.ErrNotCollected) {
		return nil
	}
	const together = 4
	perGPU := make([][]rdma.Registration, len(m.GPU.GPUs))
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for i := range m.GPU.GPUs {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			perGPU[i] = fact.Guarded(src, func(src fact.Source) []rdma.Registration {
				return registrationsOf(ctx, src, m, &m.GPU.GPUs[i], probe)
			})
		})
	}
	all.Wait()
	return slices.Concat(perGPU...)
}

// registrationsOf asks for one GPU.
func registrationsOf(ctx context.Context, src fact.Source, m *topo.Machine, g *gpu.GPU, probe Probe) []rdma.Registration {
	var out []rdma.Registration
	var args []string
	for i := range m.RDMA.Devices {
		d := &m.RDMA.Devices[i]
		args = append(args, registrationAsk(g, d).String())
		out = append(out, rdma.Registration{GPU: g.Addr, Device: d.Name})
	}
	why := inUse(m, g)
	var recs []fact.Record
	err := fmt.Errorf("%s: %w", why, fact.ErrNotCollected)
	if why == "" || probe == ProbeForced {
		recs, err = src.Ask(ctx, fact.AskRegistration, args...)
		if errors.Is(err, fact.ErrNotCollected) {
			err = fmt.Errorf("%s: %w", cmp.Or(why, "not probed when it was recorded"), fact.ErrNotCollected)
		}
	}
	if err == nil {
		err = errors.New("no answer for this pair")
	}
	for i := range out {
		out[i].Probe = fact.FromError[rdma.RegistrationProbe](err, fact.AskRegistration)
		for _, r := range recs {
			if r.Subject == args[i] {
				out[i].Probe = fact.Decode[rdma.RegistrationProbe](r)
				out[i].Probe.Source = fact.AskRegistration
			}
		}
	}
	return out
}

func registrationAsk(g *gpu.GPU, d *rdma.Device) rdma.RegistrationAsk {
	// Names of perftest.
	a := rdma.RegistrationAsk{GPU: g.Addr, Device: d.Name, Kinds: []string{"cuda", "cuda-vmm"}, Ways: []string{"dmabuf", "peermem"}}
	if g.Vendor == gpu.VendorAMD {
		a.Kinds = []string{"rocm"}
	}
	if d.DataDirect.State == fact.Known {
		a.Ways = append([]string{"data-direct"}, a.Ways...)
	}
	return a
}

// inUse says why a GPU is not to be disturbed; empty: nobody uses it.
func inUse(m *topo.Machine, g *gpu.GPU) string {
	for i := range m.PCI {
		if f := &m.PCI[i]; f.Address == g.Addr && f.Driver.Or("") == "vfio-pci" {
			return "the GPU is reserved for a virtual machine (vfio-pci)"
		}
	}
	nv, ok := g.NVML.Get()
	if !ok {
		return "whether the GPU is in use is not known"
	}
	processes, okP := nv.ComputeProcesses.Get()
	load, okL := nv.UtilizationPercent.Get()
	switch {
	case processes > 0:
		return fmt.Sprintf("the GPU is in use by %d processes", processes)
	case load > 0:
		return fmt.Sprintf("the GPU is in use: %d %% busy", load)
	case !okP && !okL:
		return "whether the GPU is in use is not known"
	}
	return ""
}
