package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var rdmaLinkErrors = Check{
	ID: "rdma-link-errors", Title: "the link has had no errors and was never lost", Area: AreaRDMA, Severity: SeverityInfo, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A bad cable or transceiver shows as symbol errors and as a link that goes down and up, and in jobs as sporadic timeouts (error 12). The counters run since the driver was loaded: what counts is whether they grow.",
	Fix:       []string{"See whether they grow during a job: gdrcheck rdma counters --watch 1s", "Where they do, reseat or swap the cable"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://github.com/NVIDIA/nccl/issues/905",
		"https://github.com/openucx/ucx/issues/9590",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		counters, unread := c.linkCounters()
		list, _ := qos.Totals(counters)
		var grown []string
		for _, k := range list {
			if k.Value == 0 || k.Value == 1 && strings.HasPrefix(k.Name, "link_down") { // at boot
				continue
			}
			text := fmt.Sprintf("%s %d", k.Name, k.Value)
			if k.Stuck {
				text += " or more"
			}
			grown = append(grown, text)
			i := slices.IndexFunc(counters, func(x rdma.Counter) bool { return x.Name == k.Name })
			See(c, k.Name, counters[i].Value)
			c.Want("0, or not growing")
		}
		if dev := c.netDev(c.Subject.Port.NetDev.Or("")); dev != nil && dev.CarrierChanges.Or(0) > 2 && grown != nil {
			c.Row("carrier changes of "+dev.Name, fmt.Sprint(dev.CarrierChanges.V), "/sys/class/net/"+dev.Name+"/carrier_changes")
		}
		switch {
		case grown != nil:
			c.Info("since the driver was loaded: %s; see whether they grow during a job (gdrcheck rdma counters --watch 1s), and swap the cable if they do", strings.Join(grown, ", "))
		case unread.State != fact.NotCollected || unread.Source != "":
			Need(c, "counters", unread)
		case len(list) == 0:
			c.NotApplicable("the driver keeps no such counters, or they were not asked for")
		default:
			c.Pass("no errors since the driver was loaded")
		}
	},
}

// linkCounters are the port's counters that tell of its link; unread is one of
// them that could not be read, or a group of counters that could not be listed, or the
// zero value.
func (c *Case) linkCounters() (list []rdma.Counter, unread fact.Value[uint64]) {
	for _, k := range c.Machine.QoS.Counters(c.Subject.NIC, c.Subject.Port) {
		if k.Group {
			unread = k.Value
			continue
		}
		if kind, known := qos.LookupCounter(k.Name); !known || kind.Sign != qos.SignLink {
			continue
		}
		list = append(list, k)
		if s := k.Value.State; s != fact.Known && s != fact.Absent && s != fact.Unsupported {
			unread = k.Value
		}
	}
	return list, unread
}
