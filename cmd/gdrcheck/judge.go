package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gdrcheck/gdrcheck/checks"
)

// judging is what the flags say that findings are judged by.
type judging struct {
	policy, preset string
}

func addJudgingFlags(cmd *cobra.Command, j *judging) {
	f := cmd.Flags()
	f.StringVar(&j.policy, "policy", "", "judge by the policy in `FILE`, see 'gdrcheck policy'")
	f.StringVar(&j.preset, "preset", "", "take the machine for this platform (`NAME`, see 'gdrcheck list presets'; none: for no known one)")
}

// read adds to the options what the flags say, and refuses what does not hold before
// anything is measured.
func (j *judging) read(o *checks.Options) error {
	o.Preset = j.preset
	if err := o.Validate(); err != nil {
		if e, ok := errors.AsType[*checks.UnknownNameError](err); ok {
			return usagef("no check or area is called %q; see 'gdrcheck list'%s", e.Name, similar(e.Name))
		}
		if e, ok := errors.AsType[*checks.UnknownPresetError](err); ok {
			return usagef("no preset is called %q; see 'gdrcheck list presets'", e.Name)
		}
		return err
	}
	if j.policy == "" {
		return nil
	}
	policy, err := readPolicy(j.policy)
	o.Policy = policy
	return err
}
