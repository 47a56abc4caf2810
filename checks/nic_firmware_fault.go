package checks

import (
	_ "embed" // the faults
	"fmt"
	"slices"
	"sync"

	"github.com/gdrcheck/gdrcheck/rdma"
)

//go:embed firmware.yaml
var firmwareYAML []byte

// firmwareFault is a row of firmware.yaml, which explains the fields.
type firmwareFault struct {
	Drivers []string `yaml:"drivers"`
	From    string   `yaml:"from"`
	Until   string   `yaml:"until"`
	Name    string   `yaml:"name"`
	Only    string   `yaml:"only"`
	Fault   string   `yaml:"fault"`
	Mended  string   `yaml:"mended"`
	Source  string   `yaml:"source"`
}

// firmwareFaults is parsed once; a fault in it is found by a test.
var firmwareFaults = sync.OnceValue(func() []firmwareFault {
	var out []firmwareFault
	if err := strictYAML(firmwareYAML, &out); err != nil {
		panic(fmt.Sprintf("firmware.yaml: %v", err))
	}
	return out
})

func (f firmwareFault) covers(driver, version string) bool {
	have, until := numbers(version), numbers(f.Until)
	have = have[:min(len(have), len(until))] // "231" is 231.anything
	return slices.Contains(f.Drivers, driver) && !older(version, f.From) && slices.Compare(have, until) <= 0
}

var nicFirmwareFault = Check{
	ID: "nic-firmware-fault", Title: "the NIC's firmware has no fault that is known here", Area: AreaRDMA, Severity: SeverityWarning,
	Why:  "Firmware has faults that look like those of cables, switches or drivers, and only an update mends them. gdrcheck knows a few that somebody documented; that it knows none says little.",
	Fix:  append([]string{"Update the NIC's firmware in a maintenance window"}, firmwareFixes()...),
	Refs: []string{"https://docs.nvidia.com/networking/display/mftv4310/mlxfwmanager", "https://github.com/ROCm/mori/pull/471"},
	Subjects: func(n *Node) []Subject {
		return slices.DeleteFunc(EachRDMA(n), func(s Subject) bool { return s.NIC.Software })
	},
	Eval: func(c *Case) {
		nic := c.Subject.NIC
		driver, _ := Need(c, "driver", nic.Driver)
		if nic.Transport.Or("") == rdma.EFA {
			c.NotApplicable("no firmware of its own")
			return
		}
		version, ok := Need(c, "firmware", nic.Firmware)
		if !ok {
			c.NotApplicable("its driver shows no firmware version")
			return
		}
		for _, f := range firmwareFaults() {
			if !f.covers(driver, version) {
				continue
			}
			c.Want("%s or newer", f.Mended)
			c.Row("known fault of "+f.Name, f.Fault, f.Source)
			if f.Only != "" {
				c.Info("%s: for %s, %s (%s)", version, f.Only, f.Fault, f.Source)
				return
			}
			c.Warn("%s has a known fault: %s", version, f.Fault)
			c.Fix(c.updateFirmware("Update it to " + f.Mended + " or newer")...)
			c.Fix("What is known of it: " + f.Source)
			return
		}
		c.Pass("%s: no fault known here", version)
	},
}
