package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/report"
)

// output is one -o FORMAT[=FILE].
type output struct {
	Format string
	File   string // empty: standard output
}

// outputs is the value of the flag -o; it implements pflag.Value.
type outputs struct {
	formats []string // the first is the default
	list    []output
	files   []file // written along with the list
	verbose bool   // -v, where a command has it
}

// file is one that a command writes beside its outputs.
type file struct {
	name string
	data []byte
}

// also has a file written with the outputs, or like them not at all.
func (o *outputs) also(name string, data []byte) { o.files = append(o.files, file{name, data}) }

// addOutputFlag gives a command the flag -o with the formats it knows, the default first.
func addOutputFlag(cmd *cobra.Command, o *outputs, formats ...string) {
	o.formats = formats
	cmd.Flags().VarP(o, "output", "o", fmt.Sprintf("write as FORMAT, to standard output or FILE; repeatable; formats: %s (default %s)",
		strings.Join(formats, ", "), formats[0]))
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
}

func addVerboseFlag(cmd *cobra.Command, o *outputs) {
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "list what passed, too")
}

// String implements pflag.Value; the default stands in the flag's text.
func (o *outputs) String() string { return "" }

// Type implements pflag.Value.
func (o *outputs) Type() string { return "FORMAT[=FILE]" }

// Set implements pflag.Value.
func (o *outputs) Set(text string) error {
	format, file, named := strings.Cut(text, "=")
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("no format %q here: want %s", format, strings.Join(o.formats, ", "))
	}
	if named && file == "" {
		return fmt.Errorf("no file name after %q", text)
	}
	if slices.Contains(stdoutNames, file) {
		file = ""
	}
	if other := o.at(file); other != "" {
		return fmt.Errorf("%s and %s would go to the same place: give one a file, as in -o %s=FILE", other, format, format)
	}
	o.list = append(o.list, output{Format: format, File: file})
	return nil
}

// stdoutNames are standard output: opened anew by its name, it would be written
// from its start, over what stands there.
var stdoutNames = []string{"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}

// at is the format that goes to a file, empty where none does.
func (o *outputs) at(file string) string {
	for _, out := range o.list {
		if out.File == file || file != "" && out.File != "" && followLinks(out.File) == followLinks(file) {
			return out.Format
		}
	}
	return ""
}

// A renderer draws a document in one format.
type renderer func(w io.Writer, format string, style report.Style) error

// write renders and writes every output. Each is whole or not there; one that cannot
// be written leaves the others as they are.
func (o *outputs) write(s *streams, render renderer) error {
	list := o.list
	if len(list) == 0 {
		list = []output{{Format: o.formats[0]}}
	}
	var stdout []byte
	var faults []error
	files := o.files
	for _, out := range list {
		var buf bytes.Buffer
		if err := render(&buf, out.Format, s.style(out.File != "")); err != nil {
			faults = append(faults, fmt.Errorf("draw %s: %w", out.Format, err))
			continue
		}
		if out.File == "" {
			stdout = buf.Bytes()
			continue
		}
		files = append(files, file{out.File, buf.Bytes()})
	}
	if err := writeFiles(files); err != nil {
		faults = append(faults, fmt.Errorf("output not written: %w", err))
	}
	return joined(append(faults, writeStdout(s, stdout)))
}

// writeStdout writes all at once. A reader that closed the pipe has what it wanted.
func writeStdout(s *streams, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := s.Out.Write(b); err != nil && !isBrokenPipe(err) {
		return fmt.Errorf("output not written: %w", err)
	}
	return nil
}
