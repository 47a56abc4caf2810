package worker

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// Why a device cannot be opened is told by the system, not by libibverbs' one
// errno for all of it.
func TestWhyNotOpened(t *testing.T) {
	sysfs := func(t *testing.T, files ...string) string {
		root := t.TempDir()
		for _, f := range files {
			name, text, _ := strings.Cut(f, "=")
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	const (
		device = "sys/class/infiniband/mlx5_0/fw_ver=28"
		other  = "sys/class/infiniband_verbs/uverbs0/ibdev=mlx5_9"
		node   = "sys/class/infiniband_verbs/uverbs1/ibdev=mlx5_0\n"
		dev    = "dev/infiniband/uverbs1="
	)
	list := func(errno syscall.Errno) *perftest.Failure {
		return perftest.CallFailure("ibv_get_device_list", "mlx5_0/1", errno)
	}
	for name, tt := range map[string]struct {
		files        []string
		failure      *perftest.Failure
		cause, check string
	}{
		"no such device":   {nil, list(syscall.ENOSYS), "no such RDMA device", "/sys/class/infiniband"},
		"no uverbs":        {[]string{device, other}, list(syscall.ENOSYS), "ib_uverbs is not loaded", "modprobe ib_uverbs"},
		"no node":          {[]string{device, other, node}, list(syscall.ENODEV), "/dev/infiniband/uverbs1 is missing", "--device=/dev/infiniband/uverbs1"},
		"permission":       {[]string{device, node, dev}, list(syscall.ENODEV), "this user may not open /dev/infiniband/uverbs1", "chmod 666 /dev/infiniband/uverbs1"},
		"cgroup":           {[]string{device, node, dev}, perftest.CallFailure("ibv_open_device", "mlx5_0/1", syscall.EPERM), "device cgroup", "--device=/dev/infiniband/uverbs1"},
		"no provider":      {[]string{device, node, dev}, list(syscall.ENODEV), "provider library is missing", "ibverbs-providers"},
		"nothing to see":   {[]string{device, node, dev}, perftest.CallFailure("ibv_open_device", "mlx5_0/1", syscall.ENOSYS), "ABI versions", "same release"},
		"another call":     {nil, perftest.CallFailure("ibv_reg_mr", "mlx5_0", syscall.ENOMEM), "RLIMIT_MEMLOCK", "memlock"},
		"a path as device": {nil, list(syscall.ENODEV), "no such RDMA device", ""},
	} {
		t.Run(name, func(t *testing.T) {
			sys := system{root: sysfs(t, tt.files...), access: func(path string) error {
				if name == "permission" { // the test may be root's, who may open everything
					return syscall.EACCES
				}
				_, err := os.Stat(path)
				return err
			}}
			got := whyNotOpened(sys, "mlx5_0", tt.failure)
			if !strings.Contains(got.Cause, tt.cause) || !strings.Contains(got.Check, tt.check) || got.Call != tt.failure.Call {
				t.Errorf("%+v", got)
			}
		})
	}
}
