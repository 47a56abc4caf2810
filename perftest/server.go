package perftest

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Bounds of a server, beside those of a plan.
const (
	// maxPending is how many connections may be unknown at the same time.
	maxPending = 64
	// DefaultMaxMemoryBytes is the most memory that a client's plan may make a
	// server register.
	DefaultMaxMemoryBytes = 16 << 30
	// DefaultMaxDuration is the longest test that a client may ask for.
	DefaultMaxDuration = time.Hour
)

// Server is the side of a measurement that waits for clients. It serves one
// client at a time, with any number of tests one after another; a client that
// wants several at the same time opens a session for each.
type Server struct {
	End
	// Local decides where a test runs at this side; device and memory are what
	// the client asks for, and may be empty.
	Local func(ctx context.Context, device string, memory MemoryAsk) (Local, error)
	// Once ends Serve after the first client that ran a test.
	Once bool
	// Log is told what happens; it may be called by several goroutines.
	Log func(Event)

	MaxMemoryBytes int64         // of all running tests; 0: DefaultMaxMemoryBytes
	MaxDuration    time.Duration // 0: DefaultMaxDuration

	cert   tls.Certificate
	token  Token
	timing Timing
	seat   *seat
	once   context.CancelCauseFunc
}

// Event is something that a server tells of itself.
type Event struct {
	Peer string // address
	Port string // where a test runs at this side, "mlx5_0/1"
	// What happened, as the field that is set says.
	Refused error   // a connection that came to nothing
	Test    *Plan   // a test begins
	Result  *Result // a test ended
	Ended   error   // a session broke off
}

var errServedOnce = errors.New("served once")

// Init makes the server's certificate and token. Call it once, before Serve.
func (s *Server) Init() (Token, error) {
	cert, err := newCertificate()
	if err != nil {
		return Token{}, fmt.Errorf("certificate: %w", err)
	}
	s.cert, s.token = cert, newToken(cert.Certificate[0])
	s.timing = s.Timing.withDefaults()
	s.seat = newSeat()
	if s.MaxMemoryBytes == 0 {
		s.MaxMemoryBytes = DefaultMaxMemoryBytes
	}
	if s.MaxDuration == 0 {
		s.MaxDuration = DefaultMaxDuration
	}
	return s.token, nil
}

// Serve takes connections until ctx ends, or with Once until the first session
// that ran a test has ended; it then returns that session's error. It closes
// the listener, and returns when nothing of it runs any more.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s.once = cancel
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer l.Close()
	pending := make(chan struct{}, maxPending)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return onceError(context.Cause(ctx))
		case err != nil:
			// Out of file descriptors, or a client that gave up at once.
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			if !pause(ctx, s.timing.Heartbeat/10) {
				return onceError(context.Cause(ctx))
			}
			continue
		}
		select {
		case pending <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		all.Go(func() {
			// Whatever a client does, it ends no other client's server.
			defer func() {
				if p := recover(); p != nil {
					s.log(Event{Peer: conn.RemoteAddr().String(), Ended: fmt.Errorf("gdrcheck's own error: %v", p)})
				}
			}()
			s.handle(ctx, conn, sync.OnceFunc(func() { <-pending }))
		})
	}
}

type onceEnd struct{ err error }

func (e *onceEnd) Error() string { return errServedOnce.Error() }
func (e *onceEnd) Unwrap() error { return errServedOnce }

// onceError is nil unless the one session that was to be served broke off.
func onceError(cause error) error {
	if e, ok := errors.AsType[*onceEnd](cause); ok {
		return e.err
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (s *Server) log(e Event) {
	if s.Log != nil {
		s.Log(e)
	}
}

// handle takes one connection from its first byte to its end. known is called
// once the client has proved itself.
func (s *Server) handle(ctx context.Context, raw net.Conn, known func()) {
	defer known()
	peer := raw.RemoteAddr().String()
	conn := tls.Server(raw, serverTLS(s.cert))
	defer conn.Close()
	lines := bufio.NewReader(conn)
	group, err := s.admit(ctx, conn, lines)
	if err != nil {
		s.log(Event{Peer: peer, Refused: err})
		return
	}
	known()
	switch seated := s.seat.take(ctx, group, s.timing.Queue); {
	case seated:
	case errors.Is(context.Cause(ctx), errServedOnce):
		s.log(Event{Peer: peer, Refused: errors.New("one client was served, and no more are to be")})
		_ = s.refuse(conn, CodeBusy, "the server was started for one client alone (--once), which was another one: start it again")
		return
	case ctx.Err() != nil:
		_ = s.refuse(conn, CodeInterrupted, "the server was stopped")
		return
	default:
		s.log(Event{Peer: peer, Refused: errors.New("another client is being served")})
		_ = s.refuse(conn, CodeBusy, "the server is busy with a test of another client; try again later")
		return
	}
	ended := errors.New("the session did not come to its end") // a panic
	defer func() {
		s.seat.leave(ended, func(tests int, err error) {
			if s.Once && tests > 0 {
				s.once(&onceEnd{err})
			}
		})
	}()
	ended = s.session(ctx, conn, lines, peer)
}

// admit returns when the client has proved that it holds the token. Until then
// it costs a goroutine and a few kilobytes, and gets no answer. group is what the
// client calls its sessions.
func (s *Server) admit(ctx context.Context, conn *tls.Conn, lines *bufio.Reader) (group string, err error) {
	deadline := time.Now().Add(s.timing.Handshake)
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := handshake(ctx, conn, s.timing.Handshake); err != nil {
		return "", err
	}
	line, err := readLine(lines, maxHelloBytes)
	switch {
	case isTimeout(err):
		return "", fmt.Errorf("no proof of the token within %s", s.timing.Handshake)
	case err != nil:
		return "", fmt.Errorf("no proof of the token: %w", err)
	}
	h, err := decodeHello(line)
	if err != nil {
		return "", err
	}
	state := conn.ConnectionState()
	want, err := s.token.proof(&state)
	if err != nil {
		return "", err
	}
	if !hmac.Equal(want, h.Proof) {
		return "", errors.New("the client does not hold this server's token")
	}
	if h.Version != protocolVersion {
		text := fmt.Sprintf("the server speaks version %d of the protocol, the client version %d: use the same gdrcheck on both sides", protocolVersion, h.Version)
		_ = s.refuse(conn, CodeVersion, text)
		return "", errors.New(text)
	}
	return h.Group, nil
}

func (s *Server) refuse(conn net.Conn, code Code, text string) error {
	_ = conn.SetWriteDeadline(time.Now().Add(s.timing.Farewell))
	return writeMessage(conn, message{Error: &refusal{code, text}})
}

// session serves one session of a client until it leaves, and returns what
// broke it off.
func (s *Server) session(ctx context.Context, conn net.Conn, lines *bufio.Reader, peer string) error {
	_ = conn.SetDeadline(time.Time{})
	c := openLink(ctx, conn, lines, s.timing)
	defer c.close()
	err := c.send(message{Welcome: &welcome{Version: protocolVersion, Tool: s.Version}})
	for more := err == nil; more; {
		more, err = s.next(c, peer)
	}
	if err != nil {
		c.farewell(ctx, err)
		s.log(Event{Peer: peer, Ended: err})
	}
	return err
}

// farewell tells the other side why this one ends, if it does not know.
func (c *link) farewell(ctx context.Context, err error) {
	code, text := CodeFailed, err.Error()
	switch {
	case ctx.Err() != nil:
		code, text = CodeInterrupted, "it was interrupted"
	case errors.Is(err, errProtocol):
		code = CodeProtocol
	}
	if _, theirs := errors.AsType[*PeerError](err); theirs || errors.Is(err, errClosed) {
		return
	}
	_ = c.sendWithin(message{Error: &refusal{code, PrintableText(text)}}, c.timing.Farewell)
}

// next serves the next test, or another wish. It returns whether there may be more.
func (s *Server) next(c *link, peer string) (more bool, err error) {
	m, err := c.receive(c.ctx, s.timing.Idle, "the next test, or its leave", func(m *message) bool {
		return m.Test != nil || m.Bye != nil || m.List != nil
	})
	switch {
	case err != nil || m.Bye != nil:
		return false, err
	case m.List != nil:
		return true, s.tellRails(c)
	}
	t := m.Test
	if t.ID <= c.over.Load() {
		return false, fmt.Errorf("%w: test %d again", errProtocol, t.ID)
	}
	l, end, err := s.admitTest(c, t)
	if err != nil {
		s.log(Event{Peer: peer, Refused: err})
		return true, c.send(message{Error: &refusal{CodeRefused, PrintableText(err.Error())}})
	}
	defer end()
	here := s.End
	here.NewEngine = func() Engine { return &leased{s.NewEngine(), end} }
	port := fmt.Sprintf("%s/%d", l.Device, l.Port)
	s.log(Event{Peer: peer, Port: port, Test: &t.Plan})
	before := s.readCounters(c.ctx, l, s.timing)
	if err := c.send(message{Accept: &accept{ID: t.ID, Simulated: s.Simulated}}); err != nil {
		return false, err
	}
	result, err := here.runTest(c, t.ID, t.Side, t.Plan, l, before, nil)
	if err != nil {
		return false, err
	}
	result.Simulated = result.Simulated || s.Simulated || t.Simulated
	s.log(Event{Peer: peer, Port: port, Result: result})
	return true, nil
}

// tellRails answers the question for this end's rails.
func (s *Server) tellRails(c *link) error {
	list, err := bounded(c.ctx, "looking for the rails", s.timing.Step, s.timing.Grace, func(ctx context.Context) ([]Rail, error) {
		if s.Rails == nil {
			return nil, errNoRails
		}
		return s.Rails(ctx)
	})
	if err != nil {
		return c.send(message{Error: &refusal{CodeRefused, PrintableText(err.Error())}})
	}
	return c.send(message{Rails: &railList{Rails: list[:min(len(list), MaxRails)]}})
}

// admitTest says where a test runs; end must be called after it, once or more.
func (s *Server) admitTest(c *link, t *test) (l Local, end func(), err error) {
	if l, err = s.local(c.ctx, t); err != nil {
		return l, nil, err
	}
	place, end, err := s.seat.begin(t.Plan.memoryBytes(), s.MaxMemoryBytes)
	l.Place = 2 * place
	if c.sameHost() {
		l.Place++ // the client's loop has the first choice of CPU
	}
	return l, end, err
}

// local judges what a client asks for and says where it runs.
func (s *Server) local(ctx context.Context, t *test) (Local, error) {
	p := &t.Plan
	if err := p.Validate(); err != nil {
		return Local{}, err
	}
	if p.Route == RouteCopy {
		return Local{}, errors.New("copies have no other end")
	}
	if need := p.memoryBytes(); need > s.MaxMemoryBytes {
		return Local{}, fmt.Errorf("the test needs %d bytes of memory, and the server gives %d: take fewer QPs or a smaller footprint", need, s.MaxMemoryBytes)
	}
	if total := time.Duration(p.DurationNs) * time.Duration(len(p.SizesBytes)); total > s.MaxDuration {
		return Local{}, fmt.Errorf("the test would take %s, and the server gives %s", total, s.MaxDuration)
	}
	l, err := bounded(ctx, "looking for the device", s.timing.Step, s.timing.Grace, func(ctx context.Context) (Local, error) {
		return s.Local(ctx, t.Device, t.Memory)
	})
	if err == nil && p.Polls() && OnGPU(l.Memory) {
		return l, errors.New("the server's memory is a GPU's, which no CPU can poll for a write's latency: measure --op write_imm")
	}
	return l, err
}

// sameHost says whether both ends are on one node, as far as addresses tell.
func (c *link) sameHost() bool {
	here, okHere := c.conn.LocalAddr().(*net.TCPAddr)
	there, okThere := c.conn.RemoteAddr().(*net.TCPAddr)
	return okHere && okThere && here.IP.Equal(there.IP)
}

// memoryBytes is about what an end registers for a plan.
func (p *Plan) memoryBytes() int64 {
	return int64(p.QPs)*max(p.FootprintBytes, int64(p.largest())) + p.slotBytes()
}

func (p *Plan) largest() int {
	largest := 0
	for _, s := range p.SizesBytes {
		largest = max(largest, s)
	}
	return largest
}
