package qos

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"

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
		p.Stats = fact.As[[]Stat](noNetDev, nil)
	} else {
		e := a.ethtool[p.NetDev]
		p.Link, p.FEC, p.Pause = e.Link, e.FEC, e.Pause
		p.Stats, p.Module = a.stats[p.NetDev], a.modules[p.NetDev]
		if p.Module.Type.State == fact.NotCollected { // in the same words now and in a replay
			p.Module = Module{}
			Fill(&p.Module, fact.Missing[Port](fact.NotCollected, "", "asked with --module only"))
		}
	}
	p.setNeighbour(a, noNetDev)
	if addr := p.address(); addr != "" {
		p.Devlink = a.devlink[addr]
	} else {
		Fill(&p.Devlink, fact.As(p.PCI, Devlink{}))
	}
}

// setNeighbour takes what LLDP or, on InfiniBand, SMPs brought.
func (p *port) setNeighbour(a *answers, noNetDev fact.Value[Port]) {
	n := &p.Neighbour
	switch {
	case p.transport != rdma.InfiniBand && p.NetDev == "":
		Fill(n, noNetDev)
	case p.transport != rdma.InfiniBand:
		*n = a.lldp[p.NetDev]
	case p.cabled() == "":
		Fill(n, fact.Missing[Port](fact.Absent, "phys_state", "the port has no link: "+p.physState.V))
	default:
		if *n = a.smp[p.cabled()]; n.Port.State == fact.NotCollected { // in the same words now and in a replay
			Fill(n, fact.Missing[Port](fact.NotCollected, "", "asked with --neighbour only"))
		}
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

func (c *collector) setToS(p *port) {
	if p.transport == rdma.InfiniBand {
		p.ToS = ToS{}
		Fill(&p.ToS, fact.Missing[ToS](fact.Absent, "link_layer", "native InfiniBand, which goes by service levels"))
		return
	}
	const maxByte = 255
	byteOf := func(s string) (int, error) { return parseNumber(s, maxByte) }
	t := &p.ToS
	t.TTL = fact.Map(c.files.text(p.ttl()), byteOf)
	t.RDMACM = whyUnseen(c.src, p, fact.Map(c.files.text(p.rdmaCM("default_roce_tos")), byteOf), "0")
	t.RDMACMMode = whyUnseen(c.src, p, c.files.text(p.rdmaCM("default_roce_mode")), "RoCE v2 where the port has that")
}

// whyUnseen tells apart why one of rdma_cm's settings is not there. The kernel
// keeps it with the device, first at def (cma_add_one in its
// drivers/infiniband/core/cma.c), and sets and shows it in a directory of
// configfs alone, which somebody has to make (cma_configfs.c). We never do: and
// what was set stays when the directory goes, so that none says nothing.
func whyUnseen[T any](src fact.Source, p *port, v fact.Value[T], def string) fact.Value[T] {
	if v.State != fact.Absent {
		return v
	}
	if v.Errno == syscall.ENODEV {
		v.Reason = "rdma_cm does not serve this device"
		return v
	}
	if _, err := src.Stat(path.Dir(v.Source)); err == nil {
		v.Reason = "this kernel has no such setting: " + def // default_roce_tos came with 4.11
		return v
	}
	config := path.Dir(rdmaCMDir)
	switch list, _ := src.ReadDir(config); {
	case slices.ContainsFunc(list, func(e fact.Entry) bool { return e.Name == path.Base(rdmaCMDir) }):
		v.State = fact.Unsupported
		v.Reason = def + ", unless somebody set it; shown only once its directory is made: sudo mkdir " + rdmaCMDir + "/" + p.Device
	case len(list) > 0:
		v.Reason = def + ": there is no " + rdmaCMDir + ", the only place to set it"
	default:
		v.State = fact.Unsupported
		v.Reason = def + ", unless somebody set it; shown only where configfs is mounted (sudo mount -t configfs none " + config + ") and its directory made (sudo mkdir " + rdmaCMDir + "/" + p.Device + ")"
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
