package qos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Fill gives every fact below a struct that has no state yet the state, source
// and reason of why; it is how a question that failed as a whole reaches the
// facts that it was put for.
func Fill[T, U any](into *T, why fact.Value[U]) {
	fill(reflect.ValueOf(into).Elem(), reflect.ValueOf(why))
}

func fill(v, why reflect.Value) {
	for _, field := range v.Fields() {
		if field.Kind() != reflect.Struct {
			continue
		}
		zero, isFact := reflect.TypeAssert[interface{ IsZero() bool }](field)
		if !isFact {
			fill(field, why)
			continue
		}
		if !zero.IsZero() {
			continue
		}
		for _, name := range []string{"State", "Source", "Errno", "Reason"} {
			field.FieldByName(name).Set(why.FieldByName(name))
		}
	}
}

// askAll puts a question whose answers are structs of facts about every
// subject. A subject that failed on the way keeps what was known by then.
func askAll[T any](ctx context.Context, src fact.Source, question string, subjects []string) map[string]T {
	out := make(map[string]T, len(subjects))
	if len(subjects) == 0 {
		return out
	}
	recs, err := src.Ask(ctx, question, subjects...)
	for _, r := range recs {
		out[r.Subject] = answered[T](r, question)
	}
	if err == nil {
		err = errors.New("no answer for this device")
	}
	for _, s := range subjects {
		if _, ok := out[s]; !ok {
			var none T
			Fill(&none, fact.FromError[T](err, question))
			out[s] = none
		}
	}
	return out
}

// answered is what a record says of a struct of facts: its data and, where the
// subject failed, the reason for what it lacks.
func answered[T any](r fact.Record, question string) T {
	var out T
	if len(r.Data) > 0 {
		if err := json.Unmarshal(r.Data, &out); err != nil {
			out = *new(T)
			r.State, r.Reason = fact.Failed, "unreadable answer: "+err.Error()
		}
	}
	if r.State != fact.Known {
		Fill(&out, fact.Value[T]{State: r.State, Source: cmp.Or(r.Source, question), Errno: syscall.Errno(r.Errno), Reason: r.Reason})
	}
	return out
}
