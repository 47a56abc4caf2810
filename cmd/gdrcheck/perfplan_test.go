package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/topo"
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

// What no port, table or CPU has as its number is bad usage, of every command
// that has the flag, and nothing is measured.
func TestNumbersOutOfBounds(t *testing.T) {
	base := map[string][]string{
		"loopback": {"perf", "loopback", "--dev", "double0"},
		"client":   {"perf", "client", "192.0.2.1"},
		"server":   {"perf", "server", "--dev", "double0"},
		"compare":  {"perf", "compare", "loopback", "--dev", "double0"},
		"copy":     {"perf", "copy"},
	}
	for _, tt := range []struct{ flag, value, of string }{
		{"port", "0", "loopback client server compare"}, {"port", "-1", "loopback client server compare"}, {"port", "256", "loopback client server compare"},
		{"peer-port", "0", "loopback compare"},
		{"gid-index", "-2", "loopback client compare"}, {"gid-index", "256", "loopback client compare"},
		{"pkey-index", "-1", "loopback client compare"}, {"pkey-index", "65536", "loopback client compare"},
		{"cpu", "-2", "loopback client compare copy"}, {"peer-cpu", "-2", "loopback compare"},
		{"numa-node", "-2", "loopback client compare copy"},
		{"margin", "-1s", "loopback client compare copy"},
	} {
		for name := range strings.FieldsSeq(tt.of) {
			s := quiet()
			code := run(s, append(slices.Clone(base[name]), "--"+tt.flag+"="+tt.value))
			out, complaint := fmt.Sprint(s.Out), fmt.Sprint(s.Err)
			if code != 2 || out != "" || !strings.HasPrefix(complaint, "gdrcheck: --"+tt.flag+" "+tt.value+": want ") || strings.Count(complaint, "\n") != 1 {
				t.Errorf("%s --%s %s: exit code %d, %q, %q", name, tt.flag, tt.value, code, out, complaint)
			}
		}
	}
}

// Several faults of one plan stand apart, and of a sweep only the first size.
func TestPlanFaultsInOneLine(t *testing.T) {
	for flags, want := range map[string]string{
		"--depth=0":        "write bandwidth: depth 0: want 1 to 32768; post list 1 is more than the depth 0",
		"--size=1:1024G":   "write bandwidth: size 2147483648: want 1 to 1073741824",
		"--idle=-1s":       "write bandwidth: idle limit -1s: want 1ns to 24h",
		"--interval=1ns":   "write bandwidth: interval 1ns: want 1ms to 24h",
		"--duration=1000h": "write bandwidth: duration 1000h0m0s: want 0s to 24h",
	} {
		s := quiet()
		code := run(s, []string{"perf", "loopback", "--dev", "double0", flags})
		if got := fmt.Sprint(s.Err); code != 2 || got != "gdrcheck: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q, want %q", flags, code, got, want)
		}
	}
}

// An error names the flag that it is about, in words that are no library's, and
// nothing that the caller did not give.
func TestErrorNamesItsFlag(t *testing.T) {
	old := perf
	t.Cleanup(func() { perf = old })
	m := copyNode(t, "0000:10:00.0")
	m.RDMA = nodeMachine("double0").RDMA
	perf = doubleBackend(t.TempDir())
	perf.collect = func(context.Context, time.Duration) (*topo.Machine, error) { return m, nil }
	token := filepath.Join(t.TempDir(), "token")
	if err := writeToken(token, perftest.Token{}); err != nil {
		t.Fatal(err)
	}
	const huge = "9223372036854775808" // one more than an int64 holds
	for line, want := range map[string]string{
		"copy --size 0": "bandwidth: size 0: want ",
		"compare loopback --dev double0 --size 0":          "bandwidth: size 0: want ",
		"loopback --dev double0 --size 0":                  "write bandwidth: size 0: want ",
		"copy --gpu 99":                                    "--gpu: there is no GPU 99 here; there are: ",
		"copy --mem cuda --gpu 99":                         "--gpu: there is no GPU 99 here; there are: ",
		"copy --mem rocm --gpu 0":                          "--mem: there is no AMD GPU here",
		"copy --mem rocm":                                  "--mem: there is no AMD GPU here",
		"loopback --dev double0 --gpu 99":                  "--gpu: there is no GPU 99 here; there are: ",
		"loopback --dev double0 --peer-gpu 99":             "--peer-gpu: there is no GPU 99 here; there are: ",
		"loopback --all --gpu 99":                          "--gpu, for double0/1: there is no GPU 99 here; there are: ",
		"server --gpu 99":                                  "--gpu: there is no GPU 99 here; there are: ",
		"client 192.0.2.1 --gpu 99 --token-file " + token:  "--gpu: there is no GPU 99 here; there are: ",
		"compare 192.0.2.1 --gpu 99 --token-file " + token: "--gpu: there is no GPU 99 here; there are: ",
		"loopback --dev double0 --count " + huge:           "--count " + huge + ": the number is too large",
		"copy --chunks x":                                  "--chunks x: want a whole number",
		"client 192.0.2.1 --duration 5":                    "--duration 5: want a time, as in ",
		"server --port 1.5":                                "--port 1.5: want a whole number",
		"server --once=maybe":                              "--once maybe: want true or false",
		"loopback --dev double0 --cpu 65535":               "--cpu 65535: this node has none of this number online; it has 0",
		"loopback --dev double0 --peer-cpu 65535":          "--peer-cpu 65535: this node has none of this number online; it has 0",
		"compare loopback --dev double0 --peer-cpu 65535":  "--peer-cpu 65535: this node has none of this number online; it has 0",
		"client 192.0.2.1 --cpu 65535":                     "--cpu 65535: this node has none of this number online; it has 0",
		"compare 192.0.2.1 --cpu 65535":                    "--cpu 65535: this node has none of this number online; it has 0",
		"copy --cpu 65535":                                 "--cpu 65535: this node has none of this number online; it has 0",
	} {
		out, errs, code := inProcess(append([]string{"perf"}, strings.Fields(line)...)...)
		if got := string(errs); code != 2 || len(out) > 0 || !strings.HasPrefix(got, "gdrcheck: "+want) || strings.Contains(got, "strconv") {
			t.Errorf("%s: exit code %d, %q, %q, want %q", line, code, out, got, want)
		}
	}
	if _, err := os.Stat("/sys/devices/system/node/online"); err == nil { // not without CONFIG_NUMA
		for _, line := range []string{"loopback --dev double0", "client 192.0.2.1", "compare loopback --dev double0", "copy"} {
			_, errs, code := inProcess(append([]string{"perf"}, strings.Fields(line+" --numa-node 65535")...)...)
			if want := "gdrcheck: --numa-node 65535: this node has none of this number online; it has 0"; code != 2 || !strings.HasPrefix(string(errs), want) {
				t.Errorf("%s: exit code %d, %q", line, code, errs)
			}
		}
	}
}
