package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaNodeGUID = Check{
	ID: "rdma-node-guid", Title: "the RDMA device has a node GUID", Area: AreaRDMA, Severity: SeverityError, Rung: RungPort,
	Why: "A virtual function gets its GUID from the host. Where nobody set one, it is zero: rdma_cm crashes or finds no device, and a subnet manager keeps its port down.",
	Fix: []string{"On the host, the GUID being yours to choose: sudo ip link set PF vf N node_guid GUID && sudo ip link set PF vf N port_guid GUID", "Then bind the VF anew: echo ADDRESS | sudo tee /sys/bus/pci/drivers/mlx5_core/unbind; echo ADDRESS | sudo tee /sys/bus/pci/drivers/mlx5_core/bind"},
	Refs: []string{
		"https://github.com/k8snetworkplumbingwg/sriov-network-operator/issues/267",
		"https://man7.org/linux/man-pages/man8/ip-link.8.html",
	},
	Subjects: EachRDMA,
	Eval: func(c *Case) {
		nic := c.Subject.NIC
		if nic.Software || nic.Transport.Or("") == rdma.EFA {
			c.NotApplicable("its driver gives no GUID")
			return
		}
		if !c.matters(nic) {
			c.Lower(SeverityWarning)
		}
		guid, ok := Need(c, "node GUID", nic.NodeGUID)
		c.Want("not zero")
		switch {
		case !ok:
			c.Unknown("cannot tell: the kernel shows no node GUID")
		case strings.Trim(guid, "0:") == "":
			c.Fail("its node GUID is zero: nobody gave this virtual function one")
			c.Fix(fixGUID(c)...)
		default:
			c.Pass("%s", guid)
		}
	},
}

func fixGUID(c *Case) []string {
	pf, addr := "PF", c.firmwareName()
	if f := c.Subject.Function; f != nil {
		if phys, ok := f.PhysFn.Get(); ok {
			for _, n := range c.Machine.RDMA.NetDevs {
				if a, ok := n.PCI.Get(); ok && a == phys {
					pf = n.Name
				}
			}
		}
	}
	return []string{
		fmt.Sprintf("On the host (N is the VF's number, the GUID is yours to choose): sudo ip link set %s vf N node_guid 02:00:00:ff:fe:00:00:01 && sudo ip link set %s vf N port_guid 02:00:00:ff:fe:00:00:01", pf, pf),
		fmt.Sprintf("Then bind the VF anew: echo %[1]s | sudo tee /sys/bus/pci/drivers/mlx5_core/unbind; echo %[1]s | sudo tee /sys/bus/pci/drivers/mlx5_core/bind", addr),
		"Kubernetes: the SR-IOV operator or ib-kubernetes sets it; update them",
	}
}
