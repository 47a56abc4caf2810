package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/mem"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/verbs"
)

// perfEnd is a worker that is one end of a measurement.
type perfEnd struct {
	mu      sync.Mutex // of out
	out     *bufio.Writer
	session *verbs.Session
	route   perftest.Route
	outcome perftest.Outcome
	trace   trace
}

// perfMain takes commands until stdin ends. All of libibverbs is called on this
// one thread, whose place is chosen when the device is known.
func perfMain(stdin *bufio.Reader, out io.Writer) {
	dieOfSignals()
	runtime.LockOSThread()
	commands := make(chan []byte)
	go func() {
		for {
			line, err := stdin.ReadBytes('\n')
			if err != nil || len(line) > maxRequestBytes {
				leave()
			}
			commands <- line
		}
	}()
	e := &perfEnd{out: bufio.NewWriter(out), trace: openTrace()}
	for line := range commands {
		var c perfCommand
		r, err := perfReply{}, json.Unmarshal(line, &c)
		if err == nil {
			r, err = e.answer(c)
		}
		if err != nil {
			r = perfReply{Failure: perftest.AsFailure(err)}
		}
		r.Done = true
		if e.session != nil {
			r.Reported = e.session.Events()
		}
		e.send(r)
	}
}

func (e *perfEnd) send(r perfReply) {
	b, err := json.Marshal(r)
	if err != nil { // a NaN: a defect of ours
		b, _ = json.Marshal(perfReply{Failure: perftest.AsFailure(err), Done: true})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = e.out.Write(append(b, '\n'))
	if e.out.Flush() != nil {
		leave()
	}
}

func (e *perfEnd) answer(c perfCommand) (r perfReply, err error) {
	e.trace.clear()
	if c.Do == "open" {
		r.Endpoint, err = e.open(c)
		return r, err
	}
	if e.session == nil {
		return r, &perftest.Failure{Call: c.Do, Cause: "nothing is open"}
	}
	switch c.Do {
	case "connect":
		return r, e.session.Connect(*c.Peer)
	case "prepare":
		return r, e.session.Prepare(c.Size)
	case "run":
		r.Outcome, err = e.run(c.Size)
	case "events": // with every reply
	case "verify":
		r.Data, err = e.session.Verify(e.outcome, *c.Outcome)
	default:
		err = &perftest.Failure{Call: c.Do, Cause: "no such command"}
	}
	return r, err
}

func (e *perfEnd) run(size int) (_ *perftest.Outcome, err error) {
	var before map[string]uint64
	if e.route == perftest.RouteTCP {
		before = sentBytes()
	}
	stop := e.tell(e.session.Completed)
	e.outcome, err = e.session.Run(size)
	stop()
	if e.route == perftest.RouteTCP && len(e.outcome.Sent) > 0 {
		e.outcome.Path = carriers(before, sentBytes(), e.outcome.Sent[0]*uint64(size))
	}
	return &e.outcome, err
}

func (e *perfEnd) open(c perfCommand) (*perftest.Endpoint, error) {
	local := *c.Local
	near := nodeOf("/sys", &local)
	notes := near.place(&local)
	memory, err := openMemory(&local)
	if err != nil {
		return nil, err
	}
	if e.route = c.Plan.Route; e.route == perftest.RouteTCP {
		more, err := streamAddress(&local)
		if err != nil {
			return nil, err
		}
		notes = append(notes, more...)
	}
	double := os.Getenv(VerbsLibraryEnv)
	s, endpoint, err := verbs.Open(double, memory, *c.Plan, local, c.Side)
	if err != nil {
		if double == "" {
			err = whyNotOpened(thisSystem, local.Device, perftest.AsFailure(err))
		}
		return nil, err
	}
	e.session = s
	endpoint.DeviceNode, endpoint.Double = near.node, double
	endpoint.Notes = append(notes, endpoint.Notes...)
	if perftest.OnGPU(local.Memory) {
		endpoint.Memory.Double = gpuDouble(local.Memory)
	} else if near.node >= 0 && endpoint.NUMANode >= 0 && local.NUMANode != endpoint.NUMANode {
		endpoint.Notes = append(endpoint.Notes, "the buffer could not be placed on the NUMA node that was chosen for it")
	}
	return &endpoint, nil
}

// openMemory readies the kind of memory that an end asks for.
func openMemory(l *perftest.Local) (verbs.Memory, error) {
	if !perftest.OnGPU(l.Memory) {
		k := mem.HostKind(l.NUMANode)
		return verbs.Memory{Ops: k.Ops, Device: k.Device}, nil
	}
	// Small messages may arrive inside a completion, from where mlx5's library
	// copies them by the CPU, which cannot write a GPU's memory.
	if err := os.Setenv("MLX5_SCATTER_TO_CQE", "0"); err != nil {
		return verbs.Memory{}, err
	}
	if l.GPU == nil {
		return verbs.Memory{}, &perftest.Failure{Call: "open", Subject: l.Device, Cause: l.Memory + " memory of which GPU?"}
	}
	k, err := mem.Open(l.Memory, gpuDouble(l.Memory), l.GPU.Addr.String())
	return verbs.Memory{Ops: k.Ops, Device: k.Device}, memoryFailure(err, l.GPU.String())
}

// gpuDouble is the test double of the library of a kind of memory; empty: none.
func gpuDouble(kind string) string {
	if kind == perftest.MemoryROCm {
		return os.Getenv(HIPLibraryEnv)
	}
	return os.Getenv(CUDALibraryEnv)
}

// memoryFailure explains why a GPU's library could not be used.
func memoryFailure(err error, subject string) error {
	e, ok := errors.AsType[*mem.Error](err)
	if !ok {
		return err
	}
	if e.Code != 0 {
		f := perftest.LibraryFailure(e.Library, e.Call, e.Code, e.Name)
		f.Subject = subject
		return f
	}
	f := &perftest.Failure{Call: e.Call, Subject: subject, Cause: e.Text, Check: "reinstall the GPU driver's libraries"}
	if e.Missing {
		f.Cause = "the " + e.Library + " driver library is not installed"
		f.Check = gpu.Install(e.Library)
	}
	return f
}

// tell sends the progress of a run until the function that it returns is called.
func (e *perfEnd) tell(completed func() uint64) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				n := completed()
				e.send(perfReply{Completed: &n, Reported: e.session.Events()})
			}
		}
	}()
	return func() {
		close(done)
		<-ended // so that nothing comes after the run's own answer
	}
}
