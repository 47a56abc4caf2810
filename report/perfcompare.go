package report

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// comparisons draws routes side by side.
func (p *page) comparisons(doc *Perf) {
	for i, c := range doc.Comparisons {
		if i == 0 {
			p.perfEnd("from ", doc.Results[0].Initiator, doc.Results[0].Limits[perftest.Initiator])
			p.perfEnd("to   ", doc.Results[0].Responder, doc.Results[0].Limits[perftest.Responder])
		}
		p.blank()
		p.comparison(c)
	}
}

func (p *page) comparison(c *perftest.Comparison) {
	unit := map[perftest.Measure]string{perftest.Bandwidth: "Gb/s", perftest.Latency: "us"}[c.Measure]
	p.line(p.paint(bold, fmt.Sprintf("%s in %s by route, median of %d", c.Measure, unit, c.Rounds)))
	if c.Note != "" {
		p.para("  note ", c.Note)
	}
	g := grid{head: []string{"bytes"}, indent: 2}
	routes := comparedRoutes(c)
	names := laneNames(c, routes)
	g.head = append(g.head, names...)
	for _, n := range names[1:] {
		g.head = append(g.head, "vs "+n)
	}
	if c.Measure == perftest.Bandwidth {
		for _, n := range names {
			g.head = append(g.head, "CPU s/GB "+n)
		}
	}
	for _, s := range c.Sizes {
		g.add(comparedRow(c.Measure, routes, s)...)
	}
	p.table(g)
	p.para("  ", hostTraffic(c, routes, names))
	if text := crossoverText(c); text != "" {
		p.para("  ", text)
	}
	for i, r := range routes {
		for _, f := range c.Failures[r] {
			p.para("  "+p.mark(checks.Fail)+" ", fmt.Sprintf("%s: %s", names[i], f))
		}
	}
}

// laneNames are what people call the routes.
func laneNames(c *perftest.Comparison, routes []perftest.Route) []string {
	words := map[perftest.Route]string{
		perftest.RouteDirect: directName(c), perftest.RouteStaged: "staged", perftest.RouteTCP: "TCP", perftest.RouteHost: "host RDMA",
	}
	var out []string
	for _, r := range routes {
		out = append(out, words[r])
	}
	return out
}

func directName(c *perftest.Comparison) string {
	if c.OnGPU {
		return "GDR"
	}
	return "direct"
}

// comparedRoutes are those with a figure or a failure.
func comparedRoutes(c *perftest.Comparison) []perftest.Route {
	var out []perftest.Route
	for _, r := range perftest.Lanes {
		seen := len(c.Failures[r]) > 0
		for _, s := range c.Sizes {
			_, ok := s.Routes[r]
			seen = seen || ok
		}
		if seen {
			out = append(out, r)
		}
	}
	return out
}

func comparedRow(m perftest.Measure, routes []perftest.Route, s perftest.ComparedSize) []string {
	row := []string{fmt.Sprint(s.SizeBytes)}
	var speedUps, cpu []string
	for i, r := range routes {
		f, ok := s.Routes[r]
		figure, used, times := "-", "-", "-"
		if ok {
			used = fmt.Sprintf("%.3f", f.CPUNsPerByte)
			if figure = rate(f.BytesPerSec); m == perftest.Latency {
				figure = us(f.LatencyNs)
			}
		}
		if v := s.SpeedUp[r]; v > 0 {
			times = fmt.Sprintf("%.2fx", v)
		}
		row, cpu = append(row, figure), append(cpu, used)
		if i > 0 {
			speedUps = append(speedUps, times)
		}
	}
	row = append(row, speedUps...)
	if m == perftest.Bandwidth {
		row = append(row, cpu...)
	}
	return row
}

// hostTraffic says what each route costs the host's memory, and where TCP went.
func hostTraffic(c *perftest.Comparison, routes []perftest.Route, names []string) string {
	var parts []string
	path := ""
	for i, r := range routes {
		for _, s := range c.Sizes {
			if f, ok := s.Routes[r]; ok {
				parts = append(parts, fmt.Sprintf("%s %.0f", names[i], f.HostBytesPerByte))
				if r == perftest.RouteTCP {
					path = f.Path
				}
				break
			}
		}
	}
	text := "times that a byte crosses host memory from GPU to GPU, both nodes together, computed: " + strings.Join(parts, ", ")
	switch path {
	case "":
	case "lo":
		text += "; the TCP connection stayed within this node's kernel (lo), and no NIC carried it"
	default:
		text += "; the TCP connection went by " + path
	}
	return text
}

func crossoverText(c *perftest.Comparison) string {
	n := len(c.Sizes)
	if n == 0 || c.Sizes[n-1].SpeedUp[perftest.RouteStaged] == 0 {
		return ""
	}
	direct := directName(c)
	switch c.CrossoverBytes {
	case 0:
		return direct + " is not better than staged, not even for the largest messages"
	case c.Sizes[0].SizeBytes:
		return direct + " is better than staged at all sizes measured"
	}
	return fmt.Sprintf("%s is better than staged from %d bytes on", direct, c.CrossoverBytes)
}

// routeTitle says in a line what a plan measures that goes through host memory.
func routeTitle(p *perftest.Plan) string {
	route := map[perftest.Route]string{
		perftest.RouteStaged: "through pinned host memory", perftest.RouteTCP: "through pinned host memory and TCP",
	}[p.Route]
	if p.Route == perftest.RouteCopy {
		return copyTitle(p)
	}
	text := fmt.Sprintf("%s %s, %d chunks of %d bytes", p.Measure, route, p.Chunks, p.ChunkBytes)
	if p.Bidirectional {
		text += ", both directions"
	}
	return text
}

func copyTitle(p *perftest.Plan) string {
	at := 1
	if p.Measure == perftest.Bandwidth {
		at = p.Chunks
	}
	return fmt.Sprintf("%s of copies from or to pinned host memory, %d at a time", p.Measure, at)
}
