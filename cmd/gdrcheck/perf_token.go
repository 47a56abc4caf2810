package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	var open *os.File
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
		open = f
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
	if open != nil {
		warnOpen(s, open, from)
	}
	return t, nil
}

// warnOpen says that others than its owner may read a token. It is not refused: the
// token is worth nothing but a measurement with one server, until that ends, and some
// shared file systems and mounted secrets have no mode that could be set.
func warnOpen(s *streams, f *os.File, name string) {
	const others = 0o077
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&others != 0 {
		fmt.Fprintf(s.Err, "gdrcheck: note: other users may read the token in %s, and measure with the server, too: chmod 600 %s\n", name, name)
	}
}

// tokenPlace says why a token is not to be written to a file: the file would be
// lost, now and when the server ends. An empty one, as of mktemp, holds nothing.
func tokenPlace(file string) error {
	if file == "-" {
		return usagef("--token-file -: name a file; without the flag the token goes to standard output")
	}
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return usagef("cannot write the token to %s: %w", file, pathCause(err))
	case !st.Mode().IsRegular() || isDescriptor(followLinks(file)):
		return usagef("cannot write the token to %s: it is no regular file", file) // /dev/null, which root could remove
	case st.Size() == 0:
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return usagef("cannot write the token to %s: %w", file, pathCause(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenBytes))
	if err != nil {
		return usagef("cannot write the token to %s: %w", file, pathCause(err))
	}
	if _, err := perftest.ParseToken(string(b)); err != nil {
		return usagef("%s is there, and is no token of gdrcheck: remove it or name another file", file)
	}
	return nil
}

// writeToken writes the token for its owner alone, in the place of another token at most.
func writeToken(file string, t perftest.Token) error {
	if err := tokenPlace(file); err != nil {
		return err
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
