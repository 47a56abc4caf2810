package render

import (
	"os"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Dir is a directory for a test's trees, removed when it ends. It lies in
// memory where there is /dev/shm: thousands of small files cost a hundred
// times as much on a disk.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gdrcheck-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Open writes the machine for a test and opens it as --root does.
func (t Tree) Open(tb testing.TB) (src *fact.OS, dir string) {
	tb.Helper()
	dir = Dir(tb)
	if err := t.Write(dir); err != nil {
		tb.Fatal(err)
	}
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return src, dir
}
