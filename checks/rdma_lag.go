package checks

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaLAG = Check{
	ID: "rdma-lag", Title: "a bond below RDMA is one that the NIC can offload", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "RoCE over a bond works when the NIC itself bundles its ports, which it does in the modes active-backup, balance-xor and 802.3ad, and for ports of one card alone. One queue pair uses one port: a job needs two or more for the speed of both.",
	Fix:       []string{"Use a bond over ports of one card, with LACP on the switch: sudo ip link set BOND type bond mode 802.3ad"},
	Refs: []string{
		"https://docs.nvidia.com/networking/display/mlnxofedv24100700/roce+lag",
		"https://github.com/NVIDIA/nccl/issues/1015",
		"https://github.com/NVIDIA/nccl/issues/2136",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		p := c.Subject.Port
		dev, ok := Need(c, "interface", p.NetDev)
		if !ok {
			c.NotApplicable("the port has no network interface")
			return
		}
		n := c.netDev(dev)
		if n == nil || len(n.Slaves) == 0 {
			if n != nil && c.bond(n.Master.Or("")) != nil {
				c.Info("its interface %s is in the bond %s, but the NIC does not bundle its ports: this RDMA device uses its own port alone", dev, n.Master.V)
				return
			}
			c.Pass("no bond")
			return
		}
		mode, ok := Need(c, "mode of "+dev, n.BondMode, "/sys/class/net/"+dev)
		c.Want("802.3ad, balance-xor or active-backup")
		switch {
		case !ok:
			c.Unknown("cannot tell: %s shows no mode", dev)
		case !slices.Contains([]string{"802.3ad", "balance-xor", "active-backup"}, mode):
			c.Warn("%s has mode %s, which the NIC cannot offload: RDMA uses one port, and loses it with its link", dev, mode)
			c.Fix("Change it: mode 802.3ad with LACP on the switch (netplan: parameters: mode: 802.3ad); while RDMA is idle: sudo ip link set " + dev + " type bond mode 802.3ad")
		case c.slavesOfCards(n) > 1:
			c.Row("ports of "+dev, strings.Join(n.Slaves, ", "), "/sys/class/net/"+dev+"/bonding/slaves")
			c.Want("of one card")
			c.Warn("%s bundles ports of %d cards (%s), which no NIC can offload", dev, c.slavesOfCards(n), strings.Join(n.Slaves, ", "))
			c.Fix("Take the ports apart and let the job use each card's RDMA device by itself, or bond ports of one card alone")
		case mode == "active-backup":
			c.Info("%s (%s): one port carries, the other waits", dev, mode)
		default:
			c.Info("%s (%s) of %d ports: one queue pair uses one port; for the speed of all, NCCL_IB_QPS_PER_CONNECTION=%d or more, and UCX_IB_NUM_PATHS=%d", dev, mode, len(n.Slaves), len(n.Slaves), len(n.Slaves))
		}
	},
}

func (n *Node) netDev(name string) *rdma.NetDev {
	for i := range n.Machine.RDMA.NetDevs {
		if n.Machine.RDMA.NetDevs[i].Name == name && name != "" {
			return &n.Machine.RDMA.NetDevs[i]
		}
	}
	return nil
}

func (n *Node) bond(name string) *rdma.NetDev {
	if d := n.netDev(name); d != nil && len(d.Slaves) > 0 {
		return d
	}
	return nil
}

// slavesOfCards counts the cards that a bond's ports are on.
func (n *Node) slavesOfCards(bond *rdma.NetDev) int {
	var cards []string
	for _, s := range bond.Slaves {
		if d := n.netDev(s); d != nil {
			if a, ok := d.PCI.Get(); ok {
				a.Function = 0
				if !slices.Contains(cards, a.String()) {
					cards = append(cards, a.String())
				}
			}
		}
	}
	return len(cards)
}
