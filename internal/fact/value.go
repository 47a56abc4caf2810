// Package fact holds what gdrcheck knows about a machine and how it came to
// know it: a Value carries its state and its source, a Source is where values
// are read from.
package fact

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// State says how a fact came out. The zero value is NotCollected, so that a
// fact nobody filled in can never look like a good one.
type State uint8

// The states of a fact.
const (
	NotCollected State = iota // nobody asked, or there was no way to ask
	Known                     // Value.V holds the answer
	Absent                    // the machine answered: there is no such thing
	Unsupported               // the kernel, driver or library cannot tell
	Denied                    // the caller lacks the permission to read it
	Failed                    // the read was tried and broke
)

var stateNames = [...]string{"not_collected", "known", "absent", "unsupported", "denied", "failed"}

// String returns the state's name as JSON shows it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) error {
	for i, name := range stateNames {
		if string(b) == name {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("unknown fact state %q", b)
}

// Value is one fact of type T with its state and where it was read.
//
// Source is a file name relative to the directory of the device that owns the
// fact ("current_link_speed"), an absolute path ("/proc/driver/nvidia/params"),
// or a call ("nvml:nvmlDeviceGetBAR1MemoryInfo", "cuda:cuDeviceGetAttribute(124)").
type Value[T any] struct {
	State  State
	V      T
	Source string
	Errno  syscall.Errno // what the kernel answered; 0 when no errno came
	Reason string        // the cause in words, for every state but Known
}

// Of returns a Known value.
func Of[T any](v T, source string) Value[T] {
	return Value[T]{State: Known, V: v, Source: source}
}

// Missing returns a value in a state other than Known, with its reason.
func Missing[T any](state State, source, reason string) Value[T] {
	return Value[T]{State: state, Source: source, Reason: reason}
}

// FromError returns the value that an error from a Source stands for: ENOENT,
// ENOTDIR, ENODEV and ENXIO are Absent, EACCES and EPERM Denied, EOPNOTSUPP,
// ENOSYS and ENOTTY Unsupported, ErrNotCollected NotCollected, all else Failed.
func FromError[T any](err error, source string) Value[T] {
	v := Value[T]{State: StateOf(err), Source: source, Reason: Cause(err)}
	errors.As(err, &v.Errno)
	return v
}

// Cause is the error without the path that package os puts before it: Source
// already names the file, and a root's own path would make the same machine
// read from another folder a different document.
func Cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	// The state says "not collected" already.
	return strings.TrimSuffix(err.Error(), ": "+ErrNotCollected.Error())
}

// StateOf classifies an error as FromError does. A nil error is Known.
func StateOf(err error) State {
	switch {
	case err == nil:
		return Known
	case errors.Is(err, ErrNotCollected):
		return NotCollected
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return Absent
	case errors.Is(err, fs.ErrPermission):
		return Denied
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTTY):
		return Unsupported
	}
	return Failed
}

// As carries the state, source, errno and reason of v over to another type;
// a Known value becomes Known with the value x.
func As[U, T any](v Value[T], x U) Value[U] {
	out := Value[U]{State: v.State, Source: v.Source, Errno: v.Errno, Reason: v.Reason}
	if v.State == Known {
		out.V = x
	}
	return out
}

// Map turns a Known value into another with f and passes other states on. An
// error from f makes it Failed.
func Map[U, T any](v Value[T], f func(T) (U, error)) Value[U] {
	var zero U
	if v.State != Known {
		return As(v, zero)
	}
	u, err := f(v.V)
	if err != nil {
		return Value[U]{State: Failed, Source: v.Source, Reason: err.Error()}
	}
	return Of(u, v.Source)
}

// Get returns the value and whether it is Known.
func (v Value[T]) Get() (T, bool) { return v.V, v.State == Known }

// Or returns the value, or def when it is not Known. For display and for
// defaults that are safe: a verdict is never built on def.
func (v Value[T]) Or(def T) T {
	if v.State == Known {
		return v.V
	}
	return def
}

// IsZero lets encoding/json's omitzero leave out facts nobody asked for.
func (v Value[T]) IsZero() bool {
	return v.State == NotCollected && v.Source == "" && v.Reason == ""
}

type valueJSON[T any] struct {
	State  *State `json:"state,omitempty"`
	V      *T     `json:"value,omitempty"`
	Source string `json:"source,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// MarshalJSON writes {"value":…,"source":…} for a Known value and
// {"state":…,"source":…,"errno":…,"reason":…} for the others.
func (v Value[T]) MarshalJSON() ([]byte, error) {
	out := valueJSON[T]{Source: v.Source, Errno: int(v.Errno), Reason: v.Reason}
	if v.State == Known {
		out.V = &v.V
	} else {
		out.State = &v.State
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value[T]) UnmarshalJSON(b []byte) error {
	var raw struct {
		State  *State          `json:"state"`
		V      json.RawMessage `json:"value"`
		Source string          `json:"source"`
		Errno  int             `json:"errno"`
		Reason string          `json:"reason"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*v = Value[T]{Source: raw.Source, Errno: syscall.Errno(raw.Errno), Reason: raw.Reason}
	switch {
	case raw.State != nil && *raw.State != Known:
		v.State = *raw.State
	case raw.V != nil:
		v.State = Known
		return json.Unmarshal(raw.V, &v.V)
	case raw.State != nil:
		return errors.New("a known fact without a value")
	}
	return nil
}
