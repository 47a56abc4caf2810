package perftest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds on what a peer may send, in bytes a line. Whoever has not proved that
// he holds the token gets room for his proof.
const (
	maxHelloBytes   = 1 << 10
	maxMessageBytes = 1 << 20
	// queueLength is how many messages may wait to be looked at. The protocol
	// never has more than two under way.
	queueLength = 4
)

// PeerError is what the other side reported.
type PeerError struct {
	Code Code
	Text string
}

// Error implements error.
func (e *PeerError) Error() string { return "the other side says: " + e.Text }

// Causes of an end that no deadline and no error of the network explains.
var (
	errClosed   = errors.New("the other side closed the connection")
	errProtocol = errors.New("the other side does not keep to the protocol")
	errFlood    = fmt.Errorf("%w: it sends messages that nobody asked for", errProtocol)
)

// link is the control connection once both sides know each other. A
// goroutine reads, so that a peer that dies is noticed in the middle of a run,
// and another says that we live.
type link struct {
	conn   net.Conn
	timing Timing
	in     chan message
	heard  chan struct{} // closed when nothing is read any more

	ctx    context.Context // ends with the connection; its cause says why
	cancel context.CancelCauseFunc
	all    sync.WaitGroup

	mu   sync.Mutex    // one writer at a time
	over atomic.Uint64 // the last test that is over
	// failed is called with what the other side says of its own failure as soon
	// as it comes: this side may be in the middle of a run.
	failed atomic.Pointer[func(*Message)]
}

// openLink starts a link on a connection. lines may hold what was read already.
func openLink(ctx context.Context, conn net.Conn, lines *bufio.Reader, timing Timing) *link {
	c := &link{conn: conn, timing: timing, in: make(chan message, queueLength), heard: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.all.Go(func() { c.read(lines) })
	c.all.Go(c.beat)
	return c
}

// close ends the link and waits for its goroutines. It gives the other side a
// moment to close first: data that nobody has read when a connection is closed
// makes the kernel throw away what was sent last.
func (c *link) close() {
	if w, ok := c.conn.(interface{ CloseWrite() error }); ok {
		c.mu.Lock()
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.timing.Farewell))
		_ = w.CloseWrite()
		c.mu.Unlock()
		moment := time.NewTimer(c.timing.Farewell)
		defer moment.Stop()
		select {
		case <-c.heard:
		case <-moment.C:
		}
	}
	c.cancel(errClosed)
	_ = c.conn.Close()
	c.all.Wait()
}

func (c *link) read(lines *bufio.Reader) {
	defer close(c.heard)
	for {
		_ = c.conn.SetReadDeadline(time.Now().Add(c.timing.Silence))
		m, err := readMessage(lines, maxMessageBytes)
		if err != nil {
			c.cancel(c.lost(err))
			return
		}
		switch {
		case m.Alive != nil:
		case m.Error != nil && m.Error.Code.ends():
			c.cancel(&PeerError{m.Error.Code, m.Error.Text})
			return
		default:
			if f := c.failed.Load(); f != nil && m.Step != nil && m.Step.Failure != nil {
				(*f)(&m.Step.Message)
			}
			select {
			case c.in <- m:
			default:
				c.cancel(errFlood)
				return
			}
		}
	}
}

// lost says in words how a connection ended.
func (c *link) lost(err error) error {
	switch {
	case isTimeout(err):
		return fmt.Errorf("nothing heard of the other side for %s: it is gone, or its network is", c.timing.Silence)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errClosed
	}
	return err
}

func (c *link) beat() {
	tick := time.NewTicker(c.timing.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
			if err := c.send(message{Alive: &alive{}}); err != nil {
				return // the reader sees it, too, and knows more
			}
		}
	}
}

// send writes one message. A peer that does not read is gone after Silence.
func (c *link) send(m message) error {
	return c.sendWithin(m, c.timing.Silence)
}

func (c *link) sendWithin(m message, limit time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(limit))
	if err := writeMessage(c.conn, m); err != nil {
		// The reader knows more: the other side may have said why it went.
		moment := time.NewTimer(c.timing.Farewell)
		defer moment.Stop()
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-moment.C:
		}
		return fmt.Errorf("sending to the other side: %w", err)
	}
	return nil
}

// receive waits for a message that want takes; what names it. Messages of a
// test that is over may still be under way, and are passed over. A message of
// type Error is an error, and so is any other.
func (c *link) receive(ctx context.Context, limit time.Duration, what string, want func(*message) bool) (message, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		var m message
		select {
		case m = <-c.in: // before anything else: what came before the end counts
		default:
			select {
			case m = <-c.in:
			case <-c.ctx.Done():
				return m, context.Cause(c.ctx)
			case <-ctx.Done():
				return m, context.Cause(ctx)
			case <-timeout.C:
				return m, fmt.Errorf("the other side did not send %s within %s", what, limit)
			}
		}
		switch {
		case m.Error != nil:
			return m, &PeerError{m.Error.Code, m.Error.Text}
		case want(&m):
			return m, nil
		case m.Step != nil && m.Step.ID <= c.over.Load():
		default:
			return m, fmt.Errorf("%w: not %s", errProtocol, what)
		}
	}
}

// readMessage reads one line of at most limit bytes.
func readMessage(lines *bufio.Reader, limit int) (message, error) {
	line, err := readLine(lines, limit)
	if err != nil {
		return message{}, err
	}
	return decodeMessage(line)
}

func readLine(lines *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := lines.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("the other side sent a message of more than %d bytes", limit)
		}
		switch {
		case err == nil && line == nil:
			return part, nil
		case err == nil:
			return append(line, part...), nil
		case errors.Is(err, bufio.ErrBufferFull):
			line = append(line, part...)
		case errors.Is(err, io.EOF) && len(line)+len(part) > 0:
			return nil, fmt.Errorf("the other side closed the connection in the middle of a message: %w", io.ErrUnexpectedEOF)
		default:
			return nil, err
		}
	}
}

func writeMessage(w io.Writer, m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(line) >= maxMessageBytes {
		return fmt.Errorf("the message has %d bytes, more than %d", len(line), maxMessageBytes)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// strictJSON decodes one JSON value and nothing after it, with no field that
// is not known.
func strictJSON(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
