package perftest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Session is a client's connection to a server.
type Session struct {
	end  End
	ctx  context.Context
	link *link
	next uint64
}

// Connect connects to a server ("host:port") and proves to it that this end
// holds the token. A server that is not there yet is tried again until wait is
// over. The session is ctx's: when that ends, so does the session, and the
// server is told.
func Connect(ctx context.Context, address string, t Token, end End, wait time.Duration) (*Session, error) {
	return connect(ctx, address, t, end, wait, "")
}

// connect is Connect for a session of a group, unless that is empty.
func connect(ctx context.Context, address string, t Token, end End, wait time.Duration, group string) (*Session, error) {
	end.Timing = end.Timing.withDefaults()
	raw, err := dial(ctx, address, wait)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, clientTLS(t))
	lines := bufio.NewReader(conn)
	if err := greet(ctx, conn, lines, t, group, end.Timing); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &Session{end: end, ctx: ctx, link: openLink(ctx, conn, lines, end.Timing)}, nil
}

// dial connects, and tries again while nobody listens.
func dial(ctx context.Context, address string, wait time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	const first, longest = 100 * time.Millisecond, time.Second
	var last error
	for delay := time.Duration(first); ; delay = min(2*delay, longest) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		if last == nil || !isTimeout(err) {
			last = err // not the one that only says that the time is over
		}
		if !notThereYet(err) || !pause(ctx, delay) {
			return nil, fmt.Errorf("cannot connect: %w%s", last, nextStep(last, address))
		}
	}
}

// nextStep is what to do about a connection that did not come up, as the end of a
// sentence; empty: the error says all.
func nextStep(err error, address string) string {
	_, port, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return ""
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "; nobody listens there: is 'gdrcheck perf server' running on that node? The line that it printed has its address and port"
	case errors.As(err, &dns):
		return "; give the address that the server's line has"
	case isTimeout(err), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ETIMEDOUT):
		return "; open TCP port " + port + " in that node's firewall, or have the server wait on an address that this node reaches (gdrcheck perf server --listen ADDRESS)"
	}
	return ""
}

func notThereYet(err error) bool {
	for _, e := range []syscall.Errno{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ETIMEDOUT, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// greet knows the server by its certificate, proves itself and waits for the welcome.
func greet(ctx context.Context, conn *tls.Conn, lines *bufio.Reader, t Token, group string, timing Timing) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := handshake(ctx, conn, timing.Handshake); err != nil {
		return err
	}
	limit := timing.Handshake + timing.Queue
	_ = conn.SetDeadline(time.Now().Add(limit))
	state := conn.ConnectionState()
	proof, err := t.proof(&state)
	if err != nil {
		return err
	}
	if err := writeMessage(conn, message{Hello: &hello{protocolVersion, proof, group}}); err != nil {
		return fmt.Errorf("sending the proof: %w", err)
	}
	line, err := readLine(lines, maxMessageBytes)
	var m message
	if version := welcomeVersion(line); err == nil && version != 0 && version != protocolVersion {
		return fmt.Errorf("the server speaks version %d of the protocol, this client version %d: use the same gdrcheck on both sides", version, protocolVersion)
	}
	if err == nil {
		m, err = decodeMessage(line)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isTimeout(err):
		return fmt.Errorf("the server did not answer within %s", limit)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("the server closed the connection: it does not take this token; " + takeToken)
	case err != nil:
		return err
	case m.Error != nil:
		return &PeerError{m.Error.Code, m.Error.Text}
	case m.Welcome == nil:
		return fmt.Errorf("%w: no welcome", errProtocol)
	}
	_ = conn.SetDeadline(time.Time{})
	return nil
}

// Request is one test that a client asks for.
type Request struct {
	Plan  Plan
	Local Local // at this end
	// Device is the server's, as "mlx5_0" or "mlx5_0/1"; empty: it chooses.
	Device string
	Memory MemoryAsk // the server's
	// Reverse makes the server the initiator.
	Reverse  bool
	Progress func(Progress)
	// Pass makes the test wait at a gate for others; nil: it does not.
	Pass *Pass
}

// Rails asks the server for the ports that it can measure on.
func (s *Session) Rails() ([]Rail, error) {
	if err := s.link.send(message{List: &list{}}); err != nil {
		return nil, err
	}
	t := s.end.Timing
	m, err := s.link.receive(s.link.ctx, t.Step+t.Grace, "its rails", func(m *message) bool { return m.Rails != nil })
	if err != nil {
		return nil, err
	}
	return m.Rails.Rails, nil
}

// Run runs one test. A *PeerError with CodeRefused leaves the session as it
// was; after every other error it can only be closed. How the test itself came
// out is in the result, which after an error may be nil or incomplete.
func (s *Session) Run(r Request) (*Result, error) {
	if err := r.Plan.Validate(); err != nil {
		return nil, err
	}
	s.next++
	id, side := s.next, Initiator
	if r.Reverse {
		side = Responder
	}
	c, timing := s.link, s.end.Timing
	before := s.end.readCounters(c.ctx, r.Local, timing)
	err := c.send(message{Test: &test{ID: id, Plan: r.Plan, Side: side.other(), Device: r.Device, Memory: r.Memory, Simulated: s.end.Simulated}})
	if err != nil {
		return nil, err
	}
	m, err := c.receive(c.ctx, timing.Step+timing.Grace, "whether it takes the test", func(m *message) bool {
		return m.Accept != nil && m.Accept.ID == id
	})
	if err != nil {
		return nil, err
	}
	end := s.end
	if r.Pass != nil {
		end.NewEngine = func() Engine { return r.Pass.Engine(s.end.NewEngine()) }
	}
	result, err := end.runTest(c, id, side, r.Plan, r.Local, before, r.Progress)
	result.Simulated = result.Simulated || s.end.Simulated || m.Accept.Simulated
	if err != nil {
		s.link.farewell(s.ctx, err)
	}
	return result, err
}

// Close leaves the server. It may be called at any time.
func (s *Session) Close() error {
	if s.ctx.Err() != nil {
		s.link.farewell(s.ctx, s.ctx.Err())
	} else if s.link.ctx.Err() == nil {
		_ = s.link.sendWithin(message{Bye: &bye{}}, s.end.Timing.Farewell)
	}
	s.link.close()
	return nil
}
