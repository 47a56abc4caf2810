package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaPortState = Check{
	ID: "rdma-port-state", Title: "the RDMA port is active", Area: AreaRDMA, Severity: SeverityError, Rung: RungPort,
	Why: "Only an ACTIVE port carries traffic. DOWN is a cable, a transceiver, the switch or an interface that nobody brought up; INIT on InfiniBand is a fabric without a subnet manager.",
	Fix: []string{"InfiniBand, what the port says and whether a subnet manager answers: ibstat DEVICE; sudo sminfo -C DEVICE", "Ethernet: sudo ip link set INTERFACE up", "If it stays down, look at cable and switch port: ethtool INTERFACE"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://github.com/k8snetworkplumbingwg/sriov-network-device-plugin/issues/269",
	},
	Subjects: EachPort,
	Eval:     evalPortState,
}

func evalPortState(c *Case) {
	p, nic := c.Subject.Port, c.Subject.NIC
	if !c.matters(nic) {
		c.Lower(SeverityWarning)
	}
	state, ok := Need(c, "state", p.State)
	c.Want("ACTIVE")
	if !ok {
		c.Unknown("cannot tell: the kernel shows no state for this port")
		return
	}
	if state == "ACTIVE" {
		c.Pass("ACTIVE")
		return
	}
	phys, _ := See(c, "physical state", p.PhysState)
	layer, _ := See(c, "link layer", p.LinkLayer)
	if other := activeSibling(nic, p.Number); other > 0 {
		c.Info("%s, but port %d of the same NIC is ACTIVE", state, other)
		return
	}
	if !c.matters(nic) {
		c.Info("%s; no GPU depends on this NIC", state)
		return
	}
	c.Fail("port is %s%s", state, because(phys))
	c.Fix(fixPort(c, state, phys, layer)...)
}

// activeSibling is the number of another port of the NIC that is up; 0: none.
func activeSibling(nic *rdma.Device, not int) int {
	for _, p := range nic.Ports {
		if p.Number != not && p.State.Or("") == "ACTIVE" {
			return p.Number
		}
	}
	return 0
}

// firmwareName is what NVIDIA's firmware tools call the NIC: its PCI address.
func (c *Case) firmwareName() string {
	if a, ok := c.Subject.NIC.PCI.Get(); ok {
		return a.String()
	}
	return c.Subject.NIC.Name
}

func fixPort(c *Case, state, phys, layer string) []string {
	nic, port := c.Subject.NIC.Name, c.Subject.Port.Number
	dev := c.Subject.Port.NetDev.Or("")
	if strings.HasPrefix(layer, "InfiniBand") {
		switch {
		case state == "INIT" || state == "ARMED":
			return []string{
				"The link is up, but no subnet manager has configured it. See whether one answers: sudo sminfo -C " + nic + fmt.Sprintf(" -P %d", port),
				"Start one on the switch, or on one node: sudo systemctl enable --now opensm",
			}
		case phys == "Disabled":
			return []string{fmt.Sprintf("Enable the port: sudo ibportstate -C %s -P %d -D 0 %d enable", nic, port, port)}
		}
		return []string{
			"Reseat or swap the cable and look at the switch port; then: ibstat " + nic + fmt.Sprintf(" %d", port),
			fmt.Sprintf("For the reason that a ConnectX gives: sudo mlxlink -d %s -p %d", c.firmwareName(), port),
		}
	}
	if dev == "" {
		return []string{
			fmt.Sprintf("Find the port's network interface: rdma link show %s/%d", nic, port),
			"Then bring it up: sudo ip link set INTERFACE up",
			"If it stays down, look at cable and switch port: ethtool INTERFACE",
		}
	}
	for _, n := range c.Machine.RDMA.NetDevs {
		if n.Name == dev && n.Carrier.State == fact.Known && !n.Carrier.V {
			return []string{
				fmt.Sprintf("%s has no carrier: reseat or swap the cable or transceiver, look at the switch port; then: ethtool %s", dev, dev),
				fmt.Sprintf("For the reason that a ConnectX gives: sudo mlxlink -d %s -p %d", c.firmwareName(), port),
			}
		}
	}
	return []string{
		"Bring the interface up: sudo ip link set " + dev + " up",
		"If it stays down, look at cable and switch port: ethtool " + dev,
	}
}
