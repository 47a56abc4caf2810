package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags of which one would have no effect beside the other are bad usage, of every
// command that has both: one line that names what to leave out, and nothing measured.
func TestFlagsThatDoNotGoTogether(t *testing.T) {
	base := map[string]string{
		"loopback": "perf loopback --dev double0",
		"all":      "perf loopback --all",
		"tcp":      "perf loopback --route tcp",
		"client":   "perf client 192.0.2.1",
		"rails":    "perf client 192.0.2.1 --all",
		"server":   "perf server",
		"compare":  "perf compare 192.0.2.1",
		"here":     "perf compare loopback --dev double0",
		"copy":     "perf copy",
	}
	for _, tt := range []struct{ of, flags, named string }{
		{"loopback all client rails compare here copy", "--count 9 --duration 1s", "--count and --duration"},
		{"loopback all client rails compare here copy", "--one-buffer --footprint 1M", "--one-buffer and --footprint"},
		{"loopback all client rails compare here copy", "--count 9 --margin 1ms", "--margin"},
		{"loopback all client rails compare here copy", "--measure latency --margin 1ms", "--margin"},
		{"loopback all client rails compare here copy", "--measure latency --interval 1s", "--interval"},
		{"loopback all client rails compare here", "--measure latency --qps 2", "--qps"},
		{"loopback all client rails compare here", "--measure latency --depth 2", "--depth"},
		{"loopback all client rails compare here", "--measure latency --cq-mod 2", "--cq-mod"},
		{"loopback all client rails", "--measure latency --post-list 2", "--post-list"},
		{"loopback all client rails compare here", "--measure latency --bidirectional", "--bidirectional"},
		{"loopback client compare here", "--route staged --qps 2", "--qps"},
		{"loopback client compare here", "--route staged,tcp --depth 2", "--depth"},
		{"loopback client", "--route tcp --events", "--events"},
		{"loopback client compare here", "--route staged --inline 8", "--inline"},
		{"loopback all client rails", "--op read --inline 8", "--inline"},
		{"loopback all client rails", "--op write,read --recv-depth 8", "--recv-depth"},
		{"compare here", "--measure bandwidth --recv-depth 8", "--recv-depth"},
		{"loopback client compare here", "--route tcp --mtu 1024", "--mtu"},
		{"loopback client compare here", "--route tcp --sl 1", "--sl"},
		{"loopback client compare here", "--route tcp --traffic-class 1", "--traffic-class"},
		{"loopback client compare here", "--route tcp --gid-index 1", "--gid-index"},
		{"loopback client compare here", "--route tcp --pkey-index 1", "--pkey-index"},
		{"loopback client compare here", "--route tcp --retry 1", "--retry"},
		{"loopback client compare here", "--route tcp --rnr-retry 1", "--rnr-retry"},
		{"loopback client compare here", "--route tcp --timeout 1", "--timeout"},
		{"loopback client compare here", "--route tcp --no-relaxed-ordering", "--no-relaxed-ordering"},
		{"loopback all client rails", "--op send --transport UD --size 64 --retry 1", "--retry"},
		{"loopback all client rails", "--op send --transport UD --size 64 --rnr-retry 1", "--rnr-retry"},
		{"loopback all client rails", "--op send --transport UD --size 64 --timeout 1", "--timeout"},
		{"loopback client rails", "--chunk 64K", "--chunk"},
		{"loopback all client rails", "--chunks 4", "--chunks"},
		{"compare here", "--route direct --chunks 4", "--chunks"},
		{"copy", "--measure latency --chunks 4", "--chunks"},
		{"copy", "--mem cuda,dmabuf", "--mem cuda,dmabuf"},
		{"loopback all client rails compare here", "--gid-index 1 --ipv6 --route direct", "--"},
		{"loopback client", "--mem cuda --numa-node 0", "--numa-node"},
		{"client", "--mem cuda --peer-mem host --numa-node 0", "--numa-node"},
		{"client compare server tcp", "--port 2", "--port"},
		{"tcp", "--peer-port 2", "--peer-port"},
		{"loopback client server compare here copy", "--mem host --gpu 0", "--mem host"},
		{"loopback client server compare here", "--mem host,dmabuf", "--mem host,dmabuf"},
		{"loopback client compare here", "--peer-mem host --peer-gpu 0", "--peer-mem host"},
		{"loopback client", "--measure latency --op write --events", "polls"},
		{"all rails", "--dev double0", "--dev"}, {"all rails", "--port 2", "--port"}, {"all rails", "--cpu 0", "--cpu"},
		{"all rails", "--numa-node 0", "--numa-node"}, {"all rails", "--peer-dev double0", "--peer-dev"},
		{"all", "--route staged", "--route"}, {"all", "--peer-port 1", "--peer-port"}, {"all", "--peer-cpu 1", "--peer-cpu"},
		{"all", "--peer-mem host", "--peer-mem"}, {"all", "--peer-gpu 0", "--peer-gpu"}, {"rails", "--reverse", "--reverse"},
		{"compare here", "--op read", "--op"}, {"compare here", "--transport UD", "--transport"}, {"compare here", "--events", "--events"},
		{"compare here", "--bidirectional", "--bidirectional"}, {"compare here", "--post-list 2", "--post-list"},
	} {
		for name := range strings.FieldsSeq(tt.of) {
			s := quiet()
			line := base[name] + " " + tt.flags
			code := run(s, strings.Fields(line))
			out, complaint := fmt.Sprint(s.Out), fmt.Sprint(s.Err)
			if code != 2 || out != "" || !strings.HasPrefix(complaint, "gdrcheck: ") || !strings.Contains(complaint, tt.named) || strings.Count(complaint, "\n") != 1 {
				t.Errorf("gdrcheck %s: exit code %d, %q, %q", line, code, out, complaint)
			}
		}
	}
}

// Any two flags of a command that measures: each changes what is measured, or is
// refused; none goes without a word.
func TestEachFlagHasAnEffect(t *testing.T) {
	values := map[string][]string{
		"all": {"true"}, "bidirectional": {"true"}, "chunk": {"64K"}, "chunks": {"4"}, "count": {"77"}, "cpu": {"0"}, "cq-mod": {"3"},
		"depth": {"64"}, "dev": {"double1"}, "duration": {"700ms"}, "events": {"true"}, "footprint": {"1M"}, "gid-index": {"1"},
		"gpu": {"1"}, "idle": {"7s"}, "inline": {"16"}, "interval": {"50ms"}, "ipv6": {"true"}, "margin": {"10ms"},
		"measure": {"bandwidth", "latency"}, "mem": {"host", "cuda"}, "mtu": {"1024"}, "no-relaxed-ordering": {"true"}, "numa-node": {"0"},
		"one-buffer": {"true"}, "op": {"read", "send", "write_imm"}, "peer-cpu": {"0"}, "peer-dev": {"double1"}, "peer-gpu": {"1"},
		"peer-mem": {"host", "cuda"}, "peer-port": {"2"}, "pkey-index": {"1"}, "port": {"2"}, "post-list": {"2"}, "qps": {"2"},
		"recv-depth": {"64"}, "retry": {"3"}, "reverse": {"true"}, "rnr-retry": {"3"}, "rounds": {"2"}, "route": {"staged", "tcp"},
		"size": {"128"}, "sl": {"1"}, "timeout": {"10"}, "traffic-class": {"4"}, "transport": {"UD"}, "warm-up": {"5"},
	}
	apart := []string{"help", "output", "verbose", "policy", "preset", "token-file", "wait"} // not of what is measured
	for name, base := range map[string][]string{
		"loopback": {"--dev", "double0"}, "client": {"192.0.2.1"}, "compare": {"192.0.2.1"}, "compare loopback": {"--dev", "double0"}, "copy": nil,
	} {
		var flags []string
		probe, _ := measuring(name)
		probe.InitDefaultHelpFlag()
		probe.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(apart, f.Name) {
				flags = append(flags, f.Name)
			}
		})
		outcome := func(args ...string) string {
			cmd, seen := measuring(name)
			cmd.SetArgs(slices.Concat(base, args))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			if cmd.Execute() != nil {
				return ""
			}
			return seen()
		}
		pairs := 0
		for _, f := range flags {
			if values[f] == nil {
				t.Errorf("%s --%s: say here what it could be given", name, f)
			}
			for _, g := range flags {
				for _, v := range values[f] {
					for _, w := range values[g] {
						if f == g {
							continue
						}
						given, without := outcome("--"+f+"="+v, "--"+g+"="+w), outcome("--"+g+"="+w)
						if pairs++; given != "" && given == without {
							t.Errorf("%s --%s %s --%s %s: measures what it does without --%s", name, f, v, g, w, f)
						}
					}
				}
			}
		}
		if pairs < 100 {
			t.Errorf("%s: only %d pairs", name, pairs)
		}
	}
}

// measuring is a command that measures nothing, and what it would have.
func measuring(name string) (*cobra.Command, func() string) {
	var seen string
	note := func(p *planFlags, more ...any) {
		for i := range p.Plans {
			p.Plans[i].Seed = 0
		}
		b, _ := json.Marshal([]any{p.Plans, p.Local, p.Memory, p.PeerMemory, more})
		seen = string(b)
	}
	s := quiet()
	var cmd *cobra.Command
	compare := func(_ context.Context, o *compareOptions) error {
		note(&o.Plan, o.PeerDevice, o.PeerPort, o.PeerCPU, o.Rounds)
		return nil
	}
	switch name {
	case "loopback":
		cmd = newPerfLoopbackCommand(s, func(_ context.Context, o *loopbackOptions) error {
			note(&o.Plan, o.PeerDevice, o.PeerPort, o.PeerCPU, o.All)
			return nil
		})
	case "client":
		cmd = newPerfClientCommand(s, func(_ context.Context, o *perfClientOptions) error {
			note(&o.Plan, o.PeerDevice, o.Reverse, o.All)
			return nil
		})
	case "compare":
		cmd = newPerfCompareCommand(s, compare)
	case "compare loopback":
		cmd = newPerfCompareLoopbackCommand(s, compare)
	case "copy":
		cmd = newPerfCopyCommand(s, func(_ context.Context, o *copyOptions) error { note(&o.Plan, o.All); return nil })
	}
	return cmd, func() string { return seen }
}
