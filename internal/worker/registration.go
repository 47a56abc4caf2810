package worker

import (
	"cmp"
	"errors"
	"os"
	"runtime"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/verbs"
)

// probeBytes is a whole page of a GPU's memory, and the least that its virtual
// memory functions give.
const probeBytes = 2 << 20

// askRegistration registers memory of GPUs with RDMA devices and takes it back.
// It makes a context on each GPU, which costs half a second and as many gigabytes
// of its memory until the worker ends.
func askRegistration(s *session, pairs []string) {
	dieOfSignals()
	runtime.LockOSThread() // a context is a thread's
	ibverbs := os.Getenv(VerbsLibraryEnv)
	if double := cmp.Or(os.Getenv(CUDALibraryEnv), os.Getenv(HIPLibraryEnv), ibverbs); double != "" && !s.skip[gpu.SubjectDouble] {
		s.record(gpu.SubjectDouble, toRecord(fact.Of(double, "environment")))
	}
	for _, pair := range pairs {
		s.subject(pair, func() fact.Record {
			ask, err := rdma.ParseRegistrationAsk(pair)
			if err != nil {
				return failed(err)
			}
			return toRecord(fact.Of(s.register(ask, ibverbs), "registration"))
		})
	}
}

// register tries every kind of memory by every way.
func (s *session) register(ask rdma.RegistrationAsk, ibverbs string) rdma.RegistrationProbe {
	p := rdma.RegistrationProbe{Bytes: probeBytes}
	s.at("ibv_open_device " + ask.Device)
	r, failed := verbs.OpenRegistrar(ibverbs, ask.Device)
	if failed != nil {
		p.Failed = failed
		return p
	}
	defer r.Close()
	for i, name := range ask.Kinds {
		s.at("the driver of GPU " + ask.GPU.String())
		kind, err := mem.Open(name, gpuDouble(name), ask.GPU.String())
		if err != nil {
			p.Failed = openError(err)
			return p
		}
		s.at("a context and " + name + " memory on GPU " + ask.GPU.String())
		failed := r.Alloc(verbs.Memory{Ops: kind.Ops, Device: kind.Device}, probeBytes)
		if failed != nil && i == 0 {
			p.Failed = failed
			return p
		}
		for _, way := range ask.Ways {
			w := rdma.WayProbe{Memory: name, Way: way, Error: failed}
			if failed == nil {
				s.at("registration of " + name + " memory by " + way)
				w = r.Try(name, perftest.Way(way))
			}
			p.Ways = append(p.Ways, w)
		}
	}
	return p
}

// openError is why a GPU's library could not be used, as a fact.
func openError(err error) *rdma.CallError {
	e, ok := errors.AsType[*mem.Error](err)
	if !ok {
		return &rdma.CallError{Call: "memory", Text: err.Error()}
	}
	if e.Missing {
		e.Text = "the library is not installed"
	}
	return &rdma.CallError{Call: e.Call, Library: e.Library, Code: e.Code, Name: e.Name, Text: e.Text}
}
