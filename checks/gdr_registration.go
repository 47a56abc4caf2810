package checks

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var gdrRegistration = Check{
	ID: "gdr-registration", Title: "memory of the GPU can be registered with the NIC", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"gpu-present", "rdma-device-present"},
	Why:       "Whatever settings promise, the registration itself decides whether a NIC may read and write GPU memory. It moves no data: that comes right where it should, only a measurement shows (gdrcheck perf loopback --dev DEVICE --mem cuda).",
	Fix:       []string{"See what each way answers: sudo gdrcheck check --probe --only gdr-registration", "Mend one of them, DMA-BUF with the open GPU kernel modules or nvidia-peermem: gdrcheck explain gdr-way"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/",
		"https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html",
		"https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html",
		"https://github.com/linux-rdma/perftest/issues/126",
		"https://github.com/NVIDIA/nccl/issues/778",
		"https://github.com/kvcache-ai/Mooncake/issues/3538",
	},
	Subjects: eachProbedPair,
	Eval:     evalGDRRegistration,
}

// eachProbedPair has every GPU with every RDMA device as subjects, once they
// were tried; else the node.
func eachProbedPair(n *Node) []Subject {
	if len(n.Machine.Registrations) == 0 {
		return TheNode(n)
	}
	var out []Subject
	for _, p := range n.Graph.Pairs() {
		g, _ := n.Graph.Device(p.GPU)
		nic, _ := n.Graph.Device(p.NIC)
		out = append(out, Subject{ID: p.GPU + " " + p.NIC, Parts: []string{p.GPU, p.NIC}, GPU: g.GPU, NIC: nic.RDMA, Pair: &p})
	}
	return out
}

// registration is what registering memory of a pair gave.
func (n *Node) registration(g *gpu.GPU, nic *rdma.Device) fact.Value[rdma.RegistrationProbe] {
	for _, r := range n.Machine.Registrations {
		if r.GPU == g.Addr && r.Device == nic.Name {
			return r.Probe
		}
	}
	return fact.Missing[rdma.RegistrationProbe](fact.NotCollected, fact.AskRegistration, "not tried")
}

// works are the ways that registered a kind of memory.
func works(p rdma.RegistrationProbe, kind string) []string {
	var out []string
	for _, w := range p.Ways {
		if w.Error == nil && w.Memory == kind {
			out = append(out, registrationWay(w.Way))
		}
	}
	return out
}

func registrationWay(way string) string {
	name, ok := map[perftest.Way]string{
		perftest.WayDMABuf: "DMA-BUF", perftest.WayDMABufPCIe: "DMA-BUF over PCIe",
		perftest.WayDataDirect: "Data Direct", perftest.WayPeermem: "peermem",
	}[perftest.Way(way)]
	if !ok {
		return way
	}
	return name
}

// explain is a failed call with its cause in words.
func explain(e *rdma.CallError, subject string) *perftest.Failure {
	switch {
	case e.Code != 0:
		return perftest.LibraryFailure(e.Library, e.Call, e.Code, e.Name)
	case e.Errno != 0:
		return perftest.CallFailure(e.Call, subject, syscall.Errno(e.Errno))
	}
	return &perftest.Failure{Call: e.Call, Cause: e.Text}
}

func evalGDRRegistration(c *Case) {
	if c.Subject.ID == nodeID {
		if len(c.Machine.GPU.GPUs) == 0 || len(c.Machine.RDMA.Devices) == 0 {
			c.NotApplicable("there is no GPU with a NIC to try")
			return
		}
		c.NotApplicable("not tried: gdrcheck check --probe registers memory of each idle GPU with each NIC (a CUDA context on the GPU, for a moment)")
		return
	}
	if !c.Subject.Pair.Preferred {
		c.Lower(SeverityWarning)
	}
	v := c.registration(c.Subject.GPU, c.Subject.NIC)
	if v.State != fact.Known {
		if v.State == fact.NotCollected {
			c.Lower(SeverityWarning) // what is in use is not to be disturbed
		}
		c.Row("registration", fmt.Sprintf("%s (%s)", strings.ReplaceAll(v.State.String(), "_", " "), v.Reason), fact.AskRegistration)
		c.Unknown("cannot tell: not registered: %s", v.Reason)
		c.Fix(probeAgain(v.State)...)
		return
	}
	if v.V.Failed != nil {
		evalRegistrationSetup(c, v.V.Failed)
		return
	}
	for _, w := range v.V.Ways {
		got := fmt.Sprintf("works (%s)", us(float64(w.ExportNs+w.RegisterNs)))
		source := "registration of " + showBytes(uint64(v.V.Bytes))
		if w.Error != nil {
			f := explain(w.Error, c.Subject.NIC.Name)
			got, source = f.Error(), w.Error.Call
		}
		c.Row(w.Memory+" memory by "+registrationWay(w.Way), got, source)
	}
	judgeWays(c, v.V)
}

func probeAgain(state fact.State) []string {
	if state == fact.NotCollected {
		return []string{"When no job runs on it: sudo gdrcheck check --probe; at once, beside a job: add --force"}
	}
	return []string{"See the kernel log: dmesg -T | tail -50", "Try again: sudo gdrcheck check --probe"}
}

func judgeWays(c *Case, p rdma.RegistrationProbe) {
	plain := perftest.MemoryCUDA
	if c.Subject.GPU.Vendor == gpu.VendorAMD {
		plain = perftest.MemoryROCm
	}
	ways, vmm := works(p, plain), works(p, perftest.MemoryCUDAVMM)
	direct := slices.ContainsFunc(p.Ways, func(w rdma.WayProbe) bool { return w.Way == string(perftest.WayDataDirect) })
	hasVMM := slices.ContainsFunc(p.Ways, func(w rdma.WayProbe) bool { return w.Memory == perftest.MemoryCUDAVMM })
	switch {
	case c.Subject.NIC.Software:
		c.Info("software RDMA: the CPU moves the data, and GPUDirect RDMA is not to be had%s", because(byWays(ways, p, plain)))
	case len(ways) == 0:
		c.Fail("memory of the GPU cannot be registered: %s", byWays(ways, p, plain))
		fixRegistration(c, p, plain)
	case direct && !slices.Contains(ways, registrationWay(string(perftest.WayDataDirect))):
		c.Warn("registers by %s, but not for Data Direct, which is the NIC's fast way to the GPU", strings.Join(ways, " and "))
		fixRegistration(c, p, plain)
	case hasVMM && len(vmm) == 0:
		c.Warn("memory of cudaMalloc registers by %s, memory of cuMemCreate by no way: %s", strings.Join(ways, " and "), byWays(vmm, p, perftest.MemoryCUDAVMM))
		c.Fix("Have applications allocate with cudaMalloc: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False; NCCL_CUMEM_ENABLE=0")
	default:
		c.Pass("registers by %s", byWays(ways, p, plain))
	}
}

// byWays says which ways work, and why the others do not.
func byWays(ways []string, p rdma.RegistrationProbe, kind string) string {
	text := strings.Join(ways, " and ")
	for _, w := range p.Ways {
		if w.Error == nil || w.Memory != kind {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("not by %s: %s", registrationWay(w.Way), explain(w.Error, "").Cause)
	}
	return text
}

// fixRegistration says what to do for each way that failed, and what of that this
// machine tells.
func fixRegistration(c *Case, p rdma.RegistrationProbe, kind string) {
	for _, w := range p.Ways {
		if w.Error == nil || w.Memory != kind {
			continue
		}
		if f := explain(w.Error, c.Subject.NIC.Name); f.Check != "" {
			c.Fix("For " + registrationWay(w.Way) + ": " + f.Check)
		}
	}
	if c.Subject.GPU.Vendor == gpu.VendorNVIDIA {
		fixWay(c)
	}
}

// evalRegistrationSetup judges what failed before anything could be registered.
func evalRegistrationSetup(c *Case, e *rdma.CallError) {
	f := explain(e, c.Subject.NIC.Name)
	c.Row("before registration", f.Error(), e.Call)
	switch {
	case e.Library != "" && e.Code == 0:
		c.Lower(SeverityWarning)
		c.Unknown("cannot tell: %s cannot be used: %s", e.Library, e.Text)
		c.Fix(gpu.Install(e.Library))
	case gpu.Busy(e.Code):
		c.Unknown("cannot tell: %s: %s", e.Call, f.Cause)
		c.Fix(f.Check)
	case e.Library != "":
		c.Fail("%s does not work on this GPU: %s: %s", e.Library, e.Call, f.Cause)
		if f.Check != "" {
			c.Fix(f.Check)
		}
	case e.Errno == int(syscall.EACCES) || e.Errno == int(syscall.EPERM):
		c.Unknown("cannot tell: this user may not open %s", c.Subject.NIC.Name)
		c.Fix("Run as root: sudo gdrcheck check --probe")
	case e.Errno != 0:
		c.Fail("%s cannot be opened: %s: %s", c.Subject.NIC.Name, e.Call, f.Cause)
		if f.Check != "" {
			c.Fix(f.Check)
		}
	default:
		c.Lower(SeverityWarning)
		c.Unknown("cannot tell: %s: %s", e.Call, e.Text)
		c.Fix("Install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (RHEL)")
	}
}
