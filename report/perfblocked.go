package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// unjudged is what was not judged of a route, for one cause.
type unjudged struct {
	route, cause string
	subjects     []string
	checks       []string
}

// blocked draws a line for each route that failed, with the cause, in place of one
// for each check and measurement that it keeps from being judged.
func (p *page) blocked(findings []checks.Finding) {
	var list []*unjudged
	for i := range findings {
		f := &findings[i]
		if f.Verdict != checks.Blocked {
			continue
		}
		route, cause := routeOf(f.Subject), causeOf(findings, f.BlockedBy)
		at := slices.IndexFunc(list, func(u *unjudged) bool { return u.route == route && u.cause == cause })
		if at < 0 {
			at = len(list)
			list = append(list, &unjudged{route: route, cause: cause})
		}
		u := list[at]
		if !slices.Contains(u.subjects, f.Subject) {
			u.subjects = append(u.subjects, f.Subject)
		}
		if !slices.Contains(u.checks, f.Check) {
			u.checks = append(u.checks, f.Check)
		}
	}
	for _, u := range list {
		subjects, ok := byPort(u.subjects, few)
		if !ok {
			subjects = few(u.subjects)
		}
		p.para(p.mark(checks.Blocked)+" ", fmt.Sprintf("%s: not judged by %s, since %s", subjects, strings.Join(u.checks, ", "), u.cause))
	}
}

// routeOf is the route of the measurement that a subject is.
func routeOf(subject string) string {
	for _, r := range perftest.Routes {
		if slices.Contains(strings.Fields(subject), string(r)) {
			return string(r)
		}
	}
	return string(perftest.RouteDirect)
}

// causeOf is what the finding says that others wait for.
func causeOf(findings []checks.Finding, blocker string) string {
	for i := range findings {
		if f := &findings[i]; f.Check+" "+f.Subject == blocker {
			return fmt.Sprintf("%s failed: %s", f.Check, f.Message)
		}
	}
	return blocker + " comes first"
}
