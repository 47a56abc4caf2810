package rdma

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

const netDir = "/sys/class/net"

func baseName(p string) string { return path.Base(p) }

var representorName = regexp.MustCompile(`^(c\d+)?pf\d+(vf|sf)\d+$`)

func isRepresentor(physPortName string) bool { return representorName.MatchString(physPortName) }

// netIndex is every network interface with its PCI function.
type netIndex struct {
	names []string // naturally sorted
	pci   map[string]fact.Value[pci.Address]
}

func (c *collector) indexNet() netIndex {
	x := netIndex{pci: map[string]fact.Value[pci.Address]{}}
	list, err := c.src.ReadDir(netDir)
	if err != nil {
		return x
	}
	for _, e := range list {
		if e.Type.IsRegular() { // bonding_masters
			continue
		}
		x.names = append(x.names, e.Name)
		x.pci[e.Name] = c.ownPCI(e.Name)
	}
	slices.SortFunc(x.names, CompareNames)
	return x
}

// ownPCI is the function that a netdev itself hangs on, also through virtio or
// an auxiliary device.
func (c *collector) ownPCI(name string) fact.Value[pci.Address] {
	for _, source := range []string{"", "/device"} {
		link, _ := c.src.Readlink(netDir + "/" + name + source)
		if a, ok := nearestPCI(link); ok {
			return fact.Of(a, netDir+"/"+name+source)
		}
	}
	return fact.Missing[pci.Address](fact.Absent, netDir+"/"+name, "a virtual interface")
}

// netPCI is the function below a netdev, also below a VLAN or another interface
// that stands on exactly one other.
func (c *collector) netPCI(name string) fact.Value[pci.Address] {
	for range 4 { // VLAN on bond on …: never deep
		if v, ok := c.net.pci[name]; ok && v.State == fact.Known {
			return v
		}
		lower := c.links(name, "lower_")
		if len(lower) != 1 {
			break
		}
		name = lower[0]
	}
	return fact.Missing[pci.Address](fact.Absent, netDir+"/"+name, "network interface "+name+" is not on one PCI function")
}

// links returns the interfaces above or below one (upper_X, lower_X).
func (c *collector) links(name, prefix string) []string {
	list, _ := c.src.ReadDir(netDir + "/" + name)
	var out []string
	for _, e := range list {
		if n, ok := strings.CutPrefix(e.Name, prefix); ok {
			out = append(out, n)
		}
	}
	return out
}

// selectNet picks the interfaces that matter: those with a PCI function, those
// of RDMA devices, and the bonds, their slaves and the VLANs that these belong to.
func (c *collector) selectNet(scans []*scan) []string {
	keep := map[string]bool{}
	var todo []string
	add := func(name string) {
		if _, there := c.net.pci[name]; there && !keep[name] {
			keep[name] = true
			todo = append(todo, name)
		}
	}
	for _, n := range c.net.names {
		if c.net.pci[n].State == fact.Known {
			add(n)
		}
	}
	for _, s := range scans {
		for _, p := range s.ports {
			add(p.NetDev.V)
			for _, g := range p.GIDs {
				add(g.NetDev.V)
			}
		}
	}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		add(fact.LinkBase(c.src, netDir+"/"+n, "master").V)
		for _, l := range append(c.slaves(n), c.links(n, "lower_")...) {
			add(l)
		}
		for _, u := range c.links(n, "upper_") {
			if strings.Contains(fact.Text(c.src, netDir+"/"+u, "uevent").V, "DEVTYPE=vlan") {
				add(u)
			}
		}
	}
	var out []string
	for _, n := range c.net.names {
		if keep[n] {
			out = append(out, n)
			c.served.want(netDir+"/"+n, "speed") // ethtool in the driver, under the RTNL lock
		}
	}
	return out
}

func (c *collector) slaves(name string) []string {
	s := strings.Fields(fact.Text(c.src, netDir+"/"+name, "bonding/slaves").V)
	slices.SortFunc(s, CompareNames)
	return s
}

func (c *collector) netDev(name string) NetDev {
	dir := netDir + "/" + name
	n := NetDev{
		Name:           name,
		PCI:            c.net.pci[name],
		OperState:      fact.Text(c.src, dir, "operstate"),
		Carrier:        downIsAbsent(fact.Text(c.src, dir, "carrier"), parseFlag),
		CarrierChanges: fact.Parsed(c.src, dir, "carrier_changes", ParseCounter),
		MTU:            fact.Parsed(c.src, dir, "mtu", strconv.Atoi),
		SpeedMbps:      downIsAbsent(c.served.text(dir, "speed"), strconv.Atoi),
		Type:           fact.Parsed(c.src, dir, "type", strconv.Atoi),
		Master:         fact.LinkBase(c.src, dir, "master"),
		Slaves:         c.slaves(name),
		Address:        nonEmpty(fact.Text(c.src, dir, "address")),
	}
	// "802.3ad 4": the name, then the number.
	n.BondMode = fact.Map(fact.Text(c.src, dir, "bonding/mode"), func(s string) (string, error) {
		mode, _, _ := strings.Cut(s, " ")
		return mode, nil
	})
	// -1, and 4294967295 from old kernels: SPEED_UNKNOWN.
	if v := n.SpeedMbps; v.State == fact.Known && (v.V <= 0 || v.V == 1<<32-1) {
		n.SpeedMbps = fact.Missing[int](fact.Absent, v.Source, "the driver reports no speed")
	}
	return n
}

// downIsAbsent parses a file that answers EINVAL while the interface is down.
func downIsAbsent[T any](v fact.Value[string], parse func(string) (T, error)) fact.Value[T] {
	if v.State == fact.Failed && v.Errno == syscall.EINVAL {
		v.State, v.Reason = fact.Absent, "the interface is down"
	}
	return fact.Map(v, parse)
}

func parseFlag(s string) (bool, error) {
	switch s {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, errors.New("bad flag " + strconv.Quote(s) + ": want 0 or 1")
}
