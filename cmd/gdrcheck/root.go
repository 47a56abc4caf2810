package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gdrcheck/gdrcheck/checks"
)

const rootLong = `gdrcheck tells whether GPUDirect RDMA can work on this node, and what breaks it.

It reads the PCI tree, the GPUs, the RDMA devices and the kernel, judges them, and
names what to change. Nothing that runs on the node is disturbed. Run it as root to
see everything.

Exit codes:
`

// exitCodesHelp writes the exit code table for --help.
func exitCodesHelp() string {
	var b strings.Builder
	for _, e := range checks.ExitCodes {
		fmt.Fprintf(&b, "  %d  %s: %s\n", e.Code, e.Result, e.Meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func newRootCommand(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "gdrcheck",
		Short: "Check whether GPUDirect RDMA can work on this node",
		Long:  rootLong + exitCodesHelp(),
		Example: `  sudo gdrcheck check
  gdrcheck check --example
  gdrcheck topo
  gdrcheck explain acs-redirect`,
		Args:          rootArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(colorModes, s.color) {
				return usagef("--color %s: want %s", s.color, strings.Join(colorModes, ", "))
			}
			if err := noEmptyFlags(cmd.Flags()); err != nil {
				return err
			}
			if err := keepsInputs(cmd.Flags()); err != nil {
				return err
			}
			if err := takesOutputs(cmd.Flags()); err != nil {
				return err
			}
			s.started = true
			return nil
		},
	}
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see '%s --help'", flagError(err), cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&s.color, "color", "auto", "colour the output: auto, always or never")
	must(root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorModes, cobra.ShellCompDirectiveNoFileComp)))
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(
		newCheckCommand(s, nil),
		newTopoCommand(s, nil),
		newRDMACommand(s),
		newSnapshotCommand(s, nil),
		newPolicyCommand(s),
		newPerfCommand(s),
		newListCommand(s, nil),
		newExplainCommand(s, nil),
		newVersionCommand(s, nil),
	)
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's own takes any word and exits 0
			c.Args, c.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// noEmptyFlags refuses --root "$DIR" where DIR is not set: taken as not given, it
// would have another machine judged than the caller meant.
func noEmptyFlags(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if kind, text := f.Value.Type(), f.Value.String(); kind == "string" && text == "" || kind == "stringSlice" && text == "[]" {
			err = usagef("--%s was given no value", f.Name)
		}
	})
	return err
}

// keepsInputs refuses an output that would replace the file that is read: a
// recording of a machine is not made twice.
func keepsInputs(flags *pflag.FlagSet) error {
	written := outputFiles(flags)
	for _, input := range []string{"from", "policy"} {
		f := flags.Lookup(input)
		if f == nil || !f.Changed {
			continue
		}
		read := followLinks(f.Value.String())
		for _, w := range written {
			if st, err := os.Stat(read); followLinks(w) == read && err == nil && st.Mode().IsRegular() {
				return usagef("%s would be overwritten, which --%s reads: give the output another name", w, input)
			}
		}
	}
	return nil
}

// flagError says in our words what is wrong with a number or a time that a flag was
// given: the library's are those of package strconv and time.
func flagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	want := map[string]string{
		"int": "want a whole number", "duration": "want a time, as in 500ms, 10s or 2m", "bool": "want true or false",
	}[invalid.GetFlag().Value.Type()]
	switch {
	case errors.Is(err, strconv.ErrRange):
		want = "the number is too large"
	case want == "":
		return err
	}
	return fmt.Errorf("--%s %s: %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// takesOutputs refuses an output that cannot be written, before the work for it.
func takesOutputs(flags *pflag.FlagSet) error {
	for _, name := range outputFiles(flags) {
		if err := writable(name); err != nil {
			return usagef("cannot write %w", err)
		}
	}
	return nil
}

// outputFiles are the names that the flags give of files to write.
func outputFiles(flags *pflag.FlagSet) (written []string) {
	if f := flags.Lookup("output"); f != nil && f.Changed {
		if several, ok := f.Value.(*outputs); ok {
			for _, o := range several.list {
				written = append(written, o.File)
			}
		} else {
			written = append(written, f.Value.String())
		}
	}
	if f := flags.Lookup("record"); f != nil {
		written = append(written, f.Value.String())
	}
	return slices.DeleteFunc(written, func(name string) bool { return name == "" || slices.Contains(stdoutNames, name) })
}

var colorModes = []string{"auto", "always", "never"}

func rootArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return usagef("unknown command %q; see 'gdrcheck --help'", args[0])
}

// newHelpCommand replaces cobra's, which exits 0 for a topic that does not exist.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), prefix) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q; see 'gdrcheck --help'", strings.Join(args, " "))
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// must is for errors that only a mistake in the program's own text can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
