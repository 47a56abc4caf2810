package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/perfdouble"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// doubleEnv names the directory where the doubles of two processes keep their
// memory. Only the program that the scripts run, which is this test's, knows it.
const doubleEnv = "GDRCHECK_TEST_DOUBLE"

// faultEnv names the call that fails at every double.
const faultEnv = "GDRCHECK_TEST_DOUBLE_FAULT"

// railsEnv is how many doubles a node has, each with one active port, in place of
// the usual two devices. faultyEnv names the only one of them that fails.
const (
	railsEnv  = "GDRCHECK_TEST_DOUBLE_RAILS"
	faultyEnv = "GDRCHECK_TEST_DOUBLE_FAULTY"
)

// faulty is a double that fails where it is told to.
type faulty struct {
	*perfdouble.Engine
	device string
}

func newDouble(dir string) perftest.Engine {
	f := &faulty{Engine: &perfdouble.Engine{Dir: dir}}
	f.Before = func(_ context.Context, call string) error {
		if only := os.Getenv(faultyEnv); call != os.Getenv(faultEnv) || only != "" && only != f.device {
			return nil
		}
		return &perftest.Failure{Call: call, Subject: f.device, Cause: "it was told to", Check: "unset " + faultEnv}
	}
	return f
}

// Open implements perftest.Engine.
func (f *faulty) Open(ctx context.Context, p perftest.Plan, l perftest.Local, side perftest.Side) (perftest.Endpoint, error) {
	f.device = l.Device
	return f.Engine.Open(ctx, p, l, side)
}

// doubleBackend is a node with two RDMA devices, of which one is a double.
func doubleBackend(dir string) *perfBackend {
	port := func(n int, state string) rdma.Port { return rdma.Port{Number: n, State: fact.Of(state, "state")} }
	devices := []rdma.Device{
		{Name: perfdouble.Device, Ports: []rdma.Port{port(1, "DOWN"), port(2, "ACTIVE")}},
		{Name: "down0", Ports: []rdma.Port{port(1, "DOWN")}},
	}
	if n, err := strconv.Atoi(os.Getenv(railsEnv)); err == nil {
		devices = nil
		for i := range n {
			devices = append(devices, rdma.Device{Name: fmt.Sprintf("double%d", i), Ports: []rdma.Port{port(1, "ACTIVE")}})
		}
		devices = append(devices, rdma.Device{Name: "down0", Ports: []rdma.Port{port(1, "DOWN")}})
	}
	return &perfBackend{
		newEngine: func() perftest.Engine { return newDouble(dir) },
		collect: func(context.Context, time.Duration) (*topo.Machine, error) {
			return &topo.Machine{Origin: "live", Simulated: true, CollectedAt: time.Now().UTC(), RDMA: rdma.Facts{Devices: devices}}, nil
		},
		read: func(context.Context, string, int, []string) []rdma.Counter {
			return []rdma.Counter{{Name: "link_downed", Value: fact.Of[uint64](0, "link_downed")}}
		},
		subnets:   func(context.Context) map[string][]netip.Prefix { return nil },
		simulated: true,
	}
}

// freeport NAME sets a variable to a TCP port that nobody uses.
func freeport(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport NAME")
	}
	// Below the ports that the kernel hands out by itself (ip_local_port_range):
	// of those another test's connection may take this one before it is used.
	const first, count = 20000, 12000
	for range 100 {
		port := strconv.Itoa(first + rand.IntN(count))
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue
		}
		ts.Check(l.Close())
		ts.Setenv(args[0], port)
		return
	}
	ts.Fatalf("no free TCP port")
}

// waitfor FILE waits until there is something in a file.
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfor FILE")
	}
	const tries, pause = 500, 20 * time.Millisecond
	for range tries {
		if st, err := os.Stat(ts.MkAbs(args[0])); err == nil && st.Size() > 0 {
			return
		}
		time.Sleep(pause)
	}
	ts.Fatalf("%s does not come", args[0])
}

func TestChooseDevice(t *testing.T) {
	m, err := doubleBackend("").machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, device, fault string }{
		{"", "double0/2", ""},
		{"double0", "double0/2", ""},
		{"double0/1", "double0/1", ""}, // as told, even if it is down
		{"double0/3", "", "double0 has no port 3"},
		{"double0/x", "", `"double0/x": want a device, or a device and its port as in mlx5_0/1`},
		{"down0", "", "down0: no port is active"},
		{"mlx5_0", "", "there is no device mlx5_0 here; there are: double0, down0"},
	} {
		l, err := chooseDevice(m, tt.name)
		switch {
		case tt.fault != "":
			if err == nil || err.Error() != tt.fault {
				t.Errorf("%q: %v, want %s", tt.name, err, tt.fault)
			}
		case err != nil || l.Device+"/"+strconv.Itoa(l.Port) != tt.device:
			t.Errorf("%q: %s/%d, %v", tt.name, l.Device, l.Port, err)
		}
	}
	for name, want := range map[string]string{
		"": "there is no RDMA device here", "mlx5_0": "there is no device mlx5_0 here, nor any other RDMA device",
	} {
		if _, err := chooseDevice(&topo.Machine{}, name); err == nil || err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Measurements are judged by the thresholds of preset and policy.
func TestPerfThresholds(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("thresholds: {perf_latency_pass_ns: {write: 8000}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := perf
	t.Cleanup(func() { perf = old })
	perf = doubleBackend(t.TempDir())
	for name, tt := range map[string]struct {
		by   judging
		want string
	}{
		"default": {judging{}, "FAIL  perf-latency"},
		"Grace":   {judging{preset: "gb200"}, "WARN  perf-latency"},
		"policy":  {judging{policy: policy}, "+ perf-latency"},
	} {
		by, err := perfChoice(&tt.by)
		if err != nil {
			t.Fatal(err)
		}
		by.Only = []string{"perf-latency"}
		end := perftest.Endpoint{Device: "mlx5_0", Port: 1}
		r := &perftest.Result{
			Plan: perftest.NewPlan(perftest.Write, perftest.Latency), Initiator: end, Responder: end,
			Steps: []perftest.Step{{SizeBytes: 2, Latency: &perftest.LatencyDist{MeanNs: 8000, P99Ns: 9000}}},
		}
		s := quiet()
		var o outputs
		o.formats = []string{"table"}
		err = writePerf(t.Context(), s, &o, by, measured{Results: []*perftest.Result{r}}, time.Now())
		if got := fmt.Sprint(s.Out); err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v, want %s\n%s", name, err, tt.want, got)
		}
	}
}

// A collection that was cut short is not kept for the next test.
func TestMachineIsKept(t *testing.T) {
	var collected int
	problem := []topo.Problem{{Part: "rdma", Reason: "cut short"}}
	b := &perfBackend{collect: func(context.Context, time.Duration) (*topo.Machine, error) {
		collected++
		return &topo.Machine{Problems: problem}, nil
	}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = b.machine(t.Context()) // has a problem
	problem = nil
	_, _ = b.machine(gone)
	_, _ = b.machine(t.Context())
	if _, _ = b.machine(t.Context()); collected != 3 {
		t.Errorf("collected %d times, want 3", collected)
	}
	m := &topo.Machine{Problems: []topo.Problem{{Part: "rdma", Reason: "cut short"}}}
	if _, err := chooseDevice(m, ""); err == nil || !strings.Contains(err.Error(), "rdma could not be collected: cut short") {
		t.Errorf("%v", err)
	}
}

func TestPublicAddress(t *testing.T) {
	for text, want := range map[string]bool{
		"10.1.2.3": false, "192.168.0.1": false, "172.16.0.1": false, "100.64.0.1": false, "127.0.0.1": false,
		"169.254.1.1": false, "fe80::1": false, "fd00::1": false, "::1": false,
		"8.8.8.8": true, "2600::1": true, "100.128.0.1": true,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:18516", "10.0.0.1:5": "10.0.0.1:5", "::1": "[::1]:18516", "[::1]": "[::1]:18516", "[::1]:7": "[::1]:7",
		"fe80::1%eth0": "[fe80::1%eth0]:18516", "[fe80::1%eth0]": "[fe80::1%eth0]:18516", "[fe80::1%eth0]:7": "[fe80::1%eth0]:7",
		"::ffff:10.0.0.1": "10.0.0.1:18516", // IPv4 in IPv6's form (RFC 4291, 2.5.5.2)
	} {
		if got, err := serverAddress(text); err != nil || got != want {
			t.Errorf("client %s: %s, %v, want %s", text, got, err, want)
		}
		if got, err := listenAddress(text); err != nil || got.String() != want {
			t.Errorf("server %s: %s, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"node-7": "node-7:18516", "node_7.example.org:65535": "node_7.example.org:65535", "7a": "7a:18516", "node:00080": "node:80",
	} {
		if got, err := serverAddress(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, bad := range []string{"node-7", ":5", "10.0.0.1:x", "10.0.0.1:99999", "[::1", "::1]", "[fe80::1%eth0", "10.0.0.1:"} {
		if at, err := listenAddress(bad); err == nil {
			t.Errorf("%s: %s", bad, at)
		}
	}
}

// No connection is tried to what can be no server's address: one line, at once.
func TestNoServersAddress(t *testing.T) {
	for _, bad := range []string{
		"", ":", ":18516", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:x", "10.0.0.1:+5", "node:http",
		"http://10.0.0.1", "http://node:18516", "10.0.0.1/x", "node/x", "node 7", "user@node", "[::1", "[::1]:0", "[::1]:", "::1]", "[]", "[node]",
		"fe80::zz", "10.0.0", "10.0.0.256", "0.0.0.0", "::", "[::]:18516", "node\x00", "no\nde",
	} {
		for _, command := range []string{"client", "compare"} {
			start := time.Now()
			out, errs, code := inProcess("perf", command, bad)
			text := string(errs)
			if code != 2 || len(out) > 0 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "is no address of a server: ") || time.Since(start) > time.Second {
				t.Errorf("%s %q: exit code %d, %q, %q", command, bad, code, out, text)
			}
			for _, ofGo := range []string{"strconv", "lookup", "dial", "parse"} {
				if strings.Contains(text, ofGo) {
					t.Errorf("%q: %s", bad, text)
				}
			}
		}
	}
	if _, errs, code := inProcess("perf", "compare", "client"); code != 2 || !strings.Contains(string(errs), "compare is a client already") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// A server listens where it says, and there alone.
func TestListensWhereItSays(t *testing.T) {
	for listen, want := range map[string]string{"0.0.0.0:0": "waiting on 0.0.0.0:", "127.0.0.1:0": "waiting on 127.0.0.1:", "[::1%lo]:0": "waiting on [::1"} {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", listen)
		if err != nil {
			t.Logf("%s: %v", listen, err) // a node without IPv6
			continue
		}
		_ = l.Close()
		old := perf
		perf = doubleBackend(t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		s := quiet()
		s.Out = writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }) // the line for the other side
		code := guard(s, func() error {
			root := newRootCommand(s)
			root.SetArgs([]string{"perf", "server", "--listen", listen})
			return root.ExecuteContext(ctx)
		})
		cancel()
		perf = old
		if got := fmt.Sprint(s.Err); code != 0 || !strings.Contains(got, want) {
			t.Errorf("--listen %s: exit code %d, %s", listen, code, got)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
