package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
)

var roceGIDIndex = Check{
	ID: "roce-gid-index", Title: "the routable address has one index on all NICs for GPUs", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn: []string{"rdma-device-present"},
	Why:       "NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX and perftest's -x name one index for all NICs. On a NIC where it is another entry, connections end in timeouts; an address that was removed and added again, or one more, moves it.",
	Fix:       []string{"Leave the index to the programs: unset NCCL_IB_GID_INDEX UCX_IB_GID_INDEX", "Or give all NICs their addresses in the same order: sudo ip addr flush dev INTERFACE && sudo ip addr add ADDRESS/PREFIX dev INTERFACE"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index",
		"https://github.com/NVIDIA/nccl/issues/769",
	},
	Subjects: TheNode,
	Eval: func(c *Case) {
		roce := false
		at := map[int][]string{}
		odd := map[string]*rdma.Port{}
		for _, s := range EachPort(c.Node) {
			if s.NIC.Software || !c.matters(s.NIC) {
				continue
			}
			transport, _ := mustSee(c, "transport of "+s.ID, s.NIC.Transport, s.NIC.Dir)
			state, _ := mustSee(c, "state of "+s.ID, s.Port.State, s.NIC.Dir)
			if transport != rdma.RoCE || state != "ACTIVE" {
				continue
			}
			roce = true
			if s.Port.GIDTable.State != fact.Known {
				Need(c, "GID table of "+s.ID, s.Port.GIDTable, s.NIC.Dir)
			}
			c.seeGIDs(s.Port, s.NIC.Dir)
			if g := s.Port.RoutableGID(); g != nil {
				at[g.Index] = append(at[g.Index], s.ID)
				odd[s.ID] = s.Port
			}
		}
		switch {
		case !roce:
			c.none("no NIC for GPUs has an active RoCE port; on InfiniBand programs go by LIDs")
			return
		case len(at) == 0:
			c.none("no RoCE NIC for GPUs has a routable address")
			return
		}
		var groups []int
		for i := range at {
			groups = append(groups, i)
		}
		slices.SortFunc(groups, func(a, b int) int { return cmp.Or(cmp.Compare(len(at[b]), len(at[a])), cmp.Compare(a, b)) })
		var words []string
		for _, i := range groups {
			words = append(words, fmt.Sprintf("%d on %s", i, strings.Join(at[i], ", ")))
			c.Row(fmt.Sprintf("index %d", i), strings.Join(at[i], ", "), "the GID tables")
			c.Want("one index on all")
		}
		if len(groups) == 1 {
			c.Pass("index %d on all %d", groups[0], len(at[groups[0]]))
			return
		}
		c.Warn("index %s", strings.Join(words, "; "))
		c.Unsure("it matters only where a job names the index")
		c.Fix("Leave it to the programs: unset NCCL_IB_GID_INDEX UCX_IB_GID_INDEX")
		for _, i := range groups[1:] {
			for _, id := range at[i] {
				dev := orElse(odd[id].NetDev.Or(""), "INTERFACE")
				c.Fix(fmt.Sprintf("Or fill the table of %s anew, its address first (connections over it end): sudo ip addr flush dev %s && sudo ip addr add ADDRESS/PREFIX dev %s", id, dev, dev))
			}
		}
	},
}
