package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/topo"
)

func openRecording(b []byte) (fact.Source, error) { return fact.OpenRecording(bytes.NewReader(b)) }

func openExample() (fact.Source, error) { return nil, errors.New("the example is not built yet") }

// collectMachine collects what need says. A recording keeps the time at which
// its machine was read.
func collectMachine(ctx context.Context, src fact.Source, origin string, need collect.Options) *topo.Machine {
	need.Origin, need.CollectedAt = origin, time.Now().UTC()
	need.AskNVIDIA = os.Getenv(worker.NVMLLibraryEnv) != "" || os.Getenv(worker.CUDALibraryEnv) != ""
	if rec, ok := src.(*fact.Recording); ok {
		need.CollectedAt, need.AskNVIDIA = rec.CollectedAt(), rec.Asked(fact.AskNVML)
	}
	return collect.Machine(ctx, src, need)
}

func saveRecording(name string, src fact.Source, at time.Time) error {
	var b bytes.Buffer
	if err := src.(*fact.Recorder).Save(&b, at); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o600)
}
