package host

import (
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// modprobeDirs in the order of modprobe.d(5): a file of the same name in an
// earlier folder hides the later one.
var modprobeDirs = []string{
	"/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d",
}

// modprobe reads the options lines of modprobe.d for the modules that matter. A
// file that cannot be read makes the whole value unknown: it might hold the
// option that matters.
func modprobe(src fact.Source, cmdline fact.Value[string]) fact.Value[[]ModprobeOption] {
	chosen := map[string]string{} // file name → path
	var missing []fact.Value[[]string]
	for _, dir := range modprobeDirs {
		list := names(src, dir)
		if list.State != fact.Known {
			if list.State != fact.Absent {
				return fact.As[[]ModprobeOption](list, nil)
			}
			missing = append(missing, list)
			continue
		}
		for _, n := range list.V {
			if _, there := chosen[n]; !there && strings.HasSuffix(n, ".conf") {
				chosen[n] = dir + "/" + n
			}
		}
	}
	fromCmdline := ParseCommandLineOptions(cmdline.V)
	if len(missing) == len(modprobeDirs) && len(fromCmdline) == 0 {
		return fact.As[[]ModprobeOption](first(missing...), nil)
	}
	files := make([]string, 0, len(chosen))
	for n := range chosen {
		files = append(files, n)
	}
	slices.Sort(files)
	out := []ModprobeOption{}
	for _, n := range files {
		v := text(src, chosen[n])
		if v.State == fact.Absent {
			continue // a dangling link
		}
		if v.State != fact.Known {
			return fact.As[[]ModprobeOption](v, nil)
		}
		for _, o := range ParseModprobe(v.V, chosen[n]) {
			if matters(o.Module) {
				out = append(out, o)
			}
		}
	}
	return fact.Of(append(out, fromCmdline...), "modprobe.d")
}

// ParseCommandLineOptions returns the module options of the kernel's command
// line ("nvidia.NVreg_X=1"), which modprobe adds after those of its files.
func ParseCommandLineOptions(cmdline string) []ModprobeOption {
	var out []ModprobeOption
	for _, word := range splitQuoted(cmdline) {
		if word == "--" { // the rest is for init
			break
		}
		key, value, _ := strings.Cut(word, "=")
		module, name, ok := strings.Cut(key, ".")
		if module = strings.ReplaceAll(module, "-", "_"); ok && matters(module) {
			out = append(out, ModprobeOption{Module: module, Name: name, Value: value, File: "/proc/cmdline", Line: 1})
		}
	}
	return out
}

// ParseModprobe returns the options of one modprobe.d file, one entry for each
// NAME=VALUE. Module names come with underscores. A backslash at its end joins
// a line with the next; double quotes keep spaces, as the kernel's own parser
// does (lib/cmdline.c, next_arg).
func ParseModprobe(s, file string) []ModprobeOption {
	var out []ModprobeOption
	for number, line := range logicalLines(s) {
		f := splitQuoted(line)
		if len(f) < 3 || f[0] != "options" {
			continue
		}
		for _, option := range f[2:] {
			name, value, _ := strings.Cut(option, "=")
			out = append(out, ModprobeOption{
				Module: strings.ReplaceAll(f[1], "-", "_"),
				Name:   name, Value: value, File: file, Line: number,
			})
		}
	}
	return out
}

// logicalLines yields lines with their continuations and the number of their
// first line; comments are left out.
func logicalLines(s string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		start, whole := 1, ""
		for i, line := range strings.Split(s, "\n") {
			if whole == "" {
				start = i + 1
			}
			if part, more := strings.CutSuffix(strings.TrimSuffix(line, "\r"), "\\"); more {
				whole += part + " "
				continue
			}
			whole += line
			if !strings.HasPrefix(strings.TrimSpace(whole), "#") && !yield(start, whole) {
				return
			}
			whole = ""
		}
		if whole != "" {
			yield(start, whole)
		}
	}
}

// splitQuoted splits at white space outside double quotes and drops the quotes.
func splitQuoted(s string) []string {
	var out []string
	var b strings.Builder
	quoted, word := false, false
	for _, r := range s {
		switch {
		case r == '"':
			quoted, word = !quoted, true
		case !quoted && (r == ' ' || r == '\t' || r == '\r'):
			if word {
				out = append(out, b.String())
			}
			b.Reset()
			word = false
		default:
			b.WriteRune(r)
			word = true
		}
	}
	if word {
		out = append(out, b.String())
	}
	return out
}
