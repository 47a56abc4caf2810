package rdma

import (
	"fmt"
	"strconv"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// portScan is a port between the two passes.
type portScan struct {
	Port
	pkeys    []int
	pkeyErr  error
	counters []Counter // paths below the device
}

// queried are the port's files whose content the kernel asks the driver for
// (ib_query_port).
var queried = []string{"state", "phys_state", "rate", "lid", "sm_lid", "cap_mask"}

func (c *collector) scanPort(s *scan, number, of int) portScan {
	d := &s.Device
	p := portScan{Port: Port{Number: number}}
	dir := portDir(number)
	for _, f := range queried {
		s.want(dir + f)
	}
	p.LinkLayer = fact.Text(c.src, d.Dir, dir+"link_layer")
	p.GIDs, p.GIDTable = c.gids(d.Dir, dir)
	p.pkeys, p.pkeyErr = listNumbers(c.src, d.Dir+"/"+dir+"pkeys")
	for _, i := range p.pkeys {
		s.want(fmt.Sprintf("%spkeys/%d", dir, i))
	}
	if !c.opt.SkipCounters {
		p.counters = append(c.listCounters(s, dir+"counters"), c.listCounters(s, dir+"hw_counters")...)
	}
	p.NetDev = c.portNetDev(d, &p.Port, of)
	p.TrafficClass = fact.Map(nonEmpty(fact.Text(c.src, d.Dir, fmt.Sprintf("tc/%d/traffic_class", number))), parseTrafficClass)
	return p
}

func (c *collector) finishPort(dev string, s portScan) Port {
	p, dir := s.Port, portDir(s.Number)
	p.State = fact.Map(c.served.text(dev, dir+"state"), ParseState)
	p.PhysState = fact.Map(c.served.text(dev, dir+"phys_state"), ParseState)
	p.Rate = fact.Map(c.served.text(dev, dir+"rate"), ParseRate)
	p.LID = fact.Map(c.served.text(dev, dir+"lid"), parseLID)
	p.SMLID = fact.Map(c.served.text(dev, dir+"sm_lid"), parseLID)
	p.CapMask = fact.Map(c.served.text(dev, dir+"cap_mask"), parseHex32)
	p.PKeys = c.pkeys(dev, dir, s)
	for _, k := range s.counters {
		p.Counters = append(p.Counters, c.counter(dev, k))
	}
	return p
}

func portDir(n int) string { return fmt.Sprintf("ports/%d/", n) }

// pkeys is the table without its empty entries. An entry that could not be read
// makes the whole table unknown: it might have been the one that matters.
func (c *collector) pkeys(dev, dir string, s portScan) fact.Value[[]PKey] {
	name := dir + "pkeys"
	if s.pkeyErr != nil {
		return fact.FromError[[]PKey](s.pkeyErr, name)
	}
	keys := []PKey{}
	for _, i := range s.pkeys {
		v := fact.Map(c.served.text(dev, name+"/"+strconv.Itoa(i)), parseHex16)
		if v.State != fact.Known {
			return fact.As[[]PKey](v, nil)
		}
		if v.V != 0 {
			keys = append(keys, PKey{Index: i, Value: v.V})
		}
	}
	return fact.Of(keys, name)
}

// gids reads a port's GID table, which the kernel keeps in memory. The table's
// value is its length; an entry that could not be read makes it Failed, while
// the entries that could are there all the same.
func (c *collector) gids(dev, dir string) ([]GID, fact.Value[int]) {
	name := dir + "gids"
	slots, err := listNumbers(c.src, dev+"/"+name)
	if err != nil {
		return nil, fact.FromError[int](err, name)
	}
	table := fact.Of(len(slots), name)
	var out []GID
	for _, i := range slots {
		slot := strconv.Itoa(i)
		gid := fact.Text(c.src, dev, name+"/"+slot)
		if gid.State != fact.Known {
			table = fact.As(gid, 0)
			continue
		}
		if zeroGID(gid.V) {
			continue
		}
		out = append(out, GID{
			Index: i, GID: gid.V,
			Type:   c.gidAttr(dev, dir+"gid_attrs/types/"+slot),
			NetDev: c.gidAttr(dev, dir+"gid_attrs/ndevs/"+slot),
		})
	}
	return out, table
}

// gidAttr reads a type or netdev of a GID. EINVAL is the kernel's answer where
// the entry has none (native InfiniBand, a slot emptied meanwhile).
func (c *collector) gidAttr(dev, name string) fact.Value[string] {
	v := nonEmpty(fact.Text(c.src, dev, name))
	if v.State == fact.Failed && v.Errno == syscall.EINVAL {
		v.State = fact.Absent
	}
	return v
}

// listCounters returns the counters in a folder by path, still to be read. A
// folder that is there and cannot be listed is a Group.
func (c *collector) listCounters(s *scan, folder string) []Counter {
	list, err := c.src.ReadDir(s.Dir + "/" + folder)
	if err != nil {
		v := fact.FromError[uint64](err, folder)
		if v.State == fact.Absent {
			return nil
		}
		return []Counter{{Name: folder, Value: v, Group: true}}
	}
	var out []Counter
	for _, e := range list {
		// lifespan is how long, in ms, the kernel keeps hw_counters cached.
		if e.Type.IsDir() || e.Name == "lifespan" {
			continue
		}
		out = append(out, Counter{Name: folder + "/" + e.Name})
		s.want(folder + "/" + e.Name)
	}
	return out
}

// counter is a listed counter as it was read.
func (c *collector) counter(dev string, listed Counter) Counter {
	if listed.Group {
		return listed
	}
	return Counter{Name: baseName(listed.Name), Value: c.served.counter(dev, listed.Name)}
}

// portNetDev finds the network interface of a port: the GID table names it on
// RoCE; otherwise it is the netdev of the same PCI function with dev_port =
// port - 1 (Documentation/ABI/testing/sysfs-class-net). of is the device's
// number of ports.
func (c *collector) portNetDev(d *Device, p *Port, of int) fact.Value[string] {
	for _, g := range p.GIDs {
		if g.NetDev.State == fact.Known {
			return g.NetDev
		}
	}
	if d.Driver.Source == "parent" { // Soft-RoCE
		return fact.Text(c.src, d.Dir, "parent")
	}
	addr, ok := d.PCI.Get()
	if !ok {
		return fact.Missing[string](fact.Absent, "device/net", "no PCI function to look below")
	}
	var found []string
	for _, n := range c.net.names {
		if a, ok := c.net.pci[n].Get(); !ok || a != addr || c.representor(n) {
			continue
		}
		port := fact.Parsed(c.src, netDir+"/"+n, "dev_port", strconv.Atoi)
		if port.State == fact.Known && port.V == p.Number-1 || port.State != fact.Known && of == 1 {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return fact.Missing[string](fact.Absent, "device/net", "no network interface on this port")
	}
	return fact.Of(found[0], "device/net/"+found[0])
}

// representor says whether a netdev stands for a VF's or SF's switch port
// ("pf0vf3", "c1pf0sf88").
func (c *collector) representor(netdev string) bool {
	name := fact.Text(c.src, netDir+"/"+netdev, "phys_port_name").V
	return isRepresentor(name)
}
