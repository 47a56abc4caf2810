package collect

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/render"
)

func eightGPU(t *testing.T) fact.Source {
	t.Helper()
	dir := t.TempDir()
	if err := render.EightGPU().Write(dir); err != nil {
		t.Fatal(err)
	}
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// panicky panics at the n-th call, whichever that is.
type panicky struct {
	fact.Source
	left atomic.Int64
	over atomic.Value
}

func (p *panicky) tick(what string) {
	if p.left.Add(-1) == 0 {
		p.over.Store(what)
		panic("over " + what)
	}
}

func (p *panicky) ReadFile(name string) ([]byte, error) {
	p.tick(name)
	return p.Source.ReadFile(name)
}

func (p *panicky) ReadDir(name string) ([]fact.Entry, error) {
	p.tick(name)
	return p.Source.ReadDir(name)
}

func (p *panicky) Readlink(name string) (string, error) {
	p.tick(name)
	return p.Source.Readlink(name)
}

func (p *panicky) Stat(name string) (fact.Info, error) {
	p.tick(name)
	return p.Source.Stat(name)
}

func (p *panicky) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	p.tick(name)
	return p.Source.Ask(ctx, name, args...)
}

// A panic wherever it comes never ends the program: goroutines that nothing
// guards would. The many reads of a device cost at most that device.
func TestPanicAnywhere(t *testing.T) {
	src := eightGPU(t)
	count := &panicky{Source: src}
	want := Machine(t.Context(), count, All())
	calls := -count.left.Load()
	if calls < 1000 {
		t.Fatalf("only %d calls", calls)
	}
	for n := int64(1); n <= calls; n += 1 + calls/25 {
		p := &panicky{Source: src}
		p.left.Store(n)
		m := Machine(t.Context(), p, All())
		if p.over.Load() == "/proc/driver/nvidia" {
			continue // decides only whether NVML is asked early
		}
		if len(m.Problems) == 0 && cmp.Equal(want.PCI, m.PCI) && cmp.Equal(want.RDMA, m.RDMA) && cmp.Equal(want.GPU, m.GPU) && cmp.Equal(want.Host, m.Host) {
			t.Errorf("call %d panicked over %s and nothing tells", n, p.over.Load())
		}
	}
}

// over panics over one path.
type over struct {
	fact.Source
	path string
}

func (o over) ReadFile(name string) ([]byte, error) {
	if name == o.path {
		panic("no such luck")
	}
	return o.Source.ReadFile(name)
}

func TestPanicCostsOneDevice(t *testing.T) {
	src := eightGPU(t)
	want := Machine(t.Context(), src, All())
	const addr = "/sys/bus/pci/devices/0000:13:00.0"
	got := Machine(t.Context(), over{src, addr + "/resource"}, All())
	if len(got.Problems) > 0 || len(got.PCI) != len(want.PCI) {
		t.Fatalf("%d functions, %+v", len(got.PCI), got.Problems)
	}
	for i, f := range got.PCI {
		switch {
		case f.Dir != addr:
			if diff := cmp.Diff(want.PCI[i], f); diff != "" {
				t.Error(diff)
			}
		case f.BARs.State != fact.Failed || !strings.Contains(f.BARs.Reason, "no such luck"):
			t.Errorf("BARs %+v", f.BARs)
		}
	}
	got = Machine(t.Context(), over{src, "/sys/class/infiniband/mlx5_3/node_guid"}, All())
	if len(got.Problems) > 0 || len(got.RDMA.Devices) != len(want.RDMA.Devices) {
		t.Fatalf("%d RDMA devices, %+v", len(got.RDMA.Devices), got.Problems)
	}
	if d := got.RDMA.Devices[3]; d.NodeGUID.State != fact.Failed || !strings.Contains(d.NodeGUID.Reason, "no such luck") {
		t.Errorf("%+v", d.NodeGUID)
	}
	if diff := cmp.Diff(want.RDMA.Devices[4], got.RDMA.Devices[4]); diff != "" {
		t.Error(diff)
	}
}
