package worker

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// toolTimeout is what a program of somebody else's is given.
const toolTimeout = 3 * time.Second

// runTool runs a program that may not be installed. Its failure is classed by
// what it said, since exit codes tell nothing.
func runTool(name string, args ...string) ([]byte, fact.Record) {
	known := fact.Record{State: fact.Known}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fact.Record{State: fact.Absent, Source: name, Reason: name + " is not installed"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	// What floods is stopped: the worker has to hold it all.
	stdout, stderr := bounded{cancel: cancel}, bounded{cancel: cancel}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // for children of its that hold the pipe open
	err = cmd.Run()
	out := stdout.b.Bytes()
	if stdout.full || stderr.full {
		return nil, fact.Record{State: fact.Failed, Source: name, Reason: fmt.Sprintf("printed more than %d MiB", maxToolBytes>>20)}
	}
	if err == nil {
		return out, known
	}
	r := fact.Record{State: fact.Failed, Source: name, Reason: lastWords(stderr.b.Bytes())}
	switch said := stderr.b.String(); {
	case ctx.Err() != nil:
		r.Reason = fmt.Sprintf("no answer within %s", toolTimeout)
	case strings.Contains(said, "ermission denied"), strings.Contains(said, "not permitted"):
		r.State = fact.Denied
	case strings.Contains(said, "No such file or directory"), strings.Contains(said, "refused"):
		r.State = fact.Absent
	case r.Reason == "":
		r.Reason = err.Error()
	}
	return out, r
}

// maxToolBytes is far above what a node with many NICs makes lldpcli print.
const maxToolBytes = 8 << 20

// bounded keeps what is written to it, and ends the writer when that is too much.
type bounded struct {
	b      bytes.Buffer
	full   bool
	cancel context.CancelFunc
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.full = w.full || w.b.Len()+len(p) > maxToolBytes; w.full {
		w.cancel()
		return len(p), nil
	}
	return w.b.Write(p)
}

// askLLDP asks lldpd, where it runs, for the neighbours of network interfaces.
func askLLDP(s *session, netdevs []string) {
	var heard map[string]qos.Neighbour
	var no *fact.Record
	for _, name := range netdevs {
		s.subject(name, func() fact.Record {
			if heard == nil && no == nil {
				s.at("lldpcli")
				out, r := runTool("lldpcli", "-f", "json0", "show", "neighbors")
				if r.State == fact.Known {
					var err error
					if heard, err = qos.ParseLLDP(out); err != nil {
						r = failed(err)
					}
				}
				if r.State != fact.Known {
					no = &r
				}
			}
			if no != nil {
				return *no
			}
			n, ok := heard[name]
			if !ok {
				return toRecord(fact.Missing[qos.Neighbour](fact.Absent, "lldpcli", "lldpd heard nobody on "+name))
			}
			return toRecord(fact.Of(n, "lldpcli"))
		})
	}
}

// askMST asks mstconfig for the non-volatile settings of PCI functions.
func askMST(s *session, functions []string) {
	for _, address := range functions {
		s.subject(address, func() fact.Record {
			s.at("mstconfig -d " + address)
			out, r := runTool("mstconfig", "-d", address, "-e", "query")
			if r.State != fact.Known {
				// Of a device that is not its own it says so on stdout.
				if r.Reason == "" || strings.HasPrefix(r.Reason, "exit status") {
					r.Reason = lastWords(lastLine(out))
				}
				return r
			}
			settings, err := qos.ParseMST(string(out))
			if err != nil {
				return failed(err)
			}
			return toRecord(fact.Of(settings, "mstconfig -e query"))
		})
	}
}

func lastLine(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// lastWords is the end of what a program said, on one line.
func lastWords(b []byte) string {
	const enough = 500
	if len(b) > enough {
		b = b[len(b)-enough:]
	}
	return oneLine(string(b))
}
