package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// rails lists the ports of this node that measurements between nodes run on.
func (b *perfBackend) rails(ctx context.Context) ([]perftest.Rail, error) {
	b.mu.Lock()
	m, err := b.refresh(ctx)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	list := railsOf(m, b.subnets(ctx))
	if len(list) == 0 {
		_, err = chooseDevice(m, "") // says what there is instead
		return nil, err
	}
	return list, nil
}

// railsOf lists the ports of the NICs for compute; without any, those of the
// other NICs, and without any NIC those of software devices. A port that is
// down is left out where another one of its NIC is up.
func railsOf(m *topo.Machine, subnets map[string][]netip.Prefix) []perftest.Rail {
	const compute, other, software, kinds = 0, 1, 2, 3
	var byKind [kinds][]perftest.Rail
	for _, d := range topo.New(m).NICs() {
		if d.RDMA == nil {
			continue
		}
		kind := compute
		switch {
		case d.RDMA.Software:
			kind = software
		case d.Role != topo.RoleCompute:
			kind = other
		}
		byKind[kind] = append(byKind[kind], railsOn(d.RDMA, subnets)...)
	}
	for _, list := range byKind {
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

func railsOn(d *rdma.Device, subnets map[string][]netip.Prefix) []perftest.Rail {
	var up, down []perftest.Rail
	for i := range d.Ports {
		r := railOf(d, &d.Ports[i], subnets)
		if r.Why == perftest.WhyDown {
			down = append(down, r)
		} else {
			up = append(up, r)
		}
	}
	if len(up) > 0 {
		return up
	}
	return down
}

func railOf(d *rdma.Device, p *rdma.Port, subnets map[string][]netip.Prefix) perftest.Rail {
	r := perftest.Rail{Device: d.Name, Port: p.Number, LinkLayer: p.LinkLayer.Or(""), Software: d.Software}
	transport := d.Transport.Or("")
	switch state, known := p.State.Get(); {
	case transport == rdma.EFA || transport == rdma.IWARP:
		r.Unfit, r.Why = fmt.Sprintf("%s, which is not measured here", transport), perftest.WhyUnsupported
	case known && state != portActive: // of what is not known, the test itself tells
		r.Unfit, r.Why = state, perftest.WhyDown
	}
	netdevs := map[string]bool{p.NetDev.Or(""): true}
	for _, g := range p.GIDs {
		netdevs[g.NetDev.Or("")] = true
	}
	seen := map[string]bool{}
	for name := range netdevs {
		for _, s := range subnets[name] {
			seen[s.String()] = true
		}
	}
	if prefix, ok := fabricPrefix(p); ok && len(seen) == 0 && r.LinkLayer == "InfiniBand" {
		seen[prefix.String()] = true
	}
	r.Subnets = slices.Sorted(maps.Keys(seen))
	return r
}

// fabricPrefix is the subnet prefix of an InfiniBand fabric: the upper half of
// a port's GIDs.
func fabricPrefix(p *rdma.Port) (netip.Prefix, bool) {
	const half = 64
	for _, g := range p.GIDs {
		if a, err := netip.ParseAddr(g.GID); err == nil && a.Is6() {
			prefix, err := a.Prefix(half)
			return prefix, err == nil
		}
	}
	return netip.Prefix{}, false
}
