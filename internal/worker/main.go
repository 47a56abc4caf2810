package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// IsWorker says whether this process was started to be a worker. Call it first
// of all: a worker has no use for anything else that the program sets up.
func IsWorker(args []string) bool { return len(args) == 2 && args[1] == command }

// Main is the worker: it reads one request from stdin, answers on fd 3 and
// returns the exit status. It ends as soon as stdin does, since then the parent
// is gone.
func Main() int {
	const answersFD = 3
	out := os.NewFile(answersFD, "answers")
	if _, err := out.Stat(); err != nil {
		fmt.Fprintln(os.Stderr, "gdrcheck", command, "is started by gdrcheck itself")
		return 2
	}
	stdin := bufio.NewReader(os.Stdin)
	line, err := readRequest(stdin)
	if err != nil {
		return 2
	}
	var req request
	jsonErr := json.Unmarshal(line, &req)
	if req.Ask == askPerf {
		perfMain(stdin, out)
		return 0
	}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		leave()
	}()
	s := &session{out: bufio.NewWriterSize(out, 64<<10), skip: map[string]bool{}}
	if jsonErr != nil {
		s.send(message{Error: "unreadable request: " + jsonErr.Error()})
	} else {
		s.answer(req)
	}
	s.flush()
	return 0
}

// readRequest reads one line of bounded length and nothing beyond it.
func readRequest(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxRequestBytes {
			return line, err
		}
	}
}

// dieOfSignals undoes the Go runtime's handlers for what a crash in a library
// raises: the parent then learns the signal from the kernel, in place of a page
// of registers on stderr. Nor is a core wanted: a limit of 1 keeps the kernel
// from writing one and from piping one to a handler (core(5)).
func dieOfSignals() {
	var dfl [4]uintptr // struct sigaction of rt_sigaction(2): SIG_DFL, no flags, no mask
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGABRT} {
		const maskBytes = 8
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dfl)), 0, maskBytes, 0, 0)
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1})
}

// session writes the answers to one request.
type session struct {
	out  *bufio.Writer
	skip map[string]bool
}

// answer puts the request to whoever can answer it.
func (s *session) answer(req request) {
	for _, name := range req.Skip {
		s.skip[name] = true
	}
	ask, ok := asks[req.Ask]
	if !ok {
		s.send(message{Error: fmt.Sprintf("no worker answers %q", req.Ask)})
		return
	}
	ask(s, req.Args)
	s.send(message{Done: true})
}

func (s *session) send(m message) {
	b, err := json.Marshal(m)
	if err != nil { // a Part or Data that is no JSON: a defect of ours
		b, _ = json.Marshal(message{Error: err.Error()})
	}
	_, _ = s.out.Write(append(b, '\n'))
}

// flush sends what is buffered. A failed write means that the parent is gone.
func (s *session) flush() {
	if s.out.Flush() != nil {
		leave()
	}
}

// leave ends a worker whose parent is gone, and all that it holds with it.
func leave() { os.Exit(0) }

// at names the call that comes next, should it hang or crash.
func (s *session) at(call string) {
	s.send(message{At: call})
	s.flush()
}

// subject asks one subject, unless it was answered before, and sends its
// record. A panic in a library's wrapper is that subject's failure.
func (s *session) subject(name string, f func() fact.Record) {
	if s.skip[name] {
		return
	}
	s.skip[name] = true // asked twice, answered once
	s.send(message{Start: name})
	s.flush()
	s.record(name, guard(f))
}

// gate asks a subject that the others need, so that it is run in every worker,
// though its answer is sent once. It says whether the others can be asked.
func (s *session) gate(name string, f func() fact.Record) bool {
	s.send(message{Start: name, Gate: true})
	s.flush()
	r := guard(f)
	if !s.skip[name] {
		s.record(name, r)
	}
	return r.State == fact.Known
}

func guard(f func() fact.Record) (r fact.Record) {
	defer func() {
		if p := recover(); p != nil {
			r = fact.Record{State: fact.Failed, Reason: oneLine(fmt.Sprint("panic: ", p))}
		}
	}()
	return f()
}

// record sends a record. Its Data is spliced in as it is: encoding/json would
// check and copy it byte by byte, which is most of the time for files.
func (s *session) record(subject string, r fact.Record) {
	r.Subject = subject
	data := r.Data
	r.Data = nil
	line, err := json.Marshal(message{Record: &r})
	const end = "}}"
	head, ok := bytes.CutSuffix(line, []byte(end))
	if err != nil || !ok || bytes.IndexByte(data, '\n') >= 0 {
		r.Data = data
		s.send(message{Record: &r})
		return
	}
	_, _ = s.out.Write(head)
	if len(data) > 0 {
		_, _ = s.out.WriteString(`,"data":`)
		_, _ = s.out.Write(data)
	}
	_, _ = s.out.WriteString(end + "\n")
}

// expect tells the parent what there is to ask.
func (s *session) expect(subjects []string) { s.send(message{Subjects: slices.Clone(subjects)}) }

// toRecord turns a value into the record that fact.Decode reads.
func toRecord[T any](v fact.Value[T]) fact.Record {
	r := fact.Record{State: v.State, Source: v.Source, Errno: int(v.Errno), Reason: v.Reason}
	if v.State != fact.Known {
		return r
	}
	data, err := json.Marshal(v.V)
	if err != nil {
		return failed(err)
	}
	r.Data = data
	return r
}

func failed(err error) fact.Record { return toRecord(fact.FromError[struct{}](err, "")) }
