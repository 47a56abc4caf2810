package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var perfCounters = Check{
	ID: "perf-counters", Title: "no errors, losses or retransmissions were counted or reported while measuring", Area: AreaPerf, Severity: SeverityWarning,
	DependsOn: []string{"perf-setup"},
	Why:       "A network that loses packets or a link with errors works, at a fraction of its speed under load, and only counters tell.",
	Fix: []string{
		"Look for the port that loses: the counters of the switch ports on the way",
		"On RoCE, see that flow control and ECN are set alike on NICs and switches: mlnx_qos -i DEVICE",
		"For link errors: clean or change cable and transceiver",
	},
	Refs: []string{
		"https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/counters.html",
		"https://docs.kernel.org/admin-guide/abi-stable.html",
	},
	Subjects: eachTransfer,
	Eval:     evalPerfCounters,
}

// lossy are the signs that something is wrong, rather than busy.
var lossy = []qos.Sign{qos.SignError, qos.SignLink, qos.SignDiscard, qos.SignRetransmission, qos.SignOrder}

func evalPerfCounters(c *Case) {
	r := c.Subject.Result
	var bad, busy, unseen []string
	watched := 0
	for i := range r.Events {
		if e := &r.Events[i]; e.Harmful {
			c.Row("event", e.String(), "ibv_get_async_event at the "+string(e.Side))
			bad = append(bad, fmt.Sprintf("%s at the %s", e.Meaning, e.Side))
		}
	}
	reported := len(bad)
	if len(r.Counters) == 0 && reported == 0 {
		c.Unknown("cannot tell: no counters were read")
		return
	}
	for _, side := range bothSides {
		s := r.Counters[side]
		watched += len(s.Watched)
		switch {
		case len(s.Watched) == 0:
			unseen = append(unseen, fmt.Sprintf("%s: %s", side, s.Reason))
		case s.Reason != "":
			unseen = append(unseen, fmt.Sprintf("%s: %d watched, and others not: %s", side, len(s.Watched), s.Reason))
		}
		for _, d := range s.Moved {
			text := fmt.Sprintf("%d %s at the %s", d.Delta, d.Counted, side)
			c.Row(d.Name, fmt.Sprintf("+%d", d.Delta), "counters of the "+string(side))
			if slices.Contains(lossy, d.Sign) && (d.Sign != qos.SignOrder || !c.Network.Reorders) {
				c.Want("0")
				bad = append(bad, text)
				continue
			}
			busy = append(busy, text)
		}
	}
	switch {
	case len(bad) > 0:
		counted := len(bad) > reported
		if len(unseen) > 0 && len(r.Counters) > 0 {
			bad = append(bad, "there may be more: "+strings.Join(unseen, "; "))
		}
		c.Warn("%s", strings.Join(bad, "; "))
		if counted {
			c.Unsure("counters are the whole port's: other traffic counts, too")
		}
	case len(unseen) > 0:
		c.Unknown("cannot tell of all: %s", strings.Join(unseen, "; "))
	case len(busy) > 0:
		c.Info("held back: %s", strings.Join(busy, "; "))
	default:
		c.Pass("%d counters watched, none moved", watched)
	}
}
