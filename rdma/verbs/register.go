package verbs

/*
#include <stdlib.h>
#include "session.h"
*/
import "C"

import (
	"cmp"
	"unsafe"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
)

const mlx5Soname = "libmlx5.so.1"

var wayNumbers = map[perftest.Way]C.enum_gdr_way{
	perftest.WayAddress: C.GDR_WAY_ADDRESS, perftest.WayPeermem: C.GDR_WAY_PEERMEM, perftest.WayDMABuf: C.GDR_WAY_DMABUF,
	perftest.WayDMABufPCIe: C.GDR_WAY_DMABUF_PCIE, perftest.WayDataDirect: C.GDR_WAY_DATA_DIRECT,
}

func wayOf(n C.enum_gdr_way) perftest.Way {
	for w, number := range wayNumbers {
		if number == n {
			return w
		}
	}
	return ""
}

// loadMLX5 looks for mlx5's own functions; a double of libibverbs has its own.
func loadMLX5(t *C.struct_gdr_verbs, library string) {
	if library == soname {
		library = mlx5Soname
	}
	name := C.CString(library)
	defer C.free(unsafe.Pointer(name))
	C.gdr_mlx5_load(t, name)
}

// buffer tells what the memory is and how it was registered.
func (s *Session) buffer() perftest.Buffer {
	r := &s.s.registration
	return perftest.Buffer{
		Kind: s.local.Memory, GPU: s.local.GPU, Way: wayOf(r.way), Failed: attempts(r, s.ops, &s.local),
		ExportNs: float64(r.export_ns), RegisterNs: float64(r.register_ns),
	}
}

// attempts are the ways that failed.
func attempts(r *C.struct_gdr_registration, ops *C.struct_gdr_mem_ops, l *perftest.Local) []perftest.Attempt {
	var out []perftest.Attempt
	for i := range int(r.failed_n) {
		f := &r.failed[i]
		out = append(out, perftest.Attempt{Way: wayOf(f.way), Failure: failure(&f.error, ops, l)})
	}
	return out
}

// setupFailure names every way that was tried.
func (s *Session) setupFailure() error {
	if r := &s.s.registration; r.failed_n > 0 && r.mr == nil {
		return perftest.RegistrationFailure(s.local.Device, attempts(r, s.ops, &s.local))
	}
	return s.failure()
}

// Registrar registers memory with one device, and moves nothing. Its calls come
// from one thread.
type Registrar struct{ p C.struct_gdr_probe }

// OpenRegistrar opens a device; library is a test double to load, or empty.
func OpenRegistrar(library, device string) (*Registrar, *rdma.CallError) {
	library = cmp.Or(library, soname)
	table, err := load(library)
	if err != nil {
		return nil, &rdma.CallError{Call: "dlopen " + library, Text: err.Error()}
	}
	loadMLX5(table, library)
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	r := &Registrar{}
	r.p.v = *table
	var e C.struct_gdr_error
	if C.gdr_probe_open(&r.p, name, &e) != 0 {
		return nil, callErrorOf(&e, nil)
	}
	return r, nil
}

// Alloc takes memory to be registered, in the place of what there was.
func (r *Registrar) Alloc(m Memory, bytes int) *rdma.CallError {
	C.gdr_probe_free(&r.p)
	var e C.struct_gdr_error
	ops := (*C.struct_gdr_mem_ops)(m.Ops)
	if C.gdr_probe_alloc(&r.p, ops, C.int(m.Device), C.size_t(bytes), &e) != 0 {
		return callErrorOf(&e, ops)
	}
	return nil
}

// Try registers the memory by one way and takes that back.
func (r *Registrar) Try(kind string, way perftest.Way) rdma.WayProbe {
	var g C.struct_gdr_registration
	out := rdma.WayProbe{Memory: kind, Way: string(way)}
	number, ok := wayNumbers[way]
	switch {
	case !ok:
		out.Error = &rdma.CallError{Call: "registration", Text: "no such way"}
	case C.gdr_probe_way(&r.p, number, &g) != 0:
		out.Error = callErrorOf(&g.failed[0].error, r.p.mem.ops)
	default:
		out.ExportNs, out.RegisterNs = int64(g.export_ns), int64(g.register_ns)
	}
	return out
}

// Close frees everything.
func (r *Registrar) Close() { C.gdr_probe_close(&r.p) }

// callErrorOf is an error of C as a fact; ops is the memory's kind, whose library
// it may be of.
func callErrorOf(e *C.struct_gdr_error, ops *C.struct_gdr_mem_ops) *rdma.CallError {
	out := &rdma.CallError{Call: C.GoString(e.call), Errno: int(e.err)}
	if e.code != 0 && ops != nil {
		out.Library, out.Code = C.GoString(ops.library), int(e.code)
		out.Name = C.GoString(C.gdr_mem_error_name(ops, e.code))
	}
	return out
}
