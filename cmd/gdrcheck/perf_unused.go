package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// flagUse says which plans flags have an effect on.
type flagUse struct {
	flags string
	of    string // what they are of, in words
	on    func(*perftest.Plan) bool
}

func isBandwidth(p *perftest.Plan) bool { return p.Measure == perftest.Bandwidth }
func isDirect(p *perftest.Plan) bool    { return p.Route == perftest.RouteDirect }
func isRDMA(p *perftest.Plan) bool {
	return p.Route != perftest.RouteTCP && p.Route != perftest.RouteCopy
}

var flagUses = []flagUse{
	{"interval bidirectional", "of a bandwidth test", isBandwidth},
	{"margin", "of a bandwidth test that goes by --duration", func(p *perftest.Plan) bool { return isBandwidth(p) && p.DurationNs > 0 }},
	{"qps depth post-list cq-mod", "of a bandwidth test by the direct route", func(p *perftest.Plan) bool { return isBandwidth(p) && isDirect(p) }},
	{"events", "of a test by the direct route", isDirect},
	{"inline", "of a test by the direct route that does not read", func(p *perftest.Plan) bool { return isDirect(p) && p.Operation != perftest.Read }},
	{"recv-depth", "of write_imm and send by the direct route", func(p *perftest.Plan) bool {
		return isDirect(p) && (p.Operation == perftest.WriteImm || p.Operation == perftest.Send)
	}},
	{"retry rnr-retry timeout", "of a reliable connection (RC) over RDMA", func(p *perftest.Plan) bool { return isRDMA(p) && p.Transport == perftest.RC }},
	{"mtu sl traffic-class gid-index pkey-index no-relaxed-ordering", "of a test over RDMA", isRDMA},
	{"chunk", "of a route through host memory", func(p *perftest.Plan) bool { return !isDirect(p) }},
	{"chunks", "of a route through host memory, or of several copies at the same time", func(p *perftest.Plan) bool {
		return !isDirect(p) && (p.Route != perftest.RouteCopy || isBandwidth(p))
	}},
}

// excluding are flags of which one leaves the other without an effect.
var excluding = []struct{ a, b, why string }{
	{"count", "duration", "a test ends by one of them"},
	{"one-buffer", "footprint", "one buffer is all that the messages walk through"},
}

// checkUnused refuses flags that what is to be measured would pass over in silence.
func (p *planFlags) checkUnused(cmd *cobra.Command) (err error) {
	f := cmd.Flags()
	for _, e := range excluding {
		if f.Changed(e.a) && f.Changed(e.b) {
			return usagef("--%s and --%s do not go together: %s", e.a, e.b, e.why)
		}
	}
	if p.Local.GIDIndex >= 0 && p.Local.IPv6 && !p.goesBy(perftest.RouteTCP) {
		return usagef("--gid-index and --ipv6 do not go together: the GID is the one of the index")
	}
	if p.portGiven && p.Local.Device == "" {
		return usagef("--port is one of a device: which? give --dev, too")
	}
	// A comparison has host memory beside a GPU's.
	if f.Changed("numa-node") && f.Lookup("rounds") == nil && p.onGPUsAlone(f.Lookup("peer-port") != nil) {
		return usagef("--numa-node is where host memory lies, and the data is in a GPU's alone")
	}
	f.Visit(func(g *pflag.Flag) { // those that were given
		i := slices.IndexFunc(flagUses, func(u flagUse) bool { return slices.Contains(strings.Fields(u.flags), g.Name) })
		if err != nil || i < 0 || g.Value.String() == g.DefValue {
			return
		}
		if !slices.ContainsFunc(p.Plans, func(p perftest.Plan) bool { return flagUses[i].on(&p) }) {
			err = usagef("--%s is %s, and none is to be measured", g.Name, flagUses[i].of)
		}
	})
	return err
}

func (p *planFlags) goesBy(r perftest.Route) bool { return slices.Contains(p.routes, string(r)) }

// onGPUsAlone says whether the flags leave no host memory to place. both: the other
// end is on this node, too.
func (p *planFlags) onGPUsAlone(both bool) bool {
	onGPU := func(a perftest.MemoryAsk) bool {
		kind, _, _ := a.Parse() // it was checked
		return perftest.OnGPU(kind) && kind != perftest.MemoryAuto || a.GPU != ""
	}
	for i := range p.Plans {
		if !isDirect(&p.Plans[i]) {
			return false // chunks are in host memory
		}
	}
	return onGPU(p.Memory) && (!both || p.PeerMemory == (perftest.MemoryAsk{}) || onGPU(p.PeerMemory))
}
