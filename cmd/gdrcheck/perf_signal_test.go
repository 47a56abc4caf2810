package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is a gdrcheck over doubles, with what it writes.
type process struct {
	*exec.Cmd
	out, err bytes.Buffer
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), name, args...)}
	p.Stdout, p.Stderr = &p.out, &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// code waits for its end.
func (p *process) code(t *testing.T) int {
	t.Helper()
	stop := time.AfterFunc(20*time.Second, func() { _ = p.Process.Kill() })
	defer stop.Stop()
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// hangups lets those that the test starts hear of a lost terminal, where the test itself
// was started by nohup: an ignored signal is inherited, one that is waited for is not.
func hangups(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + " does not come")
		}
	}
}

// Whatever ends one of both, a key, a scheduler or the loss of its terminal, the
// other is told and the token is gone; under nohup the last ends neither.
func TestEndedBySignal(t *testing.T) {
	hangups(t)
	for _, tt := range []struct {
		signal syscall.Signal
		server bool // it gets the signal
		nohup  bool
	}{
		{syscall.SIGINT, true, false}, {syscall.SIGTERM, true, false}, {syscall.SIGHUP, true, false},
		{syscall.SIGINT, false, false}, {syscall.SIGTERM, false, false}, {syscall.SIGHUP, false, false},
		{syscall.SIGHUP, true, true}, {syscall.SIGHUP, false, true},
	} {
		dir := t.TempDir()
		memory := filepath.Join(dir, "memory")
		if err := os.Mkdir(memory, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv(doubleEnv, memory)
		token := filepath.Join(dir, "token")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		begin := func(args ...string) *process {
			if tt.nohup {
				return start(t, "nohup", append([]string{"gdrcheck"}, args...)...)
			}
			return start(t, "gdrcheck", args...)
		}
		server := begin("perf", "server", "--listen", address, "--token-file", token)
		until(t, "the token", func() bool { st, err := os.Stat(token); return err == nil && st.Size() > 0 })
		client := begin("perf", "client", address, "--token-file", token, "--measure", "bandwidth", "--duration", "2s", "--wait", "5s")
		until(t, "the test", func() bool { l, _ := filepath.Glob(memory + "/memory-*"); return len(l) == 2 })
		hit := client
		if tt.server {
			hit = server
		}
		if err := hit.Process.Signal(tt.signal); err != nil {
			t.Fatal(err)
		}
		code := client.code(t)
		if !tt.server || tt.nohup { // it would go on
			if err := server.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
		serverCode, said, log := server.code(t), client.err.String(), server.err.String()
		wantCode, wantSaid, wantLog := 3, "interrupted; the other side was told\n", "left: the client was interrupted\n"
		switch {
		case tt.nohup:
			wantCode, wantSaid, wantLog = 0, "", " ended: write bandwidth"
		case tt.server:
			wantSaid, wantLog = "the other side says: it was interrupted\n", "broke off: "
		}
		if tt.nohup && code == 1 { // the double's figures mean nothing
			code = 0
		}
		if code != wantCode || serverCode != 0 || !strings.Contains(said, wantSaid) || !strings.Contains(log, wantLog) {
			t.Errorf("%+v: client %d, %q; server %d, %q", tt, code, said, serverCode, log)
		}
		if exists(token) {
			t.Errorf("%+v: the token is left", tt)
		}
	}
}

// Schedulers and timeout(1) send a signal twice. The second one may come while what was
// measured is written, or when all is done and the program about to end: it must not
// end it another way. In a process of its own, which it would.
func TestSignalTwice(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		file := filepath.Join(t.TempDir(), "written")
		p := start(t, "twice", fmt.Sprint(int(s)), file)
		if code := p.code(t); code != 0 || !exists(file) {
			t.Errorf("%s: exit code %d, %q", s, code, p.err.String())
		}
	}
}

// twice is the program of TestSignalTwice: it sends itself the signal of its first
// argument, while it works, while it writes the file of its second, and when it has.
func twice() {
	n, _ := strconv.Atoi(os.Args[1])
	send := func() {
		if err := syscall.Kill(os.Getpid(), syscall.Signal(n)); err != nil {
			panic(err)
		}
		time.Sleep(100 * time.Millisecond) // until it is there
	}
	ctx, stop := untilSignal(context.Background())
	send()
	<-ctx.Done()
	var s staging
	defer s.discardOnSignal()()
	if err := s.stage(os.Args[2], []byte("data")); err != nil {
		panic(err)
	}
	send()
	if err := joined(s.commit()); err != nil {
		panic(err)
	}
	stop()
	send()
}
