package main

import (
	"context"
	"errors"
	"time"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Stand-ins until the packages behind them are merged.

const (
	exitReady        = 0
	exitNotReady     = 1
	exitUsage        = 2
	exitUndetermined = 3
	exitInternal     = 4
)

func isWorker([]string) bool { return false }
func workerMain() int        { return exitInternal }

func openTree(root string) (fact.Source, error) { return fact.NewOS(root, nil) }
func openRecording([]byte) (fact.Source, error) {
	return nil, errors.New("recordings are not built yet")
}
func openExample() (fact.Source, error) { return nil, errors.New("the example is not built yet") }
func collectMachine(_ context.Context, _ fact.Source, origin string) *topo.Machine {
	return &topo.Machine{CollectedAt: time.Unix(0, 0).UTC(), Origin: origin}
}

func evaluate(*topo.Machine, checkOptions) checks.Outcome {
	return checks.Outcome{ExitCode: exitUndetermined}
}
