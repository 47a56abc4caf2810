package lab

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
)

//go:embed testdata/two.sh
var twoScript string

// TestTwoNodes measures between two guests, and pulls one cable after the other
// in the middle of a run: both sides say why in time, and the next test runs.
func TestTwoNodes(t *testing.T) {
	common := newShare(t, "common")
	control, data := wire(t, syscall.SOCK_DGRAM), wire(t, syscall.SOCK_DGRAM)
	var guests []Guest
	for i, role := range []string{"server", "client"} {
		monitor := wire(t, syscall.SOCK_STREAM)
		mac := "52:54:00:00:" + strconv.Itoa(i+1) + "0:0"
		guests = append(guests, Guest{
			Share:  newShare(t, role),
			Script: "role=" + role + "\n" + twoScript,
			Files:  []*os.File{control[i], data[i], monitor[0], monitor[1]},
			Machine: []string{
				"-machine", "q35", "-m", "768M",
				"-netdev", "socket,id=n0,fd=3", "-device", "virtio-net-pci,id=control,netdev=n0,romfile=,mac=" + mac + "1",
				"-netdev", "socket,id=n1,fd=4", "-device", "virtio-net-pci,id=data,netdev=n1,romfile=,mac=" + mac + "2",
				"-chardev", "socket,id=monitor,fd=5", "-mon", "chardev=monitor",
				"-chardev", "socket,id=port,fd=6", "-device", "isa-serial,chardev=port,index=1",
				"-virtfs", "local,path=" + common + ",mount_tag=common,security_model=none",
			},
		})
	}
	dirs := bootFor(t, bootLimit, guests...)
	server, client := dirs[0], dirs[1]
	log := read(t, server, "server.log")
	t.Logf("server:\n%s", log)

	var kinds []string
	for _, r := range session(t, client, "operations", 0) {
		kinds = append(kinds, string(r.Plan.Operation)+" "+string(r.Plan.Measure))
		whole(t, &r, "rxe0", "rxe0")
		if r.Initiator.GID != "::ffff:10.2.0.2" || r.Responder.GID != "::ffff:10.2.0.1" || r.Scope != "" {
			t.Errorf("from %s to %s, %s", r.Initiator.GID, r.Responder.GID, r.Scope)
		}
	}
	if len(kinds) != 2*len(perftest.Operations) || len(slices.Compact(kinds)) != len(kinds) {
		t.Errorf("measured: %v", kinds)
	}
	for _, name := range []string{"reverse", "sizes", "after-here", "after-there", "after-deaf"} {
		for _, r := range session(t, client, name, 0) {
			whole(t, &r, "rxe0", "rxe0")
		}
	}
	contains(t, read(t, client, "pulled"), "DOWN")
	contains(t, read(t, client, "plugged"), "ACTIVE")
	contains(t, read(t, server, "plugged"), "ACTIVE")

	ended := serverEndings(t, log)
	for _, tt := range []struct {
		name   string
		status int
		pulled string
		words  string
	}{
		{"here", 1, filepath.Join(client, "data-off"), "rxe0/1 is PORT_DOWN by now: its link went down"},
		{"there", 1, filepath.Join(server, "data-off"), "IBV_WC_RETRY_EXC_ERR"},
		{"deaf", 3, filepath.Join(client, "control-off"), "nothing heard of the other side for 5s"},
	} {
		pulled := number(t, read(t, "", tt.pulled))
		exitStatus(t, client, tt.name, tt.status)
		said := read(t, client, tt.name) + read(t, client, tt.name+".err")
		contains(t, said, tt.words)
		// The idle limit is 5 s, and so is the time after which a peer is gone.
		const limit = 5 + 10
		if took := number(t, read(t, client, tt.name+".ended")) - pulled; took < 0 || took > limit {
			t.Errorf("%s: the client ended %d s after the cable was pulled, want at most %d", tt.name, took, limit)
		}
		i := slices.IndexFunc(ended, func(e ending) bool { return e.at >= pulled })
		if i < 0 || ended[i].at > pulled+limit || !strings.Contains(ended[i].words, tt.words) {
			t.Errorf("%s: cable pulled at %d, and then the server says: %+v", tt.name, pulled, ended)
		}
	}

	for _, dir := range dirs {
		before, after := count(t, dir, "before"), count(t, dir, "after")
		if after != before {
			t.Errorf("%s: queue pairs and regions %v before and %v after", dir, before, after)
		}
	}
	contains(t, log, "exit status 0")
	if strings.Count(log, " begins: ") < 10 {
		t.Error("the server's log lacks tests")
	}
}

type ending struct {
	at    int
	words string
}

// serverEndings are how and when the server's log says that tests ended.
func serverEndings(t *testing.T, log string) (out []ending) {
	t.Helper()
	for sc := lines(log); sc.Scan(); {
		at, words, _ := strings.Cut(sc.Text(), " ")
		if strings.Contains(words, " ended: ") || strings.Contains(words, " broke off: ") {
			out = append(out, ending{number(t, at), words})
		}
	}
	return out
}

// wire returns both ends of one, which are closed when the test ends.
func wire(t *testing.T, kind int) [2]*os.File {
	t.Helper()
	a, b, err := Wire(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return [2]*os.File{a, b}
}
