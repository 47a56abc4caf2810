package perftest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Stream is where the responder of a test over TCP waits for the data connection,
// and the secret by which the ends know each other on it. It goes over the control
// connection, which is encrypted, and is good for one connection of one test.
type Stream struct {
	Address string `json:"address,omitempty"` // of the responder, as netip.AddrPort prints it
	Key     []byte `json:"key,omitempty"`
}

// Bounds of the data connection's beginning.
const (
	streamKeyBytes = 32
	streamPending  = 8               // connections that have proved nothing yet
	streamProof    = 2 * time.Second // to prove it
)

// StreamListener waits for the data connection of one test.
type StreamListener struct {
	l   *net.TCPListener
	key []byte
}

// ListenStream listens on an address of this node, on a free port.
func ListenStream(ctx context.Context, on netip.Addr) (*StreamListener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(on, 0).String())
	if err != nil {
		return nil, err
	}
	key := make([]byte, streamKeyBytes)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return &StreamListener{l.(*net.TCPListener), key}, nil
}

// Stream is what the other end needs.
func (l *StreamListener) Stream() *Stream { return &Stream{l.l.Addr().String(), l.key} }

// Close ends the waiting.
func (l *StreamListener) Close() error { return l.l.Close() }

// Accept returns the first connection whose other end holds the key, and closes
// the listener and all others. It ends with ctx.
func (l *StreamListener) Accept(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel() // before the wait
	known := make(chan *net.TCPConn)
	failed := make(chan error, 1)
	go func() {
		pending := make(chan struct{}, streamPending)
		for {
			conn, err := l.l.AcceptTCP()
			if err != nil {
				failed <- err
				return
			}
			select {
			case pending <- struct{}{}:
			default:
				_ = conn.Close()
				continue
			}
			all.Go(func() {
				defer func() { <-pending }()
				if greetStream(ctx, conn, l.key, Responder) == nil {
					select {
					case known <- conn:
						return
					case <-ctx.Done():
					}
				}
				_ = conn.Close()
			})
		}
	}()
	select {
	case conn := <-known:
		return conn, nil
	case err := <-failed:
		if ctx.Err() != nil {
			err = fmt.Errorf("nobody connected to %s in time: does a firewall stand between both ends?", l.l.Addr())
		}
		return nil, err
	}
}

// DialStream connects to the other end. from is the address to come from; the
// zero value leaves that to the kernel.
func DialStream(ctx context.Context, s Stream, from netip.Addr) (*net.TCPConn, error) {
	var d net.Dialer
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	if err := greetStream(ctx, conn, s.Key, Initiator); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

var errStreamProof = errors.New("the other end of the data connection does not hold this test's key")

// greetStream proves to the other end that this one holds the key, and has it
// proved; the initiator goes first.
func greetStream(ctx context.Context, conn net.Conn, key []byte, side Side) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(streamProof)); err != nil {
		return err
	}
	hear := func() error {
		got := make([]byte, sha256.Size)
		if _, err := io.ReadFull(conn, got); err != nil {
			return fmt.Errorf("%w: %w", errStreamProof, err)
		}
		if !hmac.Equal(got, streamProofOf(key, side.other())) {
			return errStreamProof
		}
		return nil
	}
	if side == Responder {
		if err := hear(); err != nil {
			return err
		}
	}
	if _, err := conn.Write(streamProofOf(key, side)); err != nil {
		return err
	}
	if side == Initiator {
		if err := hear(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return conn.SetDeadline(time.Time{})
}

func streamProofOf(key []byte, side Side) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("gdrcheck data connection, " + string(side)))
	return mac.Sum(nil)
}

func (s *Stream) check() error {
	if s == nil {
		return nil
	}
	if _, err := netip.ParseAddrPort(s.Address); s.Address != "" && err != nil {
		return fmt.Errorf("data connection to %q", s.Address)
	}
	if len(s.Key) != 0 && len(s.Key) != streamKeyBytes {
		return errors.New("a key of the wrong length")
	}
	return nil
}
