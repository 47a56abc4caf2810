package checks

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

//go:embed presets.yaml
var presetsYAML []byte

// Preset is a platform that gdrcheck knows; presets.yaml lists them.
type Preset struct {
	Name    string   `yaml:"name" json:"name"`
	Title   string   `yaml:"title" json:"title"`
	Sources []string `yaml:"sources" json:"sources"` // URLs that its numbers come from

	Match  match   `yaml:"match" json:"-"`
	Expect Expect  `yaml:"expect" json:"-"`
	Set    overlay `yaml:"set" json:"-"`
}

// match says which machines a preset is for.
type match struct {
	Vendor     []string `yaml:"vendor"`
	Product    []string `yaml:"product"`
	ChassisTag []string `yaml:"chassis_tag"`
	GPU        []string `yaml:"gpu"`
	PCI        []string `yaml:"pci"` // "10de:22a3"
	Virt       Virt     `yaml:"virt"`
}

var presets = sync.OnceValues(func() ([]Preset, error) { return parsePresets(presetsYAML) })

func parsePresets(text []byte) ([]Preset, error) {
	var file struct {
		Presets []Preset `yaml:"presets"`
	}
	if err := strictYAML(text, &file); err != nil {
		return nil, fmt.Errorf("presets: %w", err)
	}
	for _, p := range file.Presets {
		var th Thresholds
		if err := p.overlay(&th); err != nil {
			return nil, err
		}
	}
	return file.Presets, nil
}

// Presets returns the platforms that gdrcheck knows. An error is a fault in the
// embedded list.
func Presets() ([]Preset, error) {
	list, err := presets()
	return slices.Clone(list), err
}

func presetNamed(name string) *Preset {
	list, _ := presets()
	if i := slices.IndexFunc(list, func(p Preset) bool { return p.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

func presetNames() []string {
	list, _ := presets()
	names := make([]string, 0, len(list)+1)
	for _, p := range list {
		names = append(names, p.Name)
	}
	return append(names, PresetNone)
}

func (p *Preset) overlay(th *Thresholds) error {
	if len(p.Set) == 0 {
		return nil
	}
	if err := overlayThresholds(p.Set, th); err != nil {
		return fmt.Errorf("presets: %s: %w", p.Name, err)
	}
	return nil
}

// Promises is the path class that the platform promises; empty: none.
func (p *Preset) Promises() topo.Class {
	var th Thresholds
	_ = p.overlay(&th) // parsePresets has tried it
	return th.PathPromised
}

// findPreset returns the preset that a machine matches; nil: none.
func findPreset(m *topo.Machine, platform Platform) *Preset {
	list, _ := presets()
	for i := range list {
		if list[i].Match.holds(m, platform) {
			return &list[i]
		}
	}
	return nil
}

func (w match) holds(m *topo.Machine, platform Platform) bool {
	begins := func(s string, list []string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p string) bool { return s != "" && strings.HasPrefix(s, p) })
	}
	d := m.Host.DMI
	return begins(d.SysVendor.Or(""), w.Vendor) && begins(platform.Product, w.Product) && begins(d.ChassisTag.Or(""), w.ChassisTag) &&
		(w.Virt == "" || w.Virt == platform.Virt) && w.hasGPUs(m) && w.hasPCI(m)
}

func (w match) hasGPUs(m *topo.Machine) bool {
	if len(w.GPU) == 0 {
		return true
	}
	for _, g := range m.GPU.GPUs {
		if !slices.ContainsFunc(w.GPU, func(part string) bool { return strings.Contains(g.Name, part) }) {
			return false
		}
	}
	return len(m.GPU.GPUs) > 0
}

func (w match) hasPCI(m *topo.Machine) bool {
	return len(w.PCI) == 0 || slices.ContainsFunc(m.PCI, func(f pci.Function) bool {
		return slices.Contains(w.PCI, fmt.Sprintf("%04x:%04x", uint16(f.Vendor.V), uint16(f.Device.V)))
	})
}

// noPreset says for a report why no preset holds.
func noPreset(m *topo.Machine, chosen string) string {
	if chosen == PresetNone {
		return "no preset, as chosen: numbers of devices and promised paths are not judged"
	}
	name := strings.TrimSpace(m.Host.DMI.SysVendor.Or("") + " " + m.Host.DMI.ProductName.Or(""))
	if name == "" {
		name = "its product name is not known"
	}
	return "no preset for this machine (" + name + "): numbers of devices and promised paths are not judged; a policy can"
}
