package lab

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
)

//go:embed testdata/lasting.sh
var lastingScript string

// checkLasting: a server holds no more after all tests than after the first
// eight, and nothing of RDMA between tests.
func checkLasting(t *testing.T, dir string) {
	n := lasting()
	for i := 0; i < n; i += 8 {
		for _, r := range session(t, dir, fmt.Sprint(i), 0) {
			whole(t, &r, "rxe0", "rxe1")
		}
	}
	exitStatus(t, dir, "server", 0)
	if ended := strings.Count(read(t, dir, "server.err"), " ended: "); ended < n {
		t.Errorf("the server's log has the ends of %d tests, want %d", ended, n)
	}
	none, few, all := serverHolds(t, dir, "none"), serverHolds(t, dir, "few"), serverHolds(t, dir, "all")
	t.Logf("the server before any test %+v, after 8 %+v, after %d %+v", none, few, n, all)
	// The collector's heap and the runtime's threads come and go.
	const noiseKiB, noiseThreads = 8 << 10, 4
	if few.rdma != none.rdma || all.rdma != none.rdma || all.files > few.files || all.children > 0 ||
		all.rssKiB > few.rssKiB+noiseKiB || all.threads > few.threads+noiseThreads {
		t.Error("it holds more and more")
	}
}

// serverHeld is what the server's process holds, and what of RDMA is in use by
// anybody: queue pairs, regions, completion queues, protection domains, contexts.
type serverHeld struct {
	rssKiB, threads, files, children int
	rdma                             string
}

func serverHolds(t *testing.T, dir, name string) serverHeld {
	t.Helper()
	h := serverHeld{
		files: number(t, read(t, dir, name+".files")), children: number(t, read(t, dir, name+".children")),
		rdma: strings.TrimSpace(read(t, dir, name+".rdma")),
	}
	status := strings.Join(strings.Fields(read(t, dir, name+".status")), " ")
	if _, err := fmt.Sscanf(status, "VmRSS: %d kB Threads: %d", &h.rssKiB, &h.threads); err != nil {
		t.Fatalf("%q: %v", status, err)
	}
	return h
}
