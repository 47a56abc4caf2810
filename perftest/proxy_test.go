package perftest_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes bytes on until it loses them: the connections stay up, as when
// a cable is pulled.
type proxy struct {
	address string
	lost    atomic.Bool
}

func (p *proxy) lose() { p.lost.Store(true) }

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		var both sync.WaitGroup
		both.Go(func() { p.copy(client, server) })
		both.Go(func() { p.copy(server, client) })
		both.Wait()
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return p
}

func (p *proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if p.lost.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
