package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var rdmaLinkErrors = Check{
	ID: "rdma-link-errors", Title: "the link has had no errors and was never lost", Area: AreaRDMA, Severity: SeverityInfo, Rung: RungPort,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A bad cable or transceiver shows as symbol errors and as a link that goes down and up, and in jobs as sporadic timeouts (error 12). The counters run since the driver was loaded: what counts is whether they grow.",
	Fix:       []string{"Look again after a job; where they grow, reseat or swap the cable"},
	Refs: []string{
		"https://docs.kernel.org/admin-guide/abi-stable.html",
		"https://github.com/NVIDIA/nccl/issues/905",
		"https://github.com/openucx/ucx/issues/9590",
	},
	Subjects: EachPort,
	Eval: func(c *Case) {
		watched := []string{"link_downed", "link_error_recovery", "local_link_integrity_errors", "symbol_error", "port_rcv_errors", "excessive_buffer_overrun_errors", "rx_icrc_encapsulated"}
		seen := 0
		var grown []string
		var unread fact.Value[uint64]
		for _, name := range watched {
			for _, k := range c.Subject.Port.Counters {
				if k.Name != name {
					continue
				}
				n, state := k.Value.V, k.Value.State
				switch {
				case state == fact.Known:
					seen++
					if n > 0 {
						See(c, name, k.Value)
						c.Want("0, or not growing")
						grown = append(grown, fmt.Sprintf("%s %d", name, n))
					}
				case state != fact.Absent && state != fact.Unsupported:
					unread = k.Value
				}
			}
		}
		if dev := c.netDev(c.Subject.Port.NetDev.Or("")); dev != nil && dev.CarrierChanges.Or(0) > 2 && grown != nil {
			c.Row("carrier changes of "+dev.Name, fmt.Sprint(dev.CarrierChanges.V), "/sys/class/net/"+dev.Name+"/carrier_changes")
		}
		switch {
		case grown != nil:
			c.Info("since the driver was loaded: %s; look again after a job, and swap the cable if they grow", strings.Join(grown, ", "))
		case unread.State != fact.NotCollected || unread.Source != "":
			Need(c, "counters", unread)
		case seen == 0:
			c.NotApplicable("the driver keeps no such counters, or they were not asked for")
		default:
			c.Pass("no errors since the driver was loaded")
		}
	},
}
