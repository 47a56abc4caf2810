package qos

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

const netDir = "/sys/class/net/"

// collector carries what the readers of one collection share.
type collector struct {
	src     fact.Source
	netdevs map[string]*rdma.NetDev
	owner   map[pci.Address]string // RDMA device of a function
	vf      map[pci.Address]bool
	files   places
	ports   []*port
}

// port is a Port on its way, with what it is read by.
type port struct {
	Port
	transport rdma.Transport
	physState fact.Value[string]
	driver    *driver
}

// Options says what Collect reads beyond the settings.
type Options struct {
	Stats bool // ethtool -S
	// MST asks mstconfig, which takes a second a function.
	MST bool
	// Modules reads the memory of modules, some milliseconds a port. What an
	// alarm has latched is cleared by that (CMIS 5.2, 8.1.4.2; SFF-8636, 6.2.3).
	Modules bool
	// Neighbours sends an SMP out of each InfiniBand port. Where the fabric lets
	// nobody read without its M_Key, that raises a trap at the subnet manager
	// (InfiniBand specification 1, 14.2.4).
	Neighbours bool
}

// Collect reads the settings of the RDMA ports of r. Nothing here fails as a
// whole: what could not be read says so in its value.
func Collect(ctx context.Context, src fact.Source, r *rdma.Facts, functions []pci.Function, opt Options) Facts {
	c := &collector{src: src, netdevs: map[string]*rdma.NetDev{}, owner: map[pci.Address]string{}, vf: map[pci.Address]bool{}}
	for i := range r.NetDevs {
		c.netdevs[r.NetDevs[i].Name] = &r.NetDevs[i]
	}
	for i := range functions {
		if _, vf := functions[i].PhysFn.Get(); vf {
			c.vf[functions[i].Address] = true
		}
	}
	for i := range r.Devices {
		if a, ok := r.Devices[i].PCI.Get(); ok && !r.Devices[i].Software {
			c.owner[a] = r.Devices[i].Name
		}
	}
	for i := range r.Devices {
		c.listPorts(&r.Devices[i])
	}
	for _, p := range c.ports {
		c.files.want(p.files()...)
	}

	if len(c.ports) == 0 {
		return Facts{}
	}
	a := c.ask(ctx, opt)
	f := Facts{Job: a.job}
	for _, p := range c.ports {
		p.setDCB(a.dcb, &c.files)
		p.setAnswers(&a)
		p.setNVConfig(&a)
		p.setECN(&c.files)
		c.setToS(p)
		c.setLAG(p)
		f.Ports = append(f.Ports, p.Port)
	}
	return f
}

// answers are the worker's, by network interface or PCI address.
type answers struct {
	dcb     map[string]DCB
	ethtool map[string]Ethtool
	stats   map[string]fact.Value[[]Stat]
	devlink map[string]Devlink
	modules map[string]Module
	lldp    map[string]Neighbour
	smp     map[string]Neighbour // by port
	mst     map[string]fact.Value[[]NVSetting]
	job     fact.Value[[]Setting]
}

// ask puts all questions side by side: each has a worker of its own.
func (c *collector) ask(ctx context.Context, opt Options) answers {
	var a answers
	var side sideBySide
	netdevs := c.subjects(func(p *port) string { return p.NetDev })
	side.Go(func() { c.files.ask(ctx, c.src) })
	side.Go(func() { a.job = readJob(ctx, c.src) })
	side.Go(func() {
		a.dcb = askAll[DCB](ctx, c.src, fact.AskDCB, c.subjects((*port).ethernet))
	})
	side.Go(func() { a.ethtool = askAll[Ethtool](ctx, c.src, fact.AskEthtool, netdevs) })
	side.Go(func() {
		if opt.Stats {
			a.stats = fact.AskEach[[]Stat](ctx, c.src, fact.AskStats, netdevs)
		}
	})
	side.Go(func() { a.lldp = askAll[Neighbour](ctx, c.src, fact.AskLLDP, c.subjects((*port).ethernet)) })
	side.Go(func() {
		if opt.Neighbours {
			a.smp = askAll[Neighbour](ctx, c.src, fact.AskSMP, c.subjects((*port).cabled))
		}
	})
	side.Go(func() {
		if opt.MST {
			a.mst = fact.AskEach[[]NVSetting](ctx, c.src, fact.AskMST, c.subjects((*port).mellanox))
		}
	})
	side.Go(func() { a.devlink = askAll[Devlink](ctx, c.src, fact.AskDevlink, c.subjects((*port).address)) })
	side.Wait()
	// Last: the kernel holds a lock while a module answers, for which all
	// other questions would wait.
	if opt.Modules {
		a.modules = askAll[Module](ctx, c.src, fact.AskModules, netdevs)
	}
	return a
}

// sideBySide runs functions at the same time. A panic in one is raised where
// they are waited for, since nobody could catch it otherwise.
type sideBySide struct {
	wg       sync.WaitGroup
	once     sync.Once
	panicked any
}

func (s *sideBySide) Go(f func()) {
	s.wg.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.once.Do(func() { s.panicked = p })
			}
		}()
		f()
	})
}

func (s *sideBySide) Wait() {
	s.wg.Wait()
	if s.panicked != nil {
		panic(s.panicked)
	}
}

// subjects are the names that f gives the ports, each once, in order.
func (c *collector) subjects(f func(*port) string) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, p := range c.ports {
		if n := f(p); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// address is that of the function; empty where it is not known.
func (p *port) address() string {
	if a, ok := p.PCI.Get(); ok {
		return a.String()
	}
	return ""
}

// ethernet is the network interface, but for InfiniBand's, on which neither DCB
// nor LLDP runs.
func (p *port) ethernet() string {
	if p.transport == rdma.InfiniBand {
		return ""
	}
	return p.NetDev
}

// cabled names an InfiniBand port that has a link.
func (p *port) cabled() string {
	if p.transport != rdma.InfiniBand || p.physState.State == fact.Known && p.physState.V != "LinkUp" {
		return ""
	}
	return fmt.Sprintf("%s/%d", p.Device, p.Number)
}

// mellanox is the address of a function that mstconfig knows.
func (p *port) mellanox() string {
	if strings.HasPrefix(p.NetDriver.V, "mlx") {
		return p.address()
	}
	return ""
}

// listPorts notes the ways out of each port of a device.
func (c *collector) listPorts(d *rdma.Device) {
	for i := range d.Ports {
		rp := &d.Ports[i]
		p := port{Port: Port{Device: d.Name, Number: rp.Number, PCI: d.PCI, NetDriver: d.Driver}, transport: d.Transport.V, physState: rp.PhysState}
		p.ToS.Forced = rp.TrafficClass
		p.ToS.Forced.Source = d.Dir + "/" + p.ToS.Forced.Source
		for _, leg := range c.legs(d, rp.NetDev.V) {
			c.add(p, leg, d)
		}
	}
}

// legs are the interfaces that a port's packets leave by: those of the bond that
// it stands on, but for the legs that have an RDMA device of their own.
func (c *collector) legs(d *rdma.Device, netdev string) []string {
	var out []string
	if n := c.netdevs[netdev]; n != nil {
		for _, s := range n.Slaves {
			leg := c.netdevs[s]
			if leg == nil || leg.PCI.State != fact.Known || c.owner[leg.PCI.V] == d.Name || c.owner[leg.PCI.V] == "" {
				out = append(out, s)
			}
		}
	}
	if out == nil {
		out = []string{netdev}
	}
	return out
}

func (c *collector) add(p port, leg string, d *rdma.Device) {
	if leg != "" {
		p.NetDev, p.NetDir = leg, netDir+leg
		p.NetDriver = fact.LinkBase(c.src, p.NetDir, "device/driver")
		if n := c.netdevs[leg]; n != nil && n.PCI.State == fact.Known {
			p.PCI = n.PCI
		}
	}
	p.IsVF = p.PCI.State == fact.Known && c.vf[p.PCI.V]
	// The driver of a subfunction's interface is mlx5_core.sf.
	name, _, _ := strings.Cut(p.NetDriver.V, ".")
	p.driver = driverOf(name, d.Driver.V)
	c.ports = append(c.ports, &p)
}

// expand puts the port's own names into a place; empty where one is missing.
func (p *port) expand(place string) string {
	net, addr := p.NetDir, p.address()
	if strings.Contains(place, "{net}") && net == "" || strings.Contains(place, "{pci}") && addr == "" {
		return ""
	}
	return strings.NewReplacer("{net}", net, "{pci}", addr, "{device}", p.Device, "{port}", fmt.Sprint(p.Number)).Replace(place)
}

func (p *port) expandAll(list []string) []string {
	var out []string
	for _, s := range list {
		if e := p.expand(s); e != "" {
			out = append(out, e)
		}
	}
	return out
}

// rdmaCMDir has a directory for each device of which somebody made one
// (Documentation/ABI/testing/configfs-rdma_cm).
const rdmaCMDir = "/sys/kernel/config/rdma_cm"

func (p *port) rdmaCM(name string) string {
	return fmt.Sprintf("%s/%s/ports/%d/%s", rdmaCMDir, p.Device, p.Number, name)
}

func (p *port) ttl() string {
	return fmt.Sprintf("/sys/class/infiniband/%s/ttl/%d/ttl", p.Device, p.Number)
}

// files are all files to read for the port.
func (p *port) files() []string {
	if p.transport == rdma.InfiniBand {
		return nil
	}
	d := p.driver
	out := []string{p.rdmaCM("default_roce_tos"), p.rdmaCM("default_roce_mode"), p.ttl(), p.expand(d.LAG.State), p.expand(d.LAG.PortSelect)}
	for _, list := range [][]string{d.Trust.Files, d.ECN.NP, d.ECN.RP, d.ECN.CNPDSCP, d.ECN.CNPPriority, d.ECN.RoCEDSCP, d.ECN.RoCEPriority} {
		for _, place := range p.expandAll(list) {
			if strings.Contains(place, prioMark) {
				out = append(out, eachPriority(place)...)
			} else {
				out = append(out, place)
			}
		}
	}
	return out
}
