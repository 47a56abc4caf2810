package perftest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Group is a client's sessions with one server, of which each can run a test at
// the same time as the others. One that breaks off is opened anew with the next
// test, and costs the others nothing.
type Group struct {
	ctx      context.Context
	address  string
	token    Token
	end      End
	wait     time.Duration
	name     string
	sessions []*Session // nil: not open
}

// ConnectGroup connects the first session of a group, as Connect does.
func ConnectGroup(ctx context.Context, address string, t Token, end End, wait time.Duration) (*Group, error) {
	g := &Group{ctx: ctx, address: address, token: t, end: end, wait: wait, name: rand.Text()}
	first, err := connect(ctx, address, t, end, wait, g.name)
	if err != nil {
		return nil, err
	}
	g.sessions = []*Session{first}
	return g, nil
}

// Resize leaves room for at least so many sessions. No test may run.
func (g *Group) Resize(members int) {
	if more := members - len(g.sessions); more > 0 {
		g.sessions = append(g.sessions, make([]*Session, more)...)
	}
}

// Rails asks the server for the ports that it can measure on.
func (g *Group) Rails() ([]Rail, error) { return g.sessions[0].Rails() }

// ErrNoServer is why a session of a group could not be opened anew.
var ErrNoServer = errors.New("the server is not reached any more")

// Run runs a test on session i, and connects it if it is not. Tests of
// different sessions may run at the same time. On an error the result holds
// what was measured until then, and may be nil.
func (g *Group) Run(i int, r Request) (*Result, error) {
	if g.sessions[i] == nil {
		s, err := connect(g.ctx, g.address, g.token, g.end, g.wait, g.name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
		}
		g.sessions[i] = s
	}
	result, err := g.sessions[i].Run(r)
	if refused, ok := errors.AsType[*PeerError](err); err != nil && (!ok || refused.Code != CodeRefused) {
		g.closeOne(i)
	}
	return result, err
}

func (g *Group) closeOne(i int) {
	closeSession(g.sessions[i])
	g.sessions[i] = nil
}

func closeSession(s *Session) {
	if s != nil {
		_ = s.Close()
	}
}

// Close leaves the server.
func (g *Group) Close() {
	for i := range g.sessions {
		g.closeOne(i)
	}
}
