package perftest

import (
	"errors"
	"fmt"
	"slices"
)

// Routes are all routes between two ends.
var Routes = []Route{RouteDirect, RouteStaged, RouteTCP}

// RouteHost is no route of a plan. A comparison has it beside the direct route
// on a GPU's memory: the direct one between the host memories of the same ends.
const RouteHost Route = "host"

// Lanes are what a comparison may hold, in the order to show them.
var Lanes = append(slices.Clone(Routes), RouteHost)

// What NCCL takes for a connection whose buffers are in host memory: a buffer
// of 4 MiB (NCCL_BUFFSIZE) in 8 parts (NCCL_STEPS).
const (
	DefaultChunkBytes = 512 << 10
	DefaultChunks     = 8
)

// Through returns the plan by another route. Routes through host memory are one
// connection, polled, whose depth is that of its slots.
func (p Plan) Through(r Route) Plan {
	p.Route = r
	if r == RouteDirect {
		p.ChunkBytes, p.Chunks = 0, 0
		return p
	}
	if p.Chunks == 0 && p.ChunkBytes == 0 {
		p.ChunkBytes, p.Chunks = DefaultChunkBytes, DefaultChunks
	}
	p.QPs, p.PostList, p.CQModeration, p.InlineBytes, p.Events = 1, 1, 0, 0, false
	p.WarmUp = min(p.WarmUp, 2*p.Chunks)
	return p
}

// staged says whether the route goes through slots of pinned host memory.
func (p *Plan) staged() bool { return p.Route != RouteDirect }

// slotBytes is how much pinned host memory an end needs.
func (p *Plan) slotBytes() int64 {
	if !p.staged() {
		return 0
	}
	return 2 * int64(p.ChunkBytes) * int64(p.Chunks)
}

func (p *Plan) validateRoute() error {
	if p.Route == RouteDirect {
		if p.ChunkBytes != 0 || p.Chunks != 0 {
			return errors.New("chunks are of the routes through host memory")
		}
		return nil
	}
	if p.Route != RouteCopy && !slices.Contains(Routes, p.Route) {
		return fmt.Errorf("no route %q: want direct, staged or tcp", p.Route)
	}
	const smallest = 4096
	var errs []error
	if p.ChunkBytes < smallest || p.ChunkBytes > MaxChunkBytes {
		errs = append(errs, fmt.Errorf("chunks of %d bytes: want %d to %d", p.ChunkBytes, smallest, MaxChunkBytes))
	}
	if p.Chunks < 1 || p.Chunks > MaxChunks {
		errs = append(errs, fmt.Errorf("%d chunks: want 1 to %d", p.Chunks, MaxChunks))
	}
	if p.Transport != RC || p.QPs != 1 || p.Events || p.Operation != Write && p.Operation != WriteImm {
		errs = append(errs, fmt.Errorf("the %s route is one connection (RC), polled, on which the initiator writes", p.Route))
	}
	return errors.Join(errs...)
}

// HostBytesPerByte is how often each byte that goes by a route crosses the host
// memory of both nodes, on its way from one GPU to the other (RouteHost: from
// host memory to host memory). It is computed,
// from the copies that the route makes, and knows nothing of caches. local: both
// ends are on one node, where a TCP connection needs no NIC.
func (r Route) HostBytesPerByte(local bool) float64 {
	const (
		gpuIn, gpuOut   = 1, 1 // the GPU writes pinned memory, and reads it
		nicOut, nicIn   = 1, 1 // the NIC reads what it sends, and writes what arrives
		copyIn, copyOut = 2, 2 // the kernel copies into its own buffers, and out of them
	)
	switch {
	case r == RouteStaged:
		return gpuIn + nicOut + nicIn + gpuOut
	case r == RouteTCP && local:
		return gpuIn + copyIn + copyOut + gpuOut
	case r == RouteHost:
		return nicOut + nicIn
	case r == RouteTCP:
		return gpuIn + copyIn + nicOut + nicIn + copyOut + gpuOut
	}
	return 0
}
