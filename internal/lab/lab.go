// Package lab boots a virtual RDMA node for tests: the distribution's kernel
// under qemu's emulation, with real PCI Express switches, NUMA nodes, an IOMMU
// on request and Soft-RoCE on emulated NICs. A build machine needs neither RDMA
// nor KVM nor root. Absolute speeds there mean nothing.
package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Guest is one boot of a virtual node.
type Guest struct {
	// Share is a directory of the host that the guest sees as /host. The guest
	// runs as root there with the rights of the calling user.
	Share string
	// Script is what the guest runs, by busybox sh, in /host.
	Script string
	// Machine are qemu's arguments for what the node consists of.
	Machine []string
	// KernelArgs are appended to the kernel's command line.
	KernelArgs []string
}

// Result is how a boot ended.
type Result struct {
	ExitStatus int    // of the script
	Console    string // what kernel and script printed
}

// lastLine is what the guest's init prints at its end.
var lastLine = regexp.MustCompile(`(?m)^lab: exit (\d+)\r?$`)

// Run boots the guest, waits for it to power off and returns the script's exit
// status and the console. It fails when ctx ends first, when qemu fails, or
// when the guest ends without its last line; the console is returned even then.
func Run(ctx context.Context, g Guest) (Result, error) {
	root, err := moduleRoot()
	if err != nil {
		return Result{}, err
	}
	kern, err := findKernel(filepath.Join(root, ".cache", "lab"))
	if err != nil {
		return Result{}, err
	}
	initramfs, err := buildInitramfs(ctx, kern)
	if err != nil {
		return Result{}, fmt.Errorf("initramfs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(g.Share, "run.sh"), []byte(g.Script), 0o644); err != nil {
		return Result{}, err
	}

	args := []string{
		// A stock kernel hangs under KVM on some hosts; emulation runs everywhere.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
		"-nodefaults", "-no-user-config", "-no-reboot",
		"-display", "none", "-serial", "stdio",
		"-kernel", kern.image, "-initrd", initramfs,
		"-append", cmdline(g.KernelArgs),
		"-virtfs", "local,path=" + g.Share + ",mount_tag=host,security_model=none",
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, g.Machine...)...)
	var console, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &stderr
	runErr := cmd.Run()
	res := Result{ExitStatus: -1, Console: console.String()}
	switch m := lastLine.FindStringSubmatch(res.Console); {
	case ctx.Err() != nil:
		return res, fmt.Errorf("the guest did not end in time: %w", ctx.Err())
	case runErr != nil:
		return res, fmt.Errorf("qemu: %w: %s", runErr, stderr.String())
	case m == nil:
		return res, errors.New("the guest ended without its last line")
	default:
		res.ExitStatus, err = strconv.Atoi(m[1])
		return res, err
	}
}

func cmdline(extra []string) string {
	args := []string{"console=ttyS0", "quiet", "panic=1", "mitigations=off", "net.ifnames=0"}
	return strings.Join(append(args, extra...), " ")
}

// moduleRoot is the directory of go.mod, from the working directory upward.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
}
