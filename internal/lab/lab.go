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
	"sync"
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
	// Files are open in qemu as descriptors 3 and up, for Machine to name.
	Files []*os.File
}

// Result is how a boot ended.
type Result struct {
	ExitStatus int    // of the script
	Console    string // what kernel and script printed
}

// lastLine is what the guest's init prints at its end.
var lastLine = regexp.MustCompile(`(?m)^lab: exit (\d+)\r?$`)

// Run boots the guests at the same time, waits for all of them to power off and
// returns each script's exit status and console. It fails when ctx ends first,
// when qemu fails, or when a guest ends without its last line; the consoles are
// returned even then. The end of one guest does not end the others.
func Run(ctx context.Context, guests ...Guest) ([]Result, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	kern, err := findKernel(filepath.Join(root, ".cache", "lab"))
	if err != nil {
		return nil, err
	}
	initramfs, err := buildInitramfs(ctx, kern)
	if err != nil {
		return nil, fmt.Errorf("initramfs: %w", err)
	}
	results, errs := make([]Result, len(guests)), make([]error, len(guests))
	var all sync.WaitGroup
	for i, g := range guests {
		all.Go(func() { results[i], errs[i] = g.run(ctx, kern.image, initramfs) })
	}
	all.Wait()
	return results, errors.Join(errs...)
}

func (g *Guest) run(ctx context.Context, kernelImage, initramfs string) (Result, error) {
	if err := os.WriteFile(filepath.Join(g.Share, "run.sh"), []byte(g.Script), 0o644); err != nil {
		return Result{}, err
	}
	args := []string{
		// A stock kernel hangs under KVM on some hosts; emulation runs everywhere.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
		"-nodefaults", "-no-user-config", "-no-reboot",
		"-display", "none", "-serial", "stdio",
		"-kernel", kernelImage, "-initrd", initramfs,
		"-append", cmdline(g.KernelArgs),
		"-virtfs", "local,path=" + g.Share + ",mount_tag=host,security_model=none",
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(args, g.Machine...)...)
	var console, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &console, &stderr, g.Files
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
		var err error
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
