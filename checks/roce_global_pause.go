package checks

var roceGlobalPause = Check{
	ID: "roce-global-pause", Title: "global pause is off where flow control goes by priority", Area: AreaRDMA, Severity: SeverityError,
	DependsOn: []string{"rdma-port-state"},
	Why:       "Global pause (IEEE 802.3x) stops all priorities at once, those of congestion notifications and of other traffic, too. Beside PFC the two contradict each other: a link has the one or the other.",
	Fix:       []string{"Switch it off: sudo ethtool -A INTERFACE autoneg off rx off tx off"},
	Refs:      []string{refRoCEGuide, "https://man7.org/linux/man-pages/man8/ethtool.8.html"},
	Subjects:  EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		leg := c.Subject.Leg
		rx, okRX := needQoS(c, "global pause, obeyed", leg.Pause.RX)
		tx, okTX := needQoS(c, "global pause, sent", leg.Pause.TX)
		if !okRX || !okTX {
			c.Unknown("cannot tell: the NIC shows no pause settings")
			return
		}
		if !rx && !tx {
			c.Pass("off")
			return
		}
		pfc, ok := needQoS(c, "PFC", leg.DCB.PFC)
		switch {
		case ok && pfc.Enabled != 0:
			c.Want("off, with global pause on")
			c.Fail("global pause is on beside PFC (priority %s)", pfc.Enabled)
			c.Fix(c.qosFix(leg, "pause", first(pfc.Enabled, -1))...)
		case c.Network.Lossless:
			c.Info("on, and PFC is off: when the switch asks, all traffic of the port stops")
		default:
			c.Info("on: it acts only if the switch sends or obeys pauses, too")
		}
	},
}
