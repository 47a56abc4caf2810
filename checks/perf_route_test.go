package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Whatever route was asked for and failed, at whatever: the outcome is not ready. Of
// RDMA that is a failure; of TCP nothing is known, and RDMA is not to blame.
func TestFailedRouteIsNotReady(t *testing.T) {
	for _, route := range perftest.Routes {
		for _, at := range []perftest.Stage{perftest.StageOpened, perftest.StageConnected, perftest.StagePrepared, perftest.StageRan, perftest.StageVerified} {
			good, bad := ndr(392), ndr(392)
			good.Plan, bad.Plan = good.Plan.Through(perftest.RouteStaged), bad.Plan.Through(route)
			bad.Steps = nil
			bad.Failure, bad.Faulty, bad.FailedAt = &perftest.Failure{Call: "connect", Cause: "no route to host", Check: "ip route"}, perftest.Responder, at
			o, err := Run(&topo.Machine{}, Options{Only: []string{"perf-setup", "perf-data"}, Results: []*perftest.Result{good, bad}})
			if err != nil {
				t.Fatal(err)
			}
			want, verdict := 1, Fail
			if route == perftest.RouteTCP {
				want, verdict = 3, Unknown
			}
			if o.ExitCode != want {
				t.Errorf("%s failed when %s: exit code %d, want %d", route, at, o.ExitCode, want)
			}
			i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Verdict == verdict && strings.Contains(f.Message, "no route to host") })
			if i < 0 || o.Findings[i].Fix[0] != "ip route" {
				t.Errorf("%s failed when %s: no finding says why: %+v", route, at, o.Findings)
			}
		}
	}
}
