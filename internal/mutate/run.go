package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// result is what became of a mutant.
type result uint8

const (
	survived     result = iota
	unreached           // no test executes it
	killedByTest        // a test failed
	killedByTime        // the tests did not come to an end
)

func (r result) remark() string {
	if r == unreached {
		return " (no test reaches it)"
	}
	return ""
}

// testRun is a test function: how long it takes, and which mutants it reaches.
type testRun struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

func (p *pkg) test(ctx context.Context, tmp string) ([]result, error) {
	bin, err := p.build(ctx, tmp)
	if err != nil {
		return nil, err
	}
	tests, err := p.survey(ctx, bin, tmp)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(p.mutants))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	var done atomic.Int64
	for i := range p.mutants {
		if p.mutants[i].skip {
			continue
		}
		group.Go(func() (err error) {
			results[i], err = p.try(ctx, bin, tests, i+1)
			if n := done.Add(1); n%100 == 0 {
				fmt.Fprintf(os.Stderr, "mutate: %d of %d\n", n, len(p.mutants))
			}
			return err
		})
	}
	return results, group.Wait()
}

// build compiles the package's tests with all mutants in it.
func (p *pkg) build(ctx context.Context, tmp string) (bin string, err error) {
	overlay := map[string]map[string]string{"Replace": {}}
	for path, text := range p.files {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(tmp, filepath.Base(path))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			return "", err
		}
		overlay["Replace"][abs] = copied
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return "", err
	}
	bin = filepath.Join(tmp, "tests")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", bin, ".")
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutated package does not compile: %w\n%s", err, out)
	}
	return bin, nil
}

// survey runs each test alone, without a mutant: all must pass. Quick ones first.
func (p *pkg) survey(ctx context.Context, bin, tmp string) ([]testRun, error) {
	cmd := exec.CommandContext(ctx, bin, "-test.list", "^Test")
	cmd.Dir = p.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var tests []testRun
	for name := range strings.FieldsSeq(string(out)) {
		log := filepath.Join(tmp, name)
		began := time.Now()
		if out, err := p.command(ctx, bin, []string{name}, "MUTANTS_SEEN="+log).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s fails without any mutant: %w\n%s", name, err, out)
		}
		t := testRun{name: name, took: time.Since(began), reaches: map[int]bool{}}
		seen, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for line := range bytes.FieldsSeq(seen) {
			id, err := strconv.Atoi(string(line))
			if err != nil {
				return nil, err
			}
			t.reaches[id] = true
		}
		tests = append(tests, t)
	}
	slices.SortFunc(tests, func(a, b testRun) int { return int(a.took - b.took) })
	return tests, nil
}

func (p *pkg) command(ctx context.Context, bin string, tests []string, env string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, bin, "-test.failfast", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(bin), env)
	return cmd
}

// quick is how much test time is taken together: below it, starting a process
// for each test costs more than the tests.
const quick = 300 * time.Millisecond

// try runs the tests that reach a mutant, until one fails.
func (p *pkg) try(ctx context.Context, bin string, tests []testRun, id int) (result, error) {
	var batches [][]string
	var sum, all time.Duration
	for _, t := range tests {
		if !t.reaches[id] {
			continue
		}
		if sum += t.took; batches == nil || sum > quick {
			batches, sum = append(batches, nil), t.took
		}
		all += t.took
		batches[len(batches)-1] = append(batches[len(batches)-1], t.name)
	}
	if batches == nil {
		return unreached, nil
	}
	for _, names := range batches {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second+10*all)
		err := p.command(limited, bin, names, "MUTANT="+strconv.Itoa(id)).Run()
		timedOut := errors.Is(limited.Err(), context.DeadlineExceeded)
		cancel()
		var failed *exec.ExitError
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return survived, ctx.Err()
		case timedOut:
			return killedByTime, nil
		case errors.As(err, &failed):
			return killedByTest, nil
		default:
			return survived, err
		}
	}
	return survived, nil
}
