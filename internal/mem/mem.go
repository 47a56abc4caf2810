// Package mem provides the kinds of memory that RDMA is tested over, as tables
// of C functions (mem.h). Vendor libraries are behind some: only the worker
// process uses it.
package mem

// #include "mem.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// Host is the node's own memory.
const Host = "host"

// Ops returns the table of a kind, a const struct gdr_mem_ops *, as a plain
// pointer since C types do not cross packages.
func Ops(kind string) (unsafe.Pointer, error) {
	if kind == Host {
		return unsafe.Pointer(&C.gdr_mem_host), nil
	}
	return nil, fmt.Errorf("no memory of kind %q", kind)
}
