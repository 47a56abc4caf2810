package netif

import (
	"slices"
	"strings"

	"github.com/safchain/ethtool"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

const srcStats = "ethtool:GSTATS"

// Stats are the statistics of an interface (ethtool -S) that the counter table
// knows, by name. mlx5 has thousands, most of them of single queues.
func Stats(ifName string) fact.Value[[]qos.Stat] {
	all, err := allStats(ifName)
	if err != nil {
		return fact.FromError[[]qos.Stat](err, srcStats)
	}
	return fact.Of(knownStats(all), srcStats)
}

func allStats(ifName string) (map[string]uint64, error) {
	e, err := ethtool.NewEthtool()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return e.Stats(ifName)
}

func knownStats(all map[string]uint64) []qos.Stat {
	out := []qos.Stat{}
	for name, value := range all {
		// Some drivers pad names with blanks.
		name = strings.TrimSpace(name)
		if _, known := qos.LookupCounter(name); known {
			out = append(out, qos.Stat{Name: name, Value: value})
		}
	}
	slices.SortFunc(out, func(a, b qos.Stat) int { return strings.Compare(a.Name, b.Name) })
	return out
}
