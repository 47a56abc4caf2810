package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

const kfdNodes = "/sys/class/kfd/kfd/topology/nodes"

// ParseProperties parses a properties file of KFD's topology, lines of
// "name number" (drivers/gpu/drm/amd/amdkfd/kfd_topology.c).
func ParseProperties(s string) (map[string]uint64, error) {
	out := map[string]uint64{}
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 {
			return nil, fmt.Errorf("bad line %.60q", line)
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("bad line %.60q", line)
		}
		out[f[0]] = n
	}
	return out, nil
}

// kfdAddress is where a node's GPU sits. location_id is bus, device and
// function as in pci_dev_id(), below the number of a partition in its upper bits.
func kfdAddress(p map[string]uint64) pci.Address {
	loc := p["location_id"]
	return pci.Address{Domain: uint32(p["domain"]), Bus: uint8(loc >> 8), Device: uint8(loc>>3) & 0x1f, Function: uint8(loc) & 7}
}

// gfxName writes KFD's packed gfx_target_version 90402 as gfx942: major,
// minor and step in two decimal digits each, the latter two shown in hex.
func gfxName(v uint64) string {
	const two = 100
	return fmt.Sprintf("gfx%d%x%x", v/(two*two), v/two%two, v%two)
}

// kfd reads the GPU nodes of KFD's topology by address. The value is their
// number, or says why there are none to be had.
func kfd(src fact.Source) (map[pci.Address]fact.Value[KFDNode], fact.Value[bool]) {
	list, err := src.ReadDir(kfdNodes)
	if err != nil {
		return nil, fact.FromError[bool](err, kfdNodes)
	}
	out := map[pci.Address]fact.Value[KFDNode]{}
	var broken fact.Value[bool]
	for _, e := range list {
		n, err := strconv.Atoi(e.Name)
		if err != nil {
			continue
		}
		props := fact.Parsed(src, kfdNodes+"/"+e.Name, "properties", ParseProperties)
		if props.State != fact.Known { // of which GPU cannot be told
			broken = fact.As(props, false)
			broken.Source = kfdNodes + "/" + e.Name + "/properties"
			continue
		}
		if props.V["gfx_target_version"] == 0 && props.V["simd_count"] == 0 {
			continue // a CPU
		}
		addr := kfdAddress(props.V)
		if _, ok := out[addr]; !ok { // the first partition stands for its GPU
			out[addr] = kfdNode(src, n, props.V)
		}
	}
	if len(out) == 0 && broken.Source != "" {
		return nil, broken
	}
	return out, fact.Of(true, kfdNodes)
}

// Heap types of a memory bank, HSA_HEAPTYPE of libhsakmt's hsakmttypes.h.
const (
	heapPublic  = 1 // frame buffer that the host sees through the BAR
	heapPrivate = 2 // frame buffer that it does not
)

func kfdNode(src fact.Source, n int, props map[string]uint64) fact.Value[KFDNode] {
	banks := fmt.Sprintf("%s/%d/mem_banks", kfdNodes, n)
	node := KFDNode{Node: n, GfxTarget: gfxName(props["gfx_target_version"])}
	list, err := src.ReadDir(banks)
	if err != nil {
		return fact.FromError[KFDNode](err, banks)
	}
	var public, private uint64
	for _, e := range list {
		bank := fact.Parsed(src, banks+"/"+e.Name, "properties", ParseProperties)
		if bank.State != fact.Known {
			v := fact.As(bank, node)
			v.Source = banks + "/" + e.Name + "/properties"
			return v
		}
		switch bank.V["heap_type"] {
		case heapPublic:
			public += bank.V["size_in_bytes"]
		case heapPrivate:
			private += bank.V["size_in_bytes"]
		}
	}
	node.LocalMemSize = public + private
	node.LargeBAR = public > 0 && private == 0
	return fact.Of(node, fmt.Sprintf("%s/%d", kfdNodes, n))
}
