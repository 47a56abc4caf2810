package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var roceGIDChoice = Check{
	ID: "roce-gid-choice", Title: "programs that choose a GID by themselves take a routable one", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	DependsOn: []string{"rdma-port-state", "roce-gid"},
	Why:       "NCCL looks for IPv4 and stays at index 0 where there is none; UCX takes the first RoCE v2 entry, a link-local one too. From another subnet such an address is not reached, and connections end in timeouts (error 12, vendor 129).",
	Fix:       []string{"Name the index to the programs: NCCL_IB_GID_INDEX=N UCX_IB_GID_INDEX=N", "Or give the port's network interface an IPv4 address: sudo ip addr add ADDRESS/PREFIX dev INTERFACE"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-addr-family",
		"https://github.com/NVIDIA/nccl/blob/master/src/transport/net_ib/connect.cc",
		"https://github.com/openucx/ucx/blob/master/src/uct/ib/base/ib_device.c",
		"https://github.com/NVIDIA/nccl/issues/769",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		p, nic := c.Subject.Port, c.Subject.NIC
		if !c.matters(nic) {
			c.Lower(SeverityInfo)
		}
		transport, _ := Need(c, "transport", nic.Transport)
		if transport != rdma.RoCE {
			c.NotApplicable("%s has no RoCE addresses", orElse(string(transport), "this transport"))
			return
		}
		if c.treeWithoutGIDs(p) {
			return
		}
		c.seeGIDs(p, nic.Dir)
		good := p.RoutableGID()
		if good == nil {
			c.NotApplicable("the port has no routable entry that could be taken")
			return
		}
		nccl, _ := Need(c, "NCCL takes", gidWords(p, p.NCCLGID()))
		c.Want("a routable RoCE v2 entry")
		ucx, _ := Need(c, "UCX takes", gidWords(p, p.UCXGID()))
		c.Want("a routable RoCE v2 entry")
		n, u := p.GIDAt(p.NCCLGID().V), p.GIDAt(p.UCXGID().V)
		switch {
		case n.Routable() && u.Routable(): // then it is the first that is, for both
			c.Pass("NCCL and UCX take %s", nccl)
		default:
			c.Warn("NCCL takes %s, UCX %s; a routable one is at index %d", nccl, ucx, good.Index)
			c.Unsure("nodes on one segment reach each other by link-local addresses, too")
			c.Fix(fmt.Sprintf("Name it to the programs: NCCL_IB_GID_INDEX=%d UCX_IB_GID_INDEX=%d", good.Index, good.Index),
				fmt.Sprintf("Or give it an IPv4 address: sudo ip addr add ADDRESS/PREFIX dev %s", orElse(p.NetDev.Or(""), "INTERFACE")))
		}
	},
}

// seeGIDs ends the check where a type or an interface of the GID table was not
// seen: the entry may be the one that is taken.
func (c *Case) seeGIDs(p *rdma.Port, dir string) {
	for _, g := range p.GIDs {
		mustSee(c, fmt.Sprintf("type of GID %d", g.Index), g.Type, dir)
		mustSee(c, fmt.Sprintf("interface of GID %d", g.Index), g.NetDev, dir)
	}
}

// treeWithoutGIDs gives the verdict where a tree holds no GID table. On a
// machine every port has the folder, even where all of its entries are empty.
func (c *Case) treeWithoutGIDs(p *rdma.Port) bool {
	if len(p.GIDs) > 0 || p.GIDTable.State != fact.Absent || c.Machine.Origin != "tree" {
		return false
	}
	c.Unknown("cannot tell: the tree that was read holds no GID table")
	c.Fix(c.howToSee(fact.NotCollected)...)
	return true
}

// gidWords describes the entry at an index: "3 (RoCE v2, 192.168.0.1)".
func gidWords(p *rdma.Port, index fact.Value[int]) fact.Value[string] {
	return fact.Map(index, func(i int) (string, error) {
		g := p.GIDAt(i)
		if g.GID == "" {
			return fmt.Sprintf("%d (empty)", i), nil
		}
		words := []string{strings.TrimPrefix(g.Type.Or("no type"), "IB/"), g.Addr().Unmap().String()}
		if g.Addr().IsLinkLocalUnicast() {
			words = append(words, "link-local")
		}
		if g.NetDev.Or("") == "" {
			words = append(words, "no interface here")
		}
		return fmt.Sprintf("%d (%s)", i, strings.Join(words, ", ")), nil
	})
}
