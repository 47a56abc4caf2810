package checks

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

var roceToS = Check{
	ID: "roce-tos", Title: "the mark that programs give RoCE packets leads to a lossless priority", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-port-state", "roce-trust", "roce-pfc"},
	Why:       "The NIC makes a packet's priority of the DSCP that programs mark it with. Where that leads to a lossy priority, PFC is on and does not act: RoCE loses packets under load as if it were off.",
	Fix:       []string{"Give programs the traffic class that leads to the lossless priority, mostly 106 (DSCP 26): NCCL_IB_TC=106 UCX_IB_TRAFFIC_CLASS=106"},
	Refs: []string{
		"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-tc",
		"https://github.com/openucx/ucx/blob/master/src/uct/ib/base/ib_device.h",
		"https://github.com/NVIDIA/nccl/issues/2383", refRoCEGuide,
	},
	Subjects: EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		if !c.Network.Lossless {
			c.NotApplicable("a %s network has no lossless priority", c.Network.Name)
			return
		}
		leg := c.Subject.Leg
		trust, _ := needQoS(c, "trust", leg.DCB.Trust)
		pfc, _ := needQoS(c, "PFC", leg.DCB.PFC)
		switch {
		case trust == qos.TrustPCP:
			c.NotApplicable("trust is pcp: no mark decides the priority")
			return
		case pfc.Enabled == 0:
			c.NotApplicable("no priority is lossless here")
			return
		case leg.DCB.Apps.State != fact.Known:
			needQoS(c, "DSCP table", leg.DCB.Apps)
		}
		c.pathRows()
		c.judgeToS(pfc.Enabled)
	},
}

func (c *Case) judgeToS(lossless qos.Priorities) {
	leg := c.Subject.Leg
	target := first(lossless, -1)
	if c.Network.Priority != nil {
		target = *c.Network.Priority
	}
	tos := c.tosFor(leg, target)
	if dscp := c.Network.DSCP; dscp != nil {
		if p := leg.PathOf(*dscp << 2); !p.Lossless.Or(false) || c.Network.Priority != nil && p.Priority.V != target {
			c.Row("the network's DSCP", p.String(), "profile "+c.Network.Name)
			c.amiss("the network's DSCP %d leads to priority %d, not to the lossless %d", *dscp, p.Priority.V, target)
			c.Fix(c.qosFix(leg, "dscp", target)...)
			return
		}
	}
	var wrong, unmarked, right []string
	var lossy qos.Priorities // where the wrong ones lead
	siblings := true         // carry the wrong ones losslessly
	for _, m := range c.Machine.QoS.Marks(leg) {
		if m.ToS.State == fact.Unsupported {
			continue // pathRows says so
		}
		if m.Chosen && m.ToS.State == fact.Failed {
			wrong = append(wrong, m.ToS.Reason)
			continue
		}
		t, ok := m.ToS.Get()
		if !ok {
			Need(c, fmt.Sprintf("ToS of %s", m.Program), m.ToS, leg.NetDir)
		}
		words := fmt.Sprintf("%s's ToS %d", m.Program, t)
		p := leg.PathOf(t)
		if c.Network.DSCP == nil && !p.Lossless.V || c.Network.DSCP != nil && p.DSCP != *c.Network.DSCP {
			if m.Chosen {
				wrong = append(wrong, fmt.Sprintf("%s (%s) goes by priority %d", words, m.From, p.Priority.V))
				lossy |= 1 << p.Priority.V
				siblings = siblings && c.losslessOnSiblings(t)
			} else {
				unmarked = append(unmarked, fmt.Sprintf("%s goes by priority %d", words, p.Priority.V))
			}
			continue
		}
		right = append(right, words)
	}
	set := fmt.Sprintf("NCCL_IB_TC=%d UCX_IB_TRAFFIC_CLASS=%d", tos, tos)
	switch {
	case wrong != nil:
		c.amiss("%s, while %s is lossless", strings.Join(wrong, "; "), lossless)
		if siblings && lossy != 0 {
			c.Fix("Leave jobs as they are: this NIC's siblings carry the same mark losslessly. Set it as they are: gdrcheck check --only nic-consistency has the commands")
			return
		}
		c.Fix(fmt.Sprintf("Where %d is the network's lossless priority, for jobs: %s", target, set))
		c.Fix(c.qosFix(leg, "tos", target)...)
		if named, _ := c.networkPriority(); named == 0 && lossy != 0 {
			c.Fix(fmt.Sprintf("Where it is %s: %s", lossy, c.qosFix(leg, "pfc", first(lossy, -1))[0]))
		}
	case unmarked != nil:
		c.Info("%s where a job sets nothing, while %s is lossless: set %s", strings.Join(unmarked, ", "), lossless, set)
	default:
		c.Pass("%s lead to lossless priority %s", strings.Join(right, ", "), lossless)
	}
}

// losslessOnSiblings says whether most of the NIC's siblings carry the mark
// losslessly: then the NIC is wrong, and another mark would harm them.
func (c *Case) losslessOnSiblings(tos int) bool {
	right, all := 0, 0
	for _, s := range c.siblings() {
		if s.NIC == c.Subject.NIC {
			continue
		}
		all++
		if s.Leg.PathOf(tos).Lossless.Or(false) {
			right++
		}
	}
	return 2*right > all
}
