package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"64": {64}, "64K": {65536}, "2,64k,1M": {2, 65536, 1 << 20}, "3:20": {4, 8, 16}, "1G": {1 << 30},
		"": nil, "K": nil, "5:7": nil, "-1": nil, "2:": nil, "64KK": nil, "1e3": nil, "99999999999999": nil,
	} {
		got, err := parseSizes(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
}

func FuzzParseSizes(f *testing.F) {
	f.Add("1:8M")
	f.Add("2,64K")
	f.Fuzz(func(t *testing.T, text string) {
		sizes, err := parseSizes(text)
		for _, s := range sizes {
			if s < 0 || s > 1<<40 || err != nil {
				t.Errorf("%q: %v, %v", text, sizes, err)
			}
		}
	})
}
