package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/report"
)

type explainOptions struct {
	IO     *streams
	Output outputs
	ID     string
}

func newExplainCommand(s *streams, runF func(*explainOptions) error) *cobra.Command {
	opts := &explainOptions{IO: s}
	cmd := &cobra.Command{
		Use:   "explain CHECK",
		Short: "Explain a check: why it matters, how to fix it",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("explain wants one check; see 'gdrcheck list' for their names")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeIDs(prefix, ""), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			opts.ID = args[0]
			if runF != nil {
				return runF(opts)
			}
			return explainRun(opts)
		},
	}
	addOutputFlag(cmd, &opts.Output, "text", "json")
	return cmd
}

func explainRun(opts *explainOptions) error {
	check, ok := checks.Lookup(opts.ID)
	if !ok {
		return usagef("no check is called %q; see 'gdrcheck list'%s", opts.ID, similar(opts.ID))
	}
	entry := report.Catalogue([]checks.Check{check})[0]
	return opts.Output.write(opts.IO, func(w io.Writer, format string, style report.Style) error {
		if format == "json" {
			return report.JSON(w, entry)
		}
		return report.Explain(w, entry, style)
	})
}

// similar names the checks whose ID holds a word of what was typed.
func similar(typed string) string {
	var near []string
	for _, c := range checks.All() {
		for word := range strings.SplitSeq(strings.ToLower(typed), "-") {
			if len(word) > 2 && strings.Contains(c.ID, word) {
				near = append(near, c.ID)
				break
			}
		}
	}
	if len(near) == 0 || len(near) > 6 {
		return ""
	}
	return ", or try " + strings.Join(near, ", ")
}

// completeIDs offers the checks' IDs and titles. before is what stands on the
// line already, as in --only acs-redirect,lin.
func completeIDs(prefix, before string) []string {
	var out []string
	for _, c := range checks.All() {
		if strings.HasPrefix(c.ID, prefix) {
			out = append(out, cobra.CompletionWithDesc(before+c.ID, c.Title))
		}
	}
	return out
}

// completeIDList completes the last of several IDs separated by commas.
func completeIDList(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	i := strings.LastIndex(typed, ",") + 1
	return completeIDs(typed[i:], typed[:i]), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
