package topo

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"unicode"
)

// NCCLSystem is a topology file of NCCL, as NCCL_TOPO_DUMP_FILE writes and
// NCCL_TOPO_FILE reads it (src/graph/xml.cc, version 1). Attributes and elements
// that gdrcheck does not know are kept.
type NCCLSystem struct {
	XMLName xml.Name   `xml:"system"`
	Version string     `xml:"version,attr"`
	Attrs   []xml.Attr `xml:",any,attr"`
	CPUs    []NCCLCPU  `xml:"cpu"`
}

// NCCLCPU is a NUMA node.
type NCCLCPU struct {
	NUMAID   string     `xml:"numaid,attr"`             // -1: the kernel gives none
	Affinity string     `xml:"affinity,attr,omitempty"` // mask as in /sys/devices/system/node/nodeN/cpumap
	Arch     string     `xml:"arch,attr,omitempty"`     // x86_64, arm64, ppc64
	Vendor   string     `xml:"vendor,attr,omitempty"`
	FamilyID string     `xml:"familyid,attr,omitempty"`
	ModelID  string     `xml:"modelid,attr,omitempty"`
	Attrs    []xml.Attr `xml:",any,attr"`
	PCI      []NCCLPCI  `xml:"pci"`
	NICs     []NCCLNIC  `xml:"nic"` // NICs without a PCI place
}

// NCCLPCI is a switch, a GPU's or a NIC's function. A switch's downstream and
// upstream port are one element, named by the upstream port; root ports have none.
type NCCLPCI struct {
	BusID           string     `xml:"busid,attr"`
	Class           string     `xml:"class,attr,omitempty"`
	Vendor          string     `xml:"vendor,attr,omitempty"`
	Device          string     `xml:"device,attr,omitempty"`
	SubsystemVendor string     `xml:"subsystem_vendor,attr,omitempty"`
	SubsystemDevice string     `xml:"subsystem_device,attr,omitempty"`
	LinkSpeed       *string    `xml:"link_speed,attr"` // at its best: "32.0 GT/s PCIe"; where there is none, NCCL reads sysfs
	LinkWidth       *string    `xml:"link_width,attr"`
	Attrs           []xml.Attr `xml:",any,attr"`
	PCI             []NCCLPCI  `xml:"pci"`
	GPUs            []NCCLGPU  `xml:"gpu"`
	NICs            []NCCLNIC  `xml:"nic"`
}

// NCCLGPU is a GPU's own part.
type NCCLGPU struct {
	Dev     string       `xml:"dev,attr"`          // NVML's index
	SM      string       `xml:"sm,attr,omitempty"` // compute capability, 90 for 9.0
	Rank    string       `xml:"rank,attr,omitempty"`
	GDR     string       `xml:"gdr,attr,omitempty"`
	Attrs   []xml.Attr   `xml:",any,attr"`
	NVLinks []NCCLNVLink `xml:"nvlink"`
	C2C     []NCCLAny    `xml:"c2c"`
}

// NCCLNVLink is the set of NVLinks to one peer.
type NCCLNVLink struct {
	Target string     `xml:"target,attr"`
	Count  string     `xml:"count,attr"`
	TClass string     `xml:"tclass,attr,omitempty"` // PCI class of the target
	Attrs  []xml.Attr `xml:",any,attr"`
}

// NCCLNIC holds the ports of a NIC.
type NCCLNIC struct {
	Attrs []xml.Attr `xml:",any,attr"`
	Nets  []NCCLNet  `xml:"net"`
}

// NCCLNet is a port.
type NCCLNet struct {
	Name    string     `xml:"name,attr"`
	Dev     string     `xml:"dev,attr"`
	Latency string     `xml:"latency,attr,omitempty"`
	Speed   string     `xml:"speed,attr,omitempty"` // 10^6 bit/s
	Port    string     `xml:"port,attr,omitempty"`
	GUID    string     `xml:"guid,attr,omitempty"`
	MaxConn string     `xml:"maxconn,attr,omitempty"`
	GDR     string     `xml:"gdr,attr,omitempty"`
	Attrs   []xml.Attr `xml:",any,attr"`
}

// NCCLAny is an element that is kept as it is.
type NCCLAny struct {
	Attrs []xml.Attr `xml:",any,attr"`
}

// ReadNCCL reads a topology file of NCCL.
func ReadNCCL(r io.Reader) (*NCCLSystem, error) {
	var s NCCLSystem
	if err := xml.NewDecoder(r).Decode(&s); err != nil {
		return nil, fmt.Errorf("NCCL topology: %w", err)
	}
	return &s, nil
}

// Write writes a topology file that NCCL_TOPO_FILE takes.
func (s *NCCLSystem) Write(w io.Writer) error {
	var text, safe bytes.Buffer
	e := xml.NewEncoder(&text)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	// What a terminal might obey goes as a character reference.
	for _, r := range text.String() {
		if r == '\n' || unicode.IsGraphic(r) {
			safe.WriteRune(r)
		} else {
			fmt.Fprintf(&safe, "&#x%x;", r)
		}
	}
	safe.WriteByte('\n')
	_, err := w.Write(safe.Bytes())
	return err
}
