// Package host holds what is known of the node itself: kernel, modules, IOMMU,
// CPUs, limits and containers.
package host

import "github.com/gdrcheck/gdrcheck/internal/fact"

// Facts is all that was read of the host. Sources are absolute paths.
type Facts struct {
	KernelRelease fact.Value[string] `json:"kernel_release,omitzero"` // /proc/sys/kernel/osrelease
	CommandLine   fact.Value[string] `json:"command_line,omitzero"`   // /proc/cmdline
	// KernelConfig holds the options that gdrcheck judges, "CONFIG_PCI_P2PDMA": "y", "m" or "n".
	KernelConfig fact.Value[map[string]string] `json:"kernel_config,omitzero"`
	Modules      fact.Value[[]Module]          `json:"modules,omitzero"` // loaded, of those that matter
	// ModuleFiles tells for modules that matter whether a file to load exists for this kernel.
	ModuleFiles []ModuleFile `json:"module_files,omitempty"`
	// Modprobe holds the options lines of modprobe.d for modules that matter, in the order modprobe reads them.
	Modprobe fact.Value[[]ModprobeOption] `json:"modprobe,omitzero"`
	// Symbols: whether /proc/kallsyms lists a symbol that gdrcheck asks for.
	Symbols       map[string]fact.Value[bool] `json:"symbols,omitempty"`
	Tainted       fact.Value[uint64]          `json:"tainted,omitzero"`
	SecureBoot    fact.Value[bool]            `json:"secure_boot,omitzero"`
	Lockdown      fact.Value[string]          `json:"lockdown,omitzero"` // none, integrity, confidentiality
	IOMMU         IOMMU                       `json:"iommu,omitzero"`
	Hypervisor    fact.Value[string]          `json:"hypervisor,omitzero"` // kvm, microsoft, amazon, …; Absent: bare metal
	Container     fact.Value[string]          `json:"container,omitzero"`  // docker, containerd, podman, lxc, …; Absent: none seen
	DMI           DMI                         `json:"dmi,omitzero"`
	CPU           CPU                         `json:"cpu,omitzero"`
	NUMA          fact.Value[[]NUMANode]      `json:"numa,omitzero"`
	NUMABalancing fact.Value[int]             `json:"numa_balancing,omitzero"`
	Limits        fact.Value[Limits]          `json:"limits,omitzero"`
	Services      []Service                   `json:"services,omitempty"`     // that start jobs and run here
	HugePages     fact.Value[int]             `json:"huge_pages,omitzero"`    // /proc/sys/vm/nr_hugepages
	Nodes         []DeviceNode                `json:"device_nodes,omitempty"` // /dev/nvidia*, /dev/gdrdrv, /dev/kfd, …
	CharMajors    fact.Value[map[string]int]  `json:"char_majors,omitzero"`   // /proc/devices, of those that matter
	MemoryPeers   fact.Value[[]string]        `json:"memory_peers,omitzero"`  // clients (nv_mem, amdkfd) below /sys/kernel/mm/memory_peers or its like
	// KernelLog holds the messages that gdrcheck knows; Denied where only root may read the log.
	KernelLog fact.Value[KernelLog] `json:"kernel_log,omitzero"`
	Names     fact.Value[Names]     `json:"names,omitzero"`
	Root      fact.Value[bool]      `json:"root,omitzero"`       // this process runs as uid 0
	UptimeSec fact.Value[float64]   `json:"uptime_sec,omitzero"` // /proc/uptime
}

// Module is a loaded kernel module.
type Module struct {
	Name       string                        `json:"name"`
	Version    fact.Value[string]            `json:"version,omitzero"`
	SrcVersion fact.Value[string]            `json:"srcversion,omitzero"`
	Taint      fact.Value[string]            `json:"taint,omitzero"` // letters: P proprietary, O out of tree, E unsigned
	RefCount   fact.Value[int]               `json:"refcnt,omitzero"`
	Holders    []string                      `json:"holders,omitempty"`
	Parameters fact.Value[map[string]string] `json:"parameters,omitzero"` // Absent: no parameters folder
}

// ModuleFile is a module's file below /lib/modules/RELEASE.
type ModuleFile struct {
	Name     string             `json:"name"`
	Path     fact.Value[string] `json:"path,omitzero"` // Absent: none for this kernel
	VerMagic fact.Value[string] `json:"vermagic,omitzero"`
	Version  fact.Value[string] `json:"version,omitzero"`
	License  fact.Value[string] `json:"license,omitzero"`
	// Description is gdrdrv's way to say what driver it was built for.
	Description fact.Value[string] `json:"description,omitzero"`
	// Signed: a signature is appended to the file; whose key, it does not say.
	Signed fact.Value[bool] `json:"signed,omitzero"`
	// PeerMemory is how the file uses ib_register_peer_memory_client; read of
	// nvidia_peermem and of the RDMA core's modules.
	PeerMemory fact.Value[PeerMemory] `json:"peer_memory,omitzero"`
}

// PeerMemory is what a module's file has of ib_register_peer_memory_client.
type PeerMemory struct {
	Imports bool `json:"imports"`
	Exports bool `json:"exports"`
	// CRC is the symbol's version (CONFIG_MODVERSIONS); 0: the file has none.
	CRC uint32 `json:"crc,omitempty"`
}

// ModprobeOption is one "options MODULE NAME=VALUE" of modprobe.d. Module has
// underscores, as /sys/module does.
type ModprobeOption struct {
	Module string `json:"module"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	File   string `json:"file"`
	Line   int    `json:"line"`
}

// IOMMU says whether one translates. The PCI functions' groups tell the rest.
type IOMMU struct {
	Units  fact.Value[[]string] `json:"units,omitzero"`  // /sys/class/iommu; empty or Absent: none active
	Groups fact.Value[int]      `json:"groups,omitzero"` // number of /sys/kernel/iommu_groups
}

// DMI names the machine, /sys/class/dmi/id; world-readable files only.
type DMI struct {
	SysVendor   fact.Value[string] `json:"sys_vendor,omitzero"`
	ProductName fact.Value[string] `json:"product_name,omitzero"`
	BoardVendor fact.Value[string] `json:"board_vendor,omitzero"`
	BoardName   fact.Value[string] `json:"board_name,omitzero"`
	BIOSVersion fact.Value[string] `json:"bios_version,omitzero"`
	BIOSDate    fact.Value[string] `json:"bios_date,omitzero"`
	ChassisTag  fact.Value[string] `json:"chassis_asset_tag,omitzero"`
}

// CPU is /proc/cpuinfo's first processor and the number of them.
type CPU struct {
	Vendor   fact.Value[string] `json:"vendor,omitzero"`
	Model    fact.Value[string] `json:"model,omitzero"`
	Family   fact.Value[int]    `json:"family,omitzero"`
	ModelNum fact.Value[int]    `json:"model_number,omitzero"`
	Count    fact.Value[int]    `json:"count,omitzero"`
	Arch     fact.Value[string] `json:"arch,omitzero"` // x86_64, aarch64, ppc64le
	Governor fact.Value[string] `json:"governor,omitzero"`
	// Idle are the first processor's idle states, shallow to deep; Absent: no cpuidle.
	Idle fact.Value[[]IdleState] `json:"idle,omitzero"`
}

// IdleState is one of /sys/devices/system/cpu/cpu0/cpuidle/stateN.
type IdleState struct {
	Name      string `json:"name"` // POLL, C1, C1E, C6
	LatencyUs int    `json:"latency_us"`
	Disabled  bool   `json:"disabled,omitempty"`
}

// Service is a systemd service that starts users' jobs, with its main process'
// limits, which the jobs inherit.
type Service struct {
	Name    string             `json:"name"` // slurmd
	PID     int                `json:"pid"`
	Memlock fact.Value[uint64] `json:"memlock_bytes,omitzero"` // soft limit; Unlimited is MaxUint64
}

// NUMANode is a memory node.
type NUMANode struct {
	ID        int    `json:"id"`
	CPUs      string `json:"cpus"` // list, "0-31,64-95"; empty: memory only
	Distances []int  `json:"distances,omitempty"`
}

// Limits are this process's resource limits in bytes; Unlimited is MaxUint64.
type Limits struct {
	MemlockSoft uint64 `json:"memlock_soft_bytes"`
	MemlockHard uint64 `json:"memlock_hard_bytes"`
	// Effective capabilities from /proc/self/status, CapEff.
	CapEff uint64 `json:"cap_eff"`
}

// DeviceNode is a node below /dev.
type DeviceNode struct {
	Path   string                `json:"path"`
	Info   fact.Value[fact.Info] `json:"info,omitzero"`
	Access fact.Value[bool]      `json:"access,omitzero"` // by mode bits and owner for this process
}

// Names are what ghw calls the node's parts: for people, never judged.
type Names struct {
	Product   string `json:"product,omitempty"`
	Processor string `json:"processor,omitempty"`
	Memory    string `json:"memory,omitempty"`
}
