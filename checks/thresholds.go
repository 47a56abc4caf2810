package checks

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

//go:embed thresholds.yaml
var thresholdsYAML []byte

// Thresholds are the numbers that facts are compared with; thresholds.yaml
// explains each and says what holds on which platform.
type Thresholds struct {
	MemlockMinBytes       uint64            `yaml:"memlock_min_bytes"`
	BAR1MinShare          float64           `yaml:"bar1_min_share"`
	BAR1SmallBytes        uint64            `yaml:"bar1_small_bytes"`
	DisplayModeModels     []string          `yaml:"display_mode_models"`
	PathGood              topo.Class        `yaml:"path_good"`
	PathPromised          topo.Class        `yaml:"path_promised"`
	PortRateMinShare      float64           `yaml:"port_rate_min_share"`
	DMABufMinKernel       string            `yaml:"dmabuf_min_kernel"`
	DMABufMinNVIDIADriver int               `yaml:"dmabuf_min_nvidia_driver"`
	DMABufNICDrivers      map[string]string `yaml:"dmabuf_nic_drivers"`
	GDRDrvBadVersion      string            `yaml:"gdrdrv_bad_version"`
	GDRDrvBadFromDriver   int               `yaml:"gdrdrv_bad_from_driver"`

	PerfBandwidthPassShare    float64                        `yaml:"perf_bandwidth_pass_share"`
	PerfBandwidthWarnShare    float64                        `yaml:"perf_bandwidth_warn_share"`
	PerfBandwidthMinSizeBytes int                            `yaml:"perf_bandwidth_min_size_bytes"`
	PerfLatencyMaxSizeBytes   int                            `yaml:"perf_latency_max_size_bytes"`
	PerfLatencyPassNs         map[perftest.Operation]float64 `yaml:"perf_latency_pass_ns"`
	PerfLatencyWarnNs         map[perftest.Operation]float64 `yaml:"perf_latency_warn_ns"`
}

// preset is a platform whose thresholds differ.
type preset struct {
	Name     string   `yaml:"name"`
	Products []string `yaml:"products"` // prefixes of DMI's product name
	Set      overlay  `yaml:"set"`
}

// overlay is YAML kept as text, to be decoded over the defaults: what it does not
// name keeps its value.
type overlay []byte

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (o *overlay) UnmarshalYAML(b []byte) error {
	*o = slices.Clone(b)
	return nil
}

type thresholdsFile struct {
	Default Thresholds `yaml:"default"`
	Presets []preset   `yaml:"presets"`
}

// loadThresholds returns the thresholds for a product name (DMI; empty: not
// known) and the name of the preset that was laid over the defaults.
func loadThresholds(product string) (Thresholds, string, error) {
	return parseThresholds(thresholdsYAML, product)
}

func parseThresholds(text []byte, product string) (Thresholds, string, error) {
	var file thresholdsFile
	if err := strictYAML(text, &file); err != nil {
		return Thresholds{}, "", fmt.Errorf("thresholds: %w", err)
	}
	for _, p := range file.Presets {
		if !slices.ContainsFunc(p.Products, func(s string) bool { return product != "" && strings.HasPrefix(product, s) }) {
			continue
		}
		if err := strictYAML(p.Set, &file.Default); err != nil {
			return Thresholds{}, "", fmt.Errorf("thresholds: preset %s: %w", p.Name, err)
		}
		return file.Default, p.Name, nil
	}
	return file.Default, "", nil
}

// strictYAML refuses keys that it does not know: a misspelt one would silently
// leave its default in force.
func strictYAML(text []byte, into any) error {
	return yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into)
}
