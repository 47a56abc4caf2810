package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one running worker.
type process struct {
	proc    *os.Process
	stdin   *os.File
	answers *os.File
	lines   *bufio.Reader
	total   int

	requested chan struct{} // closed when the request is written
	trace     *os.File      // where a worker that measures notes its calls; nil: nowhere

	stderr tail
	exited chan *os.ProcessState // receives once, if the process can be reaped at all
	reaped sync.Mutex            // held while signalling, so that no other process's id is hit
	gone   bool
}

// start runs this program again as a worker and hands it the request.
func start(req request) (*process, error) {
	line, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	if len(line) >= maxRequestBytes {
		return nil, fmt.Errorf("the request has %d bytes, more than %d", len(line), maxRequestBytes)
	}
	self, err := executable()
	if err != nil {
		return nil, err
	}
	var pipes [3][2]*os.File // stdin, stderr, answers; read end, write end
	closeAll := func() {
		for _, p := range pipes {
			for _, f := range p {
				if f != nil {
					_ = f.Close()
				}
			}
		}
	}
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			closeAll()
			return nil, err
		}
	}
	inheritNothing()
	// A larger pipe spares context switches for hundreds of files; an ordinary
	// user may have used up his share, which costs only speed.
	enlarge(pipes[2][1])
	enlarge(pipes[0][1])

	in, errs, out := pipes[0], pipes[1], pipes[2]
	files := []*os.File{in[0], errs[1], errs[1], out[1]}
	trace := newTrace(req)
	if trace != nil {
		files = append(files, trace)
	}
	proc, err := os.StartProcess(self, []string{"gdrcheck", command}, &os.ProcAttr{
		Env: environment(os.Environ()),
		// stdout too goes to the bounded pipe: libraries print there, and a
		// worker that cannot be killed must not hold our own stdout open.
		Files: files,
		// A group of its own, so that the helpers libraries start die with it.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		closeAll()
		_ = trace.Close() // of none: an error
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	_, _, _ = in[0].Close(), errs[1].Close(), out[1].Close()
	p := newReader(out[0])
	p.proc, p.stdin, p.exited, p.trace = proc, in[1], make(chan *os.ProcessState, 1), trace
	p.stderr.done = make(chan struct{})
	go p.stderr.read(errs[0])
	go p.reap()
	// In a goroutine: a worker that dies before it reads would block us.
	p.requested = make(chan struct{})
	go func() {
		defer close(p.requested)
		_, _ = p.stdin.Write(append(line, '\n'))
	}()
	return p, nil
}

// inheritNothing keeps from workers whatever files our own parent left open for
// us: a worker that cannot be killed would keep them open, and a program that
// waits for the end of such a pipe would wait for it. Kernels before 5.11 cannot.
var inheritNothing = sync.OnceFunc(closeOnExec)

func closeOnExec() {
	const firstBeyondStderr = 3
	_ = unix.CloseRange(firstBeyondStderr, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

func newReader(answers *os.File) *process {
	return &process{answers: answers, lines: bufio.NewReaderSize(answers, 64<<10)}
}

func enlarge(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}

// executable prefers the kernel's link: it still works when the file was
// replaced or removed while we run.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Lstat(self); err == nil {
		return self, nil
	}
	if name, err := os.Executable(); err == nil {
		return name, nil
	}
	return exec.LookPath(os.Args[0])
}

// environment is the worker's: ours, except for what would make the answer
// depend on the shell. CUDA_VISIBLE_DEVICES would hide GPUs of this node;
// preloaded libraries (profilers, allocators) would run in the worker.
func environment(env []string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "LD_PRELOAD", "LD_AUDIT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER":
			return true
		}
		return false
	})
	return append(out, "CUDA_DEVICE_ORDER=PCI_BUS_ID")
}

// reap waits for the process, forever if need be: nobody waits for reap.
func (p *process) reap() {
	st, err := p.proc.Wait()
	p.reaped.Lock()
	p.gone = true
	p.reaped.Unlock()
	if err == nil {
		p.exited <- st
	}
}

// kill ends the worker and whatever it started, and does not wait: a process
// in uninterruptible sleep ignores SIGKILL.
func (p *process) kill() {
	p.reaped.Lock()
	if !p.gone {
		_ = syscall.Kill(-p.proc.Pid, syscall.SIGKILL)
		_ = p.proc.Kill()
	}
	p.reaped.Unlock()
	_, _ = p.answers.Close(), p.stdin.Close()
	if p.trace != nil {
		_ = p.trace.Close()
	}
}

var errTooMuch = fmt.Errorf("the worker sent more than %d MiB", maxTotalBytes>>20)

// garbled is a line that is no message of the protocol.
type garbled struct {
	line []byte
	err  error
}

func (g *garbled) Error() string {
	const show = 60
	l := g.line
	if len(l) > show {
		l = l[:show]
	}
	return fmt.Sprintf("unreadable answer %q: %v", l, g.err)
}

// next reads one message. It fails with os.ErrDeadlineExceeded at the deadline,
// with io.EOF when the worker ended, with *garbled when it sent nonsense.
func (p *process) next(ctx context.Context, deadline time.Time) (m message, err error) {
	err = p.nextInto(ctx, deadline, &m)
	return m, err
}

// nextInto is next for another kind of message.
func (p *process) nextInto(ctx context.Context, deadline time.Time, to any) error {
	if err := p.answers.SetReadDeadline(deadline); err != nil {
		return err
	}
	// After the deadline is set: whoever cancels may have set his just before.
	if ctx.Err() != nil {
		return os.ErrDeadlineExceeded
	}
	line, err := p.readLine()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, to); err != nil {
		return &garbled{line, err}
	}
	return nil
}

func (p *process) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := p.lines.ReadSlice('\n')
		p.total += len(part)
		if p.total > maxTotalBytes {
			return nil, errTooMuch
		}
		if len(line)+len(part) > maxLineBytes {
			return nil, &garbled{append(line, part...), fmt.Errorf("longer than %d bytes", maxLineBytes)}
		}
		switch {
		case err == nil && line == nil:
			return part, nil
		case err == nil:
			return append(line, part...), nil
		case errors.Is(err, bufio.ErrBufferFull):
			line = append(line, part...)
		case errors.Is(err, io.EOF) && len(line)+len(part) > 0:
			return nil, &garbled{append(line, part...), io.ErrUnexpectedEOF}
		default:
			return nil, err
		}
	}
}

// ending says in words how a worker that closed its answers ended. It waits a
// moment only for the kernel's word and for the rest of stderr.
func (p *process) ending() string {
	const moment = 200 * time.Millisecond
	timeout, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	how := "the worker closed its answers and did not end"
	select {
	case st := <-p.exited:
		if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			how = fmt.Sprintf("the worker was ended by %s", unix.SignalName(ws.Signal()))
		} else {
			how = fmt.Sprintf("the worker ended with exit status %d", st.ExitCode())
		}
	case <-timeout.Done():
	}
	select {
	case <-p.stderr.done:
	case <-timeout.Done():
	}
	if t := p.stderr.text(); t != "" {
		how += ": " + t
	}
	return how
}

// tail keeps the last bytes of a stream.
type tail struct {
	mu   sync.Mutex
	b    []byte
	done chan struct{}
}

func (t *tail) read(f *os.File) {
	defer close(t.done)
	defer f.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := f.Read(buf)
		t.mu.Lock()
		t.b = append(t.b, buf[:n]...)
		if extra := len(t.b) - maxStderrBytes; extra > 0 {
			t.b = append(t.b[:0], t.b[extra:]...)
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text returns what was kept on one line, without control characters.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return oneLine(string(t.b))
}

// oneLine joins lines by "; " and drops what could upset a terminal or a table.
func oneLine(s string) string {
	var parts []string
	for l := range strings.Lines(s) {
		l = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r == '\ufffd' {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(l, " "))
		if l = strings.TrimSpace(l); l != "" {
			parts = append(parts, l)
		}
	}
	return strings.Join(parts, "; ")
}
