package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// A server's token goes into a file of its own; what is no file stays, and so does
// another server's token.
func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for path, err := range map[string]error{
		at("dir"): os.Mkdir(at("dir"), 0o700), at("fifo"): syscall.Mkfifo(at("fifo"), 0o600), "/dev/null": nil,
	} {
		if err != nil {
			t.Fatal(err)
		}
		err = writeToken(path, perftest.Token{})
		if err == nil || !strings.HasSuffix(err.Error(), "it is no regular file") {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	var ours, theirs perftest.Server
	first, err := ours.Init()
	if err != nil {
		t.Fatal(err)
	}
	second, err := theirs.Init()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []perftest.Token{first, second} {
		if err := writeToken(at("token"), token); err != nil {
			t.Fatal(err)
		}
	}
	removeToken(at("token"), first)
	if got, err := readToken(quiet(), at("token")); err != nil || got.Encode() != second.Encode() {
		t.Errorf("the second server's token is gone with the first server: %v", err)
	}
	if removeToken(at("token"), second); exists(at("token")) {
		t.Error("the token outlives its server")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// A FIFO that nobody writes to holds no client up.
func TestTokenFromFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readToken(quiet(), fifo)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a token out of nothing")
		}
	case <-time.After(5 * time.Second):
		t.Error("it waits for ever")
	}
}
