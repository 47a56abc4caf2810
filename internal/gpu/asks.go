package gpu

import "strconv"

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

// Subject names GPU n in AskNVML and AskCUDA.
func Subject(n int) string { return "gpu" + strconv.Itoa(n) }
