package perftest_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// hasty are the waits of tests that wait for them to run out.
var hasty = perftest.Timing{
	Handshake: 400 * time.Millisecond, Queue: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond,
	Silence: 400 * time.Millisecond, Idle: 600 * time.Millisecond, Step: 600 * time.Millisecond, Run: 600 * time.Millisecond,
	Grace: 200 * time.Millisecond, Farewell: 100 * time.Millisecond,
}

// limit is what every end of a test with hasty waits must come in.
const limit = 4 * time.Second

// rogue is a client of our own making. It knows of the protocol what is
// written down, and uses nothing of the package.
type rogue struct {
	*tls.Conn
	lines *bufio.Reader
}

func dialTLS(t testing.TB, address string) (*rogue, error) {
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(limit))
	return &rogue{c, bufio.NewReader(c)}, nil
}

// proof computes what the server wants to see, from a token's text.
func (r *rogue) proof(t testing.TB, token string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "gdrcheck1."))
	if err != nil {
		t.Fatal(err)
	}
	state := r.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPERIMENTAL-gdrcheck-perf-client", nil, 32)
	if err != nil {
		t.Fatal(err)
	}
	const secretBytes = 16
	mac := hmac.New(sha256.New, b[:secretBytes])
	mac.Write(binding)
	return mac.Sum(nil)
}

func (r *rogue) hello(t testing.TB, token string, version int) {
	t.Helper()
	fmt.Fprintf(r, `{"hello":{"version":%d,"proof":%q}}`+"\n", version, base64.StdEncoding.EncodeToString(r.proof(t, token)))
}

// admitted is a rogue that holds the token and was welcomed.
func admitted(t testing.TB, b *lab) *rogue {
	t.Helper()
	r, err := dialTLS(t, b.address)
	if err != nil {
		t.Fatal(err)
	}
	r.hello(t, b.token.Encode(), perftest.ProtocolVersion)
	if m := r.read(t); m["welcome"] == nil {
		t.Fatalf("not welcomed: %v", m)
	}
	return r
}

// read returns the next message that is no heartbeat; nil at the end.
func (r *rogue) read(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if m["alive"] == nil {
			return m
		}
	}
}

// test asks for a test and reads on until the server accepts it.
func (r *rogue) test(t testing.TB, id int) {
	t.Helper()
	plan, _ := json.Marshal(short(perftest.Write, perftest.Bandwidth))
	fmt.Fprintf(r, `{"test":{"id":%d,"side":"responder","plan":%s}}`+"\n", id, plan)
	if m := r.read(t); m["accept"] == nil {
		t.Fatalf("not accepted: %v", m)
	}
}

const endpointJSON = `{"device":"evil","port":1,"link_layer":"Ethernet","gid_index":0,"mtu_bytes":4096,"qps":[{"number":1,"psn":1}],"address":0,"bytes":65536,"remote_key":%d,"max_reads":1,"cpu":-1,"numa_node":-1,"device_numa_node":-1}`

// Who does not hold the token gets nothing, and costs the server nothing.
func TestStrangers(t *testing.T) {
	withTLS := func(f func(t *testing.T, r *rogue, b *lab)) func(*testing.T, *lab) []byte {
		return func(t *testing.T, b *lab) []byte {
			r, err := dialTLS(t, b.address)
			if err != nil {
				t.Fatal(err)
			}
			f(t, r, b)
			got, _ := io.ReadAll(r.lines)
			return got
		}
	}
	plain := func(text string) func(*testing.T, *lab) []byte {
		return func(t *testing.T, b *lab) []byte {
			c, err := net.Dial("tcp", b.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(limit))
			_, _ = io.WriteString(c, text)
			got, _ := io.ReadAll(c)
			if len(got) > 0 && got[0] == 0x15 { // a TLS alert and no more
				got = nil
			}
			return got
		}
	}
	random := make([]byte, 4096)
	_, _ = rand.Read(random)
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *lab) []byte // returns what the server said
		log  string                        // what the server says of it
	}{
		{"HTTP", plain("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "does not speak TLS"},
		{"garbage", plain(string(random)), "TLS"},
		{"silence", plain(""), "no TLS handshake within"},
		{"closes at once", func(t *testing.T, b *lab) []byte {
			c, err := net.Dial("tcp", b.address)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			return nil
		}, "TLS handshake: EOF"},
		{"TLS 1.2", func(t *testing.T, b *lab) []byte {
			c, err := tls.Dial("tcp", b.address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			if err == nil {
				c.Close()
				t.Error("TLS 1.2 was accepted")
			}
			return nil
		}, "TLS"},
		{"silence after TLS", withTLS(func(*testing.T, *rogue, *lab) {}), "no proof of the token within"},
		{"slow loris", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			for _, c := range []byte(`{"hello":{"version":4,"proof":"` + strings.Repeat("A", 500)) {
				if _, err := r.Write([]byte{c}); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}), "no proof of the token within"},
		{"HTTPS", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			fmt.Fprint(r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		}), "no hello"},
		{"endless line", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			_, _ = r.Write(make([]byte, 1<<20))
		}), "more than 1024 bytes"},
		{"no token", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			fmt.Fprintln(r, `{"hello":{"version":4}}`)
		}), "does not hold"},
		{"wrong token", withTLS(func(t *testing.T, r *rogue, b *lab) {
			token := b.token.Encode()
			r.hello(t, "gdrcheck1."+strings.Repeat("B", 22)+token[len("gdrcheck1.")+22:], 2)
		}), "does not hold"},
		{"the proof of another connection", withTLS(func(t *testing.T, r *rogue, b *lab) {
			other, err := dialTLS(t, b.address)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(r, `{"hello":{"version":4,"proof":%q}}`+"\n", base64.StdEncoding.EncodeToString(other.proof(t, b.token.Encode())))
		}), "does not hold"},
		{"a test without a hello", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			fmt.Fprintln(r, `{"test":{"id":1}}`)
		}), "no hello"},
		{"a wrong token of a later version", withTLS(func(_ *testing.T, r *rogue, _ *lab) {
			fmt.Fprintln(r, `{"hello":{"version":4,"proof":"AAAA","more":1}}`)
		}), "does not hold"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newLab(t, labOptions{timing: hasty})
			start := time.Now()
			if got := tt.do(t, b); len(got) > 0 {
				t.Errorf("the server said %q", got)
			}
			e := b.wait(t, "a refusal", func(e perftest.Event) bool { return e.Refused != nil })
			if !strings.Contains(e.Refused.Error(), tt.log) {
				t.Errorf("the server says %q, want %q", e.Refused, tt.log)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("it took %s", took)
			}
			if n := b.engineCount(); n != 0 {
				t.Errorf("%d engines were made", n)
			}
			b.works(t)
		})
	}
}

// Who holds the token and then behaves badly ends his own session alone.
func TestRogueClients(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*testing.T, *rogue)
		log  string // in the server's words
	}{
		{"dies", func(t *testing.T, r *rogue) { r.test(t, 1); r.NetConn().Close() }, "closed the connection"},
		{"stalls", func(t *testing.T, r *rogue) { r.test(t, 1); time.Sleep(2 * hasty.Silence) }, "nothing heard"},
		{"never asks", func(_ *testing.T, r *rogue) { r.beat(20) }, "did not send the next test"},
		{"lives and says nothing", func(t *testing.T, r *rogue) { r.test(t, 1); r.beat(30) }, "did not send its word of being opened"},
		{"garbage", func(t *testing.T, r *rogue) { r.test(t, 1); fmt.Fprintln(r, "\x00\xff{]") }, "no message"},
		{"two values", func(_ *testing.T, r *rogue) { fmt.Fprintln(r, `{"alive":{}} {"alive":{}}`) }, "more than one value"},
		{"two fields", func(_ *testing.T, r *rogue) { fmt.Fprintln(r, `{"alive":{},"bye":{}}`) }, "2 fields"},
		{"unknown field", func(_ *testing.T, r *rogue) { fmt.Fprintln(r, `{"exec":"rm"}`) }, "unknown field"},
		{"unknown field below", func(_ *testing.T, r *rogue) { fmt.Fprintln(r, `{"bye":{"x":1}}`) }, "unknown field"},
		{"half a message", func(_ *testing.T, r *rogue) { fmt.Fprint(r, `{"by`); r.Close() }, "in the middle of a message"},
		{"endless message", func(_ *testing.T, r *rogue) { _, _ = r.Write(make([]byte, 2<<20)) }, "more than 1048576 bytes"},
		{"flood", func(_ *testing.T, r *rogue) {
			for range 20 {
				fmt.Fprintln(r, `{"accept":{"id":1}}`)
			}
		}, "does not keep to the protocol"},
		{"a second hello", func(_ *testing.T, r *rogue) { fmt.Fprintln(r, `{"hello":{"version":4,"proof":""}}`) }, "does not keep to the protocol"},
		{"a stage out of order", func(t *testing.T, r *rogue) {
			r.test(t, 1)
			fmt.Fprintln(r, `{"step":{"id":1,"stage":"prepared","size":65536}}`)
		}, `the other end is at "prepared"`},
		{"another test's id", func(t *testing.T, r *rogue) {
			r.test(t, 1)
			fmt.Fprintf(r, `{"step":{"id":2,"stage":"opened","endpoint":`+endpointJSON+"}}\n", 1)
		}, "does not keep to the protocol"},
		{"an endpoint without queue pairs", func(t *testing.T, r *rogue) {
			r.test(t, 1)
			fmt.Fprintln(r, `{"step":{"id":1,"stage":"opened","endpoint":{"qps":[]}}}`)
		}, "0 queue pairs"},
		{"a queue pair of 32 bits", func(t *testing.T, r *rogue) {
			r.test(t, 1)
			fmt.Fprintln(r, `{"step":{"id":1,"stage":"opened","endpoint":{"qps":[{"number":4294967295,"psn":0}]}}}`)
		}, "24 bits"},
		{"memory that wraps", func(t *testing.T, r *rogue) {
			r.test(t, 1)
			fmt.Fprintln(r, `{"step":{"id":1,"stage":"opened","endpoint":{"qps":[{"number":1,"psn":0}],"address":18446744073709551615,"bytes":2}}}`)
		}, "wraps around"},
		{"a rate below zero", func(_ *testing.T, r *rogue) {
			fmt.Fprintln(r, `{"step":{"id":1,"stage":"ran","outcome":{"sent":[1],"rate":{"bytes_per_sec":-1}}}}`)
		}, "below zero"},
		{"the same test again", func(t *testing.T, r *rogue) { r.play(t, 1); r.again(t, 1) }, "test 1 again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timing := hasty
			timing.Queue = limit // works comes while the rogue's connection may still be closing
			b := newLab(t, labOptions{timing: timing})
			r := admitted(t, b)
			start := time.Now()
			tt.do(t, r)
			e := b.wait(t, "the end of a session", func(e perftest.Event) bool { return e.Ended != nil })
			if !strings.Contains(e.Ended.Error(), tt.log) {
				t.Errorf("the server says %q, want %q", e.Ended, tt.log)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("it took %s", took)
			}
			b.released(t)
			b.works(t)
		})
	}
}

// beat sends n heartbeats.
func (r *rogue) beat(n int) {
	for range n {
		fmt.Fprintln(r, `{"alive":{}}`)
		time.Sleep(hasty.Heartbeat)
	}
}

// play takes a test to its end: the rogue fails at once, and says so.
func (r *rogue) play(t *testing.T, id int) {
	r.test(t, id)
	fmt.Fprintf(r, `{"step":{"id":%d,"stage":"opened","failure":{"call":"ibv_open_device","cause":"\u001b[2Jno"}}}`+"\n", id)
	if m := r.read(t); m["step"] == nil {
		t.Fatalf("no step: %v", m)
	}
	fmt.Fprintf(r, `{"finished":{"id":%d,"counters":{}}}`+"\n", id)
	if m := r.read(t); m["finished"] == nil {
		t.Fatalf("no counters: %v", m)
	}
}

func (r *rogue) again(t *testing.T, id int) {
	plan, _ := json.Marshal(short(perftest.Write, perftest.Bandwidth))
	fmt.Fprintf(r, `{"test":{"id":%d,"side":"responder","plan":%s}}`+"\n", id, plan)
	if m := r.read(t); m["error"] == nil {
		t.Errorf("no error: %v", m)
	}
}

// A peer's words cannot play with a terminal, and a key that is none fails this
// end alone: what it says reaches the peer.
func TestPeerFailure(t *testing.T) {
	b := newLab(t, labOptions{timing: hasty})
	r := admitted(t, b)
	r.play(t, 1)
	e := b.wait(t, "the result", func(e perftest.Event) bool { return e.Result != nil })
	if f := e.Result.Failure; f == nil || f.Cause != "?[2Jno" || e.Result.Faulty != perftest.Initiator {
		t.Errorf("%+v, faulty %s", f, e.Result.Faulty)
	}
	r.test(t, 2)
	fmt.Fprintf(r, `{"step":{"id":2,"stage":"opened","endpoint":`+endpointJSON+"}}\n", 1)
	fmt.Fprintln(r, `{"step":{"id":2,"stage":"connected"}}`)
	r.read(t) // its endpoint
	if m := r.read(t); !strings.Contains(string(m["step"]), "remote key is of no use") {
		t.Errorf("%s", m["step"])
	}
}

// A client of another version, older or later, learns which both are, and so does
// whoever reads what the server says.
func TestVersion(t *testing.T) {
	b := newLab(t, labOptions{timing: hasty})
	for _, version := range []int{2, 7} {
		r, err := dialTLS(t, b.address)
		if err != nil {
			t.Fatal(err)
		}
		r.hello(t, b.token.Encode(), version)
		m := r.read(t)
		theirs := fmt.Sprintf("the client version %d: use the same gdrcheck on both sides", version)
		if got := string(m["error"]); !strings.Contains(got, `"code":"version"`) || !strings.Contains(got, "the server speaks version 5") || !strings.Contains(got, theirs) {
			t.Errorf("%s", got)
		}
		b.wait(t, "the refusal", func(e perftest.Event) bool { return e.Refused != nil && strings.Contains(e.Refused.Error(), theirs) })
	}
	b.works(t)
}

// rogueServer serves one connection with f.
func rogueServer(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(limit))
		f(c)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// What a client meets that is not its server. It never sends its proof.
func TestWrongServers(t *testing.T) {
	b := newLab(t, labOptions{timing: hasty})
	other := newLab(t, labOptions{timing: hasty})
	for _, tt := range []struct {
		name    string
		address string
		want    string
	}{
		{"another server's token", other.address, "not the server that the token is from"},
		{"HTTP", rogueServer(t, func(c net.Conn) { fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }), "does not speak TLS"},
		{"silence", rogueServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), "no TLS handshake within"},
		{"closes at once", rogueServer(t, func(net.Conn) {}), "TLS handshake"},
		{"nobody", "127.0.0.1:1", "connection refused"},
		{"no such host", "host.invalid:1", "host.invalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			_, err := perftest.Connect(t.Context(), tt.address, b.token, b.end(), 300*time.Millisecond)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// An engine that hangs, fails or panics, at each of its calls and at either
// end, ends its own test: both sides know why in time, and the server goes on.
func TestBadEngines(t *testing.T) {
	bad := map[string]func(context.Context) error{
		"fails":  func(context.Context) error { return &perftest.Failure{Call: "ibv_reg_mr", Cause: "played"} },
		"panics": func(context.Context) error { panic("played") },
		"is slow": func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}
	want := map[string]string{"fails": "played", "panics": "played", "is slow": "did not end within"}
	for _, call := range []string{"open", "connect", "prepare", "run", "verify"} {
		for how, f := range bad {
			for _, where := range []perftest.Side{perftest.Initiator, perftest.Responder} {
				t.Run(fmt.Sprintf("%s %s at the %s", call, how, where), func(t *testing.T) {
					t.Parallel()
					before := func(ctx context.Context, at string) error {
						if at == call {
							return f(ctx)
						}
						return nil
					}
					o := labOptions{timing: hasty}
					var played atomic.Bool
					if where == perftest.Responder {
						o.before = func(ctx context.Context, at string) error {
							if at == call && !played.Swap(true) {
								return f(ctx)
							}
							return nil
						}
					}
					b := newLab(t, o)
					end := b.end()
					if where == perftest.Initiator {
						end.NewEngine = func() perftest.Engine { return &perfdouble.Engine{Dir: b.dir, Before: before} }
					}
					s := b.connect(t, end)
					defer s.Close()
					start := time.Now()
					r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth)))
					if took := time.Since(start); took > limit {
						t.Errorf("it took %s", took)
					}
					if err != nil || r.Failure == nil || r.Faulty != where || !strings.Contains(r.Failure.Error(), want[how]) {
						t.Fatalf("%v, %v at the %s", err, r.Failure, r.Faulty)
					}
					there := b.wait(t, "the result", func(e perftest.Event) bool { return e.Result != nil }).Result
					if there.Failure == nil || there.Faulty != where {
						t.Errorf("the server says %v at the %s", there.Failure, there.Faulty)
					}
					b.released(t)
					s.Close()
					b.works(t)
				})
			}
		}
	}
}

// A driver that never comes back costs its test, and no other.
func TestHungDriver(t *testing.T) {
	release := make(chan struct{})
	var hung atomic.Bool
	b := newLab(t, labOptions{timing: hasty, before: func(_ context.Context, at string) error {
		if at == "prepare" && !hung.Swap(true) {
			<-release // whatever the context says
			return errors.New("released")
		}
		return nil
	}})
	s := b.connect(t, b.end())
	r, err := s.Run(request(short(perftest.Write, perftest.Bandwidth)))
	if err != nil || r.Failure == nil || !strings.Contains(r.Failure.Error(), "cannot be stopped") {
		t.Errorf("%v, %+v", err, r.Failure)
	}
	s.Close()
	b.works(t)
	close(release)
}

// Whoever is interrupted tells the other side, and both free what they had.
func TestInterrupted(t *testing.T) {
	long := request(short(perftest.Write, perftest.Bandwidth))
	long.Plan.Messages, long.Plan.DurationNs = 0, int64(time.Minute)
	t.Run("client", func(t *testing.T) {
		b := newLab(t, labOptions{})
		ctx, interrupt := context.WithCancel(t.Context())
		engine := &perfdouble.Engine{Dir: b.dir}
		end := b.end()
		end.NewEngine = func() perftest.Engine { return engine }
		s, err := perftest.Connect(ctx, b.address, b.token, end, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		long.Progress = func(perftest.Progress) { interrupt() }
		start := time.Now()
		_, err = s.Run(long)
		s.Close()
		if !errors.Is(err, context.Canceled) || time.Since(start) > limit {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		e := b.wait(t, "the end of a session", func(e perftest.Event) bool { return e.Ended != nil })
		if p, ok := errors.AsType[*perftest.PeerError](e.Ended); !ok || p.Code != perftest.CodeInterrupted {
			t.Errorf("the server says %v", e.Ended)
		}
		if n := engine.Closed.Load(); n != 1 {
			t.Errorf("the client's engine was closed %d times", n)
		}
		b.released(t)
		b.works(t)
	})
	t.Run("server", func(t *testing.T) {
		b := newLab(t, labOptions{})
		s := b.connect(t, b.end())
		defer s.Close()
		long.Progress = func(perftest.Progress) { b.stop() }
		start := time.Now()
		_, err := s.Run(long)
		if p, ok := errors.AsType[*perftest.PeerError](err); !ok || p.Code != perftest.CodeInterrupted || time.Since(start) > limit {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

// The network between both ends goes away in the middle of a run, without a
// word: both report it within their silence, and the server takes the next test.
func TestNetworkLost(t *testing.T) {
	b := newLab(t, labOptions{timing: hasty})
	proxy := newProxy(t, b.address)
	end := b.end()
	s, err := perftest.Connect(t.Context(), proxy.address, b.token, end, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := request(short(perftest.Write, perftest.Bandwidth))
	r.Plan.Messages, r.Plan.DurationNs = 0, int64(time.Minute)
	r.Progress = func(perftest.Progress) { proxy.lose() }
	start := time.Now()
	_, err = s.Run(r)
	if err == nil || !strings.Contains(err.Error(), "nothing heard of the other side") || time.Since(start) > limit {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	e := b.wait(t, "the end of a session", func(e perftest.Event) bool { return e.Ended != nil })
	if !strings.Contains(e.Ended.Error(), "nothing heard of the other side") {
		t.Errorf("the server says %v", e.Ended)
	}
	b.released(t)
	b.works(t)
}
