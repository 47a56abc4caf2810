// Package pci knows PCI addresses, functions, configuration space and what one
// link can carry. Facts come from sysfs (Documentation/ABI/testing/sysfs-bus-pci)
// and from configuration space (PCI Express Base Specification).
package pci

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// ID is a 16-bit PCI vendor, device or subsystem number; JSON shows it as "0x10de".
type ID uint16

// String returns four hex digits, as lspci -n prints them.
func (i ID) String() string { return fmt.Sprintf("%04x", uint16(i)) }

// Class is a 24-bit class code: base class, subclass, programming interface.
type Class uint32

// Base and subclass values, PCI Code and ID Assignment Specification.
const (
	ClassNetwork     = 0x02
	ClassDisplay     = 0x03
	ClassInfiniBand  = 0x0207
	ClassEthernet    = 0x0200
	Class3D          = 0x0302
	ClassVGA         = 0x0300
	ClassHostBridge  = 0x0600
	ClassPCIBridge   = 0x0604
	ClassAccelerator = 0x1200
	ClassSerialIB    = 0x0c06 // InfiniBand as a serial bus: HCAs of the 2000s
)

// Base returns the base class (0x03 for a display controller).
func (c Class) Base() uint8 { return uint8(c >> 16) }

// Sub returns base class and subclass (0x0302 for a 3D controller).
func (c Class) Sub() uint16 { return uint16(c >> 8) }

// Function is one PCI function. Sources of its values are relative to its
// sysfs directory, Dir.
type Function struct {
	Address    Address  `json:"addr"`
	Dir        string   `json:"dir"`                   // "/sys/bus/pci/devices/0000:01:00.0"
	Parent     *Address `json:"parent,omitempty"`      // the bridge above; nil below a host bridge
	HostBridge string   `json:"host_bridge,omitempty"` // root bus in the sysfs path, "pci0000:20"
	Late       string   `json:"-"`                     // why it was not reached, where it was not: what its values then say

	Vendor          fact.Value[ID]    `json:"vendor,omitzero"`
	Device          fact.Value[ID]    `json:"device,omitzero"`
	SubsystemVendor fact.Value[ID]    `json:"subsystem_vendor,omitzero"`
	SubsystemDevice fact.Value[ID]    `json:"subsystem_device,omitzero"`
	Class           fact.Value[Class] `json:"class,omitzero"`
	Revision        fact.Value[uint8] `json:"revision,omitzero"`
	// Names from the embedded pci.ids; empty where it has none.
	VendorName string `json:"vendor_name,omitempty"`
	DeviceName string `json:"device_name,omitempty"`

	Driver         fact.Value[string]    `json:"driver,omitzero"`    // Absent: no driver bound
	NUMANode       fact.Value[int]       `json:"numa_node,omitzero"` // Absent: the kernel says -1
	PhysFn         fact.Value[Address]   `json:"physfn,omitzero"`    // Known on a VF only
	VirtFns        []Address             `json:"virtfns,omitempty"`
	IOMMUGroup     fact.Value[int]       `json:"iommu_group,omitzero"`      // Absent: no IOMMU translates for it
	IOMMUGroupType fact.Value[string]    `json:"iommu_group_type,omitzero"` // identity, DMA, DMA-FQ, blocked
	Link           fact.Value[Link]      `json:"link,omitzero"`             // as sysfs shows it; Absent: not PCI Express
	BARs           fact.Value[[]BAR]     `json:"bars,omitzero"`
	AER            fact.Value[AERCounts] `json:"aer,omitzero"`
	LocalCPUs      fact.Value[string]    `json:"local_cpulist,omitzero"` // of what IsEnd; of other functions nobody asks

	Config Config `json:"config,omitzero"`
}

// Link is a PCI Express link's state, now and at its best.
type Link struct {
	SpeedGTPerSec    float64 `json:"speed_gt_per_sec"` // 2.5, 5, 8, 16, 32, 64; 0 when the link is down
	Width            int     `json:"width"`            // lanes
	MaxSpeedGTPerSec float64 `json:"max_speed_gt_per_sec"`
	MaxWidth         int     `json:"max_width"`
}

// BAR is one memory or I/O window of a function, from sysfs "resource".
type BAR struct {
	Index     int    `json:"index"` // 0 to 5; 6 is the expansion ROM; bridge windows follow
	Start     uint64 `json:"start"` // 0 while unassigned
	SizeBytes uint64 `json:"size_bytes"`
	Flags     uint64 `json:"flags"` // include/linux/ioport.h: IORESOURCE_MEM 0x200, PREFETCH 0x2000, MEM_64 0x100000
}

// AERCounts holds Advanced Error Reporting counters since boot, from
// aer_dev_{correctable,nonfatal,fatal}; only counters that are not zero.
type AERCounts struct {
	Correctable map[string]uint64 `json:"correctable,omitempty"`
	NonFatal    map[string]uint64 `json:"nonfatal,omitempty"`
	Fatal       map[string]uint64 `json:"fatal,omitempty"`
}

// Config is what a function's configuration space says. Without CAP_SYS_ADMIN
// the kernel serves only its first 64 bytes: everything beyond is then Denied.
// A capability that a complete list does not hold is Absent.
type Config struct {
	Length            fact.Value[int]      `json:"length,omitzero"`              // bytes that could be read: 64, 128, 256 or 4096
	PortType          fact.Value[PortType] `json:"port_type,omitzero"`           // PCIe Capabilities Register, device/port type
	MPSBytes          fact.Value[int]      `json:"mps_bytes,omitzero"`           // Max_Payload_Size in force
	MPSSupportedBytes fact.Value[int]      `json:"mps_supported_bytes,omitzero"` // Device Capabilities
	MRRSBytes         fact.Value[int]      `json:"mrrs_bytes,omitzero"`          // Max_Read_Request_Size
	RelaxedOrdering   fact.Value[bool]     `json:"relaxed_ordering,omitzero"`    // Enable Relaxed Ordering
	ExtendedTag       fact.Value[bool]     `json:"extended_tag,omitzero"`
	Link              fact.Value[Link]     `json:"link,omitzero"` // Link Capabilities and Link Status
	ACS               fact.Value[ACS]      `json:"acs,omitzero"`
	ATS               fact.Value[bool]     `json:"ats,omitzero"` // Known: capability there, value is its Enable bit
	ReBAR             fact.Value[[]ReBAR]  `json:"rebar,omitzero"`
}

// ACS is the Access Control Services capability and control register
// (PCIe Base Spec 7.7.11); the bits of both are the ACS constants.
type ACS struct {
	Cap uint16 `json:"cap"`
	Ctl uint16 `json:"ctl"`
}

// ACS bits, equal in the capability and the control register.
const (
	ACSSourceValidation    = 0x01
	ACSTranslationBlocking = 0x02
	ACSRequestRedirect     = 0x04
	ACSCompletionRedirect  = 0x08
	ACSUpstreamForwarding  = 0x10
	ACSEgressControl       = 0x20
	ACSDirectTranslated    = 0x40
	// ACSRedirectMask are the bits that send peer traffic to the root complex
	// (drivers/pci/p2pdma.c, pci_bridge_has_acs_redir).
	ACSRedirectMask = ACSRequestRedirect | ACSCompletionRedirect | ACSEgressControl
)

// ReBAR is one entry of the Resizable BAR capability (PCIe Base Spec 7.8.6).
type ReBAR struct {
	BAR            int      `json:"bar"`
	SizeBytes      uint64   `json:"size_bytes"`
	SupportedBytes []uint64 `json:"supported_bytes"`
}

// PortType is the device/port type of the PCI Express capability (7.5.3.2).
type PortType uint8

// Port types.
const (
	PortEndpoint         PortType = 0x0
	PortLegacyEndpoint   PortType = 0x1
	PortRoot             PortType = 0x4
	PortUpstream         PortType = 0x5
	PortDownstream       PortType = 0x6
	PortPCIeToPCI        PortType = 0x7
	PortPCIToPCIe        PortType = 0x8
	PortRCIntegratedEP   PortType = 0x9
	PortRCEventCollector PortType = 0xa
)
