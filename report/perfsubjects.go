package report

import (
	"regexp"
	"slices"
	"strings"
)

// measurement is the subject of a check of one result: test, ports, and how.
var measurement = regexp.MustCompile(`^(\S+ (?:bandwidth|latency)(?: staged| tcp)?) (\S+/\d+(?: \S+/\d+)?)((?: from the other node)?(?: in host memory)?(?: with all others)?(?: \(\d+(?: times)?\))?)$`)

// fewMeasurements is from how many on they are told by port.
const fewMeasurements = 3

// byPort tells of measurements by their ports, which is shorter than each by its
// own name; list draws the ports. ok is false for what is few, or something else.
func byPort(names []string, list func([]string) string) (text string, ok bool) {
	if len(names) <= fewMeasurements {
		return "", false
	}
	var ports []string
	of := map[string][]string{}             // the tests of a port
	how := map[string]map[string][]string{} // of a port and a test
	for _, name := range names {
		m := measurement.FindStringSubmatch(name)
		if m == nil {
			return "", false
		}
		test, port, in := m[1], m[2], strings.TrimSpace(m[3])
		if how[port] == nil {
			ports, how[port] = append(ports, port), map[string][]string{}
		}
		if how[port][test] == nil {
			of[port] = append(of[port], test)
		}
		how[port][test] = append(how[port][test], in)
	}
	var texts []string
	portsOf := map[string][]string{}
	for _, port := range ports {
		t := testsOf(of[port], how[port])
		if !slices.Contains(texts, t) {
			texts = append(texts, t)
		}
		portsOf[t] = append(portsOf[t], port)
	}
	for i, t := range texts {
		texts[i] = list(portsOf[t]) + " (" + t + ")"
	}
	return strings.Join(texts, ", "), true
}

// testsOf gathers the tests of a port that were made in the same manner.
func testsOf(tests []string, how map[string][]string) string {
	var manners []string
	in := map[string][]string{}
	for _, t := range tests {
		manner := strings.Join(how[t], ", ")
		if also, found := strings.CutPrefix(manner, ", "); found { // by itself, and in other ways
			manner = "also " + also
		}
		if !slices.Contains(manners, manner) {
			manners = append(manners, manner)
		}
		in[manner] = append(in[manner], t)
	}
	for i, m := range manners {
		manners[i] = strings.TrimSpace(strings.Join(in[m], ", ") + " " + m)
		if strings.HasPrefix(m, "also ") {
			manners[i] = strings.Join(in[m], ", ") + ", " + m
		}
	}
	return strings.Join(manners, "; ")
}
