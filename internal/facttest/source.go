// Package facttest gives tests machines to read: trees written down in the
// test, recordings of real machines, and a Source that fails where it is told.
package facttest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Tree writes files below a new directory and returns a Source that reads it.
// A name that ends in "/" is a directory; a content that starts with "-> " is a
// symbolic link.
func Tree(t testing.TB, files map[string]string) *Source {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := root + name
		dir := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			dir = path
		}
		must(t, os.MkdirAll(dir, 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			must(t, os.Symlink(target, path))
		} else if !strings.HasSuffix(name, "/") {
			must(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
	return open(t, root)
}

// Recorded unpacks the recording NAME/root.tar.gz below the fixtures' sysfs
// folder: what lies below its folder under is put at the machine's path at. Of
// a large one, only paths of the machine that start as only says.
func Recorded(t testing.TB, name, under, at string, only ...string) *Source {
	t.Helper()
	f, err := os.Open(Fixture(t, "sysfs/"+name+"/root.tar.gz"))
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	root := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		rel, ok := strings.CutPrefix(strings.TrimPrefix(h.Name, "./")+"/", under)
		if !ok || slices.Contains(strings.Split(rel, "/"), "..") {
			continue
		}
		path := filepath.Join(root, at, rel)
		wanted := func(prefix string) bool { return strings.HasPrefix(path, root+prefix) }
		if len(only) > 0 && !slices.ContainsFunc(only, wanted) {
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch h.Typeflag {
		case tar.TypeDir:
			must(t, os.MkdirAll(path, 0o755))
		case tar.TypeSymlink:
			must(t, os.Symlink(h.Linkname, path))
		case tar.TypeReg:
			b, err := io.ReadAll(r)
			must(t, err)
			must(t, os.WriteFile(path, b, 0o644))
		}
	}
	return open(t, root)
}

// Fixture returns the path of a file below GDRCHECK_FIXTURES (default:
// ../shared/fixtures beside the repository) and skips the test where it is
// missing; with CI=true that is a failure.
func Fixture(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GDRCHECK_FIXTURES")
	if dir == "" {
		dir = filepath.Join(repo(t), "../shared/fixtures")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no recordings of real machines here (set GDRCHECK_FIXTURES): %v", err)
	}
	return path
}

func repo(t testing.TB) string {
	dir, err := os.Getwd()
	must(t, err)
	for {
		if _, err := os.Stat(dir + "/go.mod"); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = up
	}
}

func open(t testing.TB, root string) *Source {
	src, err := fact.NewOS(root, nil)
	must(t, err)
	return &Source{OS: src, Errors: map[string]error{}, Answers: map[string][]fact.Record{}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Source reads a tree, fails with Errors where a path has one, and answers
// questions with Answers. Asked counts the questions.
type Source struct {
	*fact.OS
	Errors  map[string]error
	Answers map[string][]fact.Record
	Asked   map[string]int

	mu sync.Mutex // Asked
}

func (s *Source) fail(op, name string) error {
	if err := s.Errors[name]; err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// ReadFile implements fact.Source.
func (s *Source) ReadFile(name string) ([]byte, error) {
	if err := s.fail("read", name); err != nil {
		return nil, err
	}
	return s.OS.ReadFile(name)
}

// ReadDir implements fact.Source.
func (s *Source) ReadDir(name string) ([]fact.Entry, error) {
	if err := s.fail("readdir", name); err != nil {
		return nil, err
	}
	return s.OS.ReadDir(name)
}

// Stat implements fact.Source.
func (s *Source) Stat(name string) (fact.Info, error) {
	if err := s.fail("stat", name); err != nil {
		return fact.Info{}, err
	}
	return s.OS.Stat(name)
}

// Ask implements fact.Source.
func (s *Source) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	s.mu.Lock()
	if s.Asked == nil {
		s.Asked = map[string]int{}
	}
	s.Asked[name]++
	s.mu.Unlock()
	if a, ok := s.Answers[name]; ok {
		return a, nil
	}
	recs, err := s.OS.Ask(ctx, name, args...)
	for i, r := range recs {
		if e := s.fail("read", r.Subject); e != nil {
			v := fact.FromError[[]byte](e, "")
			recs[i] = fact.Record{Subject: r.Subject, State: v.State, Errno: int(v.Errno), Reason: v.Reason}
		}
	}
	return recs, err
}
