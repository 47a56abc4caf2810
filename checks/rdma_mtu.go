package checks

import (
	"fmt"

	"github.com/gdrcheck/gdrcheck/rdma"
)

var rdmaMTU = Check{
	ID: "rdma-mtu", Title: "the RDMA port's MTU is that of its siblings and of its interface", Area: AreaRDMA, Severity: SeverityWarning, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "RoCE takes the largest RDMA MTU that fits into the interface's: 4096 needs 4200 there, 1500 gives 1024. Where two ends differ, connections hang or end with a length error (LOC_LEN_ERR); small packets cost bandwidth.",
	Fix:       []string{"Give every compute NIC, and the switches, an MTU of 4200 or more: sudo ip link set INTERFACE mtu 9000"},
	Refs: []string{
		"https://github.com/torvalds/linux/blob/master/include/rdma/ib_addr.h",
		"https://github.com/NVIDIA/nccl/issues/2135",
		"https://github.com/NVIDIA/dgx-spark-playbooks/issues/103",
	},
	Subjects: EachPort,
	Eval:     evalMTU,
}

// roceHeaders is what RoCE v2 puts around the payload at most, in bytes
// (include/rdma/ib_addr.h, iboe_get_mtu); 4200 leaves some room for a VLAN.
const (
	roceHeaders = 96
	roceFullMTU = 4200
)

func evalMTU(c *Case) {
	p, nic := c.Subject.Port, c.Subject.NIC
	transport, _ := Need(c, "transport", nic.Transport)
	switch {
	case transport != rdma.RoCE:
		c.NotApplicable("%s's MTU is not its interface's", orElse(string(transport), "this transport"))
		return
	case nic.Software:
		c.NotApplicable("software RDMA")
		return
	}
	if state, known := p.State.Get(); known && state != "ACTIVE" {
		c.NotApplicable("the port is %s", state)
		return
	}
	active, ok := Need(c, "active RDMA MTU", p.ActiveMTU)
	if !ok {
		c.Unknown("cannot tell: the port has no active MTU")
		return
	}
	dev := p.NetDev.Or("")
	netdev, iface := 0, c.netDev(dev)
	if iface != nil {
		netdev = iface.MTU.Or(0)
	}
	if netdev > 0 {
		c.Row("MTU of "+dev, fmt.Sprint(netdev), "/sys/class/net/"+dev+"/mtu")
		c.Want("%d or more", roceFullMTU)
	}
	set := fmt.Sprintf("sudo ip link set %s mtu 9000 (%d at least; the switch ports too), and make it permanent in netplan, NetworkManager or systemd-networkd", orElse(dev, "INTERFACE"), roceFullMTU)
	best, widest := largestMTU(c)
	switch {
	case c.matters(nic) && active < best:
		c.Warn("%d, while %s has %d: connections between the two hang or end with a length error", active, widest, best)
		c.Fix(set, "Compare all: grep . /sys/class/net/*/mtu; ibv_devinfo | grep active_mtu")
	case active < mtuFor(netdev, p.MaxMTU.Or(active)):
		c.Warn("%d, though %s's MTU of %d allows %d: it was changed without the RDMA port", active, dev, netdev, mtuFor(netdev, p.MaxMTU.Or(active)))
		c.Fix("Set it anew: sudo ip link set " + dev + " down && sudo ip link set " + dev + " up")
	case active < 4096 && netdev > 0 && netdev < roceFullMTU:
		c.Info("%d on all alike; an interface MTU of %d or more would give 4096, at a few percent more bandwidth: %s", active, roceFullMTU, set)
	default:
		mustSee(c, "its interface", p.NetDev)
		if active < 4096 {
			mustSee(c, "largest RDMA MTU", p.MaxMTU)
		}
		if iface != nil {
			mustSee(c, "MTU of "+dev, iface.MTU, "/sys/class/net/"+dev)
		}
		c.Pass("%d", active)
	}
}

// mtuFor is the RDMA MTU that an interface's allows.
func mtuFor(netdev, most int) int {
	for _, m := range []int{4096, 2048, 1024, 512, 256} {
		if m <= most && netdev-roceHeaders >= m {
			return m
		}
	}
	return 0
}

// largestMTU is the largest among the active RoCE ports that matter.
func largestMTU(c *Case) (mtu int, of string) {
	for _, s := range EachPort(c.Node) {
		if s.NIC.Transport.Or("") != rdma.RoCE || s.Port.State.Or("") != "ACTIVE" || !c.matters(s.NIC) {
			continue
		}
		if m := s.Port.ActiveMTU.Or(0); m > mtu {
			mtu, of = m, s.ID
		}
	}
	return mtu, of
}
