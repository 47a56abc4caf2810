package checks

import (
	"fmt"
)

var perfData = Check{
	ID: "perf-data", Title: "measurements come to their end, and data arrives as it was sent", Area: AreaPerf, Severity: SeverityError,
	DependsOn: []string{"perf-setup"},
	Why:       "What ends a test, ends a job; and data that arrives wrong without any error is the worst that RDMA can do: a job computes on it.",
	Fix: []string{
		"Take the node out of service, and measure each end against a third to see which one is at fault",
		"Update firmware and driver of the NIC; look at its error counters and at PCIe errors (dmesg, AER)",
		"Turn ACS redirection, IOMMU translation and relaxed ordering off, one by one, and measure again",
	},
	Refs:     []string{"https://docs.kernel.org/PCI/pcieaer-howto.html"},
	Subjects: eachMeasurement,
	Eval:     evalPerfData,
}

func evalPerfData(c *Case) {
	r := c.Subject.Result
	if failed(c, r, "ended with an error") {
		return
	}
	compared, skipped := uint64(0), ""
	for _, s := range r.Steps {
		for _, d := range s.Data {
			switch {
			case d.Skipped != "":
				skipped = d.Skipped
			case !d.Correct:
				c.Row(fmt.Sprintf("byte %d of %d at the %s", d.FirstWrongOffset, s.SizeBytes, d.Side), fmt.Sprintf("%#02x", d.Got), "compared after the run")
				c.Want("%#02x", d.Want)
				c.Fail("wrong data arrived at the %s: messages of %d bytes, first at offset %d", d.Side, s.SizeBytes, d.FirstWrongOffset)
				return
			default:
				compared += d.Bytes
			}
		}
	}
	c.Row("compared", fmt.Sprintf("%d bytes", compared), "compared after the run")
	switch {
	case compared == 0 && skipped == "":
		c.Unknown("cannot tell: nothing was compared")
	case skipped != "":
		c.Unknown("cannot tell of all: not compared: %s", skipped)
	default:
		c.Pass("%d bytes compared", compared)
	}
}
