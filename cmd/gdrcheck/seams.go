package main

import (
	"cmp"
	"context"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Stands in for internal/collect until it is merged.
func collectMachine(ctx context.Context, src fact.Source, origin string) *topo.Machine {
	m := &topo.Machine{CollectedAt: time.Now().UTC(), Origin: origin}
	if r, ok := src.(*fact.Recording); ok {
		m.CollectedAt = r.CollectedAt()
		m.Origin, m.Simulated = r.Origin()
		m.Origin = cmp.Or(m.Origin, origin)
	}
	var err error
	if m.PCI, err = pci.Collect(ctx, src, pci.Options{}); err != nil {
		m.Problems = append(m.Problems, topo.Problem{Part: "pci", Reason: err.Error()})
	}
	m.RDMA = rdma.Collect(ctx, src, m.PCI, rdma.Options{})
	m.GPU = gpu.Collect(ctx, src, m.PCI, gpu.Options{NVML: true, CUDA: true})
	m.Host = host.Collect(ctx, src)
	return m
}
