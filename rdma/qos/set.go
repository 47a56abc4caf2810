package qos

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// setDCB takes the kernel's answer and what the driver adds to its meaning.
func (p *port) setDCB(answers map[string]DCB, files *places) {
	switch {
	case p.transport == rdma.InfiniBand:
		Fill(&p.DCB, fact.Missing[DCB](fact.Absent, "link_layer", "native InfiniBand, which has no DCB"))
		return
	case p.NetDev == "":
		Fill(&p.DCB, fact.Missing[DCB](fact.Absent, "", "the port has no network interface"))
		return
	}
	p.DCB = answers[p.NetDev]
	d := &p.DCB
	if p.driver.ZeroUnknown && d.DCBX.V.Host {
		forgetZeros(d)
	}
	if d.Trust.State == fact.Known {
		return // the kernel's own table
	}
	for _, name := range p.expandAll(p.driver.Trust.Files) {
		if v := fact.Map(files.text(name), parseTrust); v.State == fact.Known {
			d.Trust = v
			return
		}
	}
	if apps, ok := d.Apps.Get(); ok && p.driver.Trust.ByApp {
		d.Trust = fact.Of(trustByApps(apps), d.Apps.Source+" (app table)")
	}
}

// setAnswers takes what the worker was asked for and what needs no more thought.
func (p *port) setAnswers(a *answers) {
	noNetDev := fact.Missing[Port](fact.Absent, "", "the port has no network interface")
	if p.NetDev == "" {
		Fill(&p.Link, noNetDev)
		Fill(&p.FEC, noNetDev)
		Fill(&p.Pause, noNetDev)
		Fill(&p.Module, noNetDev)
		Fill(&p.Neighbour, noNetDev)
		p.Stats = fact.As[[]Stat](noNetDev, nil)
	} else {
		e := a.ethtool[p.NetDev]
		p.Link, p.FEC, p.Pause = e.Link, e.FEC, e.Pause
		p.Stats, p.Module = a.stats[p.NetDev], a.modules[p.NetDev]
		if p.Module.Type.State == fact.NotCollected { // in the same words now and in a replay
			p.Module = Module{}
			Fill(&p.Module, fact.Missing[Port](fact.NotCollected, "", "asked with --module only"))
		}
		p.Neighbour = a.lldp[p.NetDev]
	}
	if addr := p.address(); addr != "" {
		p.Devlink = a.devlink[addr]
	} else {
		Fill(&p.Devlink, fact.As(p.PCI, Devlink{}))
	}
}

// setNVConfig takes mstconfig's answer. That nobody asked it is said in the same
// words whether it was not wanted now or when a recording was made.
func (p *port) setNVConfig(a *answers) {
	v, asked := a.mst[p.mellanox()]
	if !asked || v.State == fact.NotCollected {
		v = fact.Missing[[]NVSetting](fact.NotCollected, "mstconfig", "asked with --mst only, of NVIDIA's NICs")
	}
	p.NVConfig.Settings = v
}

// trustByApps is how a driver without a trust table decides.
func trustByApps(apps []App) Trust {
	for _, a := range apps {
		if a.Selector == ByDSCP {
			return TrustDSCP
		}
	}
	return TrustPCP
}

func parseTrust(s string) (Trust, error) {
	switch s {
	case "dscp":
		return TrustDSCP, nil
	case "pcp":
		return TrustPCP, nil
	case "both":
		return TrustBoth, nil
	}
	return "", fmt.Errorf("%q: want pcp, dscp or both", s)
}

// forgetZeros makes unknown what a driver answers with zero since nobody has
// told it otherwise, whatever the firmware does.
func forgetZeros(d *DCB) {
	const why = "the driver answers zero until somebody sets it, and does not ask the firmware"
	if d.PFC.State == fact.Known && d.PFC.V.Enabled == 0 {
		d.PFC = fact.Missing[PFC](fact.Unsupported, d.PFC.Source, why)
	}
	if d.ETS.State == fact.Known && d.ETS.V.PriorityClass == [PriorityCount]int{} && d.ETS.V.TxPercent == [PriorityCount]int{} {
		d.ETS = fact.Missing[ETS](fact.Unsupported, d.ETS.Source, why)
	}
	if d.Apps.State == fact.Known && len(d.Apps.V) == 0 {
		d.Apps = fact.Missing[[]App](fact.Unsupported, d.Apps.Source, why)
	}
}

func (p *port) setECN(files *places) {
	if p.transport == rdma.InfiniBand {
		Fill(&p.ECN, fact.Missing[ECN](fact.Absent, "link_layer", "native InfiniBand, whose congestion control the subnet manager sets"))
		return
	}
	const maxDSCP, maxPriority = 63, PriorityCount - 1
	e := p.driver.ECN
	unseen := p.expand(e.Unseen)
	p.ECN = ECN{
		NP:          files.priorities(p.expandAll(e.NP), unseen),
		RP:          files.priorities(p.expandAll(e.RP), unseen),
		CNPDSCP:     files.number(p.expandAll(e.CNPDSCP), maxDSCP, unseen),
		CNPPriority: files.number(p.expandAll(e.CNPPriority), maxPriority, unseen),
	}
	const applications = "the driver gives no mark of its own: applications do"
	p.ECN.DSCP = files.number(p.expandAll(e.RoCEDSCP), maxDSCP, unseen)
	p.ECN.Priority = files.number(p.expandAll(e.RoCEPriority), maxPriority, unseen)
	if len(e.RoCEDSCP) == 0 {
		p.ECN.DSCP = fact.Missing[int](fact.Absent, "", applications)
		p.ECN.Priority = p.ECN.DSCP
	}
}

func (p *port) setToS(files *places) {
	if p.transport == rdma.InfiniBand {
		p.ToS = ToS{}
		Fill(&p.ToS, fact.Missing[ToS](fact.Absent, "link_layer", "native InfiniBand, which goes by service levels"))
		return
	}
	const maxByte = 255
	t := &p.ToS
	t.TTL = fact.Map(files.text(p.ttl()), func(s string) (int, error) { return parseNumber(s, maxByte) })
	t.RDMACM = hidden(fact.Map(files.text(p.rdmaCM("default_roce_tos")), func(s string) (int, error) { return parseNumber(s, maxByte) }), p)
	t.RDMACMMode = hidden(files.text(p.rdmaCM("default_roce_mode")), p)
}

// hidden: the kernel shows rdma_cm's settings in a directory of configfs that
// somebody has to make first; they are in force without it too.
func hidden[T any](v fact.Value[T], p *port) fact.Value[T] {
	if v.State == fact.Absent {
		v.State = fact.Unsupported
		v.Reason = "shown only once its directory is made: sudo mkdir /sys/kernel/config/rdma_cm/" + p.Device
	}
	return v
}

// setLAG says what bond the interface is a leg of.
func (c *collector) setLAG(p *port) {
	l := &p.LAG
	n := c.netdevs[p.NetDev]
	if n == nil || n.Master.State != fact.Known {
		why := fact.Missing[LAG](fact.Absent, "master", "not a leg of a bond")
		if n != nil && n.Master.State != fact.Absent {
			why = fact.As(n.Master, LAG{})
		}
		Fill(l, why)
		return
	}
	bond := n.Master.V
	b := c.netdevs[bond]
	if b == nil || b.BondMode.State != fact.Known {
		Fill(l, fact.Missing[LAG](fact.Absent, "master", bond+", which it belongs to, is no bond"))
		return
	}
	l.Bond = n.Master
	l.Legs = b.Slaves
	l.Mode = b.BondMode
	l.Mode.Source = netDir + bond + "/bonding/mode"
	hash := netDir + bond + "/bonding/xmit_hash_policy"
	l.Hash = fact.Map(fact.Text(c.src, netDir+bond, hash), func(s string) (string, error) {
		name, _, _ := strings.Cut(s, " ") // "layer3+4 1"
		return name, nil
	})
	none := fact.Missing[string](fact.Unsupported, "", "the driver shows none")
	l.State, l.PortSelect = none, none
	if f := p.expand(p.driver.LAG.State); f != "" {
		l.State, l.PortSelect = c.files.text(f), c.files.text(p.expand(p.driver.LAG.PortSelect))
	}
}
