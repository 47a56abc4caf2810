// Package qos knows what decides how RDMA traffic fares on its way out of and
// into a NIC: flow control and congestion control, the marks that packets
// carry, the link and its module, firmware settings, and the counters that tell
// what came of it. It holds types, parsers and what differs between drivers;
// what only the kernel can answer is asked through fact.Source.
package qos

import (
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Facts is all that was read of the settings of RDMA ports.
type Facts struct {
	// Ports has one entry for each way out of an RDMA port: one for most, one
	// for each leg where the port stands on a bond. In the order of
	// rdma.Facts.Devices, then by port number, then by network interface.
	Ports []Port `json:"ports,omitempty"`
	// Job is what the environment and the configuration files of NCCL and UCX
	// say about RDMA, the ones that a job started here would find.
	Job fact.Value[[]Setting] `json:"job,omitzero"`
}

// Port is an RDMA port with the network interface that its packets leave by.
// Sources are files by their whole names, or calls ("netlink:IEEE_GET").
type Port struct {
	Device string `json:"device"`           // mlx5_0
	Number int    `json:"number"`           // of the port, from 1
	NetDev string `json:"netdev,omitempty"` // the leg, where the port stands on a bond; empty on InfiniBand without IPoIB
	NetDir string `json:"net_dir,omitempty"`
	// PCI is the function of the network interface, or of the device where
	// there is none: each leg of a bond has its own.
	PCI fact.Value[pci.Address] `json:"pci,omitzero"`
	// NetDriver drives NetDev: mlx5_core, bnxt_en, ice, ionic, efa, mana, hns3, cxgb4.
	NetDriver fact.Value[string] `json:"net_driver,omitzero"`
	IsVF      bool               `json:"is_vf,omitempty"`

	DCB       DCB       `json:"dcb,omitzero"`
	ECN       ECN       `json:"ecn,omitzero"`
	ToS       ToS       `json:"tos,omitzero"`
	Pause     Pause     `json:"pause,omitzero"`
	Link      Link      `json:"link,omitzero"`
	FEC       FEC       `json:"fec,omitzero"`
	Module    Module    `json:"module,omitzero"`
	Devlink   Devlink   `json:"devlink,omitzero"`
	NVConfig  NVConfig  `json:"nv_config,omitzero"`
	LAG       LAG       `json:"lag,omitzero"`
	Neighbour Neighbour `json:"neighbour,omitzero"`
	// Stats are those of ethtool -S that the counter table knows, by name.
	Stats fact.Value[[]Stat] `json:"stats,omitzero"`
}

// Priorities is a set of the eight IEEE 802.1p priorities, bit N for priority N.
type Priorities uint8

// PriorityCount is the number of priorities, of traffic classes and of buffers.
const PriorityCount = 8

// ECN is how a NIC takes part in congestion control (DCQCN): as notification
// point (NP) it answers marked packets with CNPs, as reaction point (RP) it
// slows down on them. A driver that has one switch for all priorities has 0 or
// 255 here.
type ECN struct {
	NP          fact.Value[Priorities] `json:"np,omitzero"`
	RP          fact.Value[Priorities] `json:"rp,omitzero"`
	CNPDSCP     fact.Value[int]        `json:"cnp_dscp,omitzero"`     // of the CNPs sent
	CNPPriority fact.Value[int]        `json:"cnp_priority,omitzero"` // 802.1p, of the CNPs sent
	// DSCP and Priority are those that the driver gives RoCE traffic itself
	// (bnxt_re); an application's traffic class comes before them.
	DSCP     fact.Value[int] `json:"roce_dscp,omitzero"`
	Priority fact.Value[int] `json:"roce_priority,omitzero"`
}

// ToS are the marks that packets get, one value a source. All are the whole
// byte (traffic class, 0 to 255); the DSCP is its upper six bits.
type ToS struct {
	// Forced is the port's own (tc/N/traffic_class), which overrides what
	// applications ask for; Absent: none is set, or the driver has none to set.
	Forced fact.Value[int] `json:"forced,omitzero"`
	// RDMACM is what rdma_cm gives connections that ask for nothing
	// (default_roce_tos). Absent: it is 0, since nothing here could set it.
	// Unsupported: 0 or set; nobody has made the directory that shows it.
	RDMACM fact.Value[int] `json:"rdma_cm,omitzero"`
	// RDMACMMode is the GID type that rdma_cm takes: "IB/RoCE v1" or "RoCE v2".
	RDMACMMode fact.Value[string] `json:"rdma_cm_mode,omitzero"`
	TTL        fact.Value[int]    `json:"ttl,omitzero"` // forced hop limit (ttl/N/ttl)
}

// DSCP is the Differentiated Services Code Point of a traffic class byte.
func DSCP(trafficClass int) int { return trafficClass >> 2 }

// LAG is the bond that a port's interface is a leg of.
type LAG struct {
	Bond fact.Value[string] `json:"bond,omitzero"` // Absent: not a leg
	Mode fact.Value[string] `json:"mode,omitzero"` // 802.3ad, active-backup, …
	Hash fact.Value[string] `json:"hash,omitzero"` // layer2, layer3+4, …
	Legs []string           `json:"legs,omitempty"`
	// State and PortSelect are the NIC's own (mlx5 debugfs lag): "active",
	// and queue_affinity, hash or mpesw.
	State      fact.Value[string] `json:"state,omitzero"`
	PortSelect fact.Value[string] `json:"port_select,omitzero"`
}

// Neighbour is what the other end of the cable calls itself: over LLDP, as lldpd
// heard it, or on InfiniBand in the answers to SubnGet.
type Neighbour struct {
	System   fact.Value[string] `json:"system,omitzero"`    // name of the switch; NodeDescription
	Chassis  fact.Value[string] `json:"chassis,omitzero"`   // its id, mostly a MAC address; NodeGUID
	Port     fact.Value[string] `json:"port,omitzero"`      // id of its port: Ethernet12, swp3; LocalPortNum
	PortText fact.Value[string] `json:"port_text,omitzero"` // description of its port
}

// Setting is one variable of a job's environment.
type Setting struct {
	Name   string `json:"name"`   // NCCL_IB_TC
	Value  string `json:"value"`  // as it stands there
	Source string `json:"source"` // "environment", /etc/nccl.conf, …
}

// Of returns the entries of one port of a device: several where it stands on a bond.
func (f *Facts) Of(device string, port int) []*Port {
	var out []*Port
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Device == device && p.Number == port {
			out = append(out, p)
		}
	}
	return out
}
