package checks

import (
	"fmt"
	"net/netip"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var roceGID = Check{
	ID: "roce-gid", Title: "the RoCE port has a routable RoCE v2 address", Area: AreaRDMA, Severity: SeverityError, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "RoCE v2 packets carry the IP address of a GID. With a RoCE v1 or link-local one they reach no other subnet, and connections end in timeouts (error 12, vendor 129).",
	Fix:       []string{"Give the port's network interface an IPv4 address: sudo ip addr add ADDRESS/PREFIX dev INTERFACE"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index",
		"https://github.com/NVIDIA/nccl/issues/426",
		"https://github.com/NVIDIA/nccl/issues/769",
		"https://github.com/NVIDIA/nccl/issues/925",
	},
	Subjects: EachPort,
	Eval:     evalGID,
}

// gidScore sums up a port's GID table.
type gidScore struct {
	v4, v6           *rdma.GID // first routable RoCE v2 entries with an interface
	homeless         *rdma.GID // routable, but its interface is in another network namespace
	v2               int
	unreadable       *rdma.GID // an entry whose type could not be read
	linkLocal, other int
}

func evalGID(c *Case) {
	p, nic := c.Subject.Port, c.Subject.NIC
	if !c.matters(nic) {
		c.Lower(SeverityWarning)
	}
	transport, _ := Need(c, "transport", nic.Transport)
	if transport != rdma.RoCE {
		c.NotApplicable("%s has no RoCE addresses", orElse(string(transport), "this transport"))
		return
	}
	if len(p.GIDs) == 0 {
		Need(c, "GID table", p.GIDTable)
	}
	if c.treeWithoutGIDs(p) {
		return
	}
	s := scoreGIDs(p)
	show := func(g *rdma.GID) {
		c.Row(fmt.Sprintf("GID %d", g.Index), g.GID+" "+g.Type.Or("?")+" "+g.NetDev.Or("no interface"),
			fmt.Sprintf("%s/ports/%d/gids/%d", nic.Dir, p.Number, g.Index))
		c.Want("RoCE v2, IPv4-mapped or global IPv6")
	}
	dev := p.NetDev.Or("")
	switch {
	case s.v4 != nil:
		show(s.v4)
		mustSee(c, "its interface", s.v4.NetDev)
		c.Pass("RoCE v2 with IPv4 at GID index %d", s.v4.Index)
	case s.v6 != nil:
		show(s.v6)
		mustSee(c, "its interface", s.v6.NetDev)
		c.Pass("RoCE v2 with global IPv6 at GID index %d", s.v6.Index)
	case s.homeless != nil:
		show(s.homeless)
		c.Fail("the interface of its routable address is not in this network namespace: connecting ends with \"No such device\"")
		c.Fix("Run the container in the host's network (--net=host), or move the interface into its namespace (SR-IOV or macvlan CNI)")
	case s.unreadable != nil:
		Need(c, fmt.Sprintf("type of GID %d", s.unreadable.Index), s.unreadable.Type) // which ends the check
	default:
		c.Row("GIDs", fmt.Sprintf("%d, of them %d RoCE v2, link-local: %d", len(p.GIDs), s.v2, s.linkLocal),
			fmt.Sprintf("%s/ports/%d/gids", nic.Dir, p.Number))
		c.Want("a RoCE v2 entry, IPv4-mapped or global IPv6")
		c.Fail("no routable RoCE v2 address: %s", gidLack(s, len(p.GIDs)))
		c.Fix(fixGID(c, dev, s)...)
	}
}

func scoreGIDs(p *rdma.Port) gidScore {
	var s gidScore
	for i := range p.GIDs {
		g := &p.GIDs[i]
		addr, err := netip.ParseAddr(g.GID)
		kind, known := g.Type.Get()
		switch {
		case err == nil && addr.IsLinkLocalUnicast():
			s.linkLocal++
			if kind == "RoCE v2" {
				s.v2++
			}
			continue
		case !known && g.Type.State != fact.Absent:
			s.unreadable = g
			continue
		case err != nil || kind != "RoCE v2":
			s.other++
			continue
		}
		s.v2++
		dev, hasDev := g.NetDev.Get()
		switch {
		case g.NetDev.State == fact.Absent || hasDev && dev == "":
			s.homeless = g
		case addr.Is4In6() && s.v4 == nil:
			s.v4 = g
		case !addr.Is4In6() && s.v6 == nil:
			s.v6 = g
		}
	}
	return s
}

func gidLack(s gidScore, all int) string {
	switch {
	case all == 0:
		return "the GID table is empty"
	case s.v2 == 0:
		return "all entries are RoCE v1"
	default:
		return "all RoCE v2 entries are link-local"
	}
}

func fixGID(c *Case, dev string, s gidScore) []string {
	if dev == "" {
		return []string{"Find the port's network interface (rdma link show), bring it up and give it an IPv4 address"}
	}
	fix := []string{
		fmt.Sprintf("Give %s an address: sudo ip addr add ADDRESS/PREFIX dev %s && sudo ip link set %s up", dev, dev, dev),
		"Make it permanent in netplan, NetworkManager or systemd-networkd; then see: rdma link show; show_gids",
	}
	if s.v2 == 0 && s.linkLocal+s.other > 0 {
		fix = append(fix, "If only RoCE v1 entries appear, the NIC or its driver is set to v1: sudo mlxconfig -d "+c.firmwareName()+" query | grep -i roce")
	}
	return fix
}
