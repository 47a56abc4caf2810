// Package mem provides the kinds of memory that RDMA is tested over, as tables
// of C functions (mem.h). Vendor libraries are behind some: only the worker
// process uses it.
package mem

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "mem.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Kinds of memory.
const (
	Host    = "host"     // the node's own
	CUDA    = "cuda"     // an NVIDIA GPU's, as cudaMalloc gives it
	CUDAVMM = "cuda-vmm" // the same of the virtual memory functions, as PyTorch's growing segments
	ROCm    = "rocm"     // an AMD GPU's, as hipMalloc gives it
)

// Kind is a kind of memory on a device, ready to be allocated.
type Kind struct {
	// Ops is a const struct gdr_mem_ops *, as a plain pointer since C types do
	// not cross packages.
	Ops    unsafe.Pointer
	Device int // of the kind: a NUMA node (-1: any), or a GPU's number
}

// Error is a call of a kind's library that failed.
type Error struct {
	Call    string // cuInit
	Library string // CUDA
	Code    int    // the library's own; 0: Text says what happened
	Name    string // of the code, CUDA_ERROR_NO_DEVICE; may be empty
	Text    string // why the library cannot be used
	Missing bool   // there is no such library
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code == 0 {
		return e.Text
	}
	return fmt.Sprintf("%s: %s error %d %s", e.Call, e.Library, e.Code, e.Name)
}

// HostKind is the node's own memory near a NUMA node; -1: any.
func HostKind(node int) Kind { return Kind{unsafe.Pointer(&C.gdr_mem_host), node} }

// Open loads the library of a kind and finds the GPU at a PCI address. library
// is a test double to load in its place, or empty. The error is an *Error where
// the library's words count.
func Open(kind, library, address string) (Kind, error) {
	table := map[string]*C.struct_gdr_mem_ops{CUDA: &C.gdr_mem_cuda, CUDAVMM: &C.gdr_mem_cuda_vmm, ROCm: &C.gdr_mem_rocm}[kind]
	if table == nil {
		return Kind{}, fmt.Errorf("no memory of kind %q", kind)
	}
	// dlerror(3) and a context speak for the thread that called.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var path *C.char
	if library != "" {
		path = C.CString(library)
		defer C.free(unsafe.Pointer(path))
	}
	at := C.CString(address)
	defer C.free(unsafe.Pointer(at))
	var (
		call, reason *C.char
		device       C.int
	)
	var rc int
	soname := "libcuda.so.1"
	if kind == ROCm {
		soname = "libamdhip64.so" // the last one that is looked for
		rc = int(C.gdr_hip_open(path, at, &device, &call, &reason))
	} else {
		rc = int(C.gdr_cuda_open(path, at, &device, &call, &reason))
	}
	if rc == 0 {
		return Kind{unsafe.Pointer(table), int(device)}, nil
	}
	e := &Error{Call: C.GoString(call), Library: C.GoString(table.library)}
	if reason != nil {
		defer C.free(unsafe.Pointer(reason))
		e.Text = C.GoString(reason)
		name, rest, _ := strings.Cut(e.Text, ": ")
		e.Missing = name == cmp.Or(library, soname) && strings.Contains(rest, "No such file")
	} else {
		e.Code = -rc
		e.Name = errorName(table, e.Code)
	}
	return Kind{}, e
}

func errorName(table *C.struct_gdr_mem_ops, code int) string {
	return C.GoString(C.gdr_mem_error_name(table, C.int(code)))
}

// TraceBytes is how much memory a trace takes.
const TraceBytes = C.GDR_TRACE_BYTES

// Trace has calls into vendors' libraries noted in memory that outlives the process,
// as trace.h says.
func Trace(at *byte) { C.gdr_mem_trace = (*C.char)(unsafe.Pointer(at)) }
