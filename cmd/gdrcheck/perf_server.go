package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/report"
)

// defaultPerfPort is next to perftest's own, 18515.
const defaultPerfPort = 18516

type perfServerOptions struct {
	IO        *streams
	Device    string
	Port      int
	Memory    perftest.MemoryAsk
	Listen    string
	TokenFile string
	Once      bool

	at netip.AddrPort // of Listen
}

func newPerfServerCommand(s *streams, runF func(context.Context, *perfServerOptions) error) *cobra.Command {
	opts := &perfServerOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Wait for a client on another node to measure with",
		Long: `server waits for 'gdrcheck perf client' on another node, and prints the one line to run
there. The line holds a token that is good for this server alone, until it ends. Control
messages are encrypted (TLS 1.3); each side knows the other by the token. Nothing is opened
or registered for a client that does not hold it, and remote keys live only while a test
runs. It serves one client after another, until it is interrupted.`,
		Example: `  gdrcheck perf server
  gdrcheck perf server --dev mlx5_0 --once
  gdrcheck perf server --listen 10.0.0.1 --token-file /shared/perf.token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.Port != 0 && opts.Device == "" {
				return usagef("--port is one of a device: which? give --dev, too")
			}
			err := cmp.Or(checkMemory(opts.Memory, ""), checkNumbers(cmd))
			if err != nil {
				return err
			}
			if opts.TokenFile != "" {
				if err := tokenPlace(opts.TokenFile); err != nil {
					return err
				}
			}
			if opts.at, err = listenAddress(opts.Listen); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return perfServerRun(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Device, "dev", "", "measure with this RDMA `DEVICE` alone (default: what the client asks for, else the first active one)")
	f.IntVar(&opts.Port, "port", 0, "its port `NUMBER` (default: the first active one)")
	addMemoryFlags(cmd, &opts.Memory, "", memoryUsage+" (default: what the client asks for, else host)")
	f.StringVar(&opts.Listen, "listen", "", fmt.Sprintf("take clients on this `ADDRESS[:PORT]` of the node alone (default: the one of its default route, TCP port %d)", defaultPerfPort))
	f.StringVar(&opts.TokenFile, "token-file", "", "write the token to `FILE`, for its owner alone, instead of showing it")
	f.BoolVar(&opts.Once, "once", false, "end after one client")
	return cmd
}

// untilSignal returns a context that ends with the first signal to end, so that
// the other side is told and all is freed. A moment later, another signal ends
// the program itself.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup; else the terminal, or the way to it, is gone
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending...)
	go func() {
		select {
		case <-signals:
			ended.Store(true)
			cancel()
			time.AfterFunc(twiceWithin, func() {
				ended.Store(false)
				signal.Stop(signals)
			})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		if !ended.Load() { // else the second one may still be on its way
			signal.Stop(signals)
		}
		cancel()
	}
}

// twiceWithin is how long after a signal another one is the same: schedulers and
// timeout(1) send it twice. ended says that it is so now.
const twiceWithin = 3 * time.Second

var ended atomic.Bool

func perfServerRun(ctx context.Context, opts *perfServerOptions) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	if opts.Device != "" {
		if _, err := perf.device(ctx, opts.device()); err != nil {
			return deviceError(fmt.Errorf("--dev: %w", err))
		}
	}
	if opts.Memory != (perftest.MemoryAsk{}) {
		if _, err := opts.local(ctx, "", perftest.MemoryAsk{}); err != nil {
			return usagef("--%s: %w", memoryFlag(opts.Memory, err), err)
		}
	}
	server := &perftest.Server{End: perf.end(perftest.Timing{}), Once: opts.Once, Local: opts.local}
	server.Rails = opts.rails
	logger := &serverLog{io: opts.IO}
	server.Log = logger.event
	token, err := server.Init()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	network := "tcp"
	if opts.at.Addr().Is4() { // of 0.0.0.0 "tcp" would make the addresses of IPv6, too
		network = "tcp4"
	}
	l, err := lc.Listen(ctx, network, opts.at.String())
	if err != nil {
		return usagef("cannot listen: %w; --listen ADDRESS[:PORT] takes another one", err)
	}
	if opts.TokenFile != "" {
		if err := writeToken(opts.TokenFile, token); err != nil {
			_ = l.Close()
			return err
		}
		defer removeToken(opts.TokenFile, token) // it is good for nothing any more
	}
	if err := opts.announce(l.Addr().(*net.TCPAddr).AddrPort(), token); err != nil {
		_ = l.Close()
		return err
	}
	if err := server.Serve(ctx, l); err != nil {
		return unmeasured{err}
	}
	return nil
}

// device names what the server was started for.
func (o *perfServerOptions) device() string {
	if o.Port == 0 {
		return o.Device
	}
	return fmt.Sprintf("%s/%d", o.Device, o.Port)
}

// rails are those that the server was started for.
func (o *perfServerOptions) rails(ctx context.Context) ([]perftest.Rail, error) {
	list, err := perf.rails(ctx)
	return slices.DeleteFunc(list, func(r perftest.Rail) bool {
		return o.Device != "" && (r.Device != o.Device || o.Port != 0 && r.Port != o.Port)
	}), err
}

// local decides where a client's test runs.
func (o *perfServerOptions) local(ctx context.Context, asked string, memory perftest.MemoryAsk) (perftest.Local, error) {
	l, err := perf.device(ctx, cmp.Or(o.device(), asked))
	if err != nil {
		return l, err
	}
	if name, port, hasPort := strings.Cut(asked, "/"); asked != "" && (name != l.Device || hasPort && port != strconv.Itoa(l.Port)) {
		return l, fmt.Errorf("the server was started for %s alone", o.device())
	}
	if memory, err = o.memory(memory); err != nil {
		return l, err
	}
	err = perf.memory(ctx, &l, memory)
	return l, err
}

// memory is what a test gets of the memory that its client asks for. Host memory is
// to be had beside what the server was started for: a GPU's is compared with it.
func (o *perfServerOptions) memory(ask perftest.MemoryAsk) (perftest.MemoryAsk, error) {
	switch ask {
	case o.Memory, perftest.MemoryAsk{Memory: perftest.MemoryHost}:
		return ask, nil
	case perftest.MemoryAsk{}:
		return o.Memory, nil
	}
	switch {
	case o.Memory == perftest.MemoryAsk{}:
		return ask, nil
	case ask == perftest.MemoryAsk{Memory: perftest.MemoryAuto}:
		return o.Memory, nil
	}
	started := strings.TrimSpace(o.Memory.Memory + " " + o.Memory.GPU)
	return ask, fmt.Errorf("the server was started for memory %s alone: ask for that, or start it without --mem and --gpu", started)
}

// listenAddress reads ADDRESS or ADDRESS:PORT; empty: the node's own.
func listenAddress(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPortFrom(ownAddress(), defaultPerfPort), nil
	}
	at, ok := addressOf(text)
	if !ok {
		return at, usagef("--listen %s: want an address of this node, as in --listen 10.0.0.1 or --listen 10.0.0.1:18516", text)
	}
	return at, nil
}

// addressOf reads an IP address with a port or without one, which is then ours.
func addressOf(text string) (netip.AddrPort, bool) {
	// First: a zone takes whatever follows it.
	if at, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), true
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		if text, ok = strings.CutSuffix(inner, "]"); !ok {
			return netip.AddrPort{}, false
		}
	}
	a, err := netip.ParseAddr(text)
	return netip.AddrPortFrom(a.Unmap(), defaultPerfPort), err == nil && !strings.ContainsAny(a.Zone(), "[]")
}

// ownAddress is the address that the node's default route uses, else that of
// the loopback. No packet is sent: connecting a UDP socket only looks it up.
func ownAddress() netip.Addr {
	// Addresses set aside for documentation (RFC 5737, RFC 3849).
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		a := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
		_ = c.Close()
		return a
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// announce says where the server is, and prints the line for the other side.
func (o *perfServerOptions) announce(at netip.AddrPort, token perftest.Token) error {
	stderr := o.IO.Err
	fmt.Fprintf(stderr, "gdrcheck: waiting on %s\n", at)
	host := at.Addr().Unmap()
	switch {
	case host.IsUnspecified():
		fmt.Fprintln(stderr, "gdrcheck: note: this is every address of the node, the public ones too; --listen takes one")
		host = ownAddress()
	case isPublic(host):
		fmt.Fprintf(stderr, "gdrcheck: note: %s is a public address; --listen takes another\n", host)
	}
	fmt.Fprintln(stderr, "gdrcheck: on the other node, run:")
	target := net.JoinHostPort(host.String(), strconv.Itoa(int(at.Port())))
	line := fmt.Sprintf("%s=%s gdrcheck perf client %s\n", tokenEnv, token.Encode(), target)
	if o.TokenFile != "" {
		line = fmt.Sprintf("gdrcheck perf client %s --token-file %s\n", target, o.TokenFile)
	}
	if _, err := fmt.Fprint(o.IO.Out, line); err != nil {
		return fmt.Errorf("output not written: %w", err)
	}
	return nil
}

// isPublic says whether others than the node's own network may reach an address.
func isPublic(a netip.Addr) bool {
	shared := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	return a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}

// serverLog writes a line for each thing that happens to a server.
type serverLog struct {
	io *streams
	mu sync.Mutex
}

func (l *serverLog) event(e perftest.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var text string
	switch {
	case e.Refused != nil:
		text = "refused: " + e.Refused.Error()
	case e.Test != nil:
		text = e.Port + " begins: " + report.PerfPlan(e.Test)
	case e.Result != nil:
		text = e.Port + " ended: " + report.PerfLine(e.Result)
	case e.Ended != nil:
		text = "broke off: " + e.Ended.Error()
		if p, ok := errors.AsType[*perftest.PeerError](e.Ended); ok && p.Code == perftest.CodeInterrupted {
			text = "left: the client was interrupted"
		}
	}
	fmt.Fprintf(l.io.Err, "gdrcheck: %s: %s\n", e.Peer, perftest.PrintableText(text))
}
