// Package sample is what the test mutates.
package sample

import "strings"

type verdicts struct{ said string }

func (c *verdicts) Pass(s string) { c.said = "pass " + s }
func (c *verdicts) Warn(s string) { c.said = "warn " + s }
func (c *verdicts) Fail(s string) { c.said = "fail " + s }
func (c *verdicts) Lower(string)  {}

// The limit itself is not tested.
func small(n int) bool { return n < 5 }

func large(n int) bool { return n >= 10 }

func judge(c *verdicts, n int, name string, known bool) {
	switch {
	case !known && name == "":
		c.Lower("x")
		c.Warn("unknown")
	case small(n), large(n) && strings.HasPrefix(name, "x"):
		c.Fail("out of range")
	default:
		c.Pass("fine")
	}
}

func never(c *verdicts) { c.Pass("not reached") }
