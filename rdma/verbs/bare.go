package verbs

/*
#include "staging.h"
*/
import "C"

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// stream is the data connection of a session over TCP.
type stream struct {
	waiting *perftest.StreamListener
	file    *os.File // the socket, once connected
}

func (d *stream) close() {
	if d.waiting != nil {
		_ = d.waiting.Close()
	}
	if d.file != nil {
		_ = d.file.Close()
	}
}

// openBare opens a session that needs no RDMA device.
func openBare(memory Memory, p perftest.Plan, l perftest.Local, side perftest.Side) (*Session, perftest.Endpoint, error) {
	e := perftest.Endpoint{Device: l.Device, Port: l.Port, GIDIndex: -1, CPU: l.CPU}
	var (
		cs *C.struct_gdr_session
		ce C.struct_gdr_error
	)
	if C.gdr_session_bare(&cs, &ce) != 0 {
		return nil, e, failure(&ce, nil, &l)
	}
	s := &Session{s: cs, ops: (*C.struct_gdr_mem_ops)(memory.Ops), plan: p, local: l, side: side}
	c := s.config(-1, memory.Device, nil)
	err := error(nil)
	if C.gdr_session_setup(s.s, &c, s.ops) != 0 {
		err = s.failure()
	} else if p.Route == perftest.RouteTCP && side == perftest.Responder {
		e.Stream, err = s.wait()
	}
	if err != nil {
		s.Close()
		return nil, perftest.Endpoint{}, err
	}
	e.Memory = perftest.Buffer{Kind: l.Memory, GPU: l.GPU}
	s.tellMemory(&e)
	s.own = e
	return s, e, nil
}

func (s *Session) wait() (*perftest.Stream, error) {
	on, err := netip.ParseAddr(s.local.Address)
	if err == nil {
		s.data.waiting, err = perftest.ListenStream(context.Background(), on)
	}
	if err != nil {
		return nil, streamFailure("listen", s.local.Address, err)
	}
	return s.data.waiting.Stream(), nil
}

// connectLimit is how long the data connection may take to come up.
const connectLimit = 10 * time.Second

func (s *Session) connectStream(peer perftest.Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectLimit)
	defer cancel()
	conn, err := s.dialOrAccept(ctx, peer)
	if err != nil {
		return err
	}
	defer conn.Close()
	if s.data.file, err = conn.File(); err != nil {
		return streamFailure("socket", conn.RemoteAddr().String(), err)
	}
	s.s.staging.socket.fd = C.int(s.data.file.Fd())
	return nil
}

func streamFailure(call, subject string, err error) *perftest.Failure {
	f := &perftest.Failure{
		Call: call, Subject: subject, Cause: "the data connection: " + err.Error(),
		Check: "address and firewall between both ends: the data goes to a free TCP port of the other end's NIC",
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	return f
}

// verifyCopies compares what the last copies left at both of their ends.
func (s *Session) verifyCopies() (*perftest.DataCheck, error) {
	var m C.struct_gdr_mismatch
	if C.gdr_copies_verify(s.s, &m) != 0 {
		return nil, s.failure()
	}
	return s.dataCheck(&m), nil
}

func (s *Session) dialOrAccept(ctx context.Context, peer perftest.Endpoint) (*net.TCPConn, error) {
	if s.data.waiting != nil {
		conn, err := s.data.waiting.Accept(ctx)
		if err != nil {
			return nil, streamFailure("accept", s.own.Stream.Address, err)
		}
		return conn, nil
	}
	if peer.Stream == nil {
		return nil, &perftest.Failure{Call: "connect", Cause: "the other end waits for no data connection"}
	}
	from, _ := netip.ParseAddr(s.local.Address) // none: the kernel chooses
	conn, err := perftest.DialStream(ctx, *peer.Stream, from)
	if err != nil {
		return nil, streamFailure("connect", peer.Stream.Address, err)
	}
	return conn, nil
}
