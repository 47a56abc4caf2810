package render

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

var (
	reNodeCPUs = regexp.MustCompile(`^node (\d+) cpus: ([0-9 ]*)$`)
	reDistance = regexp.MustCompile(`^(\d+):((?:\s+\d+)+)$`)
	reDevInfo  = regexp.MustCompile(`^(hca_id|fw_ver|node_guid|sys_image_guid|hw_ver|board_id|vendor_part_id|state|port_lid|sm_lid|link_layer|port):\s+(.+)$`)
)

// hostLine reads lines of "numactl --hardware" and "ibv_devinfo".
func (r *reader) hostLine(line string) {
	if m := reNodeCPUs.FindStringSubmatch(line); m != nil {
		cpus := formatList(parseList(strings.ReplaceAll(strings.TrimSpace(m[2]), " ", ",")))
		r.numa = append(r.numa, NUMANode{ID: number(m[1]), CPUs: cpus})
	} else if m := reDistance.FindStringSubmatch(line); m != nil {
		for i := range r.numa {
			if r.numa[i].ID == number(m[1]) && r.numa[i].Distances == nil {
				for d := range strings.FieldsSeq(m[2]) {
					r.numa[i].Distances = append(r.numa[i].Distances, number(d))
				}
			}
		}
	} else if m := reDevInfo.FindStringSubmatch(line); m != nil {
		r.devInfo(m[1], m[2])
	}
}

func (r *reader) devInfo(key, value string) {
	if key == "hca_id" {
		r.rdma = append(r.rdma, RDMA{Name: value})
		return
	}
	if len(r.rdma) == 0 {
		return
	}
	d := &r.rdma[len(r.rdma)-1]
	switch key {
	case "fw_ver":
		d.Firmware = value
	case "node_guid":
		d.NodeGUID = value
	case "sys_image_guid":
		d.SysImageGUID = value
	case "hw_ver":
		d.HWRev = strings.TrimPrefix(value, "0x")
	case "board_id":
		d.PSID = value
	case "vendor_part_id":
		d.HCAType = "MT" + value
	case "port":
		d.Ports = append(d.Ports, Port{})
	}
	if len(d.Ports) == 0 {
		return
	}
	p := &d.Ports[len(d.Ports)-1]
	switch key {
	case "state":
		p.setState(value)
	case "port_lid":
		p.LID = number(value)
	case "sm_lid":
		p.SMLID = number(value)
	case "link_layer":
		p.LinkLayer = value
	}
}

// setState takes ibv_devinfo's "PORT_DOWN (1)". It tells neither the physical
// state nor the rate: what mlx5 shows in that state is taken.
func (p *Port) setState(s string) {
	if strings.HasPrefix(s, "PORT_ACTIVE") {
		p.State, p.PhysState = "4: ACTIVE", "5: LinkUp"
		return
	}
	p.State, p.PhysState, p.Rate = "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)"
}

// assignRDMA gives the devices the Mellanox network functions in the order of
// their addresses, as mlx5 names them when it loads.
func (r *reader) assignRDMA(fns []Function) []RDMA {
	nics := slices.DeleteFunc(slices.Clone(fns), func(f Function) bool {
		return f.Vendor != 0x15b3 || f.Class.Base() != pci.ClassNetwork
	})
	if len(nics) != len(r.rdma) {
		return nil
	}
	for i := range r.rdma {
		r.rdma[i].PCI = nics[i].Addr
	}
	return r.rdma
}
