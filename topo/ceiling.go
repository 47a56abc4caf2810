package topo

import (
	"fmt"
	"slices"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// assumedMPSBytes stands for a Max_Payload_Size that cannot be read, as without
// root: the commonest setting on servers.
const assumedMPSBytes = 256

// setCeiling fills in what the path's links carry, now and at best. path holds
// the functions whose upward links belong to the path; common is the bridge where
// it turns, nil for a host bridge.
func (g *Graph) setCeiling(p *Pair, path []*pci.Function, common *pci.Function) {
	p.MPSBytes, p.MPSAssumed = g.pathMPS(path, common)
	var now, best float64
	limitedBy := ""
	for _, f := range path {
		link, has, why := g.upwardLink(f)
		if why != "" {
			p.CeilingReason = why
			return
		}
		if !has {
			continue
		}
		if link.SpeedGTPerSec == 0 || link.Width == 0 {
			p.CeilingReason, p.LimitedBy = fmt.Sprintf("the link of %s is down", f.Address), f.Address.String()
			return
		}
		carries := pci.UsableBytesPerSec(link.SpeedGTPerSec, link.Width, p.MPSBytes)
		if limitedBy == "" || carries < now {
			now, limitedBy = carries, f.Address.String()
		}
		carries = pci.UsableBytesPerSec(link.MaxSpeedGTPerSec, link.MaxWidth, p.MPSBytes)
		if best == 0 || carries < best {
			best = carries
		}
	}
	p.CeilingBytesPerSec, p.BestBytesPerSec, p.LimitedBy = now, best, limitedBy
	if limitedBy == "" {
		p.CeilingReason = "no PCI Express link on the path"
	}
}

// pathMPS is the smallest Max_Payload_Size on a path.
func (g *Graph) pathMPS(path []*pci.Function, common *pci.Function) (bytes int, assumed bool) {
	if common != nil {
		path = append(slices.Clip(path), common)
	}
	for _, f := range path {
		n, ok := g.physical(f).Config.MPSBytes.Get()
		if !ok {
			n, assumed = assumedMPSBytes, true
		}
		if bytes == 0 || n < bytes {
			bytes = n
		}
	}
	return bytes, assumed
}

// upwardLink returns the link from a function to its parent. A switch's
// downstream port and a root port have none: the link that sysfs shows for them
// is the one below, which the function below shows too. The most that a link
// can do is what both its ends can. A reason is given where there should be a
// link and it cannot be read.
func (g *Graph) upwardLink(f *pci.Function) (link pci.Link, has bool, why string) {
	if isBridge(f) {
		if t := g.portType(f); t == pci.PortRoot || t == pci.PortDownstream {
			return pci.Link{}, false, ""
		}
	}
	if f.Config.PortType.Or(0) == pci.PortRCIntegratedEP {
		return pci.Link{}, false, ""
	}
	own := ownLink(g.physical(f))
	port, portOK := pci.Link{}, false
	if f.Parent != nil {
		if up := g.fn[*f.Parent]; up != nil {
			port, portOK = ownLink(up).Get()
		}
	}
	link, ok := own.Get()
	switch {
	case ok && portOK && port.MaxSpeedGTPerSec > 0 && port.MaxWidth > 0:
		link.MaxSpeedGTPerSec = min(link.MaxSpeedGTPerSec, port.MaxSpeedGTPerSec)
		link.MaxWidth = min(link.MaxWidth, port.MaxWidth)
	case !ok && portOK:
		link = port
	case !ok:
		return pci.Link{}, false, fmt.Sprintf("the link of %s cannot be read: %s", f.Address, stateWords(own))
	}
	// Some guests show a link's state and zeros for what it could be.
	link.MaxSpeedGTPerSec = max(link.MaxSpeedGTPerSec, link.SpeedGTPerSec)
	link.MaxWidth = max(link.MaxWidth, link.Width)
	return link, true, ""
}

// physical is the physical function of a virtual one, whose own link and
// payload registers read as zero; any other function is its own.
func (g *Graph) physical(f *pci.Function) *pci.Function {
	if a, ok := f.PhysFn.Get(); ok && g.fn[a] != nil {
		return g.fn[a]
	}
	return f
}

// ownLink is a function's link as sysfs shows it, else as its registers do.
func ownLink(f *pci.Function) fact.Value[pci.Link] {
	if _, ok := f.Link.Get(); ok {
		return f.Link
	}
	if _, ok := f.Config.Link.Get(); ok {
		return f.Config.Link
	}
	return f.Link
}

func stateWords[T any](v fact.Value[T]) string {
	if v.Reason != "" {
		return v.Reason
	}
	return v.State.String()
}

func isBridge(f *pci.Function) bool { return f.Class.Or(0).Sub() == pci.ClassPCIBridge }
