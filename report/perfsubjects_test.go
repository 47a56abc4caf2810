package report

import (
	"strings"
	"testing"
)

func TestByPort(t *testing.T) {
	for names, want := range map[string]string{
		// Few, or something else among them: each by its name.
		"write bandwidth a/1|read bandwidth a/1|write latency a/1":                      "",
		"write bandwidth a/1|read bandwidth a/1|write latency a/1|node":                 "",
		"GPU0 a|GPU1 a|GPU2 a|GPU3 a":                                                   "",
		"write bandwidth a/1|read bandwidth a/1|write bandwidth b/1|read bandwidth b/1": "a/1, b/1 (write bandwidth, read bandwidth)",
		// What only one port has is told of that port alone.
		"write bandwidth a/1|read bandwidth a/1|write bandwidth b/1|read bandwidth b/1 with all others":                                               "a/1 (write bandwidth, read bandwidth), b/1 (write bandwidth; read bandwidth with all others)",
		"write bandwidth a/1|write bandwidth a/1 from the other node|read bandwidth a/1|read bandwidth a/1 from the other node|write_imm latency a/1": "a/1 (write bandwidth, read bandwidth, also from the other node; write_imm latency)",
		"write bandwidth a/1 b/1|read bandwidth a/1 b/1|send bandwidth a/1 b/1|write bandwidth staged a/1 b/1":                                        "a/1 b/1 (write bandwidth, read bandwidth, send bandwidth, write bandwidth staged)",
		// A comparison's rounds keep their numbers.
		"write bandwidth a/1|write bandwidth a/1 (2)|write bandwidth staged a/1|write bandwidth tcp a/1":                                                              "a/1 (write bandwidth, also (2); write bandwidth staged, write bandwidth tcp)",
		"write bandwidth a/1 (3 times)|read bandwidth a/1 (3 times)|send bandwidth a/1|send latency a/1 (2)":                                                          "a/1 (write bandwidth, read bandwidth (3 times); send bandwidth; send latency (2))",
		"write bandwidth a/1 in host memory|write bandwidth b/1 in host memory|write bandwidth c/1 in host memory|write bandwidth d/1 in host memory with all others": "a/1, b/1, c/1 (write bandwidth in host memory), d/1 (write bandwidth in host memory with all others)",
	} {
		if got, ok := byPort(strings.Split(names, "|"), few); got != want || ok != (want != "") {
			t.Errorf("%s:\n%q, want\n%q", names, got, want)
		}
	}
}
