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

// bootLimit is what no guest takes, whatever else the machine does: on two idle
// cores the longest takes two minutes.
const bootLimit = 15 * time.Minute

// boot runs a script in a guest with the built program and the NVML double,
// and returns the directory of what the guest wrote.
func boot(t *testing.T, g Guest) string {
	t.Helper()
	g.Share = newShare(t, "")
	return bootFor(t, bootLimit, g)[0]
}

// bootFor boots guests at the same time, each with a share of its own.
func bootFor(t *testing.T, limit time.Duration, guests ...Guest) (dirs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	results, err := Run(ctx, guests...)
	for i, res := range results {
		if err != nil || res.ExitStatus != 0 {
			t.Errorf("guest %d: exit status %d; console:\n%s", i, res.ExitStatus, res.Console)
		}
		dirs = append(dirs, filepath.Join(guests[i].Share, "out"))
	}
	if err != nil || t.Failed() {
		t.Fatalf("no more is looked at: %v", err)
	}
	t.Logf("booted for %.1f s", time.Since(start).Seconds())
	return dirs
}

// newShare makes a share that holds the program and the double, or skips the
// test where no guest is to be booted. A test with several guests names each.
func newShare(t *testing.T, guest string) string {
	t.Helper()
	if os.Getenv("GDRCHECK_LAB") != "1" {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI must boot the virtual node: set GDRCHECK_LAB=1, as make test does")
		}
		t.Skip("boots a virtual node: run make lab")
	}
	// Not t.TempDir, so that a failed run can be looked into.
	share := filepath.Join("../../.cache/lab", strings.ReplaceAll(t.Name(), "/", "-"), guest)
	if err := os.RemoveAll(share); err != nil {
		t.Fatal(err)
	}
	fillShare(t, share)
	return share
}

func fillShare(t *testing.T, share string) {
	t.Helper()
	if err := os.MkdirAll(share, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../bin/gdrcheck")
	if err != nil {
		t.Fatalf("no program to test: run make build: %v", err)
	}
	if err := os.WriteFile(filepath.Join(share, "gdrcheck"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]string{"libnvml-stub.so": "testdata/nvml_stub.c", "libcuda-stub.so": "../mem/testdata/libcuda.c", "libgdrapi-stub.so": "../gdrcopy/testdata/libgdrapi.c"} {
		stub := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-w", "-o", filepath.Join(share, name), source)
		if out, err := stub.CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, out)
		}
	}
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
