package checks

import (
	"slices"
	"strconv"
	"strings"
)

// older says whether version a comes before b, comparing the leading numbers
// field by field: "5.4.0-150-generic" is older than "5.12".
func older(a, b string) bool {
	x, y := numbers(a), numbers(b)
	x = append(x, make([]int, len(y))...) // what is left out is 0
	return slices.Compare(x[:len(y)], y) < 0
}

// major is a version's first number: 580 of "580.159.04"; 0 where there is none.
func major(version string) int {
	if n := numbers(version); len(n) > 0 {
		return n[0]
	}
	return 0
}

// numbers are the dotted numbers that a version begins with.
func numbers(version string) []int {
	var out []int
	for field := range strings.SplitSeq(version, ".") {
		digits := field[:len(field)-len(strings.TrimLeft(field, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			return out
		}
		out = append(out, n)
		if digits != field {
			return out
		}
	}
	return out
}
