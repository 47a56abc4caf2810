package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

type machine int

const (
	machineOther machine = iota
	machineX86
	machineARM
	machinePOWER
)

// machineOf tells by the shape of /proc/cpuinfo, which every architecture
// writes in its own way.
func machineOf(cpuinfo string) machine {
	switch {
	case field(cpuinfo, "vendor_id") != "" && field(cpuinfo, "flags") != "":
		return machineX86
	case field(cpuinfo, "CPU implementer") != "":
		return machineARM
	case strings.HasPrefix(field(cpuinfo, "cpu"), "POWER"):
		return machinePOWER
	}
	return machineOther
}

// field returns the first "key : value" of a cpuinfo text.
func field(s, key string) string {
	for line := range strings.Lines(s) {
		k, v, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func hasFlag(cpuinfo, flag string) bool {
	return slices.Contains(strings.Fields(field(cpuinfo, "flags")), flag)
}

func cpu(src fact.Source, cpuinfo fact.Value[string]) CPU {
	c := fact.Map(cpuinfo, ParseCPUInfo)
	out := c.V
	if c.State != fact.Known {
		out.Vendor, out.Model = fact.As(c, ""), fact.As(c, "")
		out.Family, out.ModelNum = fact.As(c, 0), fact.As(c, 0)
	}
	out.Count = fact.Parsed(src, "", "/sys/devices/system/cpu/online", func(s string) (int, error) {
		l, err := ParseList(s)
		return len(l), err
	})
	if arch := text(src, "/proc/sys/kernel/arch"); arch.State == fact.Known || out.Arch.State == fact.NotCollected {
		out.Arch = arch // Linux 6.1 and newer
	}
	out.Governor = text(src, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	out.Idle = idleStates(src)
	return out
}

// armParts names implementers and cores of servers
// (arch/arm64/include/asm/cputype.h).
var armParts = map[string]string{
	"0x41": "ARM", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0xc0": "Ampere",
	"0x41/0xd0c": "Neoverse-N1", "0x41/0xd40": "Neoverse-V1", "0x41/0xd49": "Neoverse-N2",
	"0x41/0xd4f": "Neoverse-V2", "0x41/0xd83": "Neoverse-V3", "0x41/0xd84": "Neoverse-V3",
	"0x41/0xd85": "Cortex-X925", "0x41/0xd87": "Cortex-A725",
	"0xc0/0xac3": "Ampere-1", "0xc0/0xac4": "Ampere-1a", "0x48/0xd01": "TSV110",
}

// ParseCPUInfo reads the first processor of /proc/cpuinfo. On ARM the vendor is
// the implementer, the family the architecture and the model number the part;
// on POWER the vendor is IBM.
func ParseCPUInfo(s string) (CPU, error) {
	const source = "/proc/cpuinfo"
	none := fact.Missing[int](fact.Absent, source, "this architecture has none")
	number := func(key string) fact.Value[int] {
		v := fact.Of(field(s, key), source)
		return fact.Map(v, func(t string) (int, error) {
			n, err := strconv.ParseUint(t, 0, 31)
			return int(n), err
		})
	}
	switch machineOf(s) {
	case machineX86:
		return CPU{
			Vendor: fact.Of(field(s, "vendor_id"), source), Model: fact.Of(field(s, "model name"), source),
			Family: number("cpu family"), ModelNum: number("model"), Arch: fact.Of("x86_64", source),
		}, nil
	case machineARM:
		vendor := field(s, "CPU implementer")
		part := field(s, "CPU part")
		c := CPU{
			Vendor: fact.Of(orSelf(armParts[vendor], vendor), source), Model: fact.Of(orSelf(armParts[vendor+"/"+part], part), source),
			Family: number("CPU architecture"), ModelNum: number("CPU part"), Arch: fact.Of("aarch64", source),
		}
		return c, nil
	case machinePOWER:
		return CPU{
			Vendor: fact.Of("IBM", source), Model: fact.Of(field(s, "cpu"), source),
			Family: none, ModelNum: none, Arch: fact.Of("ppc64le", source),
		}, nil
	case machineOther:
	}
	return CPU{}, fmt.Errorf("cpuinfo of an unknown architecture, %d bytes", len(s))
}

func orSelf(name, self string) string {
	if name != "" {
		return name
	}
	return self
}

// maxList bounds what a list may expand to: the kernel's NR_CPUS is at most 8192.
const maxList = 1 << 14

// ParseList parses a list of numbers as the kernel writes it, "0-31,64-95";
// the empty string is the empty list.
func ParseList(s string) ([]int, error) {
	var out []int
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(lo, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("bad list %q", s)
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(hi, 10, 31); err != nil || b < a {
				return nil, fmt.Errorf("bad list %q", s)
			}
		}
		if b-a >= maxList || len(out)+int(b-a) >= maxList {
			return nil, fmt.Errorf("list %q has more than %d numbers", s, maxList)
		}
		for n := a; n <= b; n++ {
			out = append(out, int(n))
		}
	}
	return out, nil
}

const nodeDir = "/sys/devices/system/node"

// numa reads the memory nodes. A node that cannot be read makes the whole
// unknown: distances without it would be wrong.
func numa(src fact.Source) fact.Value[[]NUMANode] {
	list := names(src, nodeDir)
	if list.State != fact.Known {
		return fact.As[[]NUMANode](list, nil)
	}
	out := []NUMANode{}
	for _, n := range list.V {
		id, err := strconv.Atoi(strings.TrimPrefix(n, "node"))
		if err != nil || !strings.HasPrefix(n, "node") {
			continue
		}
		dir := nodeDir + "/" + n
		cpus := text(src, dir+"/cpulist")
		dist := fact.Parsed(src, "", dir+"/distance", parseDistances)
		if cpus.State != fact.Known {
			return fact.As[[]NUMANode](cpus, nil)
		}
		if dist.State != fact.Known && dist.State != fact.Absent {
			return fact.As[[]NUMANode](dist, nil)
		}
		out = append(out, NUMANode{ID: id, CPUs: cpus.V, Distances: dist.V})
	}
	slices.SortFunc(out, func(a, b NUMANode) int { return a.ID - b.ID })
	return fact.Of(out, nodeDir)
}

func parseDistances(s string) ([]int, error) {
	var out []int
	for f := range strings.FieldsSeq(s) {
		n, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("bad distances %q", s)
		}
		out = append(out, int(n))
	}
	return out, nil
}
