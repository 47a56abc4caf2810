package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unicode"

	"github.com/gdrcheck/gdrcheck/checks"
)

const bugsURL = "https://github.com/gdrcheck/gdrcheck/issues"

// A verdictError ends a command that did its work with the exit code of the verdict.
type verdictError struct{ code int }

func (e verdictError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// A usageError is the caller's mistake: a flag, an argument, a file.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// An unmeasured error is one of the other side or of the way to it: nothing was
// found out about this node.
type unmeasured struct{ err error }

func (e unmeasured) Error() string { return e.err.Error() }
func (e unmeasured) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitCode prints what an error has to say and returns the exit code for it.
// This is the only place that turns errors into exit codes.
func exitCode(stderr io.Writer, err error) int {
	var verdict verdictError
	var usage usageError
	var nothing unmeasured
	switch {
	case err == nil:
		return checks.ExitOf(checks.Ready).Code
	case errors.As(err, &verdict):
		return verdict.code
	case errors.As(err, &usage):
		complain(stderr, err)
		return checks.ExitOf(checks.BadUsage).Code
	case errors.As(err, &nothing):
		complain(stderr, err)
		return checks.ExitOf(checks.Undetermined).Code
	}
	complain(stderr, err)
	return checks.ExitOf(checks.ToolFailed).Code
}

func complain(stderr io.Writer, err error) {
	fmt.Fprintf(stderr, "gdrcheck: %s\n", oneLine(err.Error()))
}

// oneLine makes one line of a message, whatever a library, a file name or a
// panic put into it, that no terminal obeys and nobody has to scroll for.
func oneLine(s string) string {
	const most = 2000 // bytes
	if len(s) > most {
		s = s[:most/2] + " ... " + s[len(s)-most/2:]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(s), " "))
}

// run executes one command line and returns its exit code.
func run(s *streams, args []string) int {
	return guard(s, func() error {
		root := newRootCommand(s)
		root.SetArgs(args)
		help := &remembering{w: s.Out}
		root.SetOut(help)
		err := root.Execute()
		if err == nil && help.err != nil && !isBrokenPipe(help.err) {
			return fmt.Errorf("output not written: %w", help.err)
		}
		if err != nil && !s.started { // cobra's own errors: the command line was not understood
			return usageError{err}
		}
		return err
	})
}

// remembering keeps the first error of a writer: cobra, which writes the help
// there, does not look at it.
type remembering struct {
	w   io.Writer
	err error
}

func (r *remembering) Write(b []byte) (int, error) {
	n, err := r.w.Write(b)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// guard turns an error, or a panic, into one line and an exit code.
func guard(s *streams, f func() error) (code int) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(s.Err, "gdrcheck: internal error: %s at %s; please report it with the output of 'gdrcheck version' at %s\n",
				oneLine(fmt.Sprint(p)), panicSite(), bugsURL)
			code = checks.ExitOf(checks.ToolFailed).Code
		}
	}()
	return exitCode(s.Err, f())
}

// panicSite names the innermost frame outside the runtime; call it in a deferred function.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for panicked := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// isBrokenPipe: the reader had enough ("gdrcheck check | head"), which is no failure of ours.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
