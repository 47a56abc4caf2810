package sample

import "testing"

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		n     int
		name  string
		known bool
		want  string
	}{
		{7, "", false, "warn unknown"},
		{7, "", true, "pass fine"},
		{7, "x", false, "pass fine"},
		{0, "", true, "fail out of range"},
		{10, "x", true, "fail out of range"},
		{10, "y", true, "pass fine"},
		{9, "x", true, "pass fine"},
	} {
		c := &verdicts{}
		if judge(c, tc.n, tc.name, tc.known); c.said != tc.want {
			t.Errorf("%+v: %s", tc, c.said)
		}
	}
}
