package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// tokenEnv carries a token to a client. A flag would show it to every user of
// the node, in the list of processes.
const tokenEnv = "GDRCHECK_PERF_TOKEN"

// whoWrites says where a file with a token comes from.
const whoWrites = "'gdrcheck perf server --token-file FILE' writes it, for its owner alone, and removes it when it ends"

// maxTokenBytes is far more than a token has.
const maxTokenBytes = 4 << 10

// readToken takes the token from a file ("-": standard input), else from the environment.
func readToken(s *streams, file string) (perftest.Token, error) {
	text, from := s.Getenv(tokenEnv), tokenEnv
	switch file {
	case "":
		if text == "" {
			return perftest.Token{}, usagef("no token: run the line that 'gdrcheck perf server' printed, which sets %s, or give the server's --token-file", tokenEnv)
		}
	case "-":
		b, err := io.ReadAll(io.LimitReader(s.In, maxTokenBytes))
		if err != nil {
			return perftest.Token{}, usagef("cannot read the token from standard input: %w", err)
		}
		text, from = string(b), "standard input"
	default:
		// Of a FIFO that nobody writes to, opening would not return.
		f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return perftest.Token{}, usagef("cannot read the token in %s: %w; %s", file, pathCause(err), whoWrites)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
		if err != nil {
			return perftest.Token{}, usagef("cannot read the token in %s: %w; %s", file, pathCause(err), whoWrites)
		}
		text, from = string(b), file
	}
	t, err := perftest.ParseToken(text)
	if err != nil {
		return t, usagef("%s: %w; it is in the line that 'gdrcheck perf server' printed, or in the file of its --token-file", from, err)
	}
	return t, nil
}

// writeToken writes the token for its owner alone, whatever the file was before.
func writeToken(file string, t perftest.Token) error {
	if st, err := os.Lstat(file); err == nil && !st.Mode().IsRegular() && st.Mode().Type() != os.ModeSymlink {
		return usagef("cannot write the token to %s: it is no regular file", file) // /dev/null, which root could remove
	}
	_ = os.Remove(file) // a link, or a file that others may read
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usagef("cannot write the token to %s: %w", file, pathCause(err))
	}
	_, err = fmt.Fprintln(f, t.Encode())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("token not written: %w", err)
	}
	return nil
}

// removeToken removes what writeToken wrote, unless another server has written its own there since.
func removeToken(file string, t perftest.Token) {
	if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == t.Encode() {
		_ = os.Remove(file)
	}
}
