package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/perftest"
)

// What a recording holds of measurements, by the first word of a record's subject.
const (
	recordedRail   = "rail"
	recordedResult = "result"
)

// keep puts what was measured into a recording.
func (w *measured) keep(rec *fact.Recorder) error {
	var recs []fact.Record
	add := func(kind string, i int, v any) error {
		b, err := json.Marshal(v)
		recs = append(recs, fact.Record{Subject: fmt.Sprintf("%s %d", kind, i), State: fact.Known, Source: "gdrcheck", Data: b})
		return err
	}
	for i, r := range w.Rails {
		if err := add(recordedRail, i, r); err != nil {
			return err
		}
	}
	for i, r := range w.Results {
		if err := add(recordedResult, i, r); err != nil {
			return err
		}
	}
	rec.Keep(fact.AskMeasured, recs)
	return nil
}

// recordedPerf is what was measured when a recording was made.
func recordedPerf(ctx context.Context, src fact.Source) (measured, error) {
	var w measured
	recs, err := src.Ask(ctx, fact.AskMeasured)
	if err != nil {
		return w, err
	}
	for _, rec := range recs {
		switch kind, _, _ := strings.Cut(rec.Subject, " "); kind {
		case recordedRail:
			v, ok := fact.Decode[perftest.RailPair](rec).Get()
			if !ok {
				return w, fmt.Errorf("%w: %s", fact.ErrRecordingBroken, rec.Subject)
			}
			w.Rails = append(w.Rails, v)
		case recordedResult:
			v, ok := fact.Decode[*perftest.Result](rec).Get()
			if !ok || v == nil || v.Plan.Validate() != nil {
				return w, fmt.Errorf("%w: %s", fact.ErrRecordingBroken, rec.Subject)
			}
			w.Results = append(w.Results, v)
		default:
			return w, fmt.Errorf("%w: %q is no measurement", fact.ErrRecordingBroken, rec.Subject)
		}
	}
	return w, nil
}
