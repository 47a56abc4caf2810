package lab

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/node.sh
var nodeScript string

//go:embed testdata/frozen.sh
var frozenScript string

// bootLimit is far more than a guest takes: about 20 s on two idle cores.
const bootLimit = 5 * time.Minute

// boot runs a script in a guest with the built program and the NVML double,
// and returns the directory of what the guest wrote.
func boot(t *testing.T, g Guest) string {
	t.Helper()
	return bootFor(t, g, bootLimit)
}

func bootFor(t *testing.T, g Guest, limit time.Duration) string {
	t.Helper()
	if os.Getenv("GDRCHECK_LAB") != "1" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must boot the virtual node: set GDRCHECK_LAB=1, as make test does")
		}
		t.Skip("boots a virtual node: run make lab")
	}
	// Not t.TempDir, so that a failed run can be looked into.
	g.Share = filepath.Join("../../.cache/lab", strings.ReplaceAll(t.Name(), "/", "-"))
	if err := os.RemoveAll(g.Share); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(g.Share, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../bin/gdrcheck")
	if err != nil {
		t.Fatalf("no program to test: run make build: %v", err)
	}
	if err := os.WriteFile(filepath.Join(g.Share, "gdrcheck"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	stub := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", filepath.Join(g.Share, "libnvml-stub.so"), "testdata/nvml_stub.c")
	if out, err := stub.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}

	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	res, err := Run(ctx, g)
	if err != nil || res.ExitStatus != 0 {
		t.Fatalf("guest: exit status %d, %v; console:\n%s", res.ExitStatus, err, res.Console)
	}
	t.Logf("the guest ran %.1f s", time.Since(start).Seconds())
	return filepath.Join(g.Share, "out")
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// decode reads the JSON that a command of the guest printed.
func decode[T any](t *testing.T, dir, name string) T {
	t.Helper()
	var v T
	text := read(t, dir, name)
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		stderr, _ := os.ReadFile(filepath.Join(dir, name+".err")) // only to explain the failure
		t.Fatalf("%s: %v: %.200s\n%s", name, err, text, stderr)
	}
	return v
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func lines(s string) *bufio.Scanner { return bufio.NewScanner(bytes.NewBufferString(s)) }
