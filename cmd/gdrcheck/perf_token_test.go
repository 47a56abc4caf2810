package main

import (
	"fmt"
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
	// What is no token stays as it was, also behind a link, and with it the server unstarted.
	if err := os.WriteFile(at("notes"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("notes", at("link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		at("notes"): "is no token of gdrcheck: remove it or name another", at("link"): "is no token of gdrcheck: remove it or name another",
		"-": "--token-file -: name a file", "/dev/stdout": "it is no regular file", at("notes/x"): "not a directory",
	} {
		out, errs, code := inProcess("perf", "server", "--token-file", name)
		if code != 2 || len(out) > 0 || !strings.Contains(string(errs), want) {
			t.Errorf("%s: exit code %d, %q, %q", name, code, out, errs)
		}
	}
	if b, err := os.ReadFile(at("notes")); string(b) != "mine" || exists("-") {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Readlink(at("link")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(at("token"), nil, 0o644); err != nil { // as mktemp makes it
		t.Fatal(err)
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
	if st, err := os.Stat(at("token")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	removeToken(at("token"), first)
	if got, err := readToken(quiet(), at("token")); err != nil || got.Encode() != second.Encode() {
		t.Errorf("the second server's token is gone with the first server: %v", err)
	}
	if removeToken(at("token"), second); exists(at("token")) {
		t.Error("the token outlives its server")
	}
}

// Who reads a token that others may read is told so, as by ssh of keys.
func TestTokenOfOthers(t *testing.T) {
	var server perftest.Server
	token, err := server.Init()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := writeToken(file, token); err != nil {
		t.Fatal(err)
	}
	for mode, told := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		s := quiet()
		got, err := readToken(s, file)
		text := fmt.Sprint(s.Err)
		if err != nil || got.Encode() != token.Encode() || strings.Contains(text, "note: other users may read the token in "+file) != told || strings.Contains(text, token.Encode()) {
			t.Errorf("%o: %v, %q", mode, err, text)
		}
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

// What is no token is nobody's to protect: the advice to change a file's mode comes for
// a token alone.
func TestNoAdviceForOtherFiles(t *testing.T) {
	s, file := quiet(), filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte("root:x:0:0::/root:/bin/sh\n"), 0o644); err != nil { //nolint:gosec // what it is about
		t.Fatal(err)
	}
	if _, err := readToken(s, file); err == nil || fmt.Sprint(s.Err) != "" {
		t.Errorf("%v, %q", err, s.Err)
	}
}
