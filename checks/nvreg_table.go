package checks

import (
	_ "embed"
	"fmt"
	"slices"
	"sync"
)

//go:embed nvreg.yaml
var nvregYAML []byte

// nvregOption is a row of nvreg.yaml, which explains the fields.
type nvregOption struct {
	Name    string            `yaml:"name"`
	ShownAs string            `yaml:"shown_as"`
	Since   int               `yaml:"since"`
	Until   int               `yaml:"until"`
	Never   bool              `yaml:"never"`
	Weakens map[string]string `yaml:"weakens"`
}

// nvregTable() is parsed once; a fault in it is found by a test.
var nvregTable = sync.OnceValue(func() []nvregOption { return mustNVReg(nvregYAML) })

func mustNVReg(text []byte) []nvregOption {
	var out []nvregOption
	if err := strictYAML(text, &out); err != nil {
		panic(fmt.Sprintf("nvreg.yaml: %v", err))
	}
	return out
}

// nvregOptionOf finds an option by its name in modprobe.d, without NVreg_.
func nvregOptionOf(name string) (nvregOption, bool) {
	i := slices.IndexFunc(nvregTable(), func(o nvregOption) bool { return o.Name == name })
	if i < 0 {
		return nvregOption{}, false
	}
	return nvregTable()[i], true
}

// shown is the option's name in /proc/driver/nvidia/params; empty: not shown.
func (o nvregOption) shown() string {
	switch o.ShownAs {
	case "":
		return o.Name
	case "-":
		return ""
	}
	return o.ShownAs
}

// lacking says why a driver of this branch does not have the option; empty:
// nothing speaks against it. 0 is a driver whose version is not known.
func (o nvregOption) lacking(branch int) string {
	switch {
	case o.Never:
		return "does not exist in the driver and has no effect"
	case branch > 0 && o.Since > branch:
		return fmt.Sprintf("came with driver R%d and has no effect on R%d", o.Since, branch)
	case o.Until > 0 && branch >= o.Until:
		return fmt.Sprintf("was removed with driver R%d and has no effect on R%d", o.Until, branch)
	}
	return ""
}
