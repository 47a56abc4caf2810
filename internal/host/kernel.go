package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// configOptions are the kernel options that checks judge.
var configOptions = []string{
	"CONFIG_DMA_SHARED_BUFFER", "CONFIG_DMABUF_MOVE_NOTIFY", "CONFIG_PCI_P2PDMA", "CONFIG_HSA_AMD_P2P",
	"CONFIG_INFINIBAND", "CONFIG_INFINIBAND_USER_MEM", "CONFIG_INFINIBAND_USER_ACCESS",
	"CONFIG_INFINIBAND_ON_DEMAND_PAGING", "CONFIG_MODVERSIONS", "CONFIG_MODULES", "CONFIG_MODULE_SIG_FORCE",
	"CONFIG_INTEL_IOMMU", "CONFIG_INTEL_IOMMU_DEFAULT_ON", "CONFIG_AMD_IOMMU",
	"CONFIG_IOMMU_DEFAULT_PASSTHROUGH", "CONFIG_IOMMU_DEFAULT_DMA_STRICT", "CONFIG_IOMMU_DEFAULT_DMA_LAZY",
	"CONFIG_ZONE_DEVICE", "CONFIG_NUMA_BALANCING", "CONFIG_PCI_REALLOC_ENABLE_AUTO",
}

// kernelConfig reads the running kernel's own configuration, or the file of its
// release that the distribution installed.
func kernelConfig(src fact.Source, release string) fact.Value[map[string]string] {
	const own = "/proc/config.gz"
	v := fact.Map(raw(src, own), func(b []byte) (map[string]string, error) {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return ParseConfig(io.LimitReader(z, fact.MaxFileBytes))
	})
	if v.State == fact.Known || release == "" {
		return v
	}
	all := []fact.Value[map[string]string]{v}
	for _, name := range []string{"/boot/config-" + release, "/lib/modules/" + release + "/config"} {
		all = append(all, fact.Map(raw(src, name), func(b []byte) (map[string]string, error) {
			return ParseConfig(bytes.NewReader(b))
		}))
	}
	return first(all...)
}

func raw(src fact.Source, name string) fact.Value[[]byte] {
	b, err := src.ReadFile(name)
	if err != nil {
		return fact.FromError[[]byte](err, name)
	}
	return fact.Of(b, name)
}

// ParseConfig reads a kernel .config and returns the options that matter: "y",
// "m" or "n". An option whose dependencies are not met does not stand in the
// file at all: that is "n" too.
func ParseConfig(r io.Reader) (map[string]string, error) {
	out := make(map[string]string, len(configOptions))
	for _, o := range configOptions {
		out[o] = "n"
	}
	lines, seen := bufio.NewScanner(r), false
	for lines.Scan() {
		name, value, ok := bytes.Cut(lines.Bytes(), []byte("="))
		if !ok || !bytes.HasPrefix(name, []byte("CONFIG_")) {
			continue
		}
		seen = true
		if _, want := out[string(name)]; want {
			out[string(name)] = string(value)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !seen {
		return nil, errors.New("no CONFIG_ line: not a kernel configuration")
	}
	return out, nil
}

// peerSymbol is what the vendor's ib_core (MLNX_OFED, DOCA-OFED, some
// distributions) exports for nvidia-peermem; mainline never had it.
const peerSymbol = "ib_register_peer_memory_client"

// symbols asks only where the answer decides something, which is when an NVIDIA
// driver and the RDMA core are loaded and no peer memory module is.
func symbols(ctx context.Context, src fact.Source, loaded fact.Value[[]Module]) map[string]fact.Value[bool] {
	has := func(names ...string) bool {
		return slices.ContainsFunc(loaded.V, func(m Module) bool { return slices.Contains(names, m.Name) })
	}
	v := fact.Missing[bool](fact.NotCollected, fact.AskSymbols, "decides nothing here: asked only with nvidia and ib_core loaded and no peer memory module")
	if has("nvidia") && has("ib_core") && !has("nvidia_peermem", "nv_peer_mem") {
		v = fact.AskOne[bool](ctx, src, fact.AskSymbols, peerSymbol, peerSymbol)
	}
	return map[string]fact.Value[bool]{peerSymbol: v}
}

// FindSymbol says whether the kernel or a module of the RDMA core has a function
// of that name. Their type information (BTF) names every function that they
// export; where it was not built, /proc/kallsyms answers, whose megabytes take
// the kernel 40 to 100 ms to write.
func FindSymbol(src fact.Source, symbol string) fact.Value[bool] {
	var v fact.Value[bool]
	for _, name := range []string{"ib_core", "ib_uverbs"} {
		v = inBTF(src, "/sys/kernel/btf/"+name, symbol)
		if v.State == fact.Absent { // built in, or not there
			v = inBTF(src, "/sys/kernel/btf/vmlinux", symbol)
		}
		if v.State != fact.Known {
			const all = "/proc/kallsyms"
			return fact.Map(raw(src, all), func(b []byte) (bool, error) { return HasSymbol(b, symbol) })
		}
		if v.V {
			break
		}
	}
	return v
}

// inBTF looks for a name in type information (Documentation/bpf/btf.rst: names
// are NUL-terminated strings).
func inBTF(src fact.Source, file, symbol string) fact.Value[bool] {
	return fact.Map(raw(src, file), func(b []byte) (bool, error) {
		if len(b) < 2 || b[0] != 0x9f && b[1] != 0x9f { // magic 0xeb9f
			return false, errors.New("not BTF")
		}
		return bytes.Contains(b, []byte("\x00"+symbol+"\x00")), nil
	})
}

// HasSymbol says whether /proc/kallsyms ("ffffffff81000000 T name [module]")
// lists a symbol. Without CAP_SYSLOG the addresses are zero, the names are there.
func HasSymbol(kallsyms []byte, symbol string) (bool, error) {
	if len(kallsyms) == 0 {
		return false, errors.New("empty")
	}
	rest := kallsyms
	for {
		i := bytes.Index(rest, []byte(symbol))
		if i < 0 {
			return false, nil
		}
		end := i + len(symbol)
		before := i > 0 && rest[i-1] == ' '
		after := end == len(rest) || rest[end] == '\n' || rest[end] == '\t' || rest[end] == ' '
		if before && after {
			return true, nil
		}
		rest = rest[end:]
	}
}

// ParseLockdown takes the mode in brackets out of "none [integrity] confidentiality".
func ParseLockdown(s string) (string, error) {
	_, rest, ok := strings.Cut(s, "[")
	mode, _, ok2 := strings.Cut(rest, "]")
	if !ok || !ok2 || mode == "" {
		return "", fmt.Errorf("bad lockdown state %q: want \"none [integrity] confidentiality\"", s)
	}
	return mode, nil
}
