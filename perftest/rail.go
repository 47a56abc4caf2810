package perftest

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxRails is the most ports that a node is measured on at the same time.
const MaxRails = 1024

// Rail is a port that a node has for RDMA between nodes.
type Rail struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`
	LinkLayer string `json:"link_layer,omitempty"` // InfiniBand, Ethernet
	// Unfit says what it is that nothing can be measured on it, as "DOWN", and Why
	// of which kind that is. Empty: it can be tried.
	Unfit string `json:"unfit,omitempty"`
	Why   Why    `json:"why,omitempty"`
	// Subnets are the networks that its interface is in, as "10.1.0.0/24".
	Subnets []string `json:"subnets,omitempty"`
	// Software: the CPU moves the data.
	Software bool `json:"software,omitempty"`
}

// Name is the port as "mlx5_0/1".
func (r Rail) Name() string { return fmt.Sprintf("%s/%d", r.Device, r.Port) }

// Why says for which kind of reason nothing was measured on a port.
type Why string

// Reasons.
const (
	WhyDown        Why = "down"        // it is not active, at an end
	WhyNoPeer      Why = "no_peer"     // one of the two nodes has more ports
	WhyUnsupported Why = "unsupported" // it has a transport that is not measured here
	WhyLost        Why = "lost"        // the other node was not reached any more, or refused
	WhyBusy        Why = "busy"        // others use it
	WhyTime        Why = "time"        // the time given was over
	WhyNone        Why = "none"        // there is no port at all
	WhyUnseen      Why = "unseen"      // nobody could tell which ports there are
)

var whys = []Why{"", WhyDown, WhyNoPeer, WhyUnsupported, WhyLost, WhyBusy, WhyTime, WhyNone, WhyUnseen}

// Match says how the two ends of a rail were found to belong together.
type Match string

// Matches, surest first.
const (
	MatchName   Match = "name"   // the same device and port
	MatchSubnet Match = "subnet" // the only one with an address in the same network
	MatchOrder  Match = "order"  // the next one on both sides
)

// RailPair is a rail of this node and the one of the other node that it is
// measured with.
type RailPair struct {
	Rail string `json:"rail"`           // this node's, "mlx5_0/1"; empty: only the other node has one
	Peer string `json:"peer,omitempty"` // the other node's
	By   Match  `json:"by,omitempty"`
	// NotMeasured says why nothing was measured, and Why for which kind of reason;
	// empty: see the results.
	NotMeasured string `json:"not_measured,omitempty"`
	Why         Why    `json:"why,omitempty"`
	// GPU is the one nearest to this node's rail, as "GPU0", where the rail is
	// measured with itself, in the GPU's memory. GPUNotMeasured says why only host
	// memory was.
	GPU            string `json:"gpu,omitempty"`
	GPUNotMeasured string `json:"gpu_not_measured,omitempty"`
	// GPUUnknown: nor is it known whether it could have been.
	GPUUnknown bool `json:"gpu_unknown,omitempty"`
	// LeftOut is what there was no time for.
	LeftOut []string `json:"left_out,omitempty"`
}

// MatchRails finds the peer of each rail: the port of the same name in the same
// network; else the only one in the same network; else the one of the same name,
// as where each port has a network of its own behind a router; else the next one
// in order. Ports of different link layers never match. What has no peer, or is
// down at an end, is returned too, in the order of ours, the other node's spare
// ones last.
func MatchRails(ours, theirs []Rail) []RailPair {
	m := matching{ours: ours, theirs: theirs, peer: make([]int, len(ours)), by: make([]Match, len(ours)), taken: make([]bool, len(theirs))}
	for i := range m.peer {
		m.peer[i] = -1
	}
	sameName := func(a, b Rail) bool { return a.Name() == b.Name() }
	m.each(MatchName, func(a, b Rail) bool { return sameName(a, b) && sameSubnet(a, b) })
	m.bySubnet()
	m.each(MatchName, sameName)
	m.each(MatchOrder, func(a, b Rail) bool { return a.Unfit == "" && b.Unfit == "" })
	m.each(MatchOrder, func(Rail, Rail) bool { return true }) // so that a port that is down is told of once
	return m.pairs()
}

type matching struct {
	ours, theirs []Rail
	peer         []int // index into theirs; -1: none
	by           []Match
	taken        []bool
}

func (m *matching) take(i, j int, by Match) { m.peer[i], m.by[i], m.taken[j] = j, by, true }

// open lists the peers that rail i could still have.
func (m *matching) open(i int, fits func(a, b Rail) bool) []int {
	var out []int
	for j, b := range m.theirs {
		if !m.taken[j] && m.ours[i].LinkLayer == b.LinkLayer && fits(m.ours[i], b) {
			out = append(out, j)
		}
	}
	return out
}

// each gives every rail without a peer the first that fits.
func (m *matching) each(by Match, fits func(a, b Rail) bool) {
	for i := range m.ours {
		if m.peer[i] >= 0 {
			continue
		}
		if list := m.open(i, fits); len(list) > 0 {
			m.take(i, list[0], by)
		}
	}
}

func (m *matching) bySubnet() {
	for i := range m.ours {
		if m.peer[i] >= 0 {
			continue
		}
		if list := m.open(i, sameSubnet); len(list) == 1 {
			m.take(i, list[0], MatchSubnet)
		}
	}
}

func sameSubnet(a, b Rail) bool {
	return slices.ContainsFunc(a.Subnets, func(s string) bool { return slices.Contains(b.Subnets, s) })
}

func (m *matching) pairs() []RailPair {
	var out []RailPair
	for i, a := range m.ours {
		p := RailPair{Rail: a.Name(), By: m.by[i]}
		switch j := m.peer[i]; {
		case j < 0 && a.Unfit != "":
			p.NotMeasured, p.Why = fmt.Sprintf("%s is %s", a.Name(), a.Unfit), a.Why
		case j < 0:
			p.NotMeasured, p.Why = "the other node has no port left for it", WhyNoPeer
		default:
			b := m.theirs[j]
			p.Peer, p.Why = b.Name(), cmp.Or(a.Why, b.Why)
			var unfit []string
			if a.Unfit != "" {
				unfit = append(unfit, fmt.Sprintf("%s is %s here", a.Name(), a.Unfit))
			}
			if b.Unfit != "" {
				unfit = append(unfit, fmt.Sprintf("%s is %s on the other node", b.Name(), b.Unfit))
			}
			p.NotMeasured = strings.Join(unfit, "; ")
		}
		out = append(out, p)
	}
	for j, b := range m.theirs {
		if !m.taken[j] {
			out = append(out, RailPair{Peer: b.Name(), NotMeasured: "this node has no port left for it", Why: WhyNoPeer})
		}
	}
	return out
}

// check says what is out of bounds in a list of rails.
func (l *railList) check() error {
	if len(l.Rails) > MaxRails {
		return fmt.Errorf("%d rails", len(l.Rails))
	}
	seen := map[string]bool{}
	for _, r := range l.Rails {
		if r.Device == "" || r.Port < 1 || seen[r.Name()] {
			return fmt.Errorf("no rail: %q", r.Name())
		}
		seen[r.Name()] = true
		if len(r.Subnets) > maxTexts {
			return fmt.Errorf("%d networks", len(r.Subnets))
		}
		for _, s := range r.Subnets {
			if _, err := netip.ParsePrefix(s); err != nil {
				return fmt.Errorf("network %q", s)
			}
		}
		if (r.Unfit == "") != (r.Why == "") || !slices.Contains(whys, r.Why) {
			return fmt.Errorf("no reason %q", r.Why)
		}
		if err := short(r.Device, r.LinkLayer, r.Unfit); err != nil {
			return err
		}
	}
	return nil
}

// railList answers the question for a node's rails.
type railList struct {
	Rails []Rail `json:"rails"`
}

var errNoRails = errors.New("this end does not tell its rails")
