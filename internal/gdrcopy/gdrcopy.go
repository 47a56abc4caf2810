// Package gdrcopy tries GDRCopy (libgdrapi, gdrdrv): whether the CPU can map and
// copy a GPU's memory, and how fast. Only the worker process uses it.
package gdrcopy

/*
#cgo CFLAGS: -I${SRCDIR}/../mem
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "gdrcopy.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"unsafe"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

const soname = "libgdrapi.so.2"

// Load opens the library; library is a test double, or empty. The error is
// fs.ErrNotExist where there is none.
func Load(library string) error {
	library = cmp.Or(library, soname)
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	reason := C.gdr_copy_load(path)
	if reason == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(reason))
	text := C.GoString(reason)
	name, rest, _ := strings.Cut(text, ": ")
	if name == library && strings.Contains(rest, "No such file") {
		return fmt.Errorf("%s: %w", library, fs.ErrNotExist)
	}
	return errors.New(text)
}

// Probe copies to and from memory of a GPU. ops is a const struct gdr_mem_ops *
// of package mem, device the GPU's number there. Call it after Load, on a thread
// that the caller has locked.
func Probe(ops unsafe.Pointer, device int) gpu.GDRCopyProbe {
	// Of C, since the memory's kind keeps pointers into it.
	c := (*C.struct_gdr_copy)(C.calloc(1, C.sizeof_struct_gdr_copy))
	defer C.free(unsafe.Pointer(c))
	table := (*C.struct_gdr_mem_ops)(ops)
	rc := C.gdr_copy_probe(c, table, C.int(device))
	p := gpu.GDRCopyProbe{
		Library: version(c.library), Driver: version(c.driver),
		PinNs: float64(c.pin_ns), MapNs: float64(c.map_ns), Mapping: mappingName(int(c.mapping)),
	}
	if rc != 0 {
		p.Failed = failure(c, table)
	}
	for _, s := range c.sizes {
		if s.bytes > 0 {
			p.Sizes = append(p.Sizes, gpu.GDRCopySize{
				Bytes: int(s.bytes), ToNs: float64(s.to), FromNs: float64(s.from), CUDAToNs: float64(s.cuda_to), CUDAFromNs: float64(s.cuda_from),
				WrongTo: s.wrong_to != 0, WrongFrom: s.wrong_from != 0,
			})
		}
	}
	return p
}

func failure(c *C.struct_gdr_copy, table *C.struct_gdr_mem_ops) *gpu.GDRCopyError {
	e := &gpu.GDRCopyError{Call: C.GoString(c.call), Errno: max(int(c.rc), 0)}
	if e.Errno > 0 {
		e.Text = syscall.Errno(e.Errno).Error()
		return e
	}
	code := -int(c.rc)
	e.Text = fmt.Sprintf("%s error %d %s", C.GoString(table.library), code, C.GoString(C.gdr_mem_error_name(table, C.int(code))))
	return e
}

func version(v [2]C.int) string {
	if v[0] == 0 && v[1] == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", v[0], v[1])
}

// mappingName is gdr_mapping_type_t in words.
func mappingName(m int) string {
	names := [...]string{"none", "write-combining", "cached", "device"}
	if m >= 0 && m < len(names) {
		return names[m]
	}
	return ""
}
