package main

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/gdrcheck/gdrcheck/report"
)

// streams is what a command may touch of its process.
type streams struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// TermWidth is the width of the terminal that Out is, and 0 where it is none.
	TermWidth int
	// ErrTerm: Err is a terminal.
	ErrTerm bool

	color   string // --color
	started bool   // the command line was understood and a command runs
}

func systemStreams() *streams {
	s := &streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, ErrTerm: term.IsTerminal(int(os.Stderr.Fd()))}
	if fd := int(os.Stdout.Fd()); term.IsTerminal(fd) {
		s.TermWidth = report.DefaultWidth
		if w, _, err := term.GetSize(fd); err == nil && w > 0 {
			s.TermWidth = w
		}
	}
	return s
}

// style tells how to draw on standard output, and plain for files.
func (s *streams) style(toFile bool) report.Style {
	st := report.Style{Width: report.DefaultWidth, ASCII: !s.utf8()}
	if toFile {
		return st
	}
	if s.TermWidth > 0 {
		st.Width = s.TermWidth
	}
	if n, err := strconv.Atoi(s.Getenv("COLUMNS")); err == nil && n > 0 {
		st.Width = n
	}
	st.Color = s.color == "always" || s.color == "auto" && s.TermWidth > 0 &&
		s.Getenv("NO_COLOR") == "" && s.Getenv("TERM") != "dumb" // no-color.org
	return st
}

// utf8 reads the locale as setlocale(3) does: the first of these that is set.
func (s *streams) utf8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(s.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
