package pci_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/render"
)

// fixture returns the path of a recording, or skips the test where recordings
// are not there. CI has them and fails instead.
func fixture(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("GDRCHECK_FIXTURES")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "fixtures")
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		skip(t, "recordings are not here: "+err.Error()+" (set GDRCHECK_FIXTURES)")
	}
	return path
}

// skip passes over a test that lacks something outside the repository; in CI
// nothing may be missing.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// lspci runs pciutils' program, which knows nothing of gdrcheck.
func lspci(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("lspci"); err != nil {
		skip(t, "lspci is not installed")
	}
	out, err := exec.Command("lspci", args...).Output()
	if err != nil {
		t.Fatalf("lspci %v: %v", args, err)
	}
	return string(out)
}

// untar unpacks a recorded sysfs below a temporary directory.
func untar(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(fixture(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := render.Dir(t)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if !strings.HasPrefix(path, dir+"/") {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		case tar.TypeReg:
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
