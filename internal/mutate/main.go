// Command mutate breaks a package in one place at a time and lists the places
// where no test of the package notices:
//
//	go run ./internal/mutate [-file REGEXP] [-again FILE] [-accepted FILE] ./checks
//
// The known mutation tools compile the package once for each mutant, which takes
// hours here. This one writes all mutants into one test binary, where an
// environment variable chooses one: each then costs a run of the tests that
// reach it, and no compilation. The source files are never touched (go's -overlay).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code, err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		code = 2
	}
	os.Exit(code)
}

// run returns 0 where every mutant was killed or is accepted, else 1.
func run(ctx context.Context, out io.Writer, args []string) (code int, err error) {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	file := flags.String("file", "", "mutate only the files whose name matches this `regexp`")
	again := flags.String("again", "", "try only the survivors that this `file` lists: what an earlier run printed")
	acceptedFile := flags.String("accepted", "", "`file` with the survivors that change nothing, one a line, each with its reason")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if flags.NArg() != 1 {
		return 2, errors.New("want one package folder")
	}
	only, err := regexp.Compile(*file)
	if err != nil {
		return 2, err
	}
	accepted, err := readAccepted(*acceptedFile)
	if err != nil {
		return 2, err
	}
	tmp, err := scratch()
	if err != nil {
		return 2, err
	}
	defer os.RemoveAll(tmp)
	pkg, err := mutatePackage(flags.Arg(0), only)
	if err != nil {
		return 2, err
	}
	if *again != "" {
		text, err := os.ReadFile(*again)
		if err != nil {
			return 2, err
		}
		pkg.keep(string(text))
	}
	results, err := pkg.test(ctx, tmp)
	if err != nil {
		return 2, err
	}
	return report(out, pkg.mutants, results, accepted, *file == "" && *again == ""), nil
}

// scratch makes a folder for the tests' own temporary files, in memory if it can:
// machines that are rendered to thousands of small files take most of a test's time.
func scratch() (string, error) {
	const memory = "/dev/shm"
	if dir, err := os.MkdirTemp(memory, "mutate"); err == nil {
		return dir, nil
	}
	return os.MkdirTemp("", "mutate")
}

func report(out io.Writer, mutants []mutant, results []result, accepted map[string]string, all bool) (code int) {
	var killed, survived int
	used := map[string]bool{}
	for i, m := range mutants {
		switch {
		case m.skip:
		case results[i] == killedByTest || results[i] == killedByTime:
			killed++
		case accepted[m.key()] != "":
			used[m.key()] = true
		default:
			survived++
			fmt.Fprintf(out, "%s:%d: %s survives%s\n\t%s\n", m.file, m.line, m.what, results[i].remark(), m.key())
		}
	}
	for key := range accepted {
		if all && !used[key] {
			survived++
			fmt.Fprintf(out, "accepted, and no survivor: %s\n", key)
		}
	}
	fmt.Fprintf(out, "%d mutants: %d killed, %d accepted, %d survived\n", killed+len(used)+survived, killed, len(used), survived)
	if survived > 0 {
		return 1
	}
	return 0
}

// readAccepted reads "KEY # reason" lines.
func readAccepted(name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for n, line := range slices.Collect(strings.Lines(string(text))) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " # ")
		if at < 0 {
			return nil, fmt.Errorf("%s:%d: no reason", name, n+1)
		}
		out[strings.TrimSpace(line[:at])] = line[at+3:]
	}
	return out, nil
}
