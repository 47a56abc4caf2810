package fact

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// rooted is a tree in a directory whose files are links of every kind, beside
// one of the same names that is not the machine's.
func rooted(t *testing.T) *OS {
	t.Helper()
	top := t.TempDir()
	root := filepath.Join(top, "root")
	for name, content := range map[string]string{
		"root/sys/devices/a/vendor": "theirs\n", "root/etc/static/x.conf": "theirs\n", "root/top": "theirs\n", "top": "ours\n", "etc/static/x.conf": "ours\n",
	} {
		p := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"sys/relative": "devices/a", "sys/absolute": "/sys/devices/a", "sys/two": "absolute", "sys/devices/b": "/sys/two",
		"etc/x.conf": "/etc/static/x.conf", "etc/out": "../../../../../../../../../../top", "etc/host": filepath.Join(top, "top"),
		"etc/loop": "/etc/loop2", "etc/loop2": "/etc/loop", "etc/self": "self", "etc/deep": "/etc/loop/x", "etc/dangling": "/nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	src, err := NewOS(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// A tree's links lead where they lead on its machine (chroot(2), and
// RESOLVE_IN_ROOT of openat2(2)), never to this machine's files.
func TestRootLinks(t *testing.T) {
	src := rooted(t)
	for _, name := range []string{"/sys/devices/a/vendor", "/sys/relative/vendor", "/sys/absolute/vendor", "/sys/two/vendor", "/sys/devices/b/vendor", "/etc/x.conf", "/etc/out"} {
		b, err := src.ReadFile(name)
		if err != nil || string(b) != "theirs\n" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
		if st, err := src.Stat(name); err != nil || st.Size != int64(len("theirs\n")) || !st.Mode.IsRegular() {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
		recs, err := src.Ask(context.Background(), AskFiles, name, name)
		if err != nil || len(recs) != 2 || recs[0].Subject != name || recs[1].Subject != name || string(Decode[[]byte](recs[1]).V) != "theirs\n" {
			t.Errorf("%s: %+v, %v", name, recs, err)
		}
	}
	for _, dir := range []string{"/sys/relative", "/sys/absolute", "/sys/devices/b"} {
		if list, err := src.ReadDir(dir); err != nil || len(list) != 1 || list[0].Name != "vendor" {
			t.Errorf("%s: %v, %v", dir, list, err)
		}
	}
	for name, want := range map[string]string{"/sys/absolute": "/sys/devices/a", "/sys/devices/b": "/sys/two", "/etc/loop": "/etc/loop2"} {
		if target, err := src.Readlink(name); err != nil || target != want {
			t.Errorf("%s: %q, %v", name, target, err)
		}
	}
	for name, want := range map[string]error{
		"/etc/host": fs.ErrNotExist, "/etc/dangling": fs.ErrNotExist, "/etc/loop": syscall.ELOOP, "/etc/self": syscall.ELOOP, "/etc/deep": syscall.ELOOP,
	} {
		if b, err := src.ReadFile(name); !errors.Is(err, want) {
			t.Errorf("%s: %q, %v, want %v", name, b, err, want)
		}
	}
}
