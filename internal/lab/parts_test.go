package lab

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata/rdma.sh
var rdmaScript string

// part is a script that runs in the guest of TestRDMA, in a shell and with an
// output directory of its own, and what is checked of its output.
type part struct {
	name   string
	script string
	check  func(t *testing.T, dir string)
}

var parts = []part{
	{"perf", perfScript, checkPerf},
	{"gpu", gpuScript, checkGPU},
	{"session", sessionScript, checkSession},
	{"crowd", fmt.Sprintf("together=%d\n", together) + crowdScript, checkCrowd},
	{"lasting", fmt.Sprintf("tests=%d\n", lasting()) + lastingScript, checkLasting},
	{"compare", compareScript, checkCompare},
}

// TestRDMA runs all parts in one guest, since each boot takes its time. With
// -run TestRDMA/NAME the guest runs that part alone.
func TestRDMA(t *testing.T) {
	var script strings.Builder
	fmt.Fprintf(&script, "pairs=%d\n%s", pairs, rdmaScript)
	for _, p := range parts {
		if asked(p.name) {
			fmt.Fprintf(&script, "(\nout=/host/out/%s\nmkdir -p $out\n%s\ntrue\n) || exit 1\necho %s: $(cut -d' ' -f1 /proc/uptime) s\n", p.name, p.script, p.name)
		}
	}
	share := newShare(t, "")
	dir := bootFor(t, 2*bootLimit, Guest{Share: share, Script: script.String() + "exit 0\n", Machine: []string{"-machine", "q35", "-m", "3G"}})[0]
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) { p.check(t, filepath.Join(dir, p.name)) })
	}
}

// asked says whether -run lets a part's subtest run.
func asked(name string) bool {
	run := ""
	for i, arg := range os.Args {
		if v, ok := strings.CutPrefix(arg, "-test.run="); ok {
			run = v
		} else if arg == "-test.run" && i+1 < len(os.Args) {
			run = os.Args[i+1]
		}
	}
	_, sub, _ := strings.Cut(run, "/")
	sub, _, _ = strings.Cut(sub, "/")
	ok, err := regexp.MatchString(sub, name)
	return ok && err == nil
}

// lasting is how many tests one server of the lab runs.
func lasting() int {
	if n, err := strconv.Atoi(os.Getenv("GDRCHECK_LAB_TESTS")); err == nil {
		return n
	}
	return 24
}
