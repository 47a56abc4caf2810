package qos

import (
	"math/bits"
	"strconv"
	"strings"
)

// Has says whether priority n is in the set.
func (p Priorities) Has(n int) bool { return n >= 0 && n < PriorityCount && p>>n&1 == 1 }

// Count is the number of priorities in the set.
func (p Priorities) Count() int { return bits.OnesCount8(uint8(p)) }

// List returns the priorities in the set in order.
func (p Priorities) List() []int {
	var out []int
	for n := range PriorityCount {
		if p.Has(n) {
			out = append(out, n)
		}
	}
	return out
}

// String lists the priorities, "3,5"; "none" for the empty set.
func (p Priorities) String() string {
	if p == 0 {
		return "none"
	}
	var s []string
	for _, n := range p.List() {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ",")
}

// Mask writes the set as mlnx_qos and dcb take it: "0,0,0,1,0,0,0,0".
func (p Priorities) Mask() string {
	s := make([]string, PriorityCount)
	for n := range s {
		s[n] = strconv.Itoa(int(p >> n & 1))
	}
	return strings.Join(s, ",")
}
