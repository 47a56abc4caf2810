package fact

import (
	"cmp"
	"context"
	"errors"
)

// AskOne puts a question and returns what is answered about one subject.
func AskOne[T any](ctx context.Context, src Source, question, subject string, args ...string) Value[T] {
	recs, err := src.Ask(ctx, question, args...)
	for _, r := range recs {
		if r.Subject == subject {
			v := Decode[T](r)
			v.Source = cmp.Or(v.Source, question)
			return v
		}
	}
	if err == nil {
		err = errors.New("no answer")
	}
	return FromError[T](err, question)
}

// AskEach puts a question about every subject and returns each one's answer.
func AskEach[T any](ctx context.Context, src Source, question string, subjects []string) map[string]Value[T] {
	out := make(map[string]Value[T], len(subjects))
	if len(subjects) == 0 {
		return out
	}
	recs, err := src.Ask(ctx, question, subjects...)
	for _, r := range recs {
		v := Decode[T](r)
		v.Source = cmp.Or(v.Source, question)
		out[r.Subject] = v
	}
	if err == nil {
		err = errors.New("no answer for this device")
	}
	for _, s := range subjects {
		if _, ok := out[s]; !ok {
			out[s] = FromError[T](err, question)
		}
	}
	return out
}
