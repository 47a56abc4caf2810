// Package rdma knows RDMA devices, their ports, GIDs, P_Keys and counters, and
// what NIC models can do. Facts come from /sys/class/infiniband
// (Documentation/ABI/stable/sysfs-class-infiniband) and /sys/class/net.
package rdma

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Facts is all that was read of the node's RDMA side.
type Facts struct {
	Devices []Device `json:"devices,omitempty"` // sorted by name, mlx5_2 before mlx5_10
	// Listed says whether /sys/class/infiniband could be listed: Absent when
	// the kernel has no RDMA core loaded. The value is the number of devices.
	Listed fact.Value[int] `json:"listed,omitzero"`
	// NetDevs are all network interfaces that have a PCI function or belong to an RDMA device.
	NetDevs []NetDev `json:"netdevs,omitempty"`
	RDMACM  CharDev  `json:"rdma_cm,omitzero"` // /dev/infiniband/rdma_cm
	// LibIBVerbs is the version that the loader finds for libibverbs.so.1, by file name.
	LibIBVerbs fact.Value[string] `json:"libibverbs,omitzero"`
	// LibCopies are all files of that name in the usual library folders, in the
	// order in which they are looked for; links to one folder count once.
	LibCopies []Library `json:"libibverbs_copies,omitempty"`
	// Providers are the drivers that libibverbs is configured to load
	// (/etc/libibverbs.d/NAME.driver): mlx5, bnxt_re.
	Providers fact.Value[[]string] `json:"providers,omitzero"`
}

// Library is a file of a shared library with the version in the name that it
// links to; empty: its name tells none.
type Library struct {
	File    string `json:"file"`
	Version string `json:"version,omitempty"`
}

// Transport is what carries RDMA on a device.
type Transport string

// Transports.
const (
	InfiniBand Transport = "InfiniBand"
	RoCE       Transport = "RoCE"
	IWARP      Transport = "iWARP"
	EFA        Transport = "EFA" // SRD on AWS; usNIC and others are "other"
	Other      Transport = "other"
)

// Device is one entry of /sys/class/infiniband, Dir. Sources are relative to it.
type Device struct {
	Name string `json:"name"` // mlx5_0
	Dir  string `json:"dir"`  // "/sys/class/infiniband/mlx5_0"
	// PCI is the function that does the DMA. For Soft-RoCE and siw it is that
	// of the netdev they stand on ("parent"), for an auxiliary device that of its parent.
	PCI fact.Value[pci.Address] `json:"pci,omitzero"`
	// Software is true for rxe and siw: the CPU moves the data, there is no GPUDirect.
	Software bool `json:"software,omitempty"`
	// DataDirect is the PCI function of an mlx5 Data Direct interface (name_dma).
	DataDirect fact.Value[pci.Address] `json:"data_direct,omitzero"`

	Driver    fact.Value[string]    `json:"driver,omitzero"` // mlx5_core, bnxt_en, rdma_rxe, …
	Transport fact.Value[Transport] `json:"transport,omitzero"`
	NodeType  fact.Value[string]    `json:"node_type,omitzero"` // "1: CA", "4: RNIC", …
	NodeDesc  fact.Value[string]    `json:"node_desc,omitzero"` // what the device calls itself in an InfiniBand fabric
	NodeGUID  fact.Value[string]    `json:"node_guid,omitzero"`
	SysGUID   fact.Value[string]    `json:"sys_image_guid,omitzero"`
	Firmware  fact.Value[string]    `json:"fw_ver,omitzero"`
	HCAType   fact.Value[string]    `json:"hca_type,omitzero"` // MT4129
	BoardID   fact.Value[string]    `json:"board_id,omitzero"` // PSID on mlx5
	Model     fact.Value[Model]     `json:"model,omitzero"`    // from the NIC table; Absent: not in it
	Ports     []Port                `json:"ports,omitempty"`
	// PortsListed is the number of ports that the kernel lists; in another
	// state nobody could see whether there are any.
	PortsListed fact.Value[int]        `json:"ports_listed,omitzero"`
	Uverbs      []CharDev              `json:"uverbs,omitempty"` // one expected; empty: the kernel shows none
	Umad        []CharDev              `json:"umad,omitempty"`
	NUMANode    fact.Value[int]        `json:"numa_node,omitzero"`
	RDMAMap     fact.Value[MapEntry]   `json:"rdmamap,omitzero"` // the library's own view, for comparison
	Verbs       fact.Value[VerbsProbe] `json:"verbs,omitzero"`
	HWCounters  []Counter              `json:"hw_counters,omitempty"`
}

// Model is a row of the NIC table.
type Model struct {
	Name       string  `json:"name"`
	MaxGbps    float64 `json:"max_gbps,omitempty"` // 10^9 bit/s, the whole NIC; 0: the table does not know
	GPUDirect  string  `json:"gpudirect"`          // "dmabuf+peermem", "dmabuf", "peermem", "none", "unknown"
	Note       string  `json:"note,omitempty"`
	Reference  string  `json:"reference,omitempty"`
	IsVF       bool    `json:"is_vf,omitempty"`
	DataDirect bool    `json:"data_direct,omitempty"`
}

// Port is one port of a device, below ports/N; sources are relative to the device.
type Port struct {
	Number    int                `json:"number"`
	State     fact.Value[string] `json:"state,omitzero"`      // ACTIVE, DOWN, INIT, ARMED
	PhysState fact.Value[string] `json:"phys_state,omitzero"` // LinkUp, Disabled, Polling, …
	LinkLayer fact.Value[string] `json:"link_layer,omitzero"` // InfiniBand, Ethernet, Unspecified
	Rate      fact.Value[Rate]   `json:"rate,omitzero"`
	LID       fact.Value[int]    `json:"lid,omitzero"`
	SMLID     fact.Value[int]    `json:"sm_lid,omitzero"`
	CapMask   fact.Value[uint32] `json:"cap_mask,omitzero"`
	// MTUs of the RDMA port in bytes (256 to 4096). sysfs has none: Known only
	// through verbs, or derived for RoCE from the netdev's MTU and then named so in Source.
	ActiveMTU fact.Value[int] `json:"active_mtu,omitzero"`
	MaxMTU    fact.Value[int] `json:"max_mtu,omitzero"`

	NetDev   fact.Value[string] `json:"netdev,omitzero"`    // Absent on native InfiniBand without IPoIB
	GIDs     []GID              `json:"gids,omitempty"`     // filled entries only
	GIDTable fact.Value[int]    `json:"gid_table,omitzero"` // entries of the table, empty ones too
	PKeys    fact.Value[[]PKey] `json:"pkeys,omitzero"`     // entries that are not 0x0000
	Counters []Counter          `json:"counters,omitempty"` // counters/ and hw_counters/
	// TrafficClass is the port's own (tc/N/traffic_class), which only a vendor's
	// mlx5 driver has; Absent: none is set, or the driver has none to set.
	TrafficClass fact.Value[int] `json:"traffic_class,omitzero"`
}

// Rate is a port's rate as sysfs prints it: "400 Gb/sec (4X NDR)".
type Rate struct {
	BitsPerSec float64 `json:"bits_per_sec"`
	Lanes      int     `json:"lanes,omitempty"`
	Speed      string  `json:"speed,omitempty"` // SDR … NDR, XDR
	Text       string  `json:"text"`
}

// GID is one filled entry of a port's GID table.
type GID struct {
	Index  int                `json:"index"`
	GID    string             `json:"gid"`           // as sysfs prints it, eight groups of four hex digits
	Type   fact.Value[string] `json:"type,omitzero"` // "IB/RoCE v1", "RoCE v2"
	NetDev fact.Value[string] `json:"netdev,omitzero"`
}

// PKey is one filled entry of the partition key table.
type PKey struct {
	Index int    `json:"index"`
	Value uint16 `json:"value"`
}

// Counter is one named counter with the file it came from.
type Counter struct {
	Name  string             `json:"name"`
	Value fact.Value[uint64] `json:"value"`
	// Group: no counter, but a whole group of them that could not be listed, and
	// Value says why: which counters there are is not known.
	Group bool `json:"group,omitempty"`
}

// CharDev is a character device below /dev/infiniband.
type CharDev struct {
	Name   string                `json:"name,omitempty"`  // uverbs0
	Dev    fact.Value[string]    `json:"dev,omitzero"`    // "231:192" from sysfs
	Node   fact.Value[fact.Info] `json:"node,omitzero"`   // of the /dev node; Absent: not there
	Access fact.Value[bool]      `json:"access,omitzero"` // may this process read and write it
}

// NetDev is a network interface, Dir "/sys/class/net/NAME".
type NetDev struct {
	Name           string                  `json:"name"`
	PCI            fact.Value[pci.Address] `json:"pci,omitzero"`
	OperState      fact.Value[string]      `json:"operstate,omitzero"`
	Carrier        fact.Value[bool]        `json:"carrier,omitzero"`
	CarrierChanges fact.Value[uint64]      `json:"carrier_changes,omitzero"`
	MTU            fact.Value[int]         `json:"mtu,omitzero"`
	SpeedMbps      fact.Value[int]         `json:"speed_mbps,omitzero"` // 10^6 bit/s; Absent: the driver says -1
	Type           fact.Value[int]         `json:"type,omitzero"`       // ARPHRD_*: 1 Ethernet, 32 InfiniBand
	Master         fact.Value[string]      `json:"master,omitzero"`     // bond or bridge above it
	BondMode       fact.Value[string]      `json:"bond_mode,omitzero"`  // of a bond itself
	Slaves         []string                `json:"slaves,omitempty"`
	Address        fact.Value[string]      `json:"address,omitzero"` // MAC
}

// MapEntry is what Mellanox/rdmamap says of one device.
type MapEntry struct {
	CharDevices []string `json:"char_devices,omitempty"`
	Ports       []string `json:"ports,omitempty"`
	NetDevs     []string `json:"netdevs,omitempty"`
}

// VerbsProbe is what libibverbs says of one device, asked without traffic:
// ibv_open_device, ibv_query_device, ibv_query_port and, on a protection domain
// that is freed at once, ibv_reg_dmabuf_mr with fd -1.
type VerbsProbe struct {
	Firmware string      `json:"fw_ver,omitempty"`
	Ports    []VerbsPort `json:"ports,omitempty"`
	// DMABufErrno is what the registration with fd -1 answered: EBADF (9) means
	// the whole stack supports it; EOPNOTSUPP (95) or EPROTONOSUPPORT (93) that
	// driver or kernel do not.
	DMABufErrno fact.Value[int] `json:"dmabuf_errno,omitzero"`
}

// VerbsPort is one port as ibv_query_port gives it.
type VerbsPort struct {
	Number         int    `json:"number"`
	State          string `json:"state"` // PORT_ACTIVE, …
	ActiveMTUBytes int    `json:"active_mtu_bytes"`
	MaxMTUBytes    int    `json:"max_mtu_bytes"`
}
