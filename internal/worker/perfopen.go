package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// system is where causes are looked for.
type system struct {
	root   string // empty but in tests
	access func(path string) error
}

var thisSystem = system{access: func(path string) error { return unix.Access(path, unix.R_OK|unix.W_OK) }}

// whyNotOpened looks for the cause of a device that libibverbs did not list or
// open: it leaves out devices without a word whose node below /dev is missing.
// It returns the failure as it was where the system shows no cause of its own.
func whyNotOpened(sys system, device string, f *perftest.Failure) *perftest.Failure {
	if f.Call != "ibv_get_device_list" && f.Call != "ibv_open_device" {
		return f
	}
	name := filepath.Base(device)
	out := *f
	if _, err := os.Stat(filepath.Join(sys.root, "/sys/class/infiniband", name)); errors.Is(err, fs.ErrNotExist) {
		out.Cause, out.Check = "the kernel has no such RDMA device", "ls /sys/class/infiniband"
		return &out
	}
	node := verbsNode(sys.root, name)
	if node == "" {
		out.Cause = "the kernel shows no node for programs to open it by: ib_uverbs is not loaded"
		out.Check = "sudo modprobe ib_uverbs"
		return &out
	}
	path := "/dev/infiniband/" + node
	err := sys.access(filepath.Join(sys.root, path))
	switch {
	case errors.Is(err, syscall.ENOENT):
		out.Cause = path + " is missing"
		out.Check = fmt.Sprintf("sudo udevadm trigger --subsystem-match=infiniband_verbs; a container must be given it: --device=%s", path)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		out.Cause = "this user may not open " + path
		out.Check = fmt.Sprintf("ls -l %s (rdma-core's udev rules make it 0666); until the next boot: sudo chmod 666 %s", path, path)
	case f.Errno == int(syscall.EPERM) || f.Errno == int(syscall.EACCES):
		out.Cause = fmt.Sprintf("%s is there, but opening it is refused: the device cgroup or a security module does not admit it", path)
		out.Check = "a container must be given it: --device=" + path + "; in a job: the devices that its cgroup admits"
	case f.Errno == int(syscall.ENODEV):
		out.Cause = "libibverbs does not list it, though the kernel has it: its provider library is missing"
		out.Check = "install ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL), or the vendor's; then: ibv_devices"
	}
	return &out
}

// verbsNode is the name of a device's node, "uverbs0"; empty: the kernel has none.
func verbsNode(root, device string) string {
	const class = "/sys/class/infiniband_verbs"
	list, _ := os.ReadDir(filepath.Join(root, class)) // none: the same
	for _, e := range list {
		if readWord(filepath.Join(root, class, e.Name(), "ibdev")) == device {
			return e.Name()
		}
	}
	return ""
}
