package worker

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/rdma/verbs"
)

// traceFD is where a worker that measures finds the memory for its trace.
const traceFD = 4

// newTrace is memory that both a worker and its parent have, so that the parent can
// tell in which call the worker hung or died, however it died; nil: there is none.
func newTrace(req request) *os.File {
	if req.Ask != askPerf {
		return nil
	}
	fd, err := unix.MemfdCreate("gdrcheck trace", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "trace")
	if f.Truncate(mem.TraceBytes) != nil {
		_ = f.Close()
		return nil
	}
	return f
}

// call is the last one that the worker began since its command; empty: none.
// through says that it returned.
func (p *process) call() (name string, through bool) {
	if p.trace == nil {
		return "", false
	}
	var b [mem.TraceBytes]byte
	if _, err := p.trace.ReadAt(b[:], 0); err != nil {
		return "", false
	}
	text, _, _ := bytes.Cut(b[1:], []byte{0})
	return oneLine(string(text)), b[0] != 0
}

// trace is the worker's side.
type trace []byte

func openTrace() trace {
	b, err := unix.Mmap(traceFD, 0, mem.TraceBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	mem.Trace(&b[0])
	verbs.Trace(&b[0])
	return b
}

// clear forgets the calls of the command before.
func (t trace) clear() {
	if t != nil {
		t[0], t[1] = 1, 0
	}
}
