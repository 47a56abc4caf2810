package checks

import "github.com/gdrcheck/gdrcheck/rdma/qos"

var roceCNP = Check{
	ID: "roce-cnp", Title: "congestion notifications (CNP) go by a priority that nothing pauses", Area: AreaRDMA, Severity: SeverityWarning,
	DependsOn: []string{"rdma-port-state"},
	Why:       "A CNP tells a sender to slow down. On the lossless priority it waits behind the very queue it is to shorten, and the pauses that it should avoid come first.",
	Fix:       []string{"Give CNPs a priority of their own, mostly 6 with DSCP 48, strict on the switches: echo 6 | sudo tee /sys/class/net/INTERFACE/ecn/roce_np/cnp_802p_prio; echo 48 | sudo tee /sys/class/net/INTERFACE/ecn/roce_np/cnp_dscp"},
	Refs:      []string{refECN, "https://www.juniper.net/documentation/us/en/software/jvd/jvd-ai-dc-apstra-amd/dcqcn_configuration_for_rdma_traffic_on_nics.html"},
	Subjects:  EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		if !c.Network.ECN && c.Network.CNPDSCP == nil && c.Network.CNPPriority == nil {
			c.NotApplicable("a %s network says nothing of CNPs", c.Network.Name)
			return
		}
		leg := c.Subject.Leg
		dscp, ok1 := needQoS(c, "DSCP of CNPs", leg.ECN.CNPDSCP)
		if want := c.Network.CNPDSCP; want != nil {
			c.Want("%d", *want)
		}
		priority, ok2 := needQoS(c, "priority of CNPs", leg.ECN.CNPPriority)
		if want := c.Network.CNPPriority; want != nil {
			c.Want("%d", *want)
		}
		if !ok1 || !ok2 {
			c.Unknown("cannot tell: the driver shows no mark of CNPs")
			return
		}
		lossless := qos.Priorities(0)
		if c.Network.Lossless {
			pfc, _ := needQoS(c, "PFC", leg.DCB.PFC)
			lossless = pfc.Enabled
			mustSee(c, "priority of the CNPs' DSCP", leg.PathOf(dscp<<2).Priority)
		}
		path := leg.PathOf(dscp << 2)
		wantDSCP, wantPriority := orNumber(c.Network.CNPDSCP, dscp), orNumber(c.Network.CNPPriority, priority)
		switch {
		case lossless.Has(priority):
			c.Warn("CNPs go by priority %d, which is lossless", priority)
			if roce := c.rocePriorities() & lossless; roce != 0 && !roce.Has(priority) {
				c.Fix("It need not be lossless: have PFC on for RoCE's alone")
				c.Fix(c.qosFix(leg, "pfc", first(roce, -1))...)
				return
			}
		case path.Lossless.Or(false) && c.Network.Lossless:
			c.Row("CNPs on their way", path.String(), "the NIC's settings")
			c.Warn("CNPs carry DSCP %d, which leads to priority %d, and that is lossless", dscp, path.Priority.V)
		case dscp != wantDSCP || priority != wantPriority:
			c.amiss("CNPs carry DSCP %d and priority %d, the network has %d and %d for them", dscp, priority, wantDSCP, wantPriority)
		default:
			c.Pass("DSCP %d, priority %d", dscp, priority)
			return
		}
		c.Fix(c.qosFix(leg, "cnp", -1)...)
	},
}
