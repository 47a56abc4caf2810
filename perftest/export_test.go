package perftest

import (
	"bufio"
	"context"
	"net"
)

// ProtocolVersion is the protocol's, for tests.
const ProtocolVersion = protocolVersion

// ServeKnown serves a client that has proved itself, for tests.
func (s *Server) ServeKnown(ctx context.Context, conn net.Conn) {
	_ = s.session(ctx, conn, bufio.NewReader(conn), "test")
	_ = conn.Close()
}
