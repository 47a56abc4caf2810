package qos

import (
	"context"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// Counters are all counters of a port: its own and its device's, and what its
// network interfaces count.
func (f *Facts) Counters(d *rdma.Device, p *rdma.Port) []rdma.Counter {
	stats := map[string]fact.Value[[]Stat]{}
	for _, leg := range f.Of(d.Name, p.Number) {
		stats[leg.NetDev] = leg.Stats
	}
	out := append(append([]rdma.Counter{}, d.HWCounters...), p.Counters...)
	return append(out, statCounters(stats)...)
}

// ReadCounters reads all counters of a port anew, and nothing else, as before
// and after a measurement. netdevs are the interfaces that its packets leave by.
func ReadCounters(ctx context.Context, src fact.Source, device string, port int, netdevs []string) []rdma.Counter {
	out := rdma.ReadCounters(ctx, src, device, port)
	return append(out, statCounters(fact.AskEach[[]Stat](ctx, src, fact.AskStats, netdevs))...)
}

// NetDevs are the interfaces that a port's packets leave by: the legs of the
// bond that it stands on, else its own.
func NetDevs(r *rdma.Facts, p *rdma.Port) []string {
	name, ok := p.NetDev.Get()
	if !ok {
		return nil
	}
	for _, n := range r.NetDevs {
		if n.Name == name && len(n.Slaves) > 0 {
			return n.Slaves
		}
	}
	return []string{name}
}

// statCounters adds up what the interfaces of a port count. One that has
// counters and did not tell them is a Group.
func statCounters(stats map[string]fact.Value[[]Stat]) []rdma.Counter {
	var out []rdma.Counter
	at := map[string]int{}
	for dev, v := range stats {
		asked := v.State != fact.NotCollected || v.Source != ""
		if asked && v.State != fact.Known && v.State != fact.Absent && v.State != fact.Unsupported {
			out = append(out, rdma.Counter{Name: "ethtool -S " + dev, Value: fact.As(v, uint64(0)), Group: true})
		}
		for _, s := range v.Or(nil) {
			if _, there := at[s.Name]; !there {
				at[s.Name] = len(out)
				out = append(out, rdma.Counter{Name: s.Name, Value: fact.Of(uint64(0), v.Source)})
			}
			out[at[s.Name]].Value.V += s.Value
		}
	}
	slices.SortFunc(out, func(a, b rdma.Counter) int { return strings.Compare(a.Name, b.Name) })
	return out
}
