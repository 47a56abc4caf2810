package checks

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"slices"

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
	IdleMaxLatencyUs      int               `yaml:"idle_max_latency_us"`
	BAR1MinShare          float64           `yaml:"bar1_min_share"`
	BAR1SmallBytes        uint64            `yaml:"bar1_small_bytes"`
	DisplayModeModels     []string          `yaml:"display_mode_models"`
	PathGood              topo.Class        `yaml:"path_good"`
	PathPromised          topo.Class        `yaml:"path_promised"`
	PortRateMinShare      float64           `yaml:"port_rate_min_share"`
	LinkDownsPerDayMax    float64           `yaml:"link_downs_per_day_max"`
	DMABufMinKernel       string            `yaml:"dmabuf_min_kernel"`
	DMABufMinNVIDIADriver int               `yaml:"dmabuf_min_nvidia_driver"`
	DMABufNICDrivers      map[string]string `yaml:"dmabuf_nic_drivers"`
	// What follows is explained in thresholds.yaml like the rest.
	ReadRequestMinBytes        int      `yaml:"read_request_min_bytes"`
	RelaxedOrderingIntelModels []int    `yaml:"relaxed_ordering_intel_models"`
	CorrectedErrorsMin         uint64   `yaml:"corrected_errors_min"`
	BARReachBytes              uint64   `yaml:"bar_reach_bytes"`
	NoGPUDirectProducts        []string `yaml:"no_gpudirect_products"`
	NoGPUDirectModels          []string `yaml:"no_gpudirect_models"`
	SharedMemoryModels         []string `yaml:"shared_memory_models"`
	PeermemMinDriver           int      `yaml:"peermem_min_nvidia_driver"`
	DMABufMinCUDA              int      `yaml:"dmabuf_min_cuda"`
	XidFatal                   []int    `yaml:"xid_fatal"`
	XidApplication             []int    `yaml:"xid_application"`
	GDRDrvBadVersion           string   `yaml:"gdrdrv_bad_version"`
	GDRDrvBadFromDriver        int      `yaml:"gdrdrv_bad_from_driver"`
	GDRCopySmallBytes          int      `yaml:"gdrcopy_small_bytes"`

	PerfBandwidthPassShare    float64                        `yaml:"perf_bandwidth_pass_share"`
	PerfBandwidthWarnShare    float64                        `yaml:"perf_bandwidth_warn_share"`
	PerfBandwidthMinSizeBytes int                            `yaml:"perf_bandwidth_min_size_bytes"`
	PerfBusyBytesPerSec       float64                        `yaml:"perf_busy_bytes_per_sec"`
	PerfTogetherMinShare      float64                        `yaml:"perf_together_min_share"`
	PerfLatencyMaxSizeBytes   int                            `yaml:"perf_latency_max_size_bytes"`
	PerfLatencyPassNs         map[perftest.Operation]float64 `yaml:"perf_latency_pass_ns"`
	PerfLatencyWarnNs         map[perftest.Operation]float64 `yaml:"perf_latency_warn_ns"`

	GDRCompareMinSizeBytes int                    `yaml:"gdr_compare_min_size_bytes"`
	GDRMinSpeedUp          float64                `yaml:"gdr_min_speed_up"`
	GDRHostShare           map[topo.Class]float64 `yaml:"gdr_host_share"`
}

// defaultThresholds returns what holds where neither preset nor policy says
// otherwise. An error is a fault in the embedded file.
func defaultThresholds() (Thresholds, error) {
	var file struct {
		Default Thresholds `yaml:"default"`
	}
	if err := strictYAML(thresholdsYAML, &file); err != nil {
		return Thresholds{}, fmt.Errorf("thresholds: %w", err)
	}
	return file.Default, nil
}

// strictYAML refuses keys that it does not know: a misspelt one would silently
// leave its default in force.
func strictYAML(text []byte, into any) error {
	return yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(into)
}

// overlayThresholds decodes YAML over thresholds: what it does not name keeps its
// value, the entries of maps too, which the decoder would replace as a whole.
func overlayThresholds(text []byte, th *Thresholds) error {
	before := reflect.ValueOf(*th)
	next := *th
	now := reflect.ValueOf(&next).Elem()
	for i := range now.NumField() {
		if now.Field(i).Kind() == reflect.Map {
			now.Field(i).SetZero()
		}
	}
	if err := strictYAML(text, &next); err != nil {
		return err
	}
	for i := range now.NumField() {
		if f := now.Field(i); f.Kind() == reflect.Map {
			merged := reflect.MakeMap(f.Type())
			for _, from := range []reflect.Value{before.Field(i), f} {
				for k, v := range from.Seq2() {
					merged.SetMapIndex(k, v)
				}
			}
			f.Set(merged)
		}
	}
	*th = next
	return nil
}

// overlay is YAML kept as text, to be decoded over defaults: what it does not
// name keeps its value.
type overlay []byte

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (o *overlay) UnmarshalYAML(b []byte) error {
	*o = slices.Clone(b)
	return nil
}
