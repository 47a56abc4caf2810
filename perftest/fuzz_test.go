package perftest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// FuzzClient lets a client that holds the token send anything: the session
// ends, with every engine closed once and no memory left registered.
func FuzzClient(f *testing.F) {
	plan, err := json.Marshal(short(perftest.Write, perftest.Bandwidth))
	if err != nil {
		f.Fatal(err)
	}
	test := fmt.Sprintf(`{"test":{"id":1,"side":"responder","plan":%s}}`+"\n", plan)
	opened := fmt.Sprintf(`{"step":{"id":1,"stage":"opened","endpoint":`+endpointJSON+"}}\n", 1)
	f.Add([]byte("{\"bye\":{}}\n"))
	f.Add([]byte("{\"alive\":{}}\n{\"error\":{\"code\":\"failed\",\"text\":\"x\"}}\n"))
	f.Add([]byte(test))
	f.Add([]byte(test + opened + "{\"step\":{\"id\":1,\"stage\":\"connected\"}}\n"))
	f.Add([]byte(test + "{\"step\":{\"id\":1,\"stage\":\"opened\",\"failure\":{\"call\":\"c\",\"cause\":\"d\"}}}\n{\"finished\":{\"id\":1,\"counters\":{}}}\n" + test))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, input []byte) {
		var engines []*perfdouble.Engine // made by the one session, one after another
		timing := perftest.Timing{
			Heartbeat: time.Second, Silence: 300 * time.Millisecond, Idle: 300 * time.Millisecond, Step: 300 * time.Millisecond, Run: 300 * time.Millisecond,
			Grace: 100 * time.Millisecond, Farewell: 10 * time.Millisecond, Queue: time.Millisecond, Handshake: time.Millisecond,
		}
		s := &perftest.Server{
			End: perftest.End{Timing: timing, NewEngine: func() perftest.Engine {
				e := &perfdouble.Engine{Dir: dir}
				engines = append(engines, e)
				return e
			}},
			Local: func(context.Context, string, perftest.MemoryAsk) (perftest.Local, error) {
				return perftest.NewLocal(perfdouble.Device), nil
			},
			MaxMemoryBytes: 1 << 20,
			MaxDuration:    100 * time.Millisecond,
		}
		if _, err := s.Init(); err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, here) }()
		go func() {
			_, _ = here.Write(input)
			_ = here.Close()
		}()
		done := make(chan struct{})
		go func() { s.ServeKnown(context.Background(), there); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the session does not end")
		}
		for _, e := range engines {
			if n := e.Closed.Load(); n != 1 {
				t.Errorf("an engine was closed %d times", n)
			}
		}
		if n := perfdouble.Memories(dir); n != 0 {
			t.Errorf("%d memories are still registered", n)
		}
	})
}
