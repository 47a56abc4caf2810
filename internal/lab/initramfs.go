package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed init.sh
var initScript []byte

// programs are the guest's, beside busybox's applets: what gdrcheck's answers
// are compared with, and what prepares the node.
var programs = []string{
	"ip", "rdma", "dcb", "devlink", "ethtool", "setpci", "lspci", "lstopo-no-graphics", "ibv_devinfo",
	"setpriv", "mkfs.ext4", "fsfreeze", "modprobe",
	"ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_send_bw", "ib_send_lat",
}

// modules are loaded at boot, in this order.
var modules = []string{
	"virtio_pci", "9pnet_virtio", "9p", "virtio_net", "e1000e", "crc32_generic", "crc32c_generic",
	"rdma_rxe", "ib_umad", "rdma_ucm", "veth", "loop", "ext4",
}

// spareModules are there for a script to load.
var spareModules = []string{"8021q", "bonding"}

// kernel is an unpacked kernel package.
type kernel struct {
	dir     string // what holds boot/ and lib/modules/
	image   string // vmlinuz
	version string
}

// findKernel looks for what "scripts/setup lab" unpacks.
func findKernel(cache string) (kernel, error) {
	k := kernel{dir: filepath.Join(cache, "kernel")}
	images, _ := filepath.Glob(filepath.Join(k.dir, "boot", "vmlinuz-*")) // the pattern is well formed
	if len(images) == 0 {
		return k, fmt.Errorf("no kernel in %s: run scripts/setup lab", k.dir)
	}
	k.image = images[0]
	k.version = strings.TrimPrefix(filepath.Base(k.image), "vmlinuz-")
	// Newer releases ship usr/lib/modules; depmod and modprobe look in lib.
	if _, err := os.Stat(filepath.Join(k.dir, "lib")); errors.Is(err, fs.ErrNotExist) {
		if err := os.Symlink("usr/lib", filepath.Join(k.dir, "lib")); err != nil {
			return k, err
		}
	}
	return k, nil
}

// buildInitramfs returns the path of an initramfs, built unless the cache
// holds one of the same content.
func buildInitramfs(ctx context.Context, k kernel) (string, error) {
	files, err := guestFiles(ctx, k)
	if err != nil {
		return "", err
	}
	key, err := contentKey(files, k)
	if err != nil {
		return "", err
	}
	out := filepath.Join(filepath.Dir(k.dir), "initramfs-"+key+".cpio")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	stage, err := os.MkdirTemp(filepath.Dir(k.dir), "stage-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	if err := fillStage(ctx, filepath.Join(stage, "root"), files, k); err != nil {
		return "", err
	}
	if err := archive(ctx, stage, "root"); err != nil {
		return "", err
	}
	return out, os.Rename(filepath.Join(stage, "root.cpio"), out)
}

// guestFiles maps each file of the guest to the host's file that it is a copy of.
func guestFiles(ctx context.Context, k kernel) (map[string]string, error) {
	files := map[string]string{}
	busybox, err := lookPath("busybox")
	if err != nil {
		return nil, err
	}
	files["/bin/busybox"] = busybox

	var dynamic []string
	for _, name := range programs {
		path, err := lookPath(name)
		if err != nil {
			return nil, err
		}
		files["/usr/bin/"+name] = path
		dynamic = append(dynamic, path)
	}
	provider, err := only("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if err != nil {
		return nil, err
	}
	for _, path := range []string{provider, "/etc/libibverbs.d/rxe.driver"} {
		files[path] = path
	}
	libs, err := libraries(ctx, append(dynamic, provider))
	if err != nil {
		return nil, err
	}
	for _, path := range libs {
		files[path] = path
	}
	mods, err := moduleFiles(ctx, k)
	if err != nil {
		return nil, err
	}
	for _, path := range mods {
		rel, err := filepath.Rel(k.dir, path)
		if err != nil {
			return nil, err
		}
		files["/"+rel] = path
	}
	return files, nil
}

// lookPath also searches the system programs' directories, which an ordinary
// user's PATH may lack.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w (run scripts/setup lab)", err)
}

func only(pattern string) (string, error) {
	m, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(m) != 1 {
		return "", fmt.Errorf("%s: %d files, want one (run scripts/setup lab)", pattern, len(m))
	}
	return m[0], nil
}

// libraryPath finds the absolute paths in ldd's lines.
var libraryPath = regexp.MustCompile(`(?m)(?:=> |^\s+)(/\S+) \(0x`)

func libraries(ctx context.Context, programs []string) ([]string, error) {
	out, err := output(exec.CommandContext(ctx, "ldd", programs...))
	if err != nil {
		return nil, err
	}
	var libs []string
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		libs = append(libs, m[1])
	}
	slices.Sort(libs)
	return slices.Compact(libs), nil
}

// moduleFiles lists the modules' files with those that they depend on.
func moduleFiles(ctx context.Context, k kernel) ([]string, error) {
	dir := filepath.Join(k.dir, "lib", "modules", k.version)
	if _, err := os.Stat(filepath.Join(dir, "modules.dep")); errors.Is(err, fs.ErrNotExist) {
		if err := depmod(ctx, k.dir, k.version); err != nil {
			return nil, err
		}
	}
	modprobe, err := lookPath("modprobe")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range slices.Concat(modules, spareModules) {
		out, err := output(exec.CommandContext(ctx, modprobe, "-d", k.dir, "-S", k.version, "--show-depends", name))
		if err != nil {
			continue // built in or gone in another kernel; the guest says so where it matters
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "insmod" {
				files = append(files, f[1])
			}
		}
	}
	for _, name := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		files = append(files, filepath.Join(dir, name))
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func depmod(ctx context.Context, base, version string) error {
	path, err := lookPath("depmod")
	if err != nil {
		return err
	}
	_, err = output(exec.CommandContext(ctx, path, "-b", base, version))
	return err
}

// contentKey names the content by what the files are, without reading them all.
func contentKey(files map[string]string, k kernel) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, k.version, modules, spareModules)
	h.Write(initScript)
	for _, name := range sortedKeys(files) {
		st, err := os.Stat(files[name])
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, st.Size(), st.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func fillStage(ctx context.Context, root string, files map[string]string, k kernel) error {
	for _, name := range sortedKeys(files) {
		b, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(root, name), b, 0o755); err != nil {
			return err
		}
	}
	if err := depmod(ctx, root, k.version); err != nil {
		return err
	}
	etc := map[string]string{
		"etc/passwd":      "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n",
		"etc/group":       "root:x:0:\nuser:x:1000:\n",
		"etc/mtab":        "",
		"etc/lab-modules": strings.Join(modules, "\n") + "\n",
	}
	for _, name := range sortedKeys(etc) {
		if err := writeFile(filepath.Join(root, name), []byte(etc[name]), 0o644); err != nil {
			return err
		}
	}
	if err := os.Symlink("busybox", filepath.Join(root, "bin", "sh")); err != nil {
		return err
	}
	return writeFile(filepath.Join(root, "init"), initScript, 0o755)
}

func writeFile(path string, b []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, mode)
}

// archive packs dir/name into dir/name.cpio, not compressed: the guest's
// emulated processor would spend seconds on unpacking.
func archive(ctx context.Context, dir, name string) error {
	root := filepath.Join(dir, name)
	var list bytes.Buffer
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		fmt.Fprintln(&list, rel)
		return err
	})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0", "-F", "../"+name+".cpio")
	cmd.Dir, cmd.Stdin = root, &list
	_, err = output(cmd)
	return err
}

// output runs a command and puts what it printed to stderr into its error.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, exit.Stderr)
	}
	return out, err
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
