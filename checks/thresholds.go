package checks

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/gdrcheck/gdrcheck/topo"
)

//go:embed thresholds.yaml
var thresholdsYAML []byte

// Thresholds are the numbers that facts are compared with; thresholds.yaml
// explains each and says what holds on which platform.
type Thresholds struct {
	MemlockMinBytes       uint64            `yaml:"memlock_min_bytes"`
	BAR1MinShare          float64           `yaml:"bar1_min_share"`
	PathGood              topo.Class        `yaml:"path_good"`
	PathPromised          topo.Class        `yaml:"path_promised"`
	PortRateMinShare      float64           `yaml:"port_rate_min_share"`
	DMABufMinKernel       string            `yaml:"dmabuf_min_kernel"`
	DMABufMinNVIDIADriver int               `yaml:"dmabuf_min_nvidia_driver"`
	DMABufNICDrivers      map[string]string `yaml:"dmabuf_nic_drivers"`
	GDRDrvBadVersion      string            `yaml:"gdrdrv_bad_version"`
	GDRDrvBadFromDriver   int               `yaml:"gdrdrv_bad_from_driver"`
}

type preset struct {
	Name     string   `yaml:"name"`
	Products []string `yaml:"products"` // prefixes of DMI's product name
}

type presetList struct {
	Presets []yaml.MapSlice `yaml:"presets"`
}

// loadThresholds returns the thresholds for a product name (DMI; empty: not
// known) and the name of the preset that was laid over the defaults.
func loadThresholds(product string) (Thresholds, string, error) {
	return parseThresholds(thresholdsYAML, product)
}

func parseThresholds(text []byte, product string) (Thresholds, string, error) {
	fail := func(err error) (Thresholds, string, error) {
		return Thresholds{}, "", fmt.Errorf("thresholds: %w", err)
	}
	// The whole file must be understood: a misspelt key would silently leave
	// its default in force.
	var file struct {
		Thresholds `yaml:",inline"`
		Presets    []struct {
			preset     `yaml:",inline"`
			Thresholds `yaml:",inline"`
		} `yaml:"presets"`
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file); err != nil {
		return fail(err)
	}
	out := file.Thresholds
	for i, p := range file.Presets {
		if !slices.ContainsFunc(p.Products, func(s string) bool { return product != "" && strings.HasPrefix(product, s) }) {
			continue
		}
		// Decoding a second time over the defaults changes only what the
		// preset names.
		var raw presetList
		if err := yaml.Unmarshal(text, &raw); err != nil {
			return fail(err)
		}
		b, err := yaml.Marshal(raw.Presets[i])
		if err != nil {
			return fail(err)
		}
		if err := yaml.Unmarshal(b, &out); err != nil {
			return fail(err)
		}
		return out, p.Name, nil
	}
	return out, "", nil
}
