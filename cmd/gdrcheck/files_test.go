package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
)

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// One file cannot take two outputs, by whatever names.
func TestSamePlace(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	tree := machineDir(t, "example", exampleTree)
	file := filepath.Join(dir, "file")
	for _, args := range [][]string{
		{"-o", "json=" + file, "-o", "table=" + file},
		{"-o", "json=" + file, "-o", "table=" + dir + "/../" + filepath.Base(dir) + "/file"},
		{"-o", "json=" + file, "-o", "table=" + link},
		{"-o", "json", "-o", "table=/dev/stdout"},
		{"-o", "json=-", "-o", "table=/dev/fd/1"},
		{"-o", "json=" + link, "--record", file},
		{"--record", "/dev/stdout"},
	} {
		out, errs, code := inProcess(append([]string{"check", "--root", tree}, args...)...)
		if code != 2 || len(out) > 0 || bytes.Count(errs, []byte("\n")) != 1 {
			t.Errorf("%v: exit code %d, %d bytes on stdout, stderr %q", args, code, len(out), errs)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

func TestWriteFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"real", "d"} {
		if err := os.Mkdir(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"new": "real/made", "d/up": "../real/below", "loop": "loop"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	// A link's target is made, also where it was not there; an open file is added to.
	log, err := os.Create(at("log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	pipe := fifo(t)
	got := make(chan string)
	go func() {
		b, err := os.ReadFile(pipe)
		got <- fmt.Sprint(string(b), err)
	}()
	big := bytes.Repeat([]byte("x"), 1<<20)
	err = writeFiles([]file{{at("new"), []byte("1")}, {at("d/up"), []byte("2")}, {fmt.Sprintf("/proc/self/fd/%d", log.Fd()), []byte("after\n")}, {pipe, big}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"real/made": "1", "real/below": "2", "log": "before\nafter\n"} {
		if b, err := os.ReadFile(at(name)); string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if s := <-got; s != string(big)+"<nil>" {
		t.Errorf("through the pipe came %d bytes", len(s))
	}
	// What cannot be written leaves nothing behind, and the other files whole.
	err = writeFiles([]file{{at("loop"), nil}, {at("whole"), []byte("1")}, {at("real"), nil}})
	if err == nil || !strings.Contains(err.Error(), "loop: ") || !strings.Contains(err.Error(), "real: ") {
		t.Errorf("a loop of links and a directory: %v", err)
	}
	if b, err := os.ReadFile(at("whole")); string(b) != "1" {
		t.Errorf("beside them: %q, %v", b, err)
	}
	if list, _ := filepath.Glob(at(".*")); list != nil {
		t.Error(list)
	}
}

// A signal between staging and naming leaves nothing behind. The FIFO that
// nobody reads holds the program there.
func TestSignalWhileStaged(t *testing.T) {
	hangups(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		dir := t.TempDir()
		cmd := exec.Command("gdrcheck", "check", "--example", "-o", "json="+fifo(t), "-o", "table="+dir+"/out")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		staged := func() bool { l, _ := filepath.Glob(dir + "/.out.*"); return l != nil }
		for end := time.Now().Add(10 * time.Second); !staged(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nothing staged")
			}
		}
		time.Sleep(50 * time.Millisecond) // until it waits for the reader
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != sig {
			t.Errorf("%v: %v", sig, err)
		}
		if list, _ := os.ReadDir(dir); len(list) > 0 {
			t.Errorf("%v left %v", sig, list)
		}
	}
}

// What never comes ends with the time limit.
func TestFIFOAsRecording(t *testing.T) {
	start := time.Now()
	_, errs, code := inProcess("check", "--timeout", "1s", "--from", fifo(t))
	if code != 2 || !strings.Contains(string(errs), "no answer within 1s") || time.Since(start) > 5*time.Second {
		t.Errorf("exit code %d, %s after %s", code, errs, time.Since(start))
	}
}

// A flag whose variable was empty must not have another machine judged.
func TestEmptyFlags(t *testing.T) {
	for _, flag := range []string{"--root", "--from", "--record", "--only", "--skip"} {
		out, errs, code := inProcess("check", flag, "")
		if code != 2 || len(out) > 0 || !strings.Contains(string(errs), flag) {
			t.Errorf("%s: exit code %d, %q", flag, code, errs)
		}
	}
}

// A message is one line that no terminal obeys, whatever stands in a file's name.
func TestComplaint(t *testing.T) {
	_, errs, _ := inProcess("check", "--from", "/tmp/\x1b[2J\u009b2J\u202e\nx")
	if got, want := string(errs), "gdrcheck: cannot read /tmp/?[2J?2J? x: no such file or directory\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	long := "/tmp/" + strings.Repeat("x", 100_000)
	if _, errs, code := inProcess("check", "--from", long); code != 2 || len(errs) > 2500 || !strings.HasSuffix(string(errs), ": file name too long\n") {
		t.Errorf("exit code %d, %d bytes of complaint", code, len(errs))
	}
}

// Every command with an output says before its work that it cannot be written, to
// whatever name and by whatever flag: nothing is measured or read for nothing.
func TestOutputNotWritable(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	perf = doubleBackend(t.TempDir())
	perf.newEngine = func() perftest.Engine {
		t.Error("something was measured")
		return newDouble(t.TempDir())
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := []string{dir, dir + "/none/x", file + "/x", dir + "/" + strings.Repeat("x", 300), "/proc/self/fd/999", "/proc/x"}
	var commands []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, flag := range []string{"output", "record"} {
			if f := c.Flags().Lookup(flag); f != nil {
				prefix := ""
				if o, ok := f.Value.(*outputs); ok {
					prefix = o.formats[0] + "="
				}
				commands = append(commands, strings.TrimPrefix(c.CommandPath(), "gdrcheck ")+" --"+flag+" "+prefix)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(quiet()))
	if len(commands) < 10 {
		t.Fatalf("commands with outputs: %q", commands)
	}
	for _, command := range commands {
		for _, name := range bad {
			args := strings.Fields(command + name)
			switch {
			case strings.HasPrefix(command, "perf client"), strings.HasPrefix(command, "perf compare -"):
				args = append(args, "10.0.0.1")
			case strings.HasPrefix(command, "explain"):
				args = append(args, "acs-redirect")
			case strings.Contains(command, "loopback"):
				args = append(args, "--dev", "double0")
			}
			out, errs, code := inProcess(args...)
			if code != 2 || len(out) > 0 || !strings.HasPrefix(string(errs), "gdrcheck: cannot write "+name[:min(len(name), 200)]) {
				t.Errorf("%.200q: exit code %d, %q, %q", args, code, out, errs)
			}
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("left: %v, %v", list, err)
	}
}
