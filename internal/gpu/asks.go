package gpu

import (
	"strconv"
	"strings"
)

// Subjects of AskNVML and AskCUDA beside each GPU's own.
const (
	SubjectSystem = "system"
	// SubjectDouble comes first where a test double, by path, stands for the
	// library; its Data is the path.
	SubjectDouble = "double"
)

// Brief is the argument of AskNVML that keeps to what a topology needs: name,
// UUID, address, BAR1, memory, affinity and NVLinks.
const Brief = "brief"

// Load is the argument of AskNVML that asks for what changes with load alone:
// link, clocks, performance state and utilization.
const Load = "load"

const subjectGPU = "gpu"

// Subject names GPU n in AskNVML and AskCUDA.
func Subject(n int) string { return subjectGPU + strconv.Itoa(n) }

func parseSubject(s string) (int, bool) {
	digits, ok := strings.CutPrefix(s, subjectGPU)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && Subject(n) == s
}
