package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/topo"
)

// gdrcopies tries GDRCopy on each NVIDIA GPU, in the order of the machine's.
// Without gdrdrv there is nothing to try, and no GPU is disturbed for it. nil:
// nobody asked, now or when the recording was made.
func gdrcopies(ctx context.Context, src fact.Source, m *topo.Machine, probe Probe) []fact.Value[gpu.GDRCopyProbe] {
	// Without a GPU: whether it is tried at all, for recordings to tell.
	if _, err := src.Ask(ctx, fact.AskGDRCopy); errors.Is(err, fact.ErrNotCollected) {
		return nil
	}
	out := make([]fact.Value[gpu.GDRCopyProbe], len(m.GPU.GPUs))
	for i := range m.GPU.GPUs {
		g := &m.GPU.GPUs[i]
		why, there := inUse(m, g), gdrdrv(m)
		switch {
		case g.Vendor != gpu.VendorNVIDIA:
		case there != fact.Known:
			out[i] = fact.Missing[gpu.GDRCopyProbe](there, nodeOfGDRDrv, "no "+nodeOfGDRDrv+" was seen")
		case why != "" && probe != ProbeForced:
			out[i] = fact.Missing[gpu.GDRCopyProbe](fact.NotCollected, fact.AskGDRCopy, why)
		default:
			out[i] = fact.Guarded(src, func(src fact.Source) fact.Value[gpu.GDRCopyProbe] { return gdrcopyOf(ctx, src, g, why) })
		}
	}
	return out
}

const nodeOfGDRDrv = "/dev/gdrdrv"

// gdrdrv says whether GDRCopy's driver has its device node.
func gdrdrv(m *topo.Machine) fact.State {
	for _, n := range m.Host.Nodes {
		if n.Path == nodeOfGDRDrv {
			return n.Info.State
		}
	}
	return fact.NotCollected // /dev could not be listed
}

func gdrcopyOf(ctx context.Context, src fact.Source, g *gpu.GPU, why string) fact.Value[gpu.GDRCopyProbe] {
	address := g.Addr.String()
	recs, err := src.Ask(ctx, fact.AskGDRCopy, address)
	if errors.Is(err, fact.ErrNotCollected) {
		err = fmt.Errorf("%s: %w", cmp.Or(why, "not tried when it was recorded"), fact.ErrNotCollected)
	}
	for _, r := range recs {
		if r.Subject == address {
			v := fact.Decode[gpu.GDRCopyProbe](r)
			v.Source = fact.AskGDRCopy
			return v
		}
	}
	return fact.FromError[gpu.GDRCopyProbe](cmp.Or(err, errors.New("no answer for this GPU")), fact.AskGDRCopy)
}
