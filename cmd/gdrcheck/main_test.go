package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/internal/worker"
)

// The scripts run the real main, in processes of their own.
func TestMain(m *testing.M) {
	if worker.IsWorker(os.Args) { // a worker is this very binary, whatever its name
		os.Exit(worker.Main())
	}
	if dir := os.Getenv(doubleEnv); dir != "" {
		perf = doubleBackend(dir)
	}
	version, commit = "test", "" // what goes into golden files does not change with the build
	testscript.Main(cleaning{m}, map[string]func(){"gdrcheck": main, "twice": twice})
}

// cleaning removes what the tests share when they are done.
type cleaning struct{ *testing.M }

func (c cleaning) Run() int {
	defer func() { _ = os.RemoveAll(shared.dir) }()
	return c.M.Run()
}

// shared holds the machines that several tests read: a tree has thousands of files.
var shared struct {
	dir string
	mu  sync.Mutex
}

// machineDir returns the directory of a machine's tree, written once.
func machineDir(t *testing.T, name string, tree func() render.Tree) string {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var err error
	if shared.dir == "" {
		if shared.dir, err = os.MkdirTemp("", "gdrcheck-test-"); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(shared.dir, name)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return dir
	} else if err != nil {
		t.Fatal(err)
	}
	if err := tree().Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("LANG", "C.UTF-8")
			e.Setenv("TERM", "xterm")
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "rdma" { // this machine has at least a part of what check looks for
				_, ib := os.Stat("/sys/class/infiniband")
				_, nv := os.Stat("/proc/driver/nvidia")
				return ib == nil || nv == nil, nil
			}
			return false, os.ErrInvalid
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitcode, "freeport": freeport, "waitfor": waitfor,
		},
	})
}

// exitcode CODE gdrcheck ARGS…: runs the command and compares its exit code.
func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE command args…")
	}
	err := ts.Exec("sh", append([]string{"-c", `want=$1; shift; "$@"; got=$?; [ $got = $want ] || { echo "exit code $got, want $want" >&2; exit 99; }`, "sh"}, args...)...)
	if err != nil {
		ts.Fatalf("%v\n%s", err, ts.ReadFile("stderr"))
	}
}
