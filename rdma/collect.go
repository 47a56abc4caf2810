package rdma

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

const classDir = "/sys/class/infiniband"

// Options says what Collect leaves out.
type Options struct {
	// SkipCounters leaves counters and hw_counters unread.
	SkipCounters bool
}

// collector carries what the readers of one collection share.
type collector struct {
	src       fact.Source
	opt       Options
	functions map[pci.Address]*pci.Function
	caller    fact.Value[fact.Caller]
	served    served
	net       netIndex
}

// Collect reads the node's RDMA side. functions are the PCI functions that
// were collected before; they give NUMA nodes, models and physical functions.
// Nothing here fails as a whole: what could not be read says so in its value.
func Collect(ctx context.Context, src fact.Source, functions []pci.Function, opt Options) Facts {
	c := &collector{
		src: src, opt: opt,
		functions: make(map[pci.Address]*pci.Function, len(functions)),
		caller:    fact.ReadCaller(src),
	}
	for i := range functions {
		c.functions[functions[i].Address] = &functions[i]
	}
	c.net = c.indexNet()

	var f Facts
	names, err := listDir(src, classDir)
	f.Listed = fact.Of(len(names), classDir)
	if err != nil {
		f.Listed = fact.FromError[int](err, classDir)
		if _, err := src.Stat("/sys/class"); fact.StateOf(err) == fact.Absent {
			f.Listed = fact.Unseen(f.Listed) // a tree of something else
		}
	}
	// First what the kernel answers by itself; then one question for all that
	// firmware serves; then the rest of each device from the answers.
	scans := c.scanAll(names)
	netdevs := c.selectNet(scans)
	dataDirect := c.wantDataDirect(scans)
	c.served.ask(ctx, src)

	maps := fact.AskEach[MapEntry](ctx, src, fact.AskRDMAMap, names)
	verbs := fact.AskEach[VerbsProbe](ctx, src, fact.AskVerbs, names)
	for _, s := range scans {
		d := c.finish(s)
		d.RDMAMap, d.Verbs = maps[d.Name], verbs[d.Name]
		setMTU(&d, src)
		f.Devices = append(f.Devices, d)
	}
	c.pairDataDirect(f.Devices, dataDirect)
	c.charDevices(&f)
	for _, n := range netdevs {
		f.NetDevs = append(f.NetDevs, c.netDev(n))
	}
	f.LibIBVerbs = libIBVerbs(src)
	f.LibCopies = libCopies(src)
	f.Providers = providers(src)
	return f
}

// listDir returns the names in a directory, naturally sorted.
func listDir(src fact.Source, dir string) ([]string, error) {
	list, err := src.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name
	}
	slices.SortFunc(names, CompareNames)
	return names, nil
}

// listNumbers returns the names in a directory that are numbers, in order.
func listNumbers(src fact.Source, dir string) ([]int, error) {
	names, err := listDir(src, dir)
	var out []int
	for _, n := range names {
		if i, err := strconv.Atoi(n); err == nil && i >= 0 {
			out = append(out, i)
		}
	}
	slices.Sort(out)
	return out, err
}

// scan is a device between the two passes.
type scan struct {
	Device
	ports      []portScan
	hwCounters []Counter // by path below the device
	served     []string  // files that firmware answers, absolute
}

func (s *scan) want(names ...string) {
	for _, n := range names {
		s.served = append(s.served, s.Dir+"/"+n)
	}
}

// scanAll scans the devices side by side: a RoCE port has 256 GIDs to read.
func (c *collector) scanAll(names []string) []*scan {
	scans := make([]*scan, len(names))
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, name := range names {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			scans[i] = fact.Guarded(c.src, func(src fact.Source) *scan {
				own := *c
				own.src = src
				return own.scan(name)
			})
		})
	}
	all.Wait()
	for _, s := range scans {
		c.served.paths = append(c.served.paths, s.served...)
	}
	return scans
}

// scan reads what needs no firmware and names the files that do.
func (c *collector) scan(name string) *scan {
	s := &scan{Device: Device{Name: name, Dir: classDir + "/" + name}}
	d := &s.Device
	d.NodeType = fact.Text(c.src, d.Dir, "node_type")
	c.place(d)
	d.NodeGUID = fact.Text(c.src, d.Dir, "node_guid")
	d.SysGUID = fact.Text(c.src, d.Dir, "sys_image_guid")
	d.HCAType = nonEmpty(fact.Text(c.src, d.Dir, "hca_type"))
	s.want("fw_ver", "board_id")
	d.NUMANode = c.numaNode(d)
	if !c.opt.SkipCounters {
		s.hwCounters = c.listCounters(s, "hw_counters")
	}
	ports, err := listNumbers(c.src, d.Dir+"/ports")
	if d.PortsListed = fact.Of(len(ports), "ports"); err != nil {
		d.PortsListed = fact.FromError[int](err, "ports")
	}
	for _, n := range ports {
		s.ports = append(s.ports, c.scanPort(s, n, len(ports)))
	}
	return s
}

// finish fills in what the second pass brought.
func (c *collector) finish(s *scan) Device {
	d := s.Device
	d.Firmware = nonEmpty(c.served.text(d.Dir, "fw_ver"))
	d.BoardID = nonEmpty(c.served.text(d.Dir, "board_id"))
	for _, p := range s.ports {
		d.Ports = append(d.Ports, c.finishPort(d.Dir, p))
	}
	for _, k := range s.hwCounters {
		d.HWCounters = append(d.HWCounters, c.counter(d.Dir, k))
	}
	d.Transport = transport(&d)
	d.Model = c.model(&d)
	return d
}

// nonEmpty turns an empty text into Absent: drivers that have no answer leave
// the file empty.
func nonEmpty(v fact.Value[string]) fact.Value[string] {
	if v.State == fact.Known && v.V == "" {
		return fact.Missing[string](fact.Absent, v.Source, "empty")
	}
	return v
}

// transport is that of the first port that tells its link layer.
func transport(d *Device) fact.Value[Transport] {
	layer := fact.Missing[string](fact.Absent, "ports", "no ports")
	for _, p := range d.Ports {
		if layer = p.LinkLayer; layer.State == fact.Known {
			break
		}
	}
	if d.Driver.V == "efa" || strings.HasPrefix(d.NodeType.V, "4:") {
		layer = fact.Of(layer.V, "node_type") // whatever the port says
	}
	return fact.Map(layer, func(l string) (Transport, error) {
		return transportOf(d.NodeType.V, l, d.Driver.V, d.HCAType.V)
	})
}

// numaNode is that of the PCI function; -1 in sysfs is Absent.
func (c *collector) numaNode(d *Device) fact.Value[int] {
	const name = "device/numa_node"
	if a, ok := d.PCI.Get(); ok {
		if f := c.functions[a]; f != nil {
			v := f.NUMANode
			v.Source = name
			return v
		}
	}
	v := fact.Parsed(c.src, d.Dir, name, strconv.Atoi)
	if v.State == fact.Known && v.V < 0 {
		return fact.Missing[int](fact.Absent, name, "-1")
	}
	return v
}

// setMTU fills the MTUs of each port: as verbs says, or else for RoCE what the
// netdev's MTU allows.
func setMTU(d *Device, src fact.Source) {
	const source = "verbs:ibv_query_port"
	for i := range d.Ports {
		p := &d.Ports[i]
		if d.Verbs.State != fact.Known {
			p.ActiveMTU = fact.As(d.Verbs, 0)
			p.MaxMTU = p.ActiveMTU
		}
		for _, vp := range d.Verbs.V.Ports {
			if vp.Number == p.Number {
				p.ActiveMTU, p.MaxMTU = fact.Of(vp.ActiveMTUBytes, source), fact.Of(vp.MaxMTUBytes, source)
			}
		}
		if p.ActiveMTU.State == fact.Known || d.Transport.V != RoCE || p.NetDev.State != fact.Known {
			continue
		}
		mtu := fact.Parsed(src, netDir+"/"+p.NetDev.V, "mtu", strconv.Atoi)
		if mtu = fact.Map(mtu, roceMTU); mtu.State == fact.Known {
			mtu.Source = "derived from the MTU of netdev " + p.NetDev.V
			p.ActiveMTU = mtu
		}
	}
}
