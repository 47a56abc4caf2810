package host

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// modulesThatMatter are the drivers of GPUs and RDMA NICs, the RDMA core, and
// what joins the two.
var modulesThatMatter = []string{
	"amdgpu", "amdkfd", "bnxt_en", "bnxt_re", "cxgb4", "efa", "efa_nv_peermem", "erdma", "gdrdrv", "hfi1",
	"hns_roce_hw_v2", "ib_cm", "ib_core", "ib_ipoib", "ib_umad", "ib_uverbs", "ice", "idpf", "ionic",
	"ionic_rdma", "irdma", "iw_cm", "iw_cxgb4", "mana", "mana_ib", "mlx4_core", "mlx4_ib", "mlx5_core",
	"mlx5_ib", "mlx5_vfio_pci", "nouveau", "nv_peer_mem", "nvidia", "nvidia_drm", "nvidia_fs", "nvidia_modeset",
	"nvidia_peermem", "nvidia_uvm", "nvidia_vgpu_vfio", "peer_mem", "qedr", "rdma_cm",
	"rdma_rxe", "rdma_ucm", "siw", "vfio_pci",
}

// matters takes NVIDIA's modules under any name: distributions rename them.
func matters(module string) bool {
	_, ok := slices.BinarySearch(modulesThatMatter, module)
	return ok || strings.HasPrefix(module, "nvidia")
}

const moduleDir = "/sys/module"

// modules reads /sys/module, where built-in drivers with parameters stand too;
// where that cannot be listed, /proc/modules.
func modules(src fact.Source) fact.Value[[]Module] {
	list := names(src, moduleDir)
	if list.State != fact.Known {
		return fact.Unseen(first(fact.Parsed(src, "", "/proc/modules", ParseModules), fact.As[[]Module](list, nil)))
	}
	out := []Module{}
	for _, n := range list.V {
		if matters(n) {
			out = append(out, module(src, n))
		}
	}
	return fact.Of(out, moduleDir)
}

func module(src fact.Source, name string) Module {
	dir := moduleDir + "/" + name
	m := Module{
		Name:       name,
		Version:    text(src, dir+"/version"),
		SrcVersion: text(src, dir+"/srcversion"),
		Taint:      text(src, dir+"/taint"),
		RefCount:   fact.Parsed(src, "", dir+"/refcnt", strconv.Atoi),
		Holders:    names(src, dir+"/holders").V,
		Parameters: parameters(src, dir+"/parameters"),
	}
	return m
}

// parameters reads a module's parameters. Those that cannot be read (write-only
// ones, or root's) are left out; if none can, the value says why.
func parameters(src fact.Source, dir string) fact.Value[map[string]string] {
	list := names(src, dir)
	out := map[string]string{}
	var unread fact.Value[string]
	for _, n := range list.V {
		if v := text(src, dir+"/"+n); v.State == fact.Known {
			out[n] = v.V
		} else {
			unread = v
		}
	}
	if len(out) == 0 && unread.State != fact.NotCollected {
		return fact.As(unread, out)
	}
	return fact.As(list, out)
}

// ParseModules parses /proc/modules ("name size refs holders, state address
// (taint)", proc_modules(5)) and keeps the modules that matter.
func ParseModules(s string) ([]Module, error) {
	const source = "/proc/modules"
	out := []Module{}
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			return nil, fmt.Errorf("bad line %q", line)
		}
		if _, err := strconv.ParseUint(f[1], 10, 64); err != nil {
			return nil, fmt.Errorf("bad size in line %q", line)
		}
		if !matters(f[0]) {
			continue
		}
		m := Module{Name: f[0]}
		m.RefCount = fact.Map(fact.Of(f[2], source), strconv.Atoi)
		if f[2] == "-" {
			m.RefCount = fact.Missing[int](fact.Unsupported, source, "the kernel unloads no modules")
		}
		if len(f) > 3 && f[3] != "-" {
			m.Holders = strings.FieldsFunc(f[3], func(r rune) bool { return r == ',' })
			slices.Sort(m.Holders)
		}
		if last := f[len(f)-1]; len(f) > 5 && strings.HasPrefix(last, "(") {
			// "(POE)"; "+" and "-" mark a module that comes or goes.
			m.Taint = fact.Of(strings.Trim(last, "()+-"), source)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Module) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// majorsThatMatter are the names in /proc/devices that belong to GPUs and RDMA.
var majorsThatMatter = []string{
	"drm", "gdrdrv", "infiniband_mad", "infiniband_verbs", "kfd", "nvidia", "nvidia-caps",
	"nvidia-caps-imex-channels", "nvidia-frontend", "nvidia-fs", "nvidia-modeset", "nvidia-nvlink",
	"nvidia-nvswitch", "nvidia-uvm", "nvidiactl", "rdma_cm",
}

// ParseCharMajors parses the character devices of /proc/devices (proc_devices(5)).
func ParseCharMajors(s string) (map[string]int, error) {
	out := map[string]int{}
	_, chars, ok := strings.Cut(s, "Character devices:\n")
	if !ok {
		return nil, errors.New("no \"Character devices:\" line")
	}
	chars, _, _ = strings.Cut(chars, "Block devices:")
	for line := range strings.Lines(chars) {
		major, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(major, 10, 12) // majors have 12 bits
		if err != nil {
			return nil, fmt.Errorf("bad line %q", line)
		}
		if slices.Contains(majorsThatMatter, name) {
			out[name] = int(n)
		}
	}
	return out, nil
}
