package checks

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

var gdrcopyWorks = Check{
	ID: "gdrcopy-works", Title: "GDRCopy copies to and from the GPU, and small messages sooner than CUDA", Area: AreaDriver, Severity: SeverityWarning,
	DependsOn: []string{"gdrdrv"},
	Why:       "UCX, NVSHMEM and NCCL move small messages and flags through GDRCopy. Where it fails they do without, slower; where it copies wrong, jobs compute on it.",
	Fix:       []string{"Install the same GDRCopy release for library and driver: modinfo -F version gdrdrv; see its README"},
	Refs: []string{
		"https://github.com/NVIDIA/gdrcopy",
		"https://developer.nvidia.com/gdrcopy",
	},
	Subjects: eachTriedGDRCopy,
	Eval:     evalGDRCopyWorks,
}

// eachTriedGDRCopy has the GPUs that it was, or was to be, tried on; else the node.
func eachTriedGDRCopy(n *Node) []Subject {
	var out []Subject
	for _, s := range EachGPU(n) {
		if v := s.GPU.GDRCopy; s.GPU.Vendor == gpu.VendorNVIDIA && (v.State != fact.NotCollected || v.Source != "") {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return eachNVIDIANode(n)
	}
	return out
}

func evalGDRCopyWorks(c *Case) {
	if c.Subject.GPU == nil {
		c.NotApplicable("not tried: gdrcheck check --probe copies a little to each idle GPU, where gdrdrv is loaded")
		return
	}
	v := c.Subject.GPU.GDRCopy
	p, ok := Need(c, "GDRCopy", v)
	switch {
	case !ok && strings.HasPrefix(v.Source, "/dev/"):
		c.NotApplicable("GDRCopy's driver is not loaded: nothing to try")
		return
	case !ok:
		c.Info("gdrdrv is loaded, but there is no libgdrapi here; containers may bring their own")
		return
	}
	wrong, slow := c.gdrcopySizes(p.Sizes)
	switch {
	case p.Failed != nil:
		c.Row(p.Failed.Call, p.Failed.Text, fact.AskGDRCopy)
		c.Fail("%s failed: %s", p.Failed.Call, p.Failed.Text)
		c.Fix(gdrcopyFix(p.Failed)...)
	case wrong != "":
		c.Fail("wrong data: %s", wrong)
		c.Fix("Do without GDRCopy until it is mended: NCCL_GDRCOPY_ENABLE=0, NVSHMEM_DISABLE_GDRCOPY=1, UCX_TLS=^gdr_copy",
			"Update GDRCopy and the GPU's driver together, and try again: sudo gdrcheck check --probe --only gdrcopy-works")
	case major(p.Library) != major(p.Driver):
		c.Warn("libgdrapi is %s and gdrdrv %s: different major versions", p.Library, p.Driver)
	case slow != "":
		c.Warn("no faster than CUDA for small messages: %s", slow)
		c.Fix("Look at the CPU's clock, and at how the memory is mapped ("+p.Mapping+"; want write-combining): cat /sys/kernel/debug/x86/pat_memtype_list", "cpupower frequency-info")
	case len(p.Sizes) == 0:
		c.Unknown("cannot tell: nothing was copied")
	default:
		first, last := p.Sizes[0], p.Sizes[len(p.Sizes)-1]
		c.Pass("%d bytes to the GPU in %s, where CUDA takes %s; %d bytes at %s", first.Bytes, us(first.ToNs), us(first.CUDAToNs), last.Bytes, measuredRate(float64(last.Bytes)/last.ToNs*1e9))
	}
}

// gdrcopySizes adds what was copied as evidence, and says what was wrong with it.
func (c *Case) gdrcopySizes(sizes []gpu.GDRCopySize) (wrong, slow string) {
	for _, s := range sizes {
		c.Row(fmt.Sprintf("%d bytes to, from", s.Bytes), us(s.ToNs)+", "+us(s.FromNs), fact.AskGDRCopy)
		c.Want("CUDA: %s, %s", us(s.CUDAToNs), us(s.CUDAFromNs))
		switch {
		case wrong != "":
		case s.WrongTo:
			wrong = fmt.Sprintf("what GDRCopy wrote to the GPU is not there (%d bytes)", s.Bytes)
		case s.WrongFrom:
			wrong = fmt.Sprintf("what GDRCopy read from the GPU is not what is there (%d bytes)", s.Bytes)
		}
		if slow == "" && s.Bytes <= c.Thresholds.GDRCopySmallBytes && s.ToNs >= s.CUDAToNs {
			slow = fmt.Sprintf("%d bytes take %s, and %s by CUDA", s.Bytes, us(s.ToNs), us(s.CUDAToNs))
		}
	}
	return wrong, slow
}

// gdrcopyFix is what a call's error calls for; nil: nothing of its own.
func gdrcopyFix(e *gpu.GDRCopyError) []string {
	errno := syscall.Errno(e.Errno)
	switch {
	case e.Call == "gdr_open" && (errno == syscall.EACCES || errno == syscall.EPERM):
		return []string{"sudo chmod 666 /dev/gdrdrv; a container must be given it: --device=/dev/gdrdrv"}
	case e.Call == "gdr_open":
		return []string{"Make the device node anew: sudo rmmod gdrdrv; sudo modprobe gdrdrv; ls -l /dev/gdrdrv", "Install the GDRCopy release that gdrdrv is of: modinfo -F version gdrdrv"}
	case e.Call == "gdr_pin_buffer":
		return []string{"See what the drivers say: sudo dmesg | grep -iE 'gdrdrv|nvidia|NVRM'", "Build gdrdrv anew against the GPU's driver: sudo dkms build --force -m gdrdrv -v VERSION"}
	case e.Call == "gdr_map":
		return []string{"See how much of BAR1 is free: nvidia-smi -q -d MEMORY | grep -A3 BAR1"}
	}
	return nil
}
