package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/report"
)

// The example node is invented: eight H100 and eight 400 Gb/s NICs on four PCIe
// switches, as they are commonly built, well set up but for two faults that are
// common, too. The port above GPU4 redirects peer traffic, as if the script that
// clears ACS at boot had missed it; and mlx5_2 came up with half of its lanes.
func exampleTree() render.Tree {
	t := render.EightGPU()
	t.Kernel = "6.8.0-60-generic"
	t.CommandLine = "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/md0 ro intel_iommu=on iommu=pt"
	t.IOMMUs = []string{"dmar0", "dmar1"}
	t.Modules = append(t.Modules, render.Module{Name: "gdrdrv", Version: "2.5", Taint: "OE"})
	addNVSwitches(&t)
	storageNICs(&t)
	for i := range t.Functions {
		f := &t.Functions[i]
		f.IOMMUGroup, f.IOMMUType = &i, "identity"
		switch f.Addr {
		case "0000:72:00.0": // above GPU4
			f.ACS = &pci.ACS{Cap: 0x5f, Ctl: pci.ACSSourceValidation | pci.ACSRedirectMask&^pci.ACSEgressControl | pci.ACSUpstreamForwarding}
		case "0000:32:01.0", "0000:34:00.0": // mlx5_2 and the port above it
			express := *f.Express
			express.Link.Width = 8
			f.Express = &express
		}
	}
	t.Files = map[string]string{
		"/proc/self/status":               "Name:\tgdrcheck\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0\nCapEff:\t000001ffffffffff\n",
		"/proc/self/cgroup":               "0::/user.slice/user-0.slice/session-1.scope\n",
		"/proc/self/mountinfo":            "29 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw\n",
		"/proc/uptime":                    "3715200.25 812345678.90",
		"/proc/sys/kernel/arch":           "x86_64",
		"/proc/sys/kernel/tainted":        "12288", // out of tree, unsigned
		"/proc/sys/kernel/numa_balancing": "0",
		"/proc/devices":                   "Character devices:\n195 nvidia\n195 nvidiactl\n231 infiniband_verbs\n508 gdrdrv\n510 nvidia-uvm\n\nBlock devices:\n  9 md\n",
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (builder)  Wed Aug 27 15:56:47 UTC 2025\n" +
			"GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
		"/proc/driver/nvidia/params":                                                "EnableStreamMemOPs: 1\nGrdmaPciTopoCheckOverride: 0\nDmaRemapPeerMmio: 1\nOpenRmEnableUnsupportedGpus: 1\nRegistryDwords: \"\"\n",
		"/sys/class/dmi/id/sys_vendor":                                              "Example",
		"/sys/class/dmi/id/product_name":                                            "8-GPU server",
		"/sys/firmware/acpi/pm_profile":                                             "4",
		"/sys/class/dmi/id/bios_version":                                            "1.0",
		"/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\x00\x00\x00\x00", // off
		"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":                     "performance",
		"/sys/devices/system/cpu/cpu0/cpuidle/state0/name":                          "POLL",
		"/sys/devices/system/cpu/cpu0/cpuidle/state0/latency":                       "0",
		"/sys/devices/system/cpu/cpu0/cpuidle/state0/disable":                       "0",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/name":                          "C1",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/latency":                       "1",
		"/sys/devices/system/cpu/cpu0/cpuidle/state1/disable":                       "0",
		"/proc/sys/vm/nr_hugepages":                                                 "1024",
		"/sys/kernel/security/lockdown":                                             "[none] integrity confidentiality",
		"/boot/config-6.8.0-60-generic":                                             "CONFIG_MODULES=y\nCONFIG_MODVERSIONS=y\nCONFIG_NUMA_BALANCING=y\nCONFIG_INTEL_IOMMU=y\nCONFIG_INTEL_IOMMU_DEFAULT_ON=y\nCONFIG_AMD_IOMMU=y\nCONFIG_IOMMU_DEFAULT_DMA_LAZY=y\nCONFIG_PCI_REALLOC_ENABLE_AUTO=y\nCONFIG_INFINIBAND_USER_ACCESS=m\nCONFIG_HSA_AMD_P2P=y\nCONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_ZONE_DEVICE=y\nCONFIG_INFINIBAND=m\nCONFIG_INFINIBAND_USER_MEM=y\nCONFIG_INFINIBAND_ON_DEMAND_PAGING=y\n",
		"/etc/modprobe.d/nvidia.conf":                                               "options nvidia NVreg_EnableStreamMemOPs=1\n",
		"/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.50.0":                         "\x7fELF",
		"/sys/devices/system/clocksource/clocksource0/available_clocksource":        "tsc hpet acpi_pm",
	}
	qosFiles(&t)
	t.Links = map[string]string{"/usr/lib/x86_64-linux-gnu/libibverbs.so.1": "libibverbs.so.1.14.50.0"}
	for i, a := range exampleGPUs() {
		t.Files["/proc/driver/nvidia/gpus/"+a.String()+"/information"] = fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t 96.00.cf.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t 580.82.07\nGPU Excluded:\t No\n",
			gpuModel, 120+i, gpuUUID(i), a, i)
	}
	return t
}

const gpuModel = "NVIDIA H100 80GB HBM3"

func gpuUUID(i int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i) }

// exampleGPUs are the addresses of GPU0 to GPU7; see render.EightGPU.
func exampleGPUs() []pci.Address {
	var out []pci.Address
	for _, bus := range []uint8{0x13, 0x15, 0x33, 0x35, 0x73, 0x75, 0x93, 0x95} {
		out = append(out, pci.Address{Bus: bus})
	}
	return out
}

// storageNICs makes the NICs for storage single-port ConnectX-6 Dx at 200 Gb/s.
func storageNICs(t *render.Tree) {
	second := func(addr string) bool { return strings.HasSuffix(addr, ".1") }
	t.Functions = slices.DeleteFunc(t.Functions, func(f render.Function) bool { return second(f.Addr) })
	t.NetDevs = slices.DeleteFunc(t.NetDevs, func(n render.NetDev) bool { return second(n.PCI) })
	t.RDMA = slices.DeleteFunc(t.RDMA, func(d render.RDMA) bool { return second(d.PCI) })
	for n := 8; n < len(t.RDMA); n++ {
		d := &t.RDMA[n]
		d.Name, d.HCAType, d.PSID, d.Firmware = fmt.Sprintf("mlx5_%d", n), "MT4125", "MT_0000000359", "22.43.2566"
		i := slices.IndexFunc(t.Functions, func(f render.Function) bool { return f.Addr == d.PCI })
		express := *t.Functions[i].Express
		express.Link = pci.Link{SpeedGTPerSec: 16, Width: 16, MaxSpeedGTPerSec: 16, MaxWidth: 16}
		t.Functions[i].Device, t.Functions[i].SubDevice, t.Functions[i].Express = 0x101d, 0x0083, &express
	}
}

// addNVSwitches hangs four NVSwitches below a root port of the second socket.
func addNVSwitches(t *render.Tree) {
	link := pci.Link{SpeedGTPerSec: 32, Width: 4, MaxSpeedGTPerSec: 32, MaxWidth: 4}
	port := func(addr, parent string, kind pci.PortType, vendor, device pci.ID) {
		f := render.Function{Addr: addr, Parent: parent, Vendor: vendor, Device: device, Class: 0x060400, Node: 1,
			Driver: "pcieport", Express: &render.Express{Port: kind, Link: link}}
		if kind != pci.PortUpstream {
			f.ACS = &pci.ACS{Cap: 0x5f}
		}
		t.Functions = append(t.Functions, f)
	}
	port("0000:b0:00.0", "", pci.PortRoot, 0x8086, 0x352a)
	port("0000:b1:00.0", "0000:b0:00.0", pci.PortUpstream, 0x1000, 0xc030)
	for i := range 4 {
		down := fmt.Sprintf("0000:b2:%02x.0", i)
		port(down, "0000:b1:00.0", pci.PortDownstream, 0x1000, 0xc030)
		t.Functions = append(t.Functions, render.Function{
			Addr: fmt.Sprintf("0000:b%d:00.0", 3+i), Parent: down, Vendor: 0x10de, Device: 0x22a3, SubVendor: 0x10de, SubDevice: 0x1796,
			Class: 0x068000, Revision: 0xa1, Node: 1, Driver: "nvidia-nvswitch", Express: &render.Express{Link: link}})
	}
}

// scripted is a tree whose questions and device nodes are answered from here,
// since files cannot hold them.
type scripted struct {
	fact.Source
	answers map[string][]fact.Record
	nodes   map[string]fact.Info // below /dev
}

func (s *scripted) Stat(name string) (fact.Info, error) {
	if info, ok := s.nodes[name]; ok {
		return info, nil
	}
	return s.Source.Stat(name)
}

func (s *scripted) ReadDir(name string) ([]fact.Entry, error) {
	var list []fact.Entry
	for n := range s.nodes {
		if rest, ok := strings.CutPrefix(n, name+"/"); ok {
			first, _, deeper := strings.Cut(rest, "/")
			kind := fs.ModeDevice | fs.ModeCharDevice
			if deeper {
				kind = fs.ModeDir
			}
			list = append(list, fact.Entry{Name: first, Type: kind})
		}
	}
	if list == nil {
		return s.Source.ReadDir(name)
	}
	slices.SortFunc(list, func(a, b fact.Entry) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(list), nil
}

func (s *scripted) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	if name == fact.AskFiles {
		return s.Source.Ask(ctx, name, args...)
	}
	all := s.answers[name]
	if len(args) == 0 || name == fact.AskNVML {
		return all, nil
	}
	var out []fact.Record
	for _, a := range args {
		for _, r := range all {
			if r.Subject == a {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

func exampleSource(t *testing.T) *scripted {
	t.Helper()
	dir := machineDir(t, "example", exampleTree)
	tree := exampleTree()
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{Source: src, answers: map[string][]fact.Record{}, nodes: map[string]fact.Info{}}
	s.say(t, fact.AskNVML, gpu.SubjectSystem, "nvml:nvmlInit", gpu.NVMLSystem{
		DriverVersion: "580.82.07", NVMLVersion: "13.580.82.07", CUDAVersion: 13000, DeviceCount: 8, Library: "libnvidia-ml.so.580.82.07"})
	s.say(t, fact.AskCUDA, gpu.SubjectSystem, "cuda:cuInit", gpu.CUDASystem{DriverVersion: 13000, DeviceCount: 8, Library: "libcuda.so.580.82.07"})
	for i, a := range exampleGPUs() {
		s.say(t, fact.AskNVML, gpu.Subject(i), "nvml", nvmlDevice(i, a))
		s.say(t, fact.AskCUDA, gpu.Subject(i), "cuda", cudaDevice(a))
		s.node(fmt.Sprintf("/dev/nvidia%d", i), 0o666, 195, uint32(i))
	}
	s.node("/dev/nvidiactl", 0o666, 195, 255)
	s.node("/dev/nvidia-uvm", 0o666, 510, 0)
	s.node("/dev/gdrdrv", 0o666, 508, 0)
	s.node("/dev/infiniband/rdma_cm", 0o666, 10, 60)
	for i, d := range tree.RDMA {
		uverbs := fmt.Sprintf("uverbs%d", i)
		s.node("/dev/infiniband/"+uverbs, 0o666, 231, uint32(192+i))
		s.node(fmt.Sprintf("/dev/infiniband/umad%d", i), 0o600, 231, uint32(i))
		s.say(t, fact.AskRDMAMap, d.Name, "rdmamap", rdma.MapEntry{
			CharDevices: []string{"/dev/infiniband/rdma_cm", fmt.Sprintf("/dev/infiniband/umad%d", i), "/dev/infiniband/" + uverbs},
			Ports:       []string{"1"}, NetDevs: []string{d.Ports[0].GIDs[0].NetDev}})
		s.say(t, fact.AskVerbs, d.Name, "verbs:ibv_open_device", rdma.VerbsProbe{
			Firmware: d.Firmware, DMABufErrno: fact.Of(int(unix.EBADF), "verbs:ibv_reg_dmabuf_mr"),
			Ports: []rdma.VerbsPort{{Number: 1, State: "PORT_ACTIVE", ActiveMTUBytes: 4096, MaxMTUBytes: 4096}}})
	}
	s.qosAnswers(t, &tree)
	s.say(t, fact.AskKernelLog, gpu.SubjectSystem, "kernel:/dev/kmsg", host.KernelLog{Events: []host.LogEvent{}, Complete: true, Messages: 3172})
	s.say(t, fact.AskLimits, "self", "limits", host.Limits{MemlockSoft: math.MaxUint64, MemlockHard: math.MaxUint64, CapEff: 0x1ffffffffff})
	s.say(t, fact.AskGHW, gpu.SubjectSystem, "ghw", host.Names{Product: "Example 8-GPU server", Processor: "2 x Example 56-core server processor", Memory: "2 TiB"})
	return s
}

func (s *scripted) say(t *testing.T, question, subject, source string, data any) {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	s.answers[question] = append(s.answers[question], fact.Record{Subject: subject, State: fact.Known, Source: source, Data: b})
}

func (s *scripted) node(name string, perm fs.FileMode, major, minor uint32) {
	s.nodes[path.Clean(name)] = fact.Info{Mode: fs.ModeDevice | fs.ModeCharDevice | perm, Rdev: unix.Mkdev(major, minor)}
}

func nvmlDevice(i int, a pci.Address) gpu.NVMLDevice {
	const mib = 1 << 20
	cpus := []string{"0-55,112-167", "56-111,168-223"}[i/4]
	d := gpu.NVMLDevice{
		Index: i, Addr: a,
		Name:               fact.Of(gpuModel, "nvml:nvmlDeviceGetName"),
		UUID:               fact.Of(gpuUUID(i), "nvml:nvmlDeviceGetUUID"),
		Architecture:       fact.Of("Hopper", "nvml:nvmlDeviceGetArchitecture"),
		ComputeCap:         fact.Of([2]int{9, 0}, "nvml:nvmlDeviceGetCudaComputeCapability"),
		BAR1:               fact.Of(gpu.Memory{TotalBytes: 131072 * mib, UsedBytes: 2 * mib}, "nvml:nvmlDeviceGetBAR1MemoryInfo"),
		Memory:             fact.Of(gpu.Memory{TotalBytes: 81559 * mib, UsedBytes: 4 * mib}, "nvml:nvmlDeviceGetMemoryInfo_v2"),
		MIG:                fact.Of(gpu.MIGMode{}, "nvml:nvmlDeviceGetMigMode"),
		ECC:                fact.Of(gpu.ECC{Current: true, Pending: true}, "nvml:nvmlDeviceGetEccMode"),
		RemappedRows:       fact.Of(gpu.Remapped{}, "nvml:nvmlDeviceGetRemappedRows"),
		Link:               fact.Of(pci.Link{SpeedGTPerSec: 32, Width: 16, MaxSpeedGTPerSec: 32, MaxWidth: 16}, "nvml:nvmlDeviceGetCurrPcieLinkGeneration"),
		Fabric:             fact.Of(gpu.Fabric{State: "completed"}, "nvml:nvmlDeviceGetGpuFabricInfo"),
		Persistence:        fact.Of(true, "nvml:nvmlDeviceGetPersistenceMode"),
		Confidential:       fact.Of(false, "nvml:nvmlSystemGetConfComputeState"),
		AddressingMode:     fact.Of("NONE", "nvml:nvmlDeviceGetAddressingMode"),
		CPUAffinity:        fact.Of(cpus, "nvml:nvmlDeviceGetCpuAffinity"),
		NUMAAffinity:       fact.Of(fmt.Sprint(i/4), "nvml:nvmlDeviceGetMemoryAffinity"),
		Virtualization:     fact.Of("none", "nvml:nvmlDeviceGetVirtualizationMode"),
		ComputeProcesses:   fact.Of(0, "nvml:nvmlDeviceGetComputeRunningProcesses_v3"),
		PerformanceState:   fact.Of(0, "nvml:nvmlDeviceGetPerformanceState"),
		UtilizationPercent: fact.Of(0, "nvml:nvmlDeviceGetUtilizationRates"),
		NUMANode:           fact.Missing[int](fact.Unsupported, "nvml:nvmlDeviceGetNumaNodeId", "not supported on this GPU"),
	}
	var links []gpu.NVLink
	for n := range 18 { // four or five to each NVSwitch
		links = append(links, gpu.NVLink{Link: n, Active: true, Remote: pci.Address{Bus: uint8(0xb3 + n%4)}, RemoteType: "switch"})
	}
	d.NVLinks = fact.Of(links, "nvml:nvmlDeviceGetNvLinkState")
	var peers []gpu.NVMLPeer
	for j := range 8 {
		level := "SYS"
		switch {
		case j == i:
			continue
		case j/2 == i/2:
			level = "PXB"
		case j/4 == i/4:
			level = "NODE"
		}
		peers = append(peers, gpu.NVMLPeer{Index: j, Level: level})
	}
	d.Topology = fact.Of(peers, "nvml:nvmlDeviceGetTopologyCommonAncestor")
	return d
}

func cudaDevice(a pci.Address) gpu.CUDADevice {
	attr := func(n, v int) fact.Value[int] { return fact.Of(v, fmt.Sprintf("cuda:cuDeviceGetAttribute(%d)", n)) }
	return gpu.CUDADevice{Addr: a, RDMAWithVMM: attr(110, 1), GPUDirectRDMA: attr(116, 1),
		FlushWritesOptions: attr(117, 1), WritesOrdering: attr(118, 100), DMABuf: attr(124, 1)}
}

// The recording inside the binary is the machine described here; -update writes it.
func TestExample(t *testing.T) {
	rec := fact.NewRecorder(exampleSource(t))
	want := collect.All()
	want.Origin, want.CollectedAt, want.AskNVIDIA = "example", time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC), true
	described := collect.Machine(t.Context(), rec, want)
	described.Simulated = true
	rec.SetOrigin(described.Origin, described.Simulated)
	if *update {
		var buf bytes.Buffer
		if err := rec.Save(&buf, described.CollectedAt); err != nil {
			t.Fatal(err)
		}
		exampleRecording = buf.Bytes() // what is embedded was read before
		if err := os.WriteFile("example.rec", exampleRecording, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := &sourceOptions{Example: true, Timeout: time.Minute}
	embedded, _, err := o.machine(t.Context(), collect.All())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asJSON(t, described), asJSON(t, embedded)); diff != "" {
		t.Errorf("the example is not what is described here; rewrite it with -update (-described +embedded):\n%s", diff)
	}
	if embedded.Origin != "example" || !embedded.Simulated {
		t.Errorf("origin %q, simulated %v: an invented machine must say that it is one", embedded.Origin, embedded.Simulated)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The two faults that were put into the example are found, and nothing else is
// held against it.
func TestExampleFaults(t *testing.T) {
	out, code := mustRun(t, "check", "--example", "-o", "json")
	var doc report.Check
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range doc.Findings {
		if f.Verdict == checks.Fail || f.Verdict == checks.Warn || f.Verdict == checks.Unknown {
			got = append(got, fmt.Sprintf("%s %s %s", f.Verdict, f.Check, f.Subject))
		}
	}
	want := []string{"fail pcie-link-width mlx5_2", "fail acs-redirect GPU4 mlx5_4", "fail acs-redirect GPU4 mlx5_5"}
	if diff := cmp.Diff(want, got); diff != "" || code != 1 {
		t.Errorf("exit code %d (-want +got):\n%s", code, diff)
	}
}
