package rdma

import (
	"net/netip"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Types of a GID as sysfs names them.
const (
	roceV1 = "IB/RoCE v1"
	roceV2 = "RoCE v2"
)

// Addr is the GID as an address, 16 bytes; an IPv4 one is mapped into them.
// Not valid: not of sysfs' form.
func (g GID) Addr() netip.Addr {
	a, _ := netip.ParseAddr(g.GID)
	return a
}

// Routable says that packets with this entry reach other subnets and that its
// interface is in this network namespace: RoCE v2, and not link-local.
func (g GID) Routable() bool {
	a := g.Addr()
	return g.Type.Or("") == roceV2 && a.IsValid() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && g.NetDev.Or("") != ""
}

// RoutableGID is the first routable entry of a port, IPv4 before IPv6; nil: none.
func (p *Port) RoutableGID() *GID {
	var v6 *GID
	for i := range p.GIDs {
		g := &p.GIDs[i]
		switch {
		case !g.Routable():
		case g.Addr().Is4In6():
			return g
		case v6 == nil:
			v6 = g
		}
	}
	return v6
}

// GIDAt is the entry at an index; empty where the table has none there.
func (p *Port) GIDAt(index int) GID {
	for _, g := range p.GIDs {
		if g.Index == index {
			return g
		}
	}
	return GID{Index: index}
}

// NCCLGID is the index that NCCL takes of a RoCE port's table where
// NCCL_IB_GID_INDEX names none, with its default family (AF_INET) and version
// (2): ncclIbGetGidIndex in its src/transport/net_ib, the same since NCCL 2.21;
// those before take 0. Where an entry was not seen, neither is the choice.
func (p *Port) NCCLGID() fact.Value[int] {
	const source = "NCCL's rule over the GID table"
	if unseen := p.gidsUnseen(); unseen.State != fact.Known {
		return unseen
	}
	best := p.GIDAt(0)
	for _, c := range p.GIDs {
		if c.Index == 0 {
			continue
		}
		v4, bestV4 := c.Addr().Is4In6(), best.Addr().Is4In6()
		switch {
		case v4 && !bestV4: // whatever its version
			best = c
		case v4 && gidVersion(c) == 2 && gidVersion(best) != 2:
			best = c
		}
	}
	return fact.Of(best.Index, source)
}

// UCXGID is the index that UCX takes of a RoCE port's table where
// UCX_IB_GID_INDEX names none: uct_ib_device_select_gid in its
// src/uct/ib/base/ib_device.c, RoCE v2 before v1 and IPv4 before IPv6, of the
// entries that an address handle can be made of. It takes link-local ones too.
func (p *Port) UCXGID() fact.Value[int] {
	const source = "UCX's rule over the GID table"
	if unseen := p.gidsUnseen(); unseen.State != fact.Known {
		return unseen
	}
	for _, want := range []struct {
		version int
		v4      bool
	}{{2, true}, {2, false}, {1, true}, {1, false}} {
		for _, g := range p.GIDs {
			if gidVersion(g) == want.version && g.Addr().Is4In6() == want.v4 && g.NetDev.Or("") != "" {
				return fact.Of(g.Index, source)
			}
		}
	}
	return fact.Of(0, source)
}

// CMGID is the index that rdma_cm takes for a program that binds to the port's
// first address, IPv4 before IPv6: the entry of that address and of the port's
// default version (cma_add_one in drivers/infiniband/core/cma.c: v2 where the
// device can). v1: default_roce_mode says so. Absent: no address has such an entry.
func (p *Port) CMGID(v1 bool) fact.Value[int] {
	const source = "rdma_cm's rule over the GID table"
	if unseen := p.gidsUnseen(); unseen.State != fact.Known {
		return unseen
	}
	version := 2
	if v1 {
		version = 1
	}
	for _, v4 := range []bool{true, false} {
		for _, g := range p.GIDs {
			if gidVersion(g) == version && g.Addr().Is4In6() == v4 && !g.Addr().IsLinkLocalUnicast() && g.NetDev.Or("") != "" {
				return fact.Of(g.Index, source)
			}
		}
	}
	return fact.Missing[int](fact.Absent, source, "no address of the port has an entry of its default RoCE version")
}

// gidsUnseen is Known where the whole table was seen, else says what was not.
func (p *Port) gidsUnseen() fact.Value[int] {
	for _, g := range p.GIDs {
		if t := g.Type.State; t != fact.Known && t != fact.Absent {
			return fact.As(g.Type, 0)
		}
	}
	return p.GIDTable
}

func gidVersion(g GID) int {
	switch g.Type.Or("") {
	case roceV1:
		return 1
	case roceV2:
		return 2
	}
	return -1
}
