package render

import (
	"fmt"
	"strconv"
	"strings"
)

// RDMA is one RDMA device. Text is as sysfs shows it ("4: ACTIVE").
type RDMA struct {
	Name string
	PCI  string // its function; "": a software device over the netdev Parent
	// Parent is the netdev that a software device stands on.
	Parent                         string
	NodeType                       string // "" means "1: CA"
	NodeGUID, SysImageGUID         string
	Firmware, HWRev, HCAType, PSID string
	Ports                          []Port
	NoUverbs                       bool
	HWCounters                     map[string]uint64
}

// Port is one port; numbers start at 1 in the order of RDMA.Ports.
type Port struct {
	State, PhysState, Rate, LinkLayer string
	LID, SMLID                        int
	CapMask                           uint32
	GIDs                              []GID
	GIDTable                          int      // slots; more than the filled ones are empty
	PKeys                             []uint16 // nil means 0xffff
	Counters, HWCounters              map[string]uint64
}

// GID is one filled slot of a GID table.
type GID struct {
	Index             int
	GID, Type, NetDev string
}

// NetDev is a network interface. Numbers that are 0 are left at their usual value.
type NetDev struct {
	Name, PCI        string // PCI "": virtual
	Address          string
	MTU              int    // 0 means 1500
	OperState        string // "" means "up"
	NoCarrier        bool
	SpeedMbps        int // 0 means that the file says -1
	Type             int // ARPHRD; 0 means 1, Ethernet
	DevPort          int
	CarrierChanges   int
	Master, BondMode string
	Slaves           []string
}

func (t Tree) writeNetDevs(w *writer, places map[string]string) {
	for _, n := range t.NetDevs {
		dir := "/sys/devices/virtual/net/" + n.Name
		if n.PCI != "" {
			dir = places[n.PCI] + "/net/" + n.Name
			w.link(dir+"/device", places[n.PCI])
		}
		w.link("/sys/class/net/"+n.Name, dir)
		put := func(name, text string) { w.file(dir+"/"+name, text) }
		put("address", n.Address+"\n")
		put("mtu", strconv.Itoa(or(n.MTU, 1500)))
		put("operstate", orText(n.OperState, "up"))
		put("carrier", map[bool]string{true: "0", false: "1"}[n.NoCarrier])
		put("carrier_changes", strconv.Itoa(n.CarrierChanges))
		put("speed", strconv.Itoa(or(n.SpeedMbps, -1)))
		put("type", strconv.Itoa(or(n.Type, 1)))
		put("dev_port", strconv.Itoa(n.DevPort))
		if n.Master != "" {
			rel := t.netDevDir(n.Master, places)
			w.link(dir+"/master", rel)
		}
		if n.BondMode != "" {
			put("bonding/mode", n.BondMode)
			put("bonding/slaves", strings.Join(n.Slaves, " "))
		}
	}
}

func (t Tree) netDevDir(name string, places map[string]string) string {
	for _, n := range t.NetDevs {
		if n.Name == name && n.PCI != "" {
			return places[n.PCI] + "/net/" + name
		}
	}
	return "/sys/devices/virtual/net/" + name
}

func (t Tree) writeRDMA(w *writer, places map[string]string) {
	umad := 0
	for i, d := range t.RDMA {
		dir := "/sys/devices/virtual/infiniband/" + d.Name
		if d.PCI != "" {
			dir = places[d.PCI] + "/infiniband/" + d.Name
			w.link(dir+"/device", places[d.PCI])
		}
		w.link("/sys/class/infiniband/"+d.Name, dir)
		put := func(name, text string) { w.file(dir+"/"+name, text) }
		if d.Parent != "" {
			put("parent", d.Parent)
		}
		put("node_type", orText(d.NodeType, "1: CA"))
		put("node_guid", orText(d.NodeGUID, "0000:0000:0000:0000"))
		put("sys_image_guid", orText(d.SysImageGUID, orText(d.NodeGUID, "0000:0000:0000:0000")))
		put("fw_ver", d.Firmware+"\n")
		for name, v := range map[string]string{"hw_rev": d.HWRev, "hca_type": d.HCAType, "board_id": d.PSID} {
			if v != "" {
				put(name, v)
			}
		}
		writeCounters(w, dir+"/hw_counters", d.HWCounters)
		for n, p := range d.Ports {
			writePort(w, fmt.Sprintf("%s/ports/%d", dir, n+1), p)
			writeCharDev(w, d, places[d.PCI], "infiniband_mad", fmt.Sprintf("umad%d", umad), "231", umad, n+1)
			umad++
		}
		if !d.NoUverbs {
			writeCharDev(w, d, places[d.PCI], "infiniband_verbs", fmt.Sprintf("uverbs%d", i), "231", 192+i, 0)
		}
	}
}

// writeCharDev writes the class entry of a character device. The node below
// /dev is left out: making one needs root.
func writeCharDev(w *writer, d RDMA, place, class, name, major string, minor, port int) {
	dir := "/sys/devices/virtual/" + class + "/" + name
	if place != "" {
		dir = place + "/" + class + "/" + name
		w.link(dir+"/device", place)
	}
	w.link("/sys/class/"+class+"/"+name, dir)
	w.file(dir+"/ibdev", d.Name)
	w.file(dir+"/dev", fmt.Sprintf("%s:%d", major, minor))
	if port > 0 {
		w.file(dir+"/port", strconv.Itoa(port))
	}
}

func writePort(w *writer, dir string, p Port) {
	put := func(name, text string) { w.file(dir+"/"+name, text) }
	put("state", orText(p.State, "4: ACTIVE"))
	put("phys_state", orText(p.PhysState, "5: LinkUp"))
	put("rate", orText(p.Rate, "400 Gb/sec (4X NDR)"))
	put("link_layer", orText(p.LinkLayer, "Ethernet"))
	put("lid", fmt.Sprintf("0x%x", p.LID))
	put("sm_lid", fmt.Sprintf("0x%x", p.SMLID))
	put("cap_mask", fmt.Sprintf("0x%08x", p.CapMask))
	slots := p.GIDTable
	for _, g := range p.GIDs {
		slots = max(slots, g.Index+1)
	}
	for i := range slots {
		put(fmt.Sprintf("gids/%d", i), "0000:0000:0000:0000:0000:0000:0000:0000")
	}
	for _, g := range p.GIDs {
		put(fmt.Sprintf("gids/%d", g.Index), g.GID)
		put(fmt.Sprintf("gid_attrs/types/%d", g.Index), g.Type)
		if g.NetDev != "" {
			put(fmt.Sprintf("gid_attrs/ndevs/%d", g.Index), g.NetDev)
		}
	}
	keys := p.PKeys
	if keys == nil {
		keys = []uint16{0xffff}
	}
	for i, k := range keys {
		put(fmt.Sprintf("pkeys/%d", i), fmt.Sprintf("0x%04x", k))
	}
	writeCounters(w, dir+"/counters", p.Counters)
	writeCounters(w, dir+"/hw_counters", p.HWCounters)
}

func writeCounters(w *writer, dir string, counters map[string]uint64) {
	for name, n := range counters {
		w.file(dir+"/"+name, strconv.FormatUint(n, 10))
	}
}

func or(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

func orText(v, def string) string {
	if v == "" {
		return def
	}
	return v
}
