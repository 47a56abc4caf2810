package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
)

func newPolicyCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write or check a policy: what a site expects of its nodes",
		Long: `A policy says what belongs into a node (how many GPUs and NICs, of which model, rate and
firmware), how findings weigh, and which are accepted until when. 'gdrcheck check --policy'
judges by it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyInitCommand(s, nil), newPolicyCheckCommand(s, nil))
	return cmd
}

type policyInitOptions struct {
	IO     *streams
	Source sourceOptions
	File   string
}

func newPolicyInitCommand(s *streams, runF func(context.Context, *policyInitOptions) error) *cobra.Command {
	opts := &policyInitOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write the policy that this node meets",
		Example: `  gdrcheck policy init -o policy.yaml
  gdrcheck policy init --from node.rec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Source.validate(cmd); err != nil {
				return err
			}
			if runF != nil {
				return runF(cmd.Context(), opts)
			}
			return policyInitRun(cmd.Context(), opts)
		},
	}
	addSourceFlags(cmd, &opts.Source)
	cmd.Flags().StringVarP(&opts.File, "output", "o", "", "write to `FILE` rather than to standard output")
	return cmd
}

func policyInitRun(ctx context.Context, opts *policyInitOptions) error {
	m, _, err := opts.Source.machine(ctx, collect.All())
	if err != nil {
		return err
	}
	text, err := checks.PolicyOf(m)
	if err != nil {
		return usagef("no policy written: %w", err)
	}
	return writeTo(opts.IO, opts.File, text)
}

// writeTo writes to a file, whole or not at all; without a name to standard output.
func writeTo(s *streams, name string, data []byte) error {
	if name == "" || name == "-" {
		return writeStdout(s, data)
	}
	if err := writeFiles([]file{{name, data}}); err != nil {
		return fmt.Errorf("output not written: %w", err)
	}
	return nil
}

type policyCheckOptions struct {
	IO   *streams
	File string
	Now  time.Time
}

func newPolicyCheckCommand(s *streams, runF func(*policyCheckOptions) error) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a policy file is valid, and which of its waivers have expired",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("policy check wants one file")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			opts := &policyCheckOptions{IO: s, File: args[0], Now: time.Now()}
			if runF != nil {
				return runF(opts)
			}
			return policyCheckRun(opts)
		},
	}
}

func policyCheckRun(opts *policyCheckOptions) error {
	p, err := readPolicy(opts.File)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s: valid\n", oneLine(opts.File))
	for _, w := range p.Waivers {
		state := "until " + w.Expires
		if !w.Holds(opts.Now) {
			state = "expired on " + w.Expires
		}
		fmt.Fprintln(&text, oneLine(fmt.Sprintf("waiver %s: %s, %s (%s)", state, w.Check, w.Subject, w.Reason)))
	}
	return writeStdout(opts.IO, text.Bytes())
}

// policyTime bounds the reading of a policy: a FIFO may never give one, and the
// YAML library takes a minute for some 100 kB of brackets.
const policyTime = 10 * time.Second

// readPolicy reads a policy file; whatever is wrong with it is the caller's to mend.
func readPolicy(name string) (*checks.Policy, error) {
	p, ok, err := inTime(policyTime, func() (*checks.Policy, error) { return parsePolicy(name) })
	if !ok {
		return nil, usagef("cannot read %s: no policy read within %s", name, policyTime)
	}
	return p, err
}

func parsePolicy(name string) (*checks.Policy, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, usagef("cannot read %s: %w", name, pathCause(err))
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, checks.MaxPolicyBytes+1))
	if err != nil {
		return nil, usagef("cannot read %s: %w", name, pathCause(err))
	}
	p, err := checks.ParsePolicy(text)
	if e, ok := errors.AsType[*checks.PolicyError](err); ok && e.Line > 0 {
		return nil, usagef("%s:%w", name, e)
	}
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	return p, nil
}
