package lab

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/report"
)

//go:embed testdata/rails.sh
var railsScript string

// TestRails measures every port of one guest with its peer of another guest, and
// then each with itself as a part of check.
func TestRails(t *testing.T) {
	common := newShare(t, "common")
	var cables [3][2]*os.File
	for i := range cables {
		var err error
		if cables[i][0], cables[i][1], err = Wire(syscall.SOCK_DGRAM); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cables[i][0].Close(), cables[i][1].Close() })
	}
	var guests []Guest
	for i, role := range []string{"server", "client"} {
		machine := []string{"-machine", "q35", "-m", "768M", "-virtfs", "local,path=" + common + ",mount_tag=common,security_model=none"}
		var files []*os.File
		for n, c := range cables {
			const firstFile = 3
			files = append(files, c[i])
			machine = append(machine, "-netdev", fmt.Sprintf("socket,id=n%d,fd=%d", n, firstFile+n),
				"-device", fmt.Sprintf("e1000e,netdev=n%d,mac=52:54:00:00:%d0:0%d", n, i+1, n+1))
		}
		guests = append(guests, Guest{Script: "role=" + role + "\n" + railsScript, Share: newShare(t, role), Machine: machine, Files: files})
	}
	dirs := bootFor(t, bootLimit, guests...)
	server, client := dirs[0], dirs[1]
	t.Logf("server:\n%s\n%s\n%s", read(t, server, "server.log"), read(t, client, "all.table"), read(t, client, "check.table"))

	allRails(t, client)
	unpluggedRail(t, client)
	checkedNode(t, client)
	loopedBack(t, client)
	for _, dir := range dirs {
		if before, after := count(t, dir, "before"), count(t, dir, "after"); after != before {
			t.Errorf("%s: queue pairs and regions %v before and %v after", dir, before, after)
		}
	}
}

// railKey is what sets a result of several apart.
func railKey(r *perftest.Result) string {
	way := "there"
	if r.Reverse {
		way = "back"
	}
	return strings.Join([]string{r.Rail, string(r.Plan.Operation), string(r.Plan.Measure), way, strconv.Itoa(r.Together)}, " ")
}

// allRails: both pairs, found by their networks, each alone there and back, and
// both at the same time.
func allRails(t *testing.T, dir string) {
	t.Helper()
	exitStatus(t, dir, "all", 0)
	doc := decode[report.Perf](t, dir, "all")
	var want []string
	for _, rail := range []string{"rxe0/1", "rxe1/1"} {
		for _, op := range []string{"write", "read"} {
			for _, way := range []string{"there", "back"} {
				want = append(want, rail+" "+op+" bandwidth "+way+" 0", rail+" "+op+" bandwidth "+way+" 2")
			}
			want = append(want, rail+" "+op+" latency there 0")
		}
	}
	var got []string
	peer := map[string]string{"rxe0/1": "rxe1/1", "rxe1/1": "rxe0/1"}
	// eth1 has 10.2.0, eth2 10.3.0; the client's rxe0 is on eth2.
	network := map[string]string{"rxe0/1": "10.3.0", "rxe1/1": "10.2.0"}
	for _, r := range doc.Results {
		got = append(got, railKey(r))
		initiator, responder := r.Rail[:4], r.Peer[:4]
		ours, theirs := r.Initiator.GID, r.Responder.GID
		if r.Reverse {
			initiator, responder, ours, theirs = responder, initiator, theirs, ours
		}
		whole(t, r, initiator, responder)
		if net := "::ffff:" + network[r.Rail]; r.Peer != peer[r.Rail] || ours != net+".2" || theirs != net+".1" {
			t.Errorf("%s with %s: from %s to %s", r.Rail, r.Peer, r.Initiator.GID, r.Responder.GID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("measured:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, p := range doc.Rails {
		if p.By != perftest.MatchSubnet || p.Why != "" {
			t.Errorf("%+v", p)
		}
	}
}

// unpluggedRail: a port that is down at the other node hides nothing.
func unpluggedRail(t *testing.T, dir string) {
	t.Helper()
	exitStatus(t, dir, "unplugged", 1)
	doc := decode[report.Perf](t, dir, "unplugged")
	for _, r := range doc.Results {
		if r.Rail != "rxe1/1" || !r.Good() {
			t.Errorf("%s: %v", railKey(r), r.Failure)
		}
	}
	if len(doc.Results) != 2 {
		t.Errorf("%d results of the port that is up", len(doc.Results))
	}
	i := slices.IndexFunc(doc.Rails, func(p perftest.RailPair) bool { return p.Rail == "rxe0/1" })
	if i < 0 || doc.Rails[i].Why == "" {
		t.Errorf("%+v", doc.Rails)
	}
}

// loopedBack: perf loopback --all measures each port with itself, alone and with
// the other.
func loopedBack(t *testing.T, dir string) {
	t.Helper()
	exitStatus(t, dir, "loopback", 0)
	want := map[string]int{}
	for _, rail := range []string{"rxe0/1", "rxe1/1"} {
		for _, op := range []string{"write", "read"} {
			want[rail+" "+op+" bandwidth there 0"], want[rail+" "+op+" latency there 0"], want[rail+" "+op+" bandwidth there 2"] = 1, 1, 1
		}
	}
	got := map[string]int{}
	for _, r := range decode[report.Perf](t, dir, "loopback").Results {
		got[railKey(r)]++
		whole(t, r, r.Rail[:4], r.Rail[:4])
	}
	if !maps.Equal(want, got) {
		t.Errorf("measured %v, want %v", got, want)
	}
}

// countersJudged: a warning for each test whose counters of loss moved, as they
// really do where an emulated CPU comes late, and for no other one.
func countersJudged(t *testing.T, doc *report.Check) {
	t.Helper()
	signs := []qos.Sign{qos.SignError, qos.SignLink, qos.SignDiscard, qos.SignRetransmission, qos.SignOrder}
	want, got := 0, 0
	for _, r := range doc.Results {
		if slices.ContainsFunc([]perftest.Side{perftest.Initiator, perftest.Responder}, func(side perftest.Side) bool {
			return slices.ContainsFunc(r.Counters[side].Moved, func(d perftest.CounterDelta) bool { return slices.Contains(signs, d.Sign) })
		}) {
			want++
		}
	}
	judged := 0
	for _, f := range doc.Findings {
		switch {
		case f.Check != "perf-counters":
			continue
		case f.Verdict == checks.Warn:
			got++
		case f.Verdict != checks.Pass && f.Verdict != checks.Info:
			t.Errorf("perf-counters %s: %s", f.Subject, f.Verdict)
		}
		judged++
	}
	if got != want || judged != len(doc.Results) {
		t.Errorf("perf-counters judged %d of %d tests and warns of %d; the counters of loss of %d moved", judged, len(doc.Results), got, want)
	}
}

// checkedNode: check --perf measured both ports alone and together, in time, a
// recording gives the same to the byte, and a port in use was left alone.
func checkedNode(t *testing.T, dir string) {
	t.Helper()
	inTime(t, dir, "check", 60+30) // the budget, and the checks themselves under emulation
	doc := decode[report.Check](t, dir, "check")
	var got []string
	for _, r := range doc.Results {
		got = append(got, railKey(r))
		if !r.Good() || r.Initiator.Device+"/1" != r.Rail || r.Responder.Device+"/1" != r.Rail || r.Scope == "" {
			t.Errorf("%s: from %s to %s, a loopback: %q, %v", railKey(r), r.Initiator.Device, r.Responder.Device, r.Scope, r.Failure)
		}
		if s := r.Steps[0]; (s.Latency == nil || s.Latency.Samples == 0) == (s.Forward == nil || s.Forward.BytesPerSec > mostBytesPerSec) {
			t.Errorf("%s: no figure: %+v", railKey(r), s)
		}
	}
	want := []string{
		"rxe0/1 write bandwidth there 0", "rxe0/1 write latency there 0", "rxe1/1 write bandwidth there 0", "rxe1/1 write latency there 0",
		"rxe0/1 write bandwidth there 2", "rxe1/1 write bandwidth there 2",
	}
	if !slices.Equal(want, got) {
		t.Errorf("measured:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, id := range []string{"perf-ports", "perf-setup", "perf-bandwidth", "perf-latency", "perf-data", "perf-shared"} {
		if !slices.ContainsFunc(doc.Findings, func(f checks.Finding) bool {
			return f.Check == id && (f.Verdict == checks.Pass || f.Verdict == checks.Info)
		}) {
			t.Errorf("no good finding of %s", id)
		}
	}
	countersJudged(t, &doc)
	if read(t, dir, "again") != read(t, dir, "check") {
		t.Error("the recording gives another document")
	}
	exitStatus(t, dir, "secret", 0)
	redacted := decode[report.Check](t, dir, "redacted")
	if len(redacted.Results) != len(doc.Results) || strings.Contains(read(t, dir, "redacted"), "10.2.0.2") {
		t.Errorf("%d results in what was redacted, or an address", len(redacted.Results))
	}
	busy := decode[report.Check](t, dir, "busy")
	for _, p := range busy.Rails {
		if (p.Rail == "rxe0/1") != (p.Why == perftest.WhyBusy) {
			t.Errorf("one port is in use: %+v", p)
		}
	}
	if slices.ContainsFunc(busy.Results, func(r *perftest.Result) bool { return r.Rail == "rxe0/1" }) {
		t.Error("a port in use was measured")
	}
}
