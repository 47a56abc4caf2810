package perftest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

func listenStream(t *testing.T) *perftest.StreamListener {
	t.Helper()
	l, err := perftest.ListenStream(t.Context(), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// The one that holds the key is found among those that do not, whatever they do,
// and is the only one that stays connected.
func TestStreamAmongStrangers(t *testing.T) {
	l := listenStream(t)
	s := *l.Stream()
	var strangers []net.Conn
	stranger := func(says []byte) {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(says)
		strangers = append(strangers, conn)
		t.Cleanup(func() { _ = conn.Close() })
	}
	stranger(nil) // says nothing
	stranger(make([]byte, 32))
	stranger([]byte("GET / HTTP/1.1\r\n\r\n"))
	stranger(make([]byte, 1<<16))
	wrong := s
	wrong.Key = make([]byte, 32)
	if _, err := perftest.DialStream(t.Context(), wrong, netip.Addr{}); err != nil && strings.Contains(err.Error(), "refused") {
		t.Fatal(err)
	}
	type accepted struct {
		conn *net.TCPConn
		err  error
	}
	got := make(chan accepted, 1)
	go func() {
		conn, err := l.Accept(t.Context())
		got <- accepted{conn, err}
	}()
	ours, err := perftest.DialStream(t.Context(), s, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs := <-got
	if theirs.err != nil {
		t.Fatal(theirs.err)
	}
	defer theirs.conn.Close()
	if theirs.conn.RemoteAddr().String() != ours.LocalAddr().String() {
		t.Errorf("accepted %s, which is not us, %s", theirs.conn.RemoteAddr(), ours.LocalAddr())
	}
	// Nothing of the proof is left in the stream, in either direction.
	for _, ends := range [][2]net.Conn{{ours, theirs.conn}, {theirs.conn, ours}} {
		if _, err := ends[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2)
		if n, err := ends[1].Read(b); err != nil || string(b[:n]) != "x" {
			t.Errorf("%q, %v", b[:n], err)
		}
	}
	for i, c := range strangers {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("stranger %d is still connected", i)
		}
	}
	if _, err := net.DialTimeout("tcp", s.Address, time.Second); err == nil {
		t.Error("it still listens")
	}
}

// Somebody who answers in the listener's place is not believed.
func TestStreamImpostor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.CopyN(conn, conn, 32) // what he was told
	}()
	s := perftest.Stream{Address: l.Addr().String(), Key: make([]byte, 32)}
	if _, err := perftest.DialStream(t.Context(), s, netip.Addr{}); err == nil || !strings.Contains(err.Error(), "does not hold this test's key") {
		t.Errorf("%v", err)
	}
}

func TestStreamNobodyComes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := listenStream(t).Accept(ctx); err == nil || !strings.Contains(err.Error(), "firewall") {
		t.Errorf("%v", err)
	}
}
