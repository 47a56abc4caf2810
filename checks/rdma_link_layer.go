package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaLinkLayer = Check{
	ID: "rdma-link-layer", Title: "the NICs for GPUs are all InfiniBand or all Ethernet", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	DependsOn: []string{"rdma-device-present"},
	Why:       "A job takes all RDMA devices that it finds. InfiniBand and RoCE ports cannot be connected to each other: ibv_modify_qp answers EINVAL, or a part of the NICs idles. A ConnectX VPI card is either by its firmware's setting.",
	Fix:       []string{"Set the cards to one link layer, 1 for InfiniBand and 2 for Ethernet, then power-cycle: sudo mlxconfig -d ADDRESS set LINK_TYPE_P1=1", "Or name the NICs to the program: NCCL_IB_HCA==DEVICE,DEVICE"},
	Refs: []string{
		"https://github.com/NVIDIA/nccl/issues/302",
		"https://docs.nvidia.com/networking/display/mftv4290/using+mlxconfig",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		by := map[rdma.Transport][]*rdma.Device{}
		total := 0
		for _, s := range EachRDMA(c.Node) {
			if s.NIC.Software || !c.matters(s.NIC) {
				continue
			}
			t, ok := Need(c, "transport of "+s.ID, s.NIC.Transport, s.NIC.Dir)
			if !ok {
				c.Unknown("cannot tell what %s is", s.ID)
				return
			}
			by[t] = append(by[t], s.NIC)
			total++
		}
		ib, eth := by[rdma.InfiniBand], by[rdma.RoCE]
		switch {
		case total < 2:
			c.none("fewer than two NICs for GPUs")
			return
		case len(ib) == 0 || len(eth) == 0:
			c.Pass("%d alike", total)
			return
		}
		few, kind, want := eth, "Ethernet", "IB"
		if len(ib) < len(eth) {
			few, kind, want = ib, "InfiniBand", "ETH"
		}
		most := append(slices.Clone(ib), eth...)
		most = slices.DeleteFunc(most, func(d *rdma.Device) bool { return slices.Contains(few, d) })
		c.Warn("InfiniBand and Ethernet are mixed: %s is %s, %d others are not", nicNames(few), kind, len(most))
		for _, d := range few {
			if slices.ContainsFunc(most, func(o *rdma.Device) bool { return sameModel(d, o) }) {
				c.Fix(fmt.Sprintf("%s is of the same model as the others: sudo mlxconfig -d %s set LINK_TYPE_P%s=%s, then power-cycle or sudo mlxfwreset -d %s reset",
					d.Name, pciName(d), firmwarePort(d.PCI.V), want, pciName(d)))
			}
		}
		c.Fix("Or name those that a job shall use: NCCL_IB_HCA==" + nicNames(most) + "; UCX_NET_DEVICES likewise")
	},
}

func nicNames(list []*rdma.Device) string {
	var s []string
	for _, d := range list {
		s = append(s, d.Name)
	}
	return strings.Join(s, ",")
}

func pciName(d *rdma.Device) string {
	if a, ok := d.PCI.Get(); ok {
		return a.String()
	}
	return d.Name
}
