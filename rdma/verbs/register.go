package verbs

/*
#include <stdlib.h>
#include "session.h"
*/
import "C"

import (
	"unsafe"

	"github.com/gdrcheck/gdrcheck/perftest"
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
		Kind: s.local.Memory, GPU: s.local.GPU, Way: wayOf(r.way), Failed: attempts(r, s.ops, s.local.Device),
		ExportNs: float64(r.export_ns), RegisterNs: float64(r.register_ns),
	}
}

// attempts are the ways that failed.
func attempts(r *C.struct_gdr_registration, ops *C.struct_gdr_mem_ops, device string) []perftest.Attempt {
	var out []perftest.Attempt
	for i := range int(r.failed_n) {
		f := &r.failed[i]
		out = append(out, perftest.Attempt{Way: wayOf(f.way), Failure: failure(&f.error, ops, device)})
	}
	return out
}

// setupFailure names every way that was tried.
func (s *Session) setupFailure() error {
	if r := &s.s.registration; r.failed_n > 0 && r.mr == nil {
		return perftest.RegistrationFailure(s.local.Device, attempts(r, s.ops, s.local.Device))
	}
	return s.failure()
}
