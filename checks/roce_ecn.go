package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

const refECN = "https://docs.nvidia.com/doca/sdk/explicit+congestion+notification/index.html"

var roceECN = Check{
	ID: "roce-ecn", Title: "congestion control (ECN) is on for RoCE's priority, at both ends", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A switch marks packets before its buffers are full; the receiving NIC answers with a CNP (notification point) and the sender slows down (reaction point). With either off, PFC pauses spread through the network instead and hold back flows that share nothing but a switch.",
	Fix:       []string{"Switch it on for RoCE's priority N: echo 1 | sudo tee /sys/class/net/INTERFACE/ecn/roce_np/enable/N /sys/class/net/INTERFACE/ecn/roce_rp/enable/N"},
	Refs:      []string{refECN, "https://github.com/bytedance/byteps/issues/313"},
	Subjects:  EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		if !c.Network.ECN {
			c.NotApplicable("a %s network controls congestion by other means", c.Network.Name)
			return
		}
		leg := c.Subject.Leg
		np, okNP := needQoS(c, "notification point", leg.ECN.NP)
		rp, okRP := needQoS(c, "reaction point", leg.ECN.RP)
		if !okNP || !okRP {
			c.Unknown("cannot tell: the driver shows no switch for it")
			return
		}
		want := c.rocePriorities()
		if want == 0 {
			want = leg.DCB.PFC.V.Enabled
		}
		if want == 0 { // a lossy network, of which nobody says which priority it uses
			want = np | rp
		}
		var off []string
		for _, end := range []struct {
			name string
			on   qos.Priorities
		}{{"notification point", np}, {"reaction point", rp}} {
			if missing := want &^ end.on; missing != 0 || end.on == 0 {
				off = append(off, fmt.Sprintf("%s off for priority %s", end.name, orElse(strings.ReplaceAll(missing.String(), "none", ""), "0 to 7")))
			}
		}
		if off == nil {
			c.Pass("on for priority %s", want)
			return
		}
		c.Want("on for %s", orElse(strings.ReplaceAll(want.String(), "none", ""), "RoCE's priority"))
		c.Warn("%s", strings.Join(off, ", "))
		c.Unsure("some lossless networks do without (PFC alone), or have a scheme of their own")
		c.Fix(c.qosFix(leg, "ecn", first(want, c.siblingPriority()))...)
	},
}
