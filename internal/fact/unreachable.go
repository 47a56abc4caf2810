package fact

import (
	"context"
	"fmt"
)

// Unreachable is a Source that answers everything with one error. What is read
// of it has every fact of a thing in the state that Err stands for.
type Unreachable struct{ Err error }

// ReadFile implements Source.
func (u Unreachable) ReadFile(string) ([]byte, error) { return nil, u.Err }

// ReadDir implements Source.
func (u Unreachable) ReadDir(string) ([]Entry, error) { return nil, u.Err }

// Readlink implements Source.
func (u Unreachable) Readlink(string) (string, error) { return "", u.Err }

// Stat implements Source.
func (u Unreachable) Stat(string) (Info, error) { return Info{}, u.Err }

// Ask implements Source.
func (u Unreachable) Ask(context.Context, string, ...string) ([]Record, error) { return nil, u.Err }

// Guarded calls read with src. Where it panics, over a file that nobody
// foresaw, it calls read again with a source that answers the panic as error:
// one broken device must cost neither the others nor the program.
func Guarded[T any](src Source, read func(Source) T) (out T) {
	defer func() {
		if p := recover(); p != nil {
			out = read(Unreachable{Err: &panicError{p}})
		}
	}()
	return read(src)
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("gdrcheck's own error: panic: %v", e.value) }
