package nvml

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Device asks all of one GPU, cheapest and most needed first; scope keeps to what a
// topology needs (gpu.Brief), or to what changes with load (gpu.Load). part is told what is known before the rest is asked,
// so that a GPU that then hangs is known by its address.
func (l *Library) Device(index int, scope string, part func(any)) fact.Value[gpu.NVMLDevice] {
	handle := ask(l, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) {
		return l.api.DeviceGetHandleByIndex(index)
	})
	d := gpu.NVMLDevice{Index: index}
	if handle.State != fact.Known {
		return fact.As(handle, d)
	}
	g := &device{l: l, h: handle.V}
	addr := fact.Map(ask(l, "nvmlDeviceGetPciInfo", g.h.GetPciInfo), address)
	if addr.State != fact.Known {
		return fact.As(addr, d)
	}
	d.Addr = addr.V
	part(d)
	if scope == gpu.Load {
		g.load(&d)
		return fact.Of(d, "nvml")
	}

	d.Name = checked(ask(l, "nvmlDeviceGetName", g.h.GetName))
	d.UUID = checked(ask(l, "nvmlDeviceGetUUID", g.h.GetUUID))
	d.BAR1 = fact.Map(ask(l, "nvmlDeviceGetBAR1MemoryInfo", g.h.GetBAR1MemoryInfo), bar1)
	d.Memory = fact.Map(ask(l, "nvmlDeviceGetMemoryInfo", g.h.GetMemoryInfo), memory)
	part(d)
	d.NVLinks = g.nvLinks()
	if scope == gpu.Brief {
		return fact.Of(d, "nvml")
	}
	d.CPUAffinity = g.cpuAffinity() // 11 ms on an H200; the kernel tells the same of the function
	d.NUMAAffinity = g.numaAffinity()
	g.mode(&d)
	g.health(&d)
	d.Topology = g.topology(index)
	return fact.Of(d, "nvml")
}

type device struct {
	l *Library
	h nvml.Device
}

// mode fills in how the GPU is set up.
func (g *device) mode(d *gpu.NVMLDevice) {
	d.Architecture = fact.Map(ask(g.l, "nvmlDeviceGetArchitecture", g.h.GetArchitecture), architecture)
	d.ComputeCap = ask(g.l, "nvmlDeviceGetCudaComputeCapability", func() ([2]int, nvml.Return) {
		major, minor, ret := g.h.GetCudaComputeCapability()
		return [2]int{major, minor}, ret
	})
	d.MIG = ask(g.l, "nvmlDeviceGetMigMode", func() (gpu.MIGMode, nvml.Return) {
		now, next, ret := g.h.GetMigMode()
		return gpu.MIGMode{Current: now == nvml.DEVICE_MIG_ENABLE, Pending: next == nvml.DEVICE_MIG_ENABLE}, ret
	})
	d.Fabric = fact.Map(ask(g.l, "nvmlDeviceGetGpuFabricInfo", g.h.GetGpuFabricInfo), fabric)
	d.Persistence = fact.Map(ask(g.l, "nvmlDeviceGetPersistenceMode", g.h.GetPersistenceMode), enabled)
	d.Confidential = fact.Map(ask(g.l, "nvmlSystemGetConfComputeState", g.l.api.SystemGetConfComputeState),
		func(s nvml.ConfComputeSystemState) (bool, error) {
			return s.CcFeature == nvml.CC_SYSTEM_FEATURE_ENABLED, nil
		})
	d.AddressingMode = fact.Map(ask(g.l, "nvmlDeviceGetAddressingMode", g.h.GetAddressingMode), addressing)
	d.NUMANode = fact.Map(ask(g.l, "nvmlDeviceGetNumaNodeId", g.h.GetNumaNodeId), numaNode)
	d.Virtualization = fact.Map(ask(g.l, "nvmlDeviceGetVirtualizationMode", g.h.GetVirtualizationMode), virtualization)
}

// health fills in how the GPU is doing.
func (g *device) health(d *gpu.NVMLDevice) {
	d.Link = g.link()
	d.ECC = g.ecc()
	d.RemappedRows = ask(g.l, "nvmlDeviceGetRemappedRows", func() (gpu.Remapped, nvml.Return) {
		corr, uncorr, pending, failed, ret := g.h.GetRemappedRows()
		return gpu.Remapped{Correctable: corr, Uncorrectable: uncorr, Pending: pending, Failed: failed}, ret
	})
	d.ComputeProcesses = fact.Map(ask(g.l, "nvmlDeviceGetComputeRunningProcesses", g.h.GetComputeRunningProcesses),
		func(p []nvml.ProcessInfo) (int, error) { return len(p), nil })
	g.busy(d)
}

// load fills in what changes with load.
func (g *device) load(d *gpu.NVMLDevice) {
	d.Link = g.link()
	g.busy(d)
	const fn = "nvmlDeviceGetClockInfo"
	now := ask(g.l, fn, func() (uint32, nvml.Return) { return g.h.GetClockInfo(nvml.CLOCK_SM) })
	most := ask(g.l, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return g.h.GetMaxClockInfo(nvml.CLOCK_SM) })
	d.Clocks = fact.Map(now, func(mhz uint32) (gpu.Clocks, error) {
		return gpu.Clocks{SMMHz: int(mhz), SMMaxMHz: int(most.V)}, nil // 0: not known
	})
}

func (g *device) busy(d *gpu.NVMLDevice) {
	d.PerformanceState = fact.Map(ask(g.l, "nvmlDeviceGetPerformanceState", g.h.GetPerformanceState), performance)
	d.UtilizationPercent = fact.Map(ask(g.l, "nvmlDeviceGetUtilizationRates", g.h.GetUtilizationRates),
		func(u nvml.Utilization) (int, error) {
			if u.Gpu > 100 {
				return 0, fmt.Errorf("absurd utilization of %d%%", u.Gpu)
			}
			return int(u.Gpu), nil
		})
}

// link puts four answers together; the first that is missing decides.
func (g *device) link() fact.Value[pci.Link] {
	var n [4]int
	calls := [4]struct {
		fn   string
		call func() (int, nvml.Return)
	}{
		{"nvmlDeviceGetCurrPcieLinkGeneration", g.h.GetCurrPcieLinkGeneration},
		{"nvmlDeviceGetCurrPcieLinkWidth", g.h.GetCurrPcieLinkWidth},
		{"nvmlDeviceGetMaxPcieLinkGeneration", g.h.GetMaxPcieLinkGeneration},
		{"nvmlDeviceGetMaxPcieLinkWidth", g.h.GetMaxPcieLinkWidth},
	}
	for i, c := range calls {
		v := ask(g.l, c.fn, c.call)
		if v.State != fact.Known {
			return fact.As(v, pci.Link{})
		}
		n[i] = v.V
	}
	now, err := speed(n[0])
	best, err2 := speed(n[2])
	if err != nil || err2 != nil || n[1] < 0 || n[1] > 32 || n[3] < 1 || n[3] > 32 {
		reason := fmt.Sprintf("absurd link: generation %d x%d, at most generation %d x%d", n[0], n[1], n[2], n[3])
		return fact.Missing[pci.Link](fact.Failed, source(calls[0].fn), reason)
	}
	return fact.Of(pci.Link{SpeedGTPerSec: now, Width: n[1], MaxSpeedGTPerSec: best, MaxWidth: n[3]}, source(calls[0].fn))
}

// speed is the rate of a PCI Express generation in GT/s per lane.
func speed(generation int) (float64, error) {
	rates := [...]float64{1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}
	if generation < 1 || generation >= len(rates) {
		return 0, fmt.Errorf("unknown PCI Express generation %d", generation)
	}
	return rates[generation], nil
}

func (g *device) ecc() fact.Value[gpu.ECC] {
	mode := ask(g.l, "nvmlDeviceGetEccMode", func() (gpu.ECC, nvml.Return) {
		now, next, ret := g.h.GetEccMode()
		return gpu.ECC{Current: now == nvml.FEATURE_ENABLED, Pending: next == nvml.FEATURE_ENABLED}, ret
	})
	if mode.State != fact.Known || !mode.V.Current {
		return mode // nothing is counted while ECC is off
	}
	errs := ask(g.l, "nvmlDeviceGetTotalEccErrors", func() (uint64, nvml.Return) {
		return g.h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
	if errs.State != fact.Known {
		return fact.As(errs, gpu.ECC{}) // without the count 0 would read as "no errors"
	}
	mode.V.UncorrectedVolatile = errs.V
	return mode
}

// nvLinks asks link by link until NVML says that there are no more.
func (g *device) nvLinks() fact.Value[[]gpu.NVLink] {
	const fn = "nvmlDeviceGetNvLinkState"
	links := []gpu.NVLink{}
	var last fact.Value[nvml.EnableState]
	for i := range nvml.NVLINK_MAX_LINKS {
		var ret nvml.Return
		last = ask(g.l, fn, func() (s nvml.EnableState, r nvml.Return) {
			s, ret = g.h.GetNvLinkState(i)
			return s, ret
		})
		if last.State == fact.Unsupported || ret == nvml.ERROR_INVALID_ARGUMENT {
			if i == 0 {
				break
			}
			continue // links need not be numbered without gaps
		}
		if last.State != fact.Known {
			return fact.As(last, links)
		}
		links = append(links, g.nvLink(i, last.V == nvml.FEATURE_ENABLED))
	}
	if len(links) == 0 {
		return fact.Missing[[]gpu.NVLink](fact.Unsupported, source(fn), last.Reason)
	}
	return fact.Of(links, source(fn))
}

// nvLink asks where an active link leads. A remote end that cannot be told
// leaves the type unknown: the link is there all the same.
func (g *device) nvLink(i int, active bool) gpu.NVLink {
	link := gpu.NVLink{Link: i, Active: active}
	if !active {
		return link
	}
	remote := fact.Map(ask(g.l, "nvmlDeviceGetNvLinkRemotePciInfo", func() (nvml.PciInfo, nvml.Return) {
		return g.h.GetNvLinkRemotePciInfo(i)
	}), address)
	link.Remote = remote.V
	link.RemoteType = fact.Map(ask(g.l, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType, nvml.Return) {
		return g.h.GetNvLinkRemoteDeviceType(i)
	}), remoteType).Or("unknown")
	return link
}

// topology asks NVML's own level to every other GPU, for comparison.
func (g *device) topology(index int) fact.Value[[]gpu.NVMLPeer] {
	const fn = "nvmlDeviceGetTopologyCommonAncestor"
	peers := []gpu.NVMLPeer{}
	for i := range g.l.count {
		if i == index {
			continue
		}
		other := ask(g.l, "nvmlDeviceGetHandleByIndex", func() (nvml.Device, nvml.Return) { return g.l.api.DeviceGetHandleByIndex(i) })
		if other.State != fact.Known {
			continue // the other GPU's trouble is told with the other GPU
		}
		level := fact.Map(ask(g.l, fn, func() (nvml.GpuTopologyLevel, nvml.Return) {
			return g.h.GetTopologyCommonAncestor(other.V)
		}), topologyLevel)
		if level.State != fact.Known {
			return fact.As(level, peers)
		}
		peers = append(peers, gpu.NVMLPeer{Index: i, Level: level.V})
	}
	return fact.Of(peers, source(fn))
}

// Sizes of the masks that NVML fills; it writes zeros beyond what is there.
const (
	maxCPUs  = 8192
	maxNodes = 1024
)

func (g *device) cpuAffinity() fact.Value[string] {
	return fact.Map(ask(g.l, "nvmlDeviceGetCpuAffinity", func() ([]uint, nvml.Return) {
		return g.h.GetCpuAffinity(maxCPUs)
	}), list)
}

func (g *device) numaAffinity() fact.Value[string] {
	return fact.Map(ask(g.l, "nvmlDeviceGetMemoryAffinity", func() ([]uint, nvml.Return) {
		return g.h.GetMemoryAffinity(maxNodes, nvml.AFFINITY_SCOPE_NODE)
	}), list)
}

// list writes the bits of a mask as the kernel writes CPU lists, "0-31,64".
func list(mask []uint) (string, error) {
	var out []string
	for i := 0; i < len(mask)*bits.UintSize; i++ {
		first := i
		for i < len(mask)*bits.UintSize && mask[i/bits.UintSize]>>(i%bits.UintSize)&1 == 1 {
			i++
		}
		switch i - first {
		case 0:
		case 1:
			out = append(out, strconv.Itoa(first))
		default:
			out = append(out, fmt.Sprintf("%d-%d", first, i-1))
		}
	}
	return strings.Join(out, ","), nil
}
