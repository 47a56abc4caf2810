package host

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Collect reads the node itself. Nothing here fails as a whole: what could not
// be read says so in its value.
func Collect(ctx context.Context, src fact.Source) Facts {
	caller := fact.ReadCaller(src)
	cpuinfo := text(src, "/proc/cpuinfo")
	f := Facts{
		KernelRelease: fact.Unseen(text(src, "/proc/sys/kernel/osrelease")),
		CommandLine:   fact.Unseen(text(src, "/proc/cmdline")),
		Tainted:       fact.Unseen(fact.Parsed(src, "", "/proc/sys/kernel/tainted", parseUint)),
		SecureBoot:    secureBoot(ctx, src),
		Lockdown:      fact.Parsed(src, "", "/sys/kernel/security/lockdown", ParseLockdown),
		IOMMU:         iommu(src),
		DMI:           dmi(src),
		CPU:           cpu(src, cpuinfo),
		NUMA:          numa(src),
		NUMABalancing: sysctl(src, "/proc/sys/kernel/numa_balancing"),
		Modules:       modules(src),
		Nodes:         deviceNodes(src, caller),
		CharMajors:    fact.Parsed(src, "", "/proc/devices", ParseCharMajors),
		MemoryPeers:   memoryPeers(src),
		Container:     container(src),
		Limits:        fact.AskOne[Limits](ctx, src, fact.AskLimits, "self"),
		KernelLog:     fact.Unseen(fact.AskOne[KernelLog](ctx, src, fact.AskKernelLog, "system")),
		Services:      services(src),
		HugePages:     sysctl(src, "/proc/sys/vm/nr_hugepages"),
		Names:         fact.AskOne[Names](ctx, src, fact.AskGHW, "system"),
		Root:          fact.As(caller, caller.V.UID == 0),
		UptimeSec:     fact.Parsed(src, "", "/proc/uptime", parseUptime),
	}
	f.Modprobe = modprobe(src, f.CommandLine)
	f.KernelConfig = kernelConfig(src, f.KernelRelease.V)
	f.ModuleFiles = moduleFiles(src, f.KernelRelease, f.Modules)
	f.Symbols = symbols(ctx, src, f.Modules)
	f.Hypervisor = hypervisor(src, cpuinfo, f.DMI)
	return f
}

// sysctl reads a setting that not every kernel has. Its folder every kernel has:
// where that is missing, too, the tree that is read is only a part of a machine's.
func sysctl(src fact.Source, name string) fact.Value[int] {
	v := fact.Parsed(src, "", name, strconv.Atoi)
	if v.State == fact.Absent {
		if _, err := src.Stat(path.Dir(name)); errors.Is(err, fs.ErrNotExist) {
			return fact.Unseen(v)
		}
	}
	return v
}

func text(src fact.Source, name string) fact.Value[string] { return fact.Text(src, "", name) }

func parseUint(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

// parseUptime takes the seconds since boot out of "350735.47 234388.90".
func parseUptime(s string) (float64, error) {
	up, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	n, err := strconv.ParseFloat(up, 64)
	if err == nil && !(n >= 0 && n < 1e12) {
		err = strconv.ErrRange
	}
	return n, err
}

// first returns the first value that is Known, else the first that is not
// Absent; if all are, an Absent one that names every place looked at.
func first[T any](values ...fact.Value[T]) fact.Value[T] {
	var places []string
	var unseen *fact.Value[T]
	for i, v := range values {
		switch {
		case v.State == fact.Known:
			return v
		case v.State != fact.Absent && unseen == nil:
			unseen = &values[i]
		}
		places = append(places, v.Source)
	}
	if unseen != nil {
		return *unseen
	}
	return fact.Missing[T](fact.Absent, places[0], "none of "+strings.Join(places, ", "))
}

// names lists a directory.
func names(src fact.Source, dir string) fact.Value[[]string] {
	list, err := src.ReadDir(dir)
	if err != nil {
		return fact.FromError[[]string](err, dir)
	}
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name
	}
	return fact.Of(out, dir)
}
