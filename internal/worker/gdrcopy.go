package worker

import (
	"cmp"
	"fmt"
	"os"
	"runtime"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gdrcopy"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/mem"
)

// askGDRCopy tries GDRCopy on GPUs, given by their addresses. It makes a context
// on each.
func askGDRCopy(s *session, gpus []string) {
	dieOfSignals()
	runtime.LockOSThread() // a context is a thread's
	cuda, library := os.Getenv(CUDALibraryEnv), os.Getenv(GDRCopyLibraryEnv)
	if double := cmp.Or(cuda, library); double != "" && !s.skip[gpu.SubjectDouble] {
		s.record(gpu.SubjectDouble, toRecord(fact.Of(double, "environment")))
	}
	for _, address := range gpus {
		s.subject(address, func() fact.Record {
			s.at("libgdrapi")
			if err := gdrcopy.Load(library); err != nil {
				return toRecord(fact.FromError[gpu.GDRCopyProbe](err, "libgdrapi"))
			}
			s.at("the driver of GPU " + address)
			kind, err := mem.Open(mem.CUDA, cuda, address)
			if err != nil {
				return failed(fmt.Errorf("memory of the GPU: %w", err))
			}
			s.at("GDRCopy on GPU " + address)
			return toRecord(fact.Of(gdrcopy.Probe(kind.Ops, kind.Device), "libgdrapi"))
		})
	}
}
