package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gdrcheck/gdrcheck/internal/worker"
)

// The scripts run the real main, in processes of their own.
func TestMain(m *testing.M) {
	if worker.IsWorker(os.Args) { // a worker is this very binary, whatever its name
		os.Exit(worker.Main())
	}
	version, commit = "test", "" // what goes into golden files does not change with the build
	testscript.Main(m, map[string]func(){"gdrcheck": main})
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
			if cond == "rdma" { // this machine has what check looks for, at least in part
				_, ib := os.Stat("/sys/class/infiniband")
				_, nv := os.Stat("/proc/driver/nvidia")
				return ib == nil || nv == nil, nil
			}
			return false, os.ErrInvalid
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitcode},
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
