package lab

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata/instructions.sh
var instructionsScript string

// TestBenchInstructions counts what a message costs the processor in the loops
// of perftest and of gdrcheck.
func TestBenchInstructions(t *testing.T) {
	needRounds(t)
	const messages = 2000
	share := newShare(t, "")
	buildLoops(t, filepath.Join(share, "loops"))
	copyValgrind(t, filepath.Join(share, "valgrind"))
	dir := bootFor(t, bootLimit, Guest{
		Share:   share,
		Script:  fmt.Sprintf("messages=%d\n", messages) + rdmaScript + instructionsScript,
		Machine: []string{"-machine", "q35", "-m", "1G"},
	})[0]
	for _, op := range []string{"write", "send", "read"} {
		for _, measure := range []string{"bandwidth", "latency"} {
			name := op + "-" + measure
			var own [2]float64
			for i, tool := range []string{"perftest", "gdrcheck"} {
				f, err := os.Open(filepath.Join(dir, name+"."+tool))
				if err != nil {
					t.Fatalf("%v; %s", err, read(t, dir, name+"."+tool+".log.err"))
				}
				g, err := parseCallgrind(f)
				f.Close()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				own[i] = g.perMessage(messages)
			}
			t.Logf("%-16s instructions a message: perftest %5.1f, gdrcheck %5.1f", name, own[0], own[1])
			if !(own[0] > 0 && own[1] > 0 && own[1] <= own[0]) {
				t.Errorf("%s: gdrcheck's loop needs more than perftest's", name)
			}
		}
	}
}

// buildLoops compiles the measuring core as cgo does, with loops.c instead of Go.
func buildLoops(t *testing.T, out string) {
	t.Helper()
	args := []string{"-O2", "-g", "-Wall", "-Werror", "-I../../rdma/verbs", "-I../mem", "-o", out, "testdata/loops.c"}
	for _, dir := range []string{"../../rdma/verbs", "../mem"} {
		list, err := filepath.Glob(dir + "/*.c")
		if err != nil || len(list) == 0 {
			t.Fatalf("no C in %s: %v", dir, err)
		}
		args = append(args, list...)
	}
	if b, err := exec.CommandContext(t.Context(), "cc", append(args, "-ldl", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, b)
	}
}

func TestLoopsBuild(t *testing.T) { buildLoops(t, filepath.Join(t.TempDir(), "loops")) }

func copyValgrind(t *testing.T, to string) {
	t.Helper()
	for from, name := range map[string]string{
		"/usr/bin/valgrind.bin":                               "valgrind",
		"/usr/libexec/valgrind/callgrind-amd64-linux":         "",
		"/usr/libexec/valgrind/vgpreload_core-amd64-linux.so": "",
		"/usr/libexec/valgrind/default.supp":                  "",
	} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatalf("%v (run scripts/setup bench-lab)", err)
		}
		if name == "" {
			name = filepath.Base(from)
		}
		if err := writeFile(filepath.Join(to, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// function is one of an object file, as callgrind names them.
type function struct{ object, name string }

type callgrind struct {
	ran   map[function]map[string]float64 // how often the instruction at an address did
	calls map[[2]function]float64
}

// parseCallgrind reads callgrind's format, version 1, with positions "instr
// line" and without compression (valgrind's manual, "Callgrind Format
// Specification").
func parseCallgrind(r io.Reader) (*callgrind, error) {
	g := &callgrind{map[function]map[string]float64{}, map[[2]function]float64{}}
	var at, called function
	var positions, inclusive bool
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Text()
		key, value, keyed := strings.Cut(line, "=")
		switch {
		case line == "positions: instr line":
			positions = true
		case keyed && key == "ob":
			at.object = path.Base(value)
		case keyed && key == "fn":
			at.name = value
			called.object = at.object
		case keyed && key == "cob":
			called.object = path.Base(value)
		case keyed && key == "cfn":
			called.name = value
		case keyed && key == "calls":
			n, err := strconv.ParseFloat(strings.Fields(value + " ")[0], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			g.calls[[2]function{at, called}] += n
			called.object = at.object
			inclusive = true // the next line is what was spent in the call
		case strings.HasPrefix(line, "0x"):
			f := strings.Fields(line)
			if len(f) != 3 {
				return nil, fmt.Errorf("not address, line and cost: %q", line)
			}
			n, err := strconv.ParseFloat(f[2], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			if !inclusive {
				if g.ran[at] == nil {
					g.ran[at] = map[string]float64{}
				}
				g.ran[at][f[0]] += n
			}
			inclusive = false
		}
	}
	if !positions {
		return nil, errors.New("no positions by instruction")
	}
	return g, sc.Err()
}

// perMessage is how many instructions of the program itself, the libraries' left
// out, a message takes in the functions that call the RDMA provider and in those
// that they call as often. An instruction that runs more than once a message is
// waiting, which takes as long as it takes: it counts once.
func (g *callgrind) perMessage(messages float64) float64 {
	const seldom = 1.0 / 20 // of the messages: completions are taken 16 at a time
	loop := map[function]bool{}
	for pair, n := range g.calls {
		if strings.HasPrefix(pair[1].object, "librxe") && pair[0].object != pair[1].object && n >= seldom*messages {
			loop[pair[0]] = true
		}
	}
	for more := true; more; {
		more = false
		for pair, n := range g.calls {
			if loop[pair[0]] && !loop[pair[1]] && pair[0].object == pair[1].object && n >= seldom*messages {
				loop[pair[1]], more = true, true
			}
		}
	}
	total := 0.0
	for f := range loop {
		for _, n := range g.ran[f] {
			total += min(n, messages)
		}
	}
	return total / messages
}

func TestParseCallgrind(t *testing.T) {
	const text = `version: 1
positions: instr line
events: Ir
ob=/tmp/tool
fl=x.c
fn=main
0x1 1 1
cfn=loop
calls=1 0x10 5
0x2 1 1000

fn=loop
0x10 5 100
0x14 6 700
cob=/usr/lib/librxe-rdmav34.so
cfi=???
cfn=0x0000000000003cc0
calls=100 0x100 0
0x18 7 5000
cfn=helper
calls=100 0x30 9
0x1c 7 200
cfn=report
calls=1 0x40 9
0x20 8 9
0x20 8 50

fn=helper
0x30 9 200

fn=report
0x40 9 9

ob=/usr/lib/librxe-rdmav34.so
fl=???
fn=0x0000000000003cc0
0x100 0 5000
cob=/usr/lib/libc.so.6
cfn=write
calls=100 0x200 0
0x104 0 700
`
	g, err := parseCallgrind(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	// Of 100 messages: 100, 100 of the 700 and 50 in the loop, 100 of the 200 in its helper.
	if got, want := g.perMessage(100), 3.5; got != want {
		t.Errorf("%g instructions a message, want %g", got, want)
	}
	if _, err := parseCallgrind(strings.NewReader("version: 1\npositions: line\n")); err == nil {
		t.Error("positions by line were taken")
	}
}
