package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	if file == "-" {
		file = ""
	}
	for _, other := range o.list {
		if other.File == file {
			return fmt.Errorf("%s and %s would go to the same place: give one a file, as in -o %s=FILE", other.Format, format, format)
		}
	}
	o.list = append(o.list, output{Format: format, File: file})
	return nil
}

// A renderer draws a document in one format.
type renderer func(w io.Writer, format string, style report.Style) error

// write renders every output, and only when all have been rendered and all
// files have taken their bytes does anything appear: a file is whole or not there.
func (o *outputs) write(s *streams, render renderer) error {
	list := o.list
	if len(list) == 0 {
		list = []output{{Format: o.formats[0]}}
	}
	var stdout []byte
	files := o.files
	for _, out := range list {
		var buf bytes.Buffer
		if err := render(&buf, out.Format, s.style(out.File != "")); err != nil {
			return fmt.Errorf("draw %s: %w", out.Format, err)
		}
		if out.File == "" {
			stdout = buf.Bytes()
			continue
		}
		files = append(files, file{out.File, buf.Bytes()})
	}
	if err := writeFiles(files); err != nil {
		return fmt.Errorf("output not written: %w", err)
	}
	return writeStdout(s, stdout)
}

// writeFiles writes all files or, when one cannot be written, none.
func writeFiles(files []file) error {
	staged := make([]*stagedFile, 0, len(files))
	defer func() {
		for _, f := range staged {
			f.discard()
		}
	}()
	for _, f := range files {
		st, err := stageFile(f.name, f.data)
		if err != nil {
			return err
		}
		staged = append(staged, st)
	}
	for _, f := range staged {
		if err := f.commit(); err != nil {
			return err
		}
	}
	return nil
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

// stagedFile holds the bytes of a file until they are given its name.
type stagedFile struct {
	name string
	temp string // empty: name is a device or a pipe, written in place at commit
	data []byte
}

// stageFile writes data beside the file, on the same file system, and syncs it.
func stageFile(name string, data []byte) (*stagedFile, error) {
	mode := fs.FileMode(0o666)
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target // replace what a link points to, not the link
	}
	switch st, err := os.Stat(name); {
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s is a directory", name)
	case err == nil && !st.Mode().IsRegular(): // /dev/stdout, a FIFO: a rename would replace it
		return &stagedFile{name: name, data: data}, nil
	case err == nil:
		mode = st.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	temp := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+rand.Text())
	// Not os.CreateTemp: its files are 0600 whatever the umask.
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.Unwrap(err))
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync() // some file systems tell only here that they are full
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(temp)
		return nil, fmt.Errorf("%s: %w", name, errors.Unwrap(err))
	}
	return &stagedFile{name: name, temp: temp}, nil
}

func (f *stagedFile) commit() error {
	if f.temp == "" {
		return os.WriteFile(f.name, f.data, 0)
	}
	if err := os.Rename(f.temp, f.name); err != nil {
		return err
	}
	f.temp = ""
	return nil
}

func (f *stagedFile) discard() {
	if f.temp != "" {
		_ = os.Remove(f.temp)
	}
}
