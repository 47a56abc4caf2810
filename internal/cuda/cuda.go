// Package cuda asks libcuda.so.1, the CUDA driver API, for device attributes
// after cuInit(0) alone: no context is made, so that a running job's GPU memory
// is left alone. Only the worker imports it: the library can hang and crash.
package cuda

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

// The driver API's types as far as needed; CUresult and CUdevice are int.
static struct {
	void *handle;
	int (*init)(unsigned int);
	int (*driver_version)(int *);
	int (*device_count)(int *);
	int (*device)(int *, int);
	int (*bus_id)(char *, int, int);
	int (*attribute)(int *, int, int);
	int (*error_string)(int, const char **);
} cu;

// gdr_cuda_load returns NULL or the name of what is missing: the library
// itself, for which dlerror has the words, or a symbol.
static const char *gdr_cuda_load(const char *path) {
	const struct { const char *name; void **fn; int optional; } table[] = {
		{"cuInit", (void **)&cu.init, 0},
		{"cuDriverGetVersion", (void **)&cu.driver_version, 0},
		{"cuDeviceGetCount", (void **)&cu.device_count, 0},
		{"cuDeviceGet", (void **)&cu.device, 0},
		{"cuDeviceGetPCIBusId", (void **)&cu.bus_id, 0},
		{"cuDeviceGetAttribute", (void **)&cu.attribute, 0},
		{"cuGetErrorString", (void **)&cu.error_string, 1},
	};
	cu.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!cu.handle)
		return path;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		*table[i].fn = dlsym(cu.handle, table[i].name);
		if (!*table[i].fn && !table[i].optional)
			return table[i].name;
	}
	return NULL;
}

static int gdr_cuda_loaded(void) { return cu.handle != NULL; }

static const char *gdr_cuda_file(void) {
	struct link_map *map = NULL;
	if (dlinfo(cu.handle, RTLD_DI_LINKMAP, &map) || !map)
		return "";
	return map->l_name;
}

static int gdr_cuda_init(void) { return cu.init(0); }
static int gdr_cuda_driver_version(int *v) { return cu.driver_version(v); }
static int gdr_cuda_device_count(int *n) { return cu.device_count(n); }
static int gdr_cuda_device(int *d, int i) { return cu.device(d, i); }
static int gdr_cuda_bus_id(char *s, int n, int d) { return cu.bus_id(s, n, d); }
static int gdr_cuda_attribute(int *v, int a, int d) { return cu.attribute(v, a, d); }

static const char *gdr_cuda_words(int code) {
	const char *s = NULL;
	if (!cu.error_string || cu.error_string(code, &s))
		return NULL;
	return s;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

const soname = "libcuda.so.1"

// maxDevices bounds what is believed of a device count.
const maxDevices = 256

// Library is libcuda after a successful cuInit.
type Library struct {
	at    func(string)
	count int
}

// Open loads libcuda and calls cuInit(0); path is a test double to load
// instead, or empty. at is told the name of each function before it is called.
// A missing library is Absent, an error of CUDA Failed, in words.
func Open(path string, at func(string)) (*Library, fact.Value[gpu.CUDASystem]) {
	name := path
	if name == "" {
		name = soname
	}
	if v := load(name, at); v.State != fact.Known {
		return nil, fact.As(v, gpu.CUDASystem{})
	}
	l := &Library{at: at}
	if v := l.call("cuInit", func(*C.int) C.int { return C.gdr_cuda_init() }); v.State != fact.Known {
		return nil, fact.As(v, gpu.CUDASystem{})
	}
	version := l.call("cuDriverGetVersion", func(n *C.int) C.int { return C.gdr_cuda_driver_version(n) })
	if version.State != fact.Known {
		return nil, fact.As(version, gpu.CUDASystem{})
	}
	count := l.call("cuDeviceGetCount", func(n *C.int) C.int { return C.gdr_cuda_device_count(n) })
	if count.State != fact.Known {
		return nil, fact.As(count, gpu.CUDASystem{})
	}
	if count.V < 0 || count.V > maxDevices {
		reason := fmt.Sprintf("absurd number of devices: %d", count.V)
		return nil, fact.Missing[gpu.CUDASystem](fact.Failed, count.Source, reason)
	}
	l.count = count.V
	s := gpu.CUDASystem{
		DriverVersion: version.V, DeviceCount: count.V,
		Library: C.GoString(C.gdr_cuda_file()), Simulated: path != "",
	}
	return l, fact.Of(s, "cuda")
}

func load(name string, at func(string)) fact.Value[struct{}] {
	// dlerror(3) speaks for the thread that called dlopen.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	at("dlopen(" + name + ")")
	path := C.CString(name)
	defer C.free(unsafe.Pointer(path))
	missing := C.gdr_cuda_load(path)
	if missing == nil {
		return fact.Of(struct{}{}, "dlopen")
	}
	if C.gdr_cuda_loaded() != 0 {
		reason := fmt.Sprintf("%s has no %s", name, C.GoString(missing))
		return fact.Missing[struct{}](fact.Failed, "dlsym", reason)
	}
	reason := C.GoString(C.dlerror())
	state := fact.Failed
	if strings.HasPrefix(reason, name) && strings.Contains(reason, "No such file or directory") {
		state = fact.Absent // not a dependency of the library, the library itself
	}
	return fact.Missing[struct{}](state, "dlopen", reason)
}

// Count returns the number of devices that CUDA sees.
func (l *Library) Count() int { return l.count }

// Attributes of the driver API's CUdevice_attribute.
const (
	attrRDMAWithVMM    = 110
	attrGPUDirectRDMA  = 116
	attrFlushWrites    = 117
	attrWritesOrdering = 118
	attrDMABuf         = 124
)

// Device asks the address and the attributes of one device. part is told what
// is known before the rest is asked.
func (l *Library) Device(index int, part func(any)) fact.Value[gpu.CUDADevice] {
	var d gpu.CUDADevice
	dev := l.call("cuDeviceGet", func(n *C.int) C.int { return C.gdr_cuda_device(n, C.int(index)) })
	if dev.State != fact.Known {
		return fact.As(dev, d)
	}
	addr := l.address(C.int(dev.V))
	if addr.State != fact.Known {
		return fact.As(addr, d)
	}
	d.Addr = addr.V
	part(d)
	attr := func(n C.int) fact.Value[int] {
		return l.call(fmt.Sprintf("cuDeviceGetAttribute(%d)", n), func(v *C.int) C.int {
			return C.gdr_cuda_attribute(v, n, C.int(dev.V))
		})
	}
	d.RDMAWithVMM = attr(attrRDMAWithVMM)
	d.GPUDirectRDMA = attr(attrGPUDirectRDMA)
	d.FlushWritesOptions = attr(attrFlushWrites)
	d.WritesOrdering = attr(attrWritesOrdering)
	d.DMABuf = attr(attrDMABuf)
	return fact.Of(d, "cuda")
}

func (l *Library) address(dev C.int) fact.Value[pci.Address] {
	var buf [32]C.char
	v := l.call("cuDeviceGetPCIBusId", func(*C.int) C.int {
		return C.gdr_cuda_bus_id(&buf[0], C.int(len(buf)-1), dev) // the last byte stays NUL
	})
	return fact.Map(v, func(int) (pci.Address, error) { return pci.ParseAddress(C.GoString(&buf[0])) })
}

// call makes one call that fills in an int, and gives its answer a state.
func (l *Library) call(fn string, f func(*C.int) C.int) fact.Value[int] {
	l.at(fn)
	var n C.int
	code := f(&n)
	if code == 0 {
		return fact.Of(int(n), "cuda:"+fn)
	}
	return fact.Missing[int](stateOf(int(code), fn), "cuda:"+fn, words(fn, int(code)))
}

// Results of the driver API's CUresult that mean something of their own here.
const (
	errInvalidValue = 1
	errNotPermitted = 800
	errNotSupported = 801
)

func stateOf(code int, fn string) fact.State {
	switch {
	case code == errNotSupported:
		return fact.Unsupported
	case code == errInvalidValue && strings.HasPrefix(fn, "cuDeviceGetAttribute"):
		return fact.Unsupported // a driver from before the attribute
	case code == errNotPermitted:
		return fact.Denied
	}
	return fact.Failed
}

// words says what an error means on this node, or else what the library says.
func words(fn string, code int) string {
	known, _ := gpu.CUDAError(fn, code)
	hint := known.Cause
	if hint == "" {
		if p := C.gdr_cuda_words(C.int(code)); p != nil {
			hint = clean(C.GoString(p))
		}
	}
	if hint == "" {
		return fmt.Sprintf("CUDA error %d", code)
	}
	return fmt.Sprintf("%s (CUDA error %d)", hint, code)
}

func clean(s string) string {
	const longest = 128
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
