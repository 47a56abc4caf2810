package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfData = Check{
	ID: "perf-data", Title: "measurements come to their end, and data arrives as it was sent", Area: AreaPerf, Severity: SeverityError,
	DependsOn: []string{"perf-setup"},
	Why:       "What ends a test, ends a job; and data that arrives wrong without any error is the worst that RDMA can do: a job computes on it.",
	Fix: []string{
		"Take the node out of service, and measure each end against a third to see which one is at fault",
		"Look at PCIe errors and at the NIC's error counters, and update its firmware and driver: sudo gdrcheck check --only pcie,rdma",
		"Turn ACS redirection, IOMMU translation and relaxed ordering off, one by one, and measure again",
	},
	Refs:     []string{"https://docs.kernel.org/PCI/pcieaer-howto.html"},
	Subjects: eachMeasurement,
	Eval:     evalPerfData,
}

func evalPerfData(c *Case) {
	r := c.Subject.Result
	compared, overwritten, skipped := uint64(0), uint64(0), ""
	for _, s := range r.Steps {
		for _, d := range s.Data {
			switch {
			case d.Skipped != "":
				skipped = d.Skipped
			case !d.Correct:
				c.Row(fmt.Sprintf("byte %d of %d at the %s", d.FirstWrongOffset, s.SizeBytes, d.Side), fmt.Sprintf("%#02x", d.Got), "compared after the run")
				c.Want("%#02x", d.Want)
				if notArrived(r, d) {
					failNotArrived(c, r, s, d)
					return
				}
				c.Fail("wrong data arrived at the %s: messages of %d bytes, first at offset %d", d.Side, s.SizeBytes, d.FirstWrongOffset)
				return
			default:
				compared += d.Bytes
				overwritten += d.OverwrittenBytes
			}
		}
	}
	if r.SetUp() {
		failedTCP(c)
	}
	if !r.SetUp() { // where perf-setup was not to be judged
		failed(c, r, "")
		return
	}
	if compared > 0 || r.Failure == nil {
		c.Row("compared", fmt.Sprintf("%d bytes", compared), "compared after the run")
	}
	switch {
	case r.Failure != nil:
		brokeOff(c, r)
	case compared == 0 && skipped == "":
		c.Unknown("cannot tell: nothing was compared")
	case skipped != "":
		c.Unknown("cannot tell of all: not compared: %s", skipped)
	case overwritten > 0:
		c.Row("not compared", fmt.Sprintf("%d bytes", overwritten), "overwritten by later messages")
		c.Pass("%d bytes compared, what arrived last; %d that arrived before were overwritten by then", compared, overwritten)
	default:
		c.Pass("%d bytes compared, all that arrived", compared)
	}
}

// brokeOff is for a run that came to no end. Nothing says that data was wrong: what
// arrived before was compared.
func brokeOff(c *Case, r *perftest.Result) {
	f, sizes := r.Failure, r.Plan.SizesBytes
	at := ""
	if n := len(r.Steps); n < len(sizes) {
		at = fmt.Sprintf(" with messages of %d bytes", sizes[n])
	}
	c.Row("error", f.Error(), string(r.Faulty))
	for i := range r.Events {
		if e := &r.Events[i]; e.Harmful {
			c.Row("event", e.String(), "ibv_get_async_event at the "+string(e.Side))
		}
	}
	c.Fail("the run%s broke off at the %s: %s", at, r.Faulty, f.Error())
	if f.Check != "" {
		c.Fix(f.Check)
	}
	if r.Plan.Route == perftest.RouteCopy {
		c.Fix("Measure again; if it breaks off again, see what the kernel and the GPU logged meanwhile: dmesg -T | grep -i -e xid -e nvrm -e amdgpu -e aer | tail -50")
		return
	}
	c.Fix("Measure again: what breaks off once may be a cable that was pulled or an end that was stopped",
		"If it breaks off again, see which end it is: measure each with itself (gdrcheck perf loopback --dev DEVICE), and with a third",
		fmt.Sprintf("See what the kernel logged meanwhile, at the %s first: dmesg -T | tail -50", r.Faulty))
}

// notArrived says whether a byte is still what the GPU's memory was filled with
// before, the complement of what was to come: the message completed, and did not
// get there.
func notArrived(r *perftest.Result, d perftest.DataCheck) bool {
	return perftest.OnGPU(endOf(r, d.Side).Memory.Kind) && !d.Untouched && d.Got == ^d.Want
}

func endOf(r *perftest.Result, s perftest.Side) *perftest.Endpoint {
	if s == perftest.Initiator {
		return &r.Initiator
	}
	return &r.Responder
}

func failNotArrived(c *Case, r *perftest.Result, s perftest.Step, d perftest.DataCheck) {
	e := endOf(r, d.Side)
	addr := "the GPU"
	if e.Memory.GPU != nil {
		addr = "GPU " + e.Memory.GPU.Addr.String()
	}
	c.Fail("messages of %d bytes completed, and did not reach the memory of %s at the %s: they were written elsewhere or thrown away on the PCIe path", s.SizeBytes, addr, d.Side)
	c.Fix("An IOMMU that translates, without a mapping of peer memory, does that: see iommu of gdrcheck check; add iommu=pt (Intel: intel_iommu=on iommu=pt) to the kernel's command line, or switch it off, and reboot",
		"ACS redirection sends peer traffic up to it: see acs-redirect of gdrcheck check",
		fmt.Sprintf("See what the PCIe path and the GPU reported: dmesg | grep -i -e dmar -e iommu -e aer -e xid; and the path: gdrcheck topo --explain GPU%d %s", gpuIndex(e), e.Device),
		"Register by another way, to tell the driver from the path: --mem cuda,peermem or --mem cuda,dmabuf")
}

func gpuIndex(e *perftest.Endpoint) int {
	if e.Memory.GPU == nil {
		return 0
	}
	return e.Memory.GPU.Index
}
