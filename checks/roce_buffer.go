package checks

import "github.com/gdrcheck/gdrcheck/internal/fact"

var roceBuffer = Check{
	ID: "roce-buffer", Title: "the lossless priority has a receive buffer of its own", Area: AreaRDMA, Severity: SeverityError,
	DependsOn:                  []string{"rdma-port-state", "roce-pfc"},
	Why:                        "A pause is sent when the priority's buffer fills. Where lossy traffic fills the same buffer, RoCE is paused for it, or its packets find no room and are lost in spite of PFC.",
	Fix:                        []string{"Give it one, and a size: sudo dcb buffer set dev INTERFACE buffer-size all:0 0:BYTES 1:BYTES prio-buffer all:0 N:1"},
	Refs:                       []string{"https://man7.org/linux/man-pages/man8/dcb-buffer.8.html", "https://github.com/Mellanox/mlnx-tools"},
	UnsupportedIsNotApplicable: true,
	Subjects:                   EachLeg,
	Eval: func(c *Case) {
		if !roceCase(c) {
			return
		}
		leg := c.Subject.Leg
		if !c.Network.Lossless {
			c.NotApplicable("a %s network has no lossless priority", c.Network.Name)
			return
		}
		if leg.DCB.PFC.State != fact.Unsupported { // then the buffers will not be told either
			needQoS(c, "PFC", leg.DCB.PFC)
		}
		buffers, ok := needQoS(c, "receive buffers", leg.DCB.Buffer)
		on := leg.DCB.PFC.V.Enabled
		if !ok || on == 0 {
			c.NotApplicable("no priority is lossless here")
			return
		}
		judged := on // where it is known by which priority RoCE goes, that one
		if roce := c.rocePriorities(); roce != 0 {
			if judged &= roce; judged == 0 {
				c.NotApplicable("RoCE goes by priority %s, and %s is lossless: that comes first (roce-trust, roce-tos)", roce, on)
				return
			}
		}
		for _, n := range judged.List() {
			b := buffers.Priority[n]
			for other := range buffers.Priority {
				if buffers.Priority[other] == b && !on.Has(other) {
					c.Want("buffer %d for priority %s alone", b, on)
					c.amiss("lossless priority %d shares buffer %d with lossy priority %d", n, b, other)
					c.Fix(c.qosFix(leg, "buffer", n)...)
					return
				}
			}
			if b >= 0 && b < len(buffers.SizeBytes) && buffers.SizeBytes[b] == 0 {
				c.Want("more than 0 bytes for buffer %d", b)
				c.amiss("the buffer %d of lossless priority %d has no size", b, n)
				c.Fix(c.qosFix(leg, "buffer", n)...)
				return
			}
		}
		c.Pass("%s", show(buffers))
	},
}
