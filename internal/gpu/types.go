// Package gpu holds what is known of GPUs and their driver: data types and
// parsers of procfs and KFD sysfs. NVML and CUDA are asked by the worker; the
// types of their answers are here, so that a recording can be read without them.
package gpu

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Facts is all that was read of the node's GPUs and their drivers.
type Facts struct {
	GPUs   []GPU  `json:"gpus,omitempty"` // in NVML's order; without NVML by PCI address; AMD's after NVIDIA's
	NVIDIA NVIDIA `json:"nvidia,omitzero"`
	AMD    AMD    `json:"amd,omitzero"`
}

// NVIDIA is the driver as a whole. Sources are absolute paths or calls.
type NVIDIA struct {
	// Version and Flavour from /proc/driver/nvidia/version: flavour is "open" or "proprietary".
	Version fact.Value[string] `json:"version,omitzero"`
	Flavour fact.Value[string] `json:"flavour,omitzero"`
	// Params is /proc/driver/nvidia/params, "Name: value" lines.
	Params fact.Value[map[string]string] `json:"params,omitzero"`
	NVML   fact.Value[NVMLSystem]        `json:"nvml,omitzero"`
	CUDA   fact.Value[CUDASystem]        `json:"cuda,omitzero"`
	// Doubles are test doubles that stood for NVML or libcuda, by path, also
	// where one of them never came to answer.
	Doubles []string `json:"test_doubles,omitempty"`
}

// AMD is the amdgpu driver and its KFD.
type AMD struct {
	Version fact.Value[string] `json:"version,omitzero"` // /sys/module/amdgpu/version
	KFD     fact.Value[bool]   `json:"kfd,omitzero"`     // /sys/class/kfd/kfd/topology there
}

// Vendor is a GPU maker.
type Vendor string

// Vendors.
const (
	VendorNVIDIA Vendor = "NVIDIA"
	VendorAMD    Vendor = "AMD"
)

// GPU is one GPU. It exists because the PCI tree shows it, or because NVML does.
type GPU struct {
	Index  int         `json:"index"` // N of "GPUN"
	Vendor Vendor      `json:"vendor"`
	Addr   pci.Address `json:"addr"`
	Name   string      `json:"name,omitempty"` // NVML's, else procfs', else pci.ids'

	UUID fact.Value[string]      `json:"uuid,omitzero"`
	NVML fact.Value[NVMLDevice]  `json:"nvml,omitzero"`
	CUDA fact.Value[CUDADevice]  `json:"cuda,omitzero"`
	Proc fact.Value[Information] `json:"proc,omitzero"` // /proc/driver/nvidia/gpus/ADDR/information
	KFD  fact.Value[KFDNode]     `json:"kfd,omitzero"`
	// GDRCopy is tried only where GPUs may be disturbed.
	GDRCopy fact.Value[GDRCopyProbe] `json:"gdrcopy,omitzero"`
}

// Information is /proc/driver/nvidia/gpus/ADDR/information.
type Information struct {
	Model    string `json:"model,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	VBIOS    string `json:"vbios,omitempty"`
	DMASize  string `json:"dma_size,omitempty"`
	Firmware string `json:"gpu_firmware,omitempty"`
	Excluded string `json:"excluded,omitempty"`
}

// NVMLSystem answers AskNVML's subject "system".
type NVMLSystem struct {
	DriverVersion string `json:"driver_version"`
	NVMLVersion   string `json:"nvml_version"`
	// CUDAVersion is the newest CUDA that the driver serves: 13000 is 13.0.
	CUDAVersion int    `json:"cuda_version"`
	DeviceCount int    `json:"device_count"`
	Library     string `json:"library"` // file that was loaded
	// Simulated: the library is a test double, chosen by path.
	Simulated bool `json:"simulated,omitempty"`
}

// NVMLDevice answers AskNVML's subjects "gpu0", "gpu1", … Sources are
// "nvml:FUNCTION". Not supported on this GPU is Unsupported; a function that an
// old library lacks is Unsupported too, with that reason.
type NVMLDevice struct {
	Index        int                  `json:"index"`
	Addr         pci.Address          `json:"addr"`
	Name         fact.Value[string]   `json:"name,omitzero"`
	UUID         fact.Value[string]   `json:"uuid,omitzero"`
	Architecture fact.Value[string]   `json:"architecture,omitzero"`
	ComputeCap   fact.Value[[2]int]   `json:"compute_capability,omitzero"` // major, minor
	BAR1         fact.Value[Memory]   `json:"bar1,omitzero"`
	Memory       fact.Value[Memory]   `json:"memory,omitzero"` // framebuffer; Unsupported on GB10
	MIG          fact.Value[MIGMode]  `json:"mig,omitzero"`
	ECC          fact.Value[ECC]      `json:"ecc,omitzero"`
	RemappedRows fact.Value[Remapped] `json:"remapped_rows,omitzero"`
	// Link as the GPU sees it: now, and the best that GPU and slot allow.
	Link               fact.Value[pci.Link]   `json:"link,omitzero"`
	NVLinks            fact.Value[[]NVLink]   `json:"nvlinks,omitzero"` // active and inactive; Unsupported: none
	Fabric             fact.Value[Fabric]     `json:"fabric,omitzero"`
	Persistence        fact.Value[bool]       `json:"persistence,omitzero"`
	Confidential       fact.Value[bool]       `json:"confidential_computing,omitzero"` // system-wide, as asked for this device
	AddressingMode     fact.Value[string]     `json:"addressing_mode,omitzero"`        // HMM, ATS, NONE
	NUMANode           fact.Value[int]        `json:"gpu_numa_node,omitzero"`          // memory node of a coherent GPU
	CPUAffinity        fact.Value[string]     `json:"cpu_affinity,omitzero"`           // list, "0-31"
	NUMAAffinity       fact.Value[string]     `json:"numa_affinity,omitzero"`
	Virtualization     fact.Value[string]     `json:"virtualization,omitzero"` // none, passthrough, vgpu, …
	ComputeProcesses   fact.Value[int]        `json:"compute_processes,omitzero"`
	PerformanceState   fact.Value[int]        `json:"performance_state,omitzero"` // 0 fastest to 15
	UtilizationPercent fact.Value[int]        `json:"utilization_percent,omitzero"`
	Clocks             fact.Value[Clocks]     `json:"clocks,omitzero"`   // asked for with Load alone
	Topology           fact.Value[[]NVMLPeer] `json:"topology,omitzero"` // nvmlDeviceGetTopologyCommonAncestor to the other GPUs
}

// Memory is total and used bytes.
type Memory struct {
	TotalBytes uint64 `json:"total_bytes"`
	UsedBytes  uint64 `json:"used_bytes"`
}

// Clocks are a GPU's, now and at most, in MHz.
type Clocks struct {
	SMMHz    int `json:"sm_mhz"`
	SMMaxMHz int `json:"sm_max_mhz"`
}

// MIGMode is the MIG mode in force and after the next reset.
type MIGMode struct {
	Current bool `json:"current"`
	Pending bool `json:"pending"`
}

// ECC is the ECC mode and the uncorrected errors since boot.
type ECC struct {
	Current             bool   `json:"current"`
	Pending             bool   `json:"pending"`
	UncorrectedVolatile uint64 `json:"uncorrected_volatile"`
}

// Remapped is nvmlDeviceGetRemappedRows.
type Remapped struct {
	Correctable   int  `json:"correctable"`
	Uncorrectable int  `json:"uncorrectable"`
	Pending       bool `json:"pending"`
	Failed        bool `json:"failed"`
}

// NVLink is one NVLink of a GPU.
type NVLink struct {
	Link   int         `json:"link"`
	Active bool        `json:"active"`
	Remote pci.Address `json:"remote,omitzero"` // zero while inactive
	// RemoteType is gpu, switch (NVSwitch), ibmnpu or unknown.
	RemoteType string `json:"remote_type,omitempty"`
}

// Fabric is nvmlDeviceGetGpuFabricInfo's state of an NVSwitch system.
type Fabric struct {
	State       string `json:"state"`  // not_supported, not_started, in_progress, completed
	Status      uint32 `json:"status"` // nvmlReturn_t of the probe
	CliqueID    uint32 `json:"clique_id"`
	ClusterUUID string `json:"cluster_uuid,omitempty"`
}

// NVMLPeer is NVML's own topology level to another GPU, kept for comparison.
type NVMLPeer struct {
	Index int    `json:"index"`
	Level string `json:"level"` // INTERNAL, PIX, PXB, PHB, NODE, SYS
}

// CUDASystem answers AskCUDA's subject "system". cuInit only: no context.
type CUDASystem struct {
	DriverVersion int    `json:"driver_version"` // cuDriverGetVersion: 13000 is 13.0
	DeviceCount   int    `json:"device_count"`
	Library       string `json:"library"`
	Simulated     bool   `json:"simulated,omitempty"` // the library is a test double, chosen by path
}

// CUDADevice answers AskCUDA's subjects "gpu0", … in CUDA's order under
// CUDA_DEVICE_ORDER=PCI_BUS_ID. Attribute numbers are CUdevice_attribute's.
type CUDADevice struct {
	Addr               pci.Address     `json:"addr"`
	RDMAWithVMM        fact.Value[int] `json:"gpu_direct_rdma_with_cuda_vmm,omitzero"` // 110
	GPUDirectRDMA      fact.Value[int] `json:"gpu_direct_rdma_supported,omitzero"`     // 116: GPU side only
	FlushWritesOptions fact.Value[int] `json:"flush_writes_options,omitzero"`          // 117: bit 0 host, bit 1 mem ops
	WritesOrdering     fact.Value[int] `json:"writes_ordering,omitzero"`               // 118: 0 none, 100 owner, 200 all devices
	DMABuf             fact.Value[int] `json:"dma_buf_supported,omitzero"`             // 124
}

// KFDNode is a GPU node of /sys/class/kfd/kfd/topology/nodes.
type KFDNode struct {
	Node         int    `json:"node"`
	GfxTarget    string `json:"gfx_target_version,omitempty"`
	LocalMemSize uint64 `json:"local_mem_bytes"`
	// LargeBAR: host-visible public memory of the node covers all of it.
	LargeBAR bool `json:"large_bar"`
}

// GDRCopyProbe answers AskGDRCopy's subject, a GPU's address: what came of pinning,
// mapping and copying its memory by GDRCopy.
type GDRCopyProbe struct {
	Library string  `json:"library,omitempty"` // version of libgdrapi, "2.5"
	Driver  string  `json:"driver,omitempty"`  // version of gdrdrv
	PinNs   float64 `json:"pin_ns,omitempty"`
	MapNs   float64 `json:"map_ns,omitempty"`
	// Mapping is write-combining, cached or device; empty: an old library cannot tell.
	Mapping string        `json:"mapping,omitempty"`
	Sizes   []GDRCopySize `json:"sizes,omitempty"`
	// Failed is the call that ended it; nil: none.
	Failed *GDRCopyError `json:"failed,omitempty"`
}

// GDRCopySize is one size of copies: the mean of one by GDRCopy and by CUDA, to
// the GPU and from it.
type GDRCopySize struct {
	Bytes      int     `json:"bytes"`
	ToNs       float64 `json:"to_ns"`
	FromNs     float64 `json:"from_ns"`
	CUDAToNs   float64 `json:"cuda_to_ns"`
	CUDAFromNs float64 `json:"cuda_from_ns"`
	// What GDRCopy wrote, or read, was not what is there.
	WrongTo   bool `json:"wrong_to,omitempty"`
	WrongFrom bool `json:"wrong_from,omitempty"`
}

// GDRCopyError is a call that failed.
type GDRCopyError struct {
	Call  string `json:"call"`
	Errno int    `json:"errno,omitempty"` // 0: an error of the GPU's library, in Text
	Text  string `json:"text"`
}
