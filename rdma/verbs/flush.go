package verbs

/*
#include "session.h"
*/
import "C"

import "github.com/gdrcheck/gdrcheck/perftest"

// flushSamples are taken of each way to flush.
const flushSamples = 500

// flushes says whether this end measures what makes arrived data visible to its GPU.
func (s *Session) flushes() bool {
	return s.ops.cpu_access == 0 && s.ops.order != nil && s.plan.Measure == perftest.Latency && s.plan.Route == perftest.RouteDirect
}

// flush measures it, by each way that there is.
func (s *Session) flush() []perftest.Flush {
	if C.gdr_gets_data(&s.s.c) == 0 {
		return nil
	}
	samples := make([]C.uint64_t, flushSamples)
	var e C.struct_gdr_error
	out := []perftest.Flush{{Method: perftest.FlushRead}, {Method: perftest.FlushCall}}
	for i := range out {
		f := &out[i]
		f.Side, f.Ordered = s.side, perftest.OrderOf(int(C.gdr_order(&s.s.mem)))
		var rc C.int
		if f.Method == perftest.FlushRead {
			rc = C.gdr_flush_read(s.s, &samples[0], flushSamples, &e)
		} else {
			rc = C.gdr_flush_call(s.s, &samples[0], flushSamples, &e)
		}
		if rc != 0 {
			f.Failure = failure(&e, s.ops, &s.local)
			continue
		}
		ns := make([]float64, flushSamples)
		for k, c := range samples {
			ns[k] = float64(c) * float64(s.s.ns_per_cycle)
		}
		var err error
		if f.Latency, err = perftest.NewLatencyDist(ns); err != nil {
			f.Failure = perftest.AsFailure(err)
		}
	}
	return out
}
