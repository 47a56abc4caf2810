// Package nvml asks libnvidia-ml.so.1 (NVML) through NVIDIA/go-nvml. Only the
// worker imports it: the library can hang and crash.
//
// go-nvml binds NVML's functions when they are first called, and the dynamic
// loader ends the process over one that is missing. So no function is called
// here before Init succeeded and has found its symbol.
package nvml

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

const soname = "libnvidia-ml.so.1"

// maxDevices bounds what is believed of a device count.
const maxDevices = 256

// Library is NVML after a successful Init.
type Library struct {
	api   nvml.Interface
	dl    *dl.DynamicLibrary
	at    func(string)
	count int
}

// Open loads NVML and initialises it; path is a test double to load instead, or
// empty. at is told the name of each function before it is called. A missing
// library is Absent; a missing driver, a version mismatch and all else that
// Init refuses is Failed, in NVML's words.
func Open(path string, at func(string)) (*Library, fact.Value[gpu.NVMLSystem]) {
	name := path
	if name == "" {
		name = soname
	}
	l := &Library{dl: dl.New(name, dl.RTLD_LAZY|dl.RTLD_GLOBAL), at: at}
	at("dlopen(" + name + ")")
	if err := l.dl.Open(); err != nil {
		return nil, noLibrary(name, err)
	}
	// go-nvml takes nvmlInit where the library has no nvmlInit_v2.
	const initFn = "nvmlInit"
	if !l.has(initFn) {
		return nil, fact.Missing[gpu.NVMLSystem](fact.Failed, source(initFn), name+" has no "+initFn)
	}
	l.api = nvml.New(nvml.WithLibraryPath(name))
	at(initFn)
	if ret := l.api.Init(); ret != nvml.SUCCESS {
		state, reason := l.outcome(ret)
		if ret == nvml.ERROR_DRIVER_NOT_LOADED || state == fact.Unsupported {
			state = fact.Failed // of Init there is no unsupported kind
		}
		return nil, fact.Missing[gpu.NVMLSystem](state, source(initFn), reason)
	}
	return l.system(name, path != "")
}

// Count returns the number of devices that NVML sees.
func (l *Library) Count() int { return l.count }

func noLibrary(name string, err error) fact.Value[gpu.NVMLSystem] {
	state := fact.Failed
	if strings.Contains(err.Error(), "No such file or directory") && strings.HasPrefix(err.Error(), name) {
		state = fact.Absent // not a dependency of the library, the library itself
	}
	return fact.Missing[gpu.NVMLSystem](state, "dlopen", err.Error())
}

func (l *Library) system(name string, double bool) (*Library, fact.Value[gpu.NVMLSystem]) {
	// What the node's software is called is worth having, but the devices are
	// there without it.
	s := gpu.NVMLSystem{Library: loaded(name), Simulated: double}
	s.DriverVersion = text(ask(l, "nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion).Or(""))
	s.NVMLVersion = text(ask(l, "nvmlSystemGetNVMLVersion", l.api.SystemGetNVMLVersion).Or(""))
	s.CUDAVersion = ask(l, "nvmlSystemGetCudaDriverVersion_v2", l.api.SystemGetCudaDriverVersion_v2).Or(0)

	count := ask(l, "nvmlDeviceGetCount", l.api.DeviceGetCount)
	if count.State != fact.Known {
		return nil, fact.As(count, s)
	}
	if count.V < 0 || count.V > maxDevices {
		reason := fmt.Sprintf("absurd number of devices: %d", count.V)
		return nil, fact.Missing[gpu.NVMLSystem](fact.Failed, count.Source, reason)
	}
	l.count, s.DeviceCount = count.V, count.V
	return l, fact.Of(s, "nvml")
}

// loaded finds the file that the loader took for a library, in
// /proc/self/maps (proc(5)); the name itself where it is not there.
func loaded(name string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil || strings.Contains(name, "/") {
		return name
	}
	return mapped(string(maps), strings.TrimSuffix(name, ".1"), name)
}

func mapped(maps, prefix, def string) string {
	for line := range strings.Lines(maps) {
		i := strings.IndexByte(line, '/')
		if i < 0 {
			continue
		}
		path := strings.TrimSpace(line[i:])
		if base := path[strings.LastIndexByte(path, '/')+1:]; strings.HasPrefix(base, prefix) {
			return path
		}
	}
	return def
}

// has says whether the library has a function in any version. NVML names
// versions after the first with a suffix, and go-nvml takes the newest it knows.
func (l *Library) has(fn string) bool {
	for _, suffix := range []string{"", "_v2", "_v3", "_v4"} {
		if l.dl.Lookup(fn+suffix) == nil {
			return true
		}
	}
	return false
}

func source(fn string) string { return "nvml:" + fn }

// ask calls one function, if the library has it, and gives its answer a state.
// go-nvml panics over a library that says it filled in more than it was given
// room for; that is the failure of this one field.
func ask[T any](l *Library, fn string, call func() (T, nvml.Return)) (out fact.Value[T]) {
	defer func() {
		if p := recover(); p != nil {
			out = fact.Missing[T](fact.Failed, source(fn), fmt.Sprint("panic: ", p))
		}
	}()
	if !l.has(fn) {
		return fact.Missing[T](fact.Unsupported, source(fn), "this NVML library has no "+fn)
	}
	l.at(fn)
	v, ret := call()
	if ret != nvml.SUCCESS {
		state, reason := l.outcome(ret)
		return fact.Missing[T](state, source(fn), reason)
	}
	return fact.Of(v, source(fn))
}

// outcome classifies an error of NVML.
func (l *Library) outcome(ret nvml.Return) (fact.State, string) {
	reason := l.words(ret)
	switch ret {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_VGPU_ECC_NOT_SUPPORTED, nvml.ERROR_FREQ_NOT_SUPPORTED,
		nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return fact.Unsupported, reason
	case nvml.ERROR_NO_PERMISSION:
		return fact.Denied, reason
	default:
		return fact.Failed, reason
	}
}

// words is NVML's own text for an error, with its number. Known codes only: a
// library that returns others is not asked to explain them.
func (l *Library) words(ret nvml.Return) string {
	known := ret >= 0 && ret <= nvml.ERROR_RESET_TYPE_NOT_SUPPORTED || ret == nvml.ERROR_UNKNOWN
	if !known || l.dl.Lookup("nvmlErrorString") != nil {
		return fmt.Sprintf("NVML error %d", ret)
	}
	return fmt.Sprintf("%s (NVML error %d)", text(strings.Clone(ret.Error())), ret)
}

// text bounds a string of the library and keeps what can be printed.
func text(s string) string {
	const longest = 128
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}

var errNone = errors.New("NVML gave an empty string")

// checked is text, where an empty answer is a failure.
func checked(v fact.Value[string]) fact.Value[string] {
	return fact.Map(v, func(s string) (string, error) {
		if s = text(s); s == "" {
			return "", errNone
		}
		return s, nil
	})
}
