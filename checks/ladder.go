package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// ladders builds the chain of each pair that matters: every GPU with its best
// NICs, then GPUs that have none and compute NICs that are best for no GPU, each
// alone, so that no device of the node is left out of the picture.
func ladders(n *Node, findings []Finding) []Ladder {
	out := []Ladder{}
	paired := map[string]bool{}
	for _, p := range n.preferred() {
		paired[p.GPU], paired[p.NIC] = true, true
		out = append(out, climb(n, p.GPU, p.NIC, findings))
	}
	for _, d := range n.Graph.Devices() {
		switch {
		case paired[d.ID]:
		case d.Kind == topo.KindGPU:
			out = append(out, climb(n, d.ID, "", findings))
		case d.Role == topo.RoleCompute:
			out = append(out, climb(n, "", d.ID, findings))
		}
	}
	return out
}

func climb(n *Node, gpu, nic string, findings []Finding) Ladder {
	l := Ladder{GPU: gpu, NIC: nic, Steps: make([]Step, 0, len(Rungs))}
	pair, _ := n.Graph.Pair(gpu, nic)
	whole := ladderParts(n, gpu, nic, pair)
	for _, r := range Rungs {
		s := step(r, whole, findings)
		if s.Checks == nil && (gpu == "" || nic == "") {
			s = Step{Rung: r, Verdict: NotApplicable} // a rung of the side that is missing
		}
		if r == RungWay && (gpu == "" || nic == "") && s.Verdict == Pass {
			// One side that could is no way between two.
			s = Step{Rung: r, Verdict: NotApplicable}
		}
		if r == RungPath && gpu == "" && s.Verdict == Pass {
			s.Verdict = Info // there is a GPU, but none whose best NIC this is
		}
		if note := rungNote(n, r, gpu, nic, pair, findings); note != "" && s.Note == "" {
			s.Note = note
		}
		if s.Verdict == Fail && l.Broken == RungNone {
			l.Broken = r
		}
		l.Steps = append(l.Steps, s)
	}
	return l
}

// rungNote is what stands beside a rung in a drawing; empty where nothing is known.
func rungNote(n *Node, r Rung, gpuID, nicID string, pair topo.Pair, findings []Finding) string {
	g, _ := n.Graph.Device(gpuID)
	x, _ := n.Graph.Device(nicID)
	switch r {
	case RungLink:
		for _, h := range pair.Hops {
			if h.Link != nil && h.ID == pair.LimitedBy {
				return fmt.Sprintf("Gen%d x%d", generation(h.Link.SpeedGTPerSec), h.Link.Width)
			}
		}
	case RungPath:
		switch {
		case gpuID == "" && len(n.Machine.GPU.GPUs) > 0:
			return "idle"
		case gpuID == "" && n.incomplete() != "":
			return "GPUs not seen"
		case gpuID == "":
			return "no GPU"
		case nicID == "" && !n.rdmaListed():
			return "NICs not seen"
		case nicID == "":
			return "no RDMA NIC"
		}
		return string(pair.Path)
	case RungBAR1:
		if g.GPU != nil {
			if m, ok := nvml(g.GPU, func(d *gpu.NVMLDevice) fact.Value[gpu.Memory] { return d.BAR1 }).Get(); ok {
				return showBytes(m.TotalBytes)
			}
		}
	case RungWay:
		for _, f := range findings {
			if f.Check == gdrWay.ID && f.Verdict == Pass && f.Subject == gpuID+" "+nicID {
				way, _, _ := strings.Cut(f.Message, " ")
				return way
			}
		}
	case RungPort:
		if x.RDMA != nil {
			return portNote(x.RDMA)
		}
	case RungNone, RungACS:
	}
	return ""
}

// rdmaListed says whether the kernel's RDMA devices were read at all.
func (n *Node) rdmaListed() bool {
	state := n.Machine.RDMA.Listed.State
	return state == fact.Known || state == fact.Absent
}

// portNote is the rate of the first port that is up, else the first one's state.
func portNote(nic *rdma.Device) string {
	for _, p := range nic.Ports {
		if rate, ok := p.Rate.Get(); ok && p.State.Or("") == "ACTIVE" {
			return gbps(rate.BitsPerSec)
		}
	}
	for _, p := range nic.Ports {
		return p.State.Or("")
	}
	return ""
}

// ladderParts are the IDs whose findings belong to a pair: both devices, the
// NIC's ports and the bridges between.
func ladderParts(n *Node, gpu, nic string, pair topo.Pair) []string {
	parts := []string{}
	if gpu != "" {
		parts = append(parts, gpu)
	}
	if nic != "" {
		parts = append(parts, nic)
		for _, s := range EachPort(n) {
			if s.NIC.Name == nic {
				parts = append(parts, s.ID)
			}
		}
	}
	for _, h := range pair.Hops {
		parts = append(parts, h.ID)
	}
	return parts
}

// step sums up one rung: the worst verdict among the findings that are about
// this pair, its parts or the node. A rung that nothing was said about is
// Unknown: nobody looked.
func step(r Rung, whole []string, findings []Finding) Step {
	s := Step{Rung: r}
	var made []Finding
	for _, f := range findings {
		if f.Rung == r && within(f.Parts, whole) {
			made = append(made, f)
		}
	}
	if made == nil {
		s.Note = "not checked"
		return s
	}
	slices.SortStableFunc(made, func(a, b Finding) int { return stepRank(b) - stepRank(a) })
	worst := stepRank(made[0])
	s.Verdict = stepVerdict(made[0])
	for _, f := range made {
		if rank := stepRank(f); rank == worst || rank >= rankWarn {
			s.Checks = append(s.Checks, f.Check+" "+f.Subject)
		}
	}
	return s
}

// stepVerdict is what a finding means for the ladder: only what stops or cripples
// GPUDirect RDMA breaks a rung.
func stepVerdict(f Finding) Verdict {
	if f.Waived != nil && (f.Verdict == Fail || f.Verdict == Unknown) {
		return Warn // still to be seen, no longer what breaks the pair
	}
	if f.Verdict == Fail && f.Severity != SeverityError {
		return Warn
	}
	return f.Verdict
}

const rankWarn = 4

// stepRank orders findings for a rung, worst highest. A fact of lesser severity
// that could not be seen does not put in doubt what others established.
func stepRank(f Finding) int {
	switch v := stepVerdict(f); {
	case v == Fail:
		return 7
	case v == Unknown && f.Severity == SeverityError:
		return 6
	case v == Blocked:
		return 5
	case v == Warn:
		return rankWarn
	case v == Pass:
		return 3
	case v == Info:
		return 2
	case v == Unknown:
		return 1
	}
	return 0
}
