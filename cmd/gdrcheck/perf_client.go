package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
)

type perfClientOptions struct {
	IO         *streams
	Output     outputs
	Plan       planFlags
	Server     string
	TokenFile  string
	PeerDevice string
	Reverse    bool
	All        bool
	Wait       time.Duration
	Judging    judging
}

func newPerfClientCommand(s *streams, runF func(context.Context, *perfClientOptions) error) *cobra.Command {
	opts := &perfClientOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "client HOST[:PORT]",
		Short: "Measure with a server on another node",
		Long: `client measures between this node and one that runs 'gdrcheck perf server'. Run the line that
the server printed: the token in it is how both know each other. It is taken from the
environment (` + tokenEnv + `), a file or standard input, and never from a flag, since
every user of a node sees its processes' arguments.

With --all every active port of this node's NICs is measured with the one of the same name on
the other node; where names or networks differ, with the one in the same network, else with
the next one in order. The server needs no option for it.`,
		Example: `  ` + tokenEnv + `=… gdrcheck perf client 10.0.0.1
  gdrcheck perf client 10.0.0.1 --token-file /shared/perf.token --dev mlx5_0 --peer-dev mlx5_0
  gdrcheck perf client 10.0.0.1 --token-file /shared/perf.token --all
  gdrcheck perf client 10.0.0.1 --token-file - --op read --measure bandwidth --size 1K:8M -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("client wants the server's address, as in gdrcheck perf client 10.0.0.1")
			}
			var err error
			opts.Server, err = serverAddress(args[0])
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Wait <= 0 {
				return usagef("--wait %s: want a time above zero, as in --wait 10s", opts.Wait)
			}
			if opts.All {
				if err := opts.validateAll(cmd); err != nil {
					return err
				}
			}
			if err := opts.Plan.validate(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			if opts.All {
				return perfAllRun(cmd.Context(), opts)
			}
			return perfClientRun(cmd.Context(), opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "table", "json")
	addVerboseFlag(cmd, &opts.Output)
	addJudgingFlags(cmd, &opts.Judging)
	addPlanFlags(cmd, &opts.Plan)
	f := cmd.Flags()
	f.StringVar(&opts.TokenFile, "token-file", "", "read the server's token from `FILE` (-: standard input)")
	f.StringVar(&opts.PeerDevice, "peer-dev", "", "the server's RDMA `DEVICE`, or DEVICE/PORT (default: the server chooses)")
	addMemoryFlags(cmd, &opts.Plan.PeerMemory, "peer-", "`KIND[,WAY]` of the server's memory (default: the server chooses)")
	f.BoolVar(&opts.Reverse, "reverse", false, "the server posts, and this end answers")
	f.BoolVar(&opts.All, "all", false, "every port with its peer, write and read, there and back, one after another and then all at the same time")
	f.DurationVar(&opts.Wait, "wait", connectWait, "for a server that is not there yet")
	return cmd
}

func perfClientRun(ctx context.Context, opts *perfClientOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	by, err := perfChoice(&opts.Judging)
	if err != nil {
		return err
	}
	token, err := readToken(opts.IO, opts.TokenFile)
	if err != nil {
		return err
	}
	local, err := opts.Plan.place(ctx)
	if err != nil {
		return err
	}
	at := time.Now().UTC()
	s, err := perftest.Connect(ctx, opts.Server, token, perf.end(perftest.Timing{}), opts.Wait)
	if err != nil {
		return interruptedHere(ctx, unmeasured{err}) // nobody is there to be told
	}
	defer s.Close()
	var what measured
	kind, _, _ := opts.Plan.PeerMemory.Parse() // it was checked with the flags
	plans := adaptPlans(opts.Plan.Plans, perftest.OnGPU(local.Memory) || perftest.OnGPU(kind))
	for i, p := range plans {
		r, err := opts.measure(s, &p.Plan, local)
		if other, ok := opts.withoutPolling(&p.Plan, err); ok {
			p.Note = perftest.PollNote
			r, err = opts.measure(s, &other, local)
		}
		if err != nil {
			what.cut(len(plans)-i, interrupted(ctx, err))
			break
		}
		what.Results = append(what.Results, noted(r, p.Note))
	}
	_ = s.Close() // before the rest: the server has others to serve
	return writePerf(ctx, opts.IO, &opts.Output, by, what, at)
}

func (o *perfClientOptions) measure(s *perftest.Session, p *perftest.Plan, l perftest.Local) (*perftest.Result, error) {
	progress, end := newProgress(o.IO, p)
	defer end()
	return s.Run(perftest.Request{Plan: *p, Local: l, Device: o.PeerDevice, Memory: o.Plan.PeerMemory, Reverse: o.Reverse, Progress: progress})
}

// withoutPolling is the plan to take where a server that chooses its own memory
// refused to poll it: that may be a GPU's. One refused for another reason is again.
func (o *perfClientOptions) withoutPolling(p *perftest.Plan, err error) (perftest.Plan, bool) {
	refused, ok := errors.AsType[*perftest.PeerError](err)
	if !ok || refused.Code != perftest.CodeRefused || o.Plan.PeerMemory != (perftest.MemoryAsk{}) {
		return *p, false
	}
	return p.ForGPU()
}

// serverAddress reads HOST or HOST:PORT; without a port it is the server's default.
func serverAddress(text string) (string, error) {
	wrong := func(why string) (string, error) {
		return "", usagef("%q is no address of a server: %s; want a host or a host and its TCP port, as in 10.0.0.1 or node-7:%d", text, why, defaultPerfPort)
	}
	if at, ok := addressOf(text); ok {
		switch {
		case at.Port() == 0:
			return wrong("there is no port 0")
		case at.Addr().IsUnspecified():
			return wrong("it stands for every address of a node")
		}
		return at.String(), nil
	}
	host, port, hasPort := strings.Cut(text, ":")
	if !hasPort {
		port = strconv.Itoa(defaultPerfPort)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	odd := strings.IndexFunc(host, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-._", r)
	})
	switch {
	case strings.Contains(text, "://"):
		return wrong("it is a URL")
	case strings.Count(text, ":") > 1:
		return wrong("it is no IPv6 address")
	case host == "":
		return wrong("it names no host")
	case odd >= 0:
		return wrong(fmt.Sprintf("no host's name has %q", host[odd:odd+1]))
	case err != nil || n == 0:
		return wrong("its port is not one of 1 to 65535")
	case strings.Trim(host, "0123456789.") == "":
		return wrong("it has figures alone, and is no IP address")
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// interruptedHere is the error of a measurement on this node alone.
func interruptedHere(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return unmeasured{errors.New("interrupted")}
	}
	return err
}

// interrupted is that of one with another node.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted; the other side was told")
	}
	return unmeasured{err}
}
