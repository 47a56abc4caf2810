package gpu

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

const procDir = "/proc/driver/nvidia"

// Version is the first line of /proc/driver/nvidia/version.
type Version struct {
	Version string // 580.159.04
	Flavour string // "open" or "proprietary"
}

// versionLine matches both flavours' line; the open one says so and names the
// architecture behind the words "Kernel Module", the proprietary one before.
var versionLine = regexp.MustCompile(`^NVRM version:.*\bKernel Module\b(?: +for +\S+)? +(\d+(?:\.\d+)+)\b`)

// ParseVersion parses /proc/driver/nvidia/version (kernel-open/nvidia/nv-procfs.c).
func ParseVersion(s string) (Version, error) {
	for line := range strings.Lines(s) {
		m := versionLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		v := Version{Version: m[1], Flavour: "proprietary"}
		if strings.Contains(line, "Open Kernel Module") {
			v.Flavour = "open"
		}
		return v, nil
	}
	return Version{}, errors.New(`no "NVRM version" line`)
}

// ParseParams parses /proc/driver/nvidia/params, lines of "Name: value".
// Strings keep the quotes that the driver writes.
func ParseParams(s string) (map[string]string, error) {
	out := map[string]string{}
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("bad line %.60q", line)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, nil
}

// ParseInformation parses /proc/driver/nvidia/gpus/ADDR/information. The driver
// writes question marks for what it learns only when the GPU is first used.
func ParseInformation(s string) (Information, error) {
	var i Information
	fields := map[string]*string{
		"Model": &i.Model, "GPU UUID": &i.UUID, "Video BIOS": &i.VBIOS, "DMA Size": &i.DMASize,
		"GPU Firmware": &i.Firmware, "GPU Excluded": &i.Excluded,
	}
	for line := range strings.Lines(s) {
		name, value, _ := strings.Cut(line, ":")
		if f := fields[strings.TrimSpace(name)]; f != nil {
			*f = strings.TrimSpace(value)
		}
	}
	if i == (Information{}) {
		return i, errors.New("no line that gdrcheck knows")
	}
	return i, nil
}

// procfs reads what the NVIDIA driver says of itself. A tree that has the loaded
// module without its files in /proc is a part of a machine's.
func procfs(src fact.Source) NVIDIA {
	v := fact.Parsed(src, "", procDir+"/version", ParseVersion)
	params := fact.Parsed(src, "", procDir+"/params", ParseParams)
	if v.State == fact.Absent {
		if _, err := src.Stat("/sys/module/nvidia"); err == nil {
			v, params = fact.Unseen(v), fact.Unseen(params)
		}
	}
	return NVIDIA{Version: fact.As(v, v.V.Version), Flavour: fact.As(v, v.V.Flavour), Params: params}
}

func information(src fact.Source, addr pci.Address) fact.Value[Information] {
	return fact.Parsed(src, "", procDir+"/gpus/"+addr.String()+"/information", ParseInformation)
}

// procUUID is the UUID of procfs, where the driver has learnt it already.
func procUUID(v fact.Value[Information]) fact.Value[string] {
	switch {
	case v.State != fact.Known:
		return fact.As(v, "")
	case v.V.UUID == "" || strings.Contains(v.V.UUID, "?"):
		return fact.Missing[string](fact.Absent, v.Source, "the driver has not brought this GPU up yet")
	}
	return fact.Of(v.V.UUID, v.Source)
}

// present says whether this node has an NVIDIA device, or its driver: without
// either no library is worth asking.
func present(src fact.Source, functions []pci.Function) bool {
	if slices.ContainsFunc(functions, func(f pci.Function) bool { return f.Vendor.Or(0) == vendorNVIDIA }) {
		return true
	}
	_, err := src.Stat(procDir)
	return err == nil
}
