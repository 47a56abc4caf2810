// Package verbs asks libibverbs, found at run time, what sysfs cannot tell of
// an RDMA device. It is C through cgo and can hang or crash with the driver
// below it: only the worker process calls it.
package verbs

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
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

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

const soname = "libibverbs.so.1"

// load fills a table of the library's functions. The error wraps
// fs.ErrNotExist where the loader finds no such library.
func load(name string) (*C.struct_gdr_verbs, error) {
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	t := new(C.struct_gdr_verbs)
	reason := C.gdr_verbs_load(t, cname)
	if reason == nil {
		return t, nil
	}
	defer C.free(unsafe.Pointer(reason))
	// dlerror's words are all that tells a missing library from a broken one.
	text := C.GoString(reason)
	if strings.HasPrefix(text, name+": cannot open shared object file: No such file") {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return nil, errors.New(text)
}

// Trace has calls noted in memory that outlives the process, as mem's trace.h says.
func Trace(at *byte) { C.gdr_verbs_trace = (*C.char)(unsafe.Pointer(at)) }

// Probe asks libibverbs about one RDMA device without moving data: firmware,
// ports, and whether a dma-buf could be registered. What it opens it closes.
// path is a test double to load instead of the system's library, or empty.
//
// The error wraps fs.ErrNotExist without the library, syscall.ENODEV without
// the device, and otherwise the errno that the library gave.
func Probe(path, device string) (rdma.VerbsProbe, error) {
	t, err := load(cmp.Or(path, soname))
	if err != nil {
		return rdma.VerbsProbe{}, err
	}
	return probe(t, device)
}

func probe(t *C.struct_gdr_verbs, device string) (p rdma.VerbsProbe, err error) {
	cname := C.CString(device)
	defer C.free(unsafe.Pointer(cname))
	var (
		ctx  *C.struct_ibv_context
		call *C.char
	)
	if rc := C.gdr_open(t, cname, &ctx, &call); rc != 0 {
		return p, callError(C.GoString(call), device, rc)
	}
	defer func() {
		if rc := C.gdr_close(t, ctx); rc != 0 && err == nil {
			err = callError("ibv_close_device", device, rc)
		}
	}()

	var attr C.struct_ibv_device_attr
	if rc := C.gdr_query_device(t, ctx, &attr); rc != 0 {
		return p, callError("ibv_query_device", device, rc)
	}
	p.Firmware = C.GoString(&attr.fw_ver[0])
	for n := 1; n <= int(attr.phys_port_cnt); n++ {
		port, err := queryPort(t, ctx, device, n)
		if err != nil {
			return p, err
		}
		p.Ports = append(p.Ports, port)
	}
	p.DMABufErrno = probeDMABuf(t, ctx, device)
	return p, nil
}

func queryPort(t *C.struct_gdr_verbs, ctx *C.struct_ibv_context, device string, n int) (rdma.VerbsPort, error) {
	var attr C.struct_ibv_port_attr
	if rc := C.gdr_query_port(t, ctx, C.uint8_t(n), &attr); rc != 0 {
		return rdma.VerbsPort{}, callError("ibv_query_port", fmt.Sprintf("%s/%d", device, n), rc)
	}
	return rdma.VerbsPort{
		Number:         n,
		State:          portState(int(attr.state)),
		ActiveMTUBytes: mtuBytes(int(attr.active_mtu)),
		MaxMTUBytes:    mtuBytes(int(attr.max_mtu)),
	}, nil
}

func probeDMABuf(t *C.struct_gdr_verbs, ctx *C.struct_ibv_context, device string) fact.Value[int] {
	const source = "verbs:ibv_reg_dmabuf_mr"
	if t.reg_dmabuf_mr == nil {
		return fact.Missing[int](fact.Unsupported, source, "this libibverbs has no ibv_reg_dmabuf_mr (it came with IBVERBS_1.12)")
	}
	var answer C.int
	if rc := C.gdr_probe_dmabuf(t, ctx, &answer); rc != 0 {
		return fact.FromError[int](callError("ibv_alloc_pd", device, rc), source)
	}
	return fact.Of(int(answer), source)
}

func callError(call, subject string, rc C.int) error {
	return fmt.Errorf("%s %s: %w", call, subject, syscall.Errno(rc))
}
