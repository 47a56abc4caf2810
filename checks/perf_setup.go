package checks

import (
	"cmp"
	"syscall"

	"github.com/gdrcheck/gdrcheck/perftest"
)

var perfSetup = Check{
	ID: "perf-setup", Title: "both ends of a measurement can be opened and connected", Area: AreaPerf, Severity: SeverityError,
	Why: "What a measurement needs, every RDMA program needs: libibverbs with the NIC's provider, /dev/infiniband/uverbsN, an active port, locked memory, and a path between both ports. Without one of them applications fail, or fall back to TCP.",
	Fix: []string{
		"See what the node lacks: sudo gdrcheck check --only rdma,memlock",
	},
	Refs: []string{
		"https://docs.kernel.org/infiniband/user_verbs.html",
		"https://github.com/linux-rdma/rdma-core",
	},
	Subjects: eachMeasurement,
	Eval:     evalPerfSetup,
}

const notSetUp = "could not be set up"

func evalPerfSetup(c *Case) {
	r := c.Subject.Result
	if !r.SetUp() {
		failedTCP(c)
	}
	switch f := r.Failure; {
	case r.SetUp():
		c.Pass("opened and connected")
	case f.Errno == int(syscall.EOPNOTSUPP) && f.Call == "ibv_create_qp": // EFA, iWARP
		c.Unknown("cannot tell: %s", f.Error())
	case f.Call == perftest.CallStart:
		c.Unknown("cannot tell: %s", f.Error())
		c.Fix(cmp.Or(f.Check, "See what limits this process: cat /proc/self/limits"))
	default:
		failed(c, r, notSetUp)
	}
}
