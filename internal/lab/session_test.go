package lab

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
)

//go:embed testdata/session.sh
var sessionScript string

// perfDocument is what gdrcheck perf -o json writes, as far as it is looked at here.
type perfDocument struct {
	Kind      string            `json:"kind"`
	Simulated bool              `json:"simulated"`
	Results   []perftest.Result `json:"results"`
}

// checkSession: two processes, each with a Soft-RoCE device of its own, measured,
// and the link was cut and each side killed in the middle.
func checkSession(t *testing.T, dir string) {
	t.Logf("server:\n%s", read(t, dir, "server.err"))

	ops := []perftest.Operation{perftest.Write, perftest.Read, perftest.Send}
	var kinds []string
	for _, r := range session(t, dir, "operations", 0) {
		kinds = append(kinds, string(r.Plan.Operation)+" "+string(r.Plan.Measure))
		whole(t, &r, "rxe0", "rxe1")
	}
	for _, op := range ops {
		for _, m := range []perftest.Measure{perftest.Bandwidth, perftest.Latency} {
			if !slices.Contains(kinds, string(op)+" "+string(m)) {
				t.Errorf("%s %s was not measured", op, m)
			}
		}
	}
	for _, r := range session(t, dir, "reverse", 0) {
		whole(t, &r, "rxe1", "rxe0")
	}
	for _, r := range session(t, dir, "both", 0) {
		whole(t, &r, "rxe0", "rxe1")
		if s := r.Steps[0]; s.Reverse == nil || s.Reverse.BytesPerSec <= 0 || len(s.Data) != 2 {
			t.Errorf("both directions: %+v", s)
		}
	}
	sizes := session(t, dir, "sizes", 0)[0]
	whole(t, &sizes, "rxe0", "rxe1")
	if n := len(sizes.Steps); n != 3 || sizes.Steps[n-1].SizeBytes != 8<<20 {
		t.Errorf("%d sizes were measured", n)
	}

	// The link goes down: an error of the RDMA stack, at both sides, in time.
	unplugged := session(t, dir, "unplugged", 1)[0]
	if f := unplugged.Failure; f == nil || f.Cause == "" || strings.HasPrefix(f.Call, "ibv_") { // not a port that was down before
		t.Errorf("the link went down, and the client says %+v", f)
	}
	inTime(t, dir, "unplugged", 25)
	for _, name := range []string{"plugged", "next", "once"} {
		for _, r := range session(t, dir, name, 0) {
			whole(t, &r, "rxe0", "rxe1")
		}
	}

	// Whoever is killed leaves nothing behind, and the other side says so.
	before := count(t, dir, "before")
	if during := count(t, dir, "during"); during == before {
		t.Error("a run holds no resources: nothing was tested")
	}
	for _, name := range []string{"killed", "orphaned", "after"} {
		if got := count(t, dir, name); got != before {
			t.Errorf("%s: queue pairs and regions %v, before %v", name, got, before)
		}
	}
	exitStatus(t, dir, "orphaned", 3)
	inTime(t, dir, "orphaned", 12)
	exitStatus(t, dir, "interrupted", 3)
	contains(t, read(t, dir, "interrupted.err"), "interrupted; the other side was told")
	contains(t, read(t, dir, "orphaned.err"), "closed the connection")
	exitStatus(t, dir, "once-server", 0)
	exitStatus(t, dir, "stopped-server", 0)
	log := read(t, dir, "server.err")
	for _, want := range []string{"failed at the", "broke off: the other side closed the connection", "left: the client was interrupted"} {
		contains(t, log, want)
	}
}

func session(t *testing.T, dir, name string, status int) []perftest.Result {
	t.Helper()
	exitStatus(t, dir, name, status)
	d := decode[perfDocument](t, dir, name)
	if d.Kind != "perf" || d.Simulated || len(d.Results) == 0 {
		t.Fatalf("%s: %s", name, read(t, dir, name))
	}
	return d.Results
}

func exitStatus(t *testing.T, dir, name string, want int) {
	t.Helper()
	if got := number(t, read(t, dir, name+".rc")); got != want {
		t.Errorf("%s: exit status %d, want %d: %s%s", name, got, want, read(t, dir, name+".err"), read(t, dir, name))
	}
}

// inTime bounds what a guest, whose clock an emulator drives, may take.
func inTime(t *testing.T, dir, name string, most int) {
	t.Helper()
	if got := number(t, read(t, dir, name+".seconds")); got > most {
		t.Errorf("%s: it took %d s", name, got)
	}
}

func contains(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

// count is how many queue pairs and memory regions there are.
func count(t *testing.T, dir, name string) [2]int {
	t.Helper()
	return [2]int{number(t, read(t, dir, name+".qps")), number(t, read(t, dir, name+".mrs"))}
}

// mostBytesPerSec is far more than Soft-RoCE moves under emulation.
const mostBytesPerSec = 5e9

// whole checks that a test came to its end, between the right devices, with
// figures, with all data right, and with what the counters of both sides did.
func whole(t *testing.T, r *perftest.Result, initiator, responder string) {
	t.Helper()
	at := string(r.Plan.Operation) + " " + string(r.Plan.Measure)
	if r.Failure != nil || len(r.Steps) != len(r.Plan.SizesBytes) {
		t.Fatalf("%s: %d steps, %v", at, len(r.Steps), r.Failure)
	}
	if r.Initiator.Device != initiator || r.Responder.Device != responder {
		t.Errorf("%s: from %s to %s", at, r.Initiator.Device, r.Responder.Device)
	}
	if r.Initiator.RemoteKey != 0 || r.Responder.RemoteKey != 0 {
		t.Errorf("%s: a remote key is in the result", at)
	}
	for _, s := range r.Steps {
		if s.BytesPerSec > mostBytesPerSec {
			t.Errorf("%s, %d bytes: %g bytes/s through an emulated processor", at, s.SizeBytes, s.BytesPerSec)
		}
		if r.Plan.Measure == perftest.Latency && (s.Latency == nil || s.Latency.MinNs <= 0 || s.Latency.Samples != uint64(r.Plan.Messages)) ||
			r.Plan.Measure == perftest.Bandwidth && (s.Forward == nil || s.Forward.BytesPerSec <= 0) {
			t.Errorf("%s, %d bytes: no figure: %+v", at, s.SizeBytes, s)
		}
		if len(s.Data) == 0 {
			t.Errorf("%s, %d bytes: nothing was compared", at, s.SizeBytes)
		}
		for _, d := range s.Data {
			if !d.Correct || d.Skipped != "" {
				t.Errorf("%s, %d bytes: %+v", at, s.SizeBytes, d)
			}
		}
	}
	for side, c := range r.Counters {
		if !slices.Contains(c.Watched, "retry_exceeded_err") {
			t.Errorf("%s: counters of the %s: %+v", at, side, c)
		}
	}
	for _, side := range []perftest.Side{perftest.Initiator, perftest.Responder} {
		if !r.Limits[side].Software {
			t.Errorf("%s: the %s is not known as software: %+v", at, side, r.Limits[side])
		}
	}
}
