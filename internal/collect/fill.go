package collect

import (
	"context"
	"fmt"
	"reflect"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
)

// fillGPU lists the GPUs of the PCI tree when their own part was lost: the
// other parts know them still.
func fillGPU(f *gpu.Facts, functions []pci.Function, why string) {
	*f = gpu.Collect(context.Background(), lostSource{why}, functions, gpu.Options{NVML: true, CUDA: true, Always: true})
}

// lostSource answers every question with the reason why nothing is known.
type lostSource struct{ why string }

func (l lostSource) err() error { return fmt.Errorf("%s: %w", l.why, fact.ErrNotCollected) }

func (l lostSource) ReadFile(string) ([]byte, error)      { return nil, l.err() }
func (l lostSource) ReadDir(string) ([]fact.Entry, error) { return nil, l.err() }
func (l lostSource) Readlink(string) (string, error)      { return "", l.err() }
func (l lostSource) Stat(string) (fact.Info, error)       { return fact.Info{}, l.err() }
func (l lostSource) Ask(context.Context, string, ...string) ([]fact.Record, error) {
	return nil, l.err()
}

// fillHost gives every value of the host the reason.
func fillHost(f *host.Facts, why string) {
	*f = host.Facts{}
	setReason(reflect.ValueOf(f).Elem(), why)
}

// setReason goes through a struct for fact.Values, which are structs with a
// Reason, and through the structs that hold some.
func setReason(v reflect.Value, why string) {
	for _, field := range v.Fields() {
		if field.Kind() != reflect.Struct {
			continue
		}
		reason := field.FieldByName("Reason")
		if reason.IsValid() && field.FieldByName("State").IsValid() {
			reason.SetString(why)
			continue
		}
		setReason(field, why)
	}
}
