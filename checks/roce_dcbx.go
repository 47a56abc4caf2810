package checks

var roceDCBX = Check{
	ID: "roce-dcbx", Title: "what is set on this host stays set: nobody else decides flow control", Area: AreaRDMA, Severity: SeverityInfo,
	DependsOn:                  []string{"rdma-port-state"},
	Why:                        "Where DCBX runs in the NIC's firmware, or the switch is given the word, settings made on the host are replaced as soon as the link comes up, and the node is only as good as the switch's port.",
	Fix:                        []string{"Decide who sets flow control, the switch or the host; for the host: sudo mlnx_qos -i INTERFACE -d os"},
	Refs:                       []string{"https://man7.org/linux/man-pages/man8/dcb-dcbx.8.html", "https://github.com/Mellanox/mlnx-tools"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		leg := c.Subject.Leg
		mode, ok := needQoS(c, "DCBX", leg.DCB.DCBX)
		switch {
		case !ok:
			c.NotApplicable("the driver has no DCBX")
		case mode.Host:
			c.Pass("%s", show(mode))
		default:
			c.Info("%s: switch or firmware decide flow control, and replace what is set here", show(mode))
			c.Fix(c.qosFix(leg, "dcbx", -1)...)
		}
	},
}
