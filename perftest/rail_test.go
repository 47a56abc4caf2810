package perftest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rail reads "mlx5_0/1 10.0.0.0/24 DOWN ib": a port, its network, its state and link layer.
func rail(text string) Rail {
	r := Rail{LinkLayer: "Ethernet"}
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			name, port, _ := strings.Cut(word, "/")
			r.Device = name
			_, _ = fmt.Sscan(port, &r.Port)
		case word == "ib":
			r.LinkLayer = "InfiniBand"
		case strings.Contains(word, "/"):
			r.Subnets = append(r.Subnets, word)
		default:
			r.Unfit, r.Why = word, WhyDown
		}
	}
	return r
}

func rails(texts ...string) []Rail {
	var out []Rail
	for _, t := range texts {
		out = append(out, rail(t))
	}
	return out
}

func TestMatchRails(t *testing.T) {
	for name, tt := range map[string]struct {
		ours, theirs []Rail
		want         string // "ours theirs by" of each
	}{
		"equal nodes": {rails("a/1", "b/1"), rails("b/1", "a/1"), "a/1 a/1 name, b/1 b/1 name"},
		"two ports":   {rails("a/1", "a/2"), rails("a/2", "a/1"), "a/1 a/1 name, a/2 a/2 name"},
		"other names, networks tell": {
			rails("a/1 10.0.0.0/24", "b/1 10.0.1.0/24"), rails("x/1 10.0.1.0/24", "y/1 10.0.0.0/24"), "a/1 y/1 subnet, b/1 x/1 subnet",
		},
		"other names, order": {rails("a/1", "b/1"), rails("x/1", "y/1"), "a/1 x/1 order, b/1 y/1 order"},
		"the same names, cabled the other way round": {
			rails("a/1 10.0.0.0/24", "b/1 10.0.1.0/24"), rails("a/1 10.0.1.0/24", "b/1 10.0.0.0/24"), "a/1 b/1 subnet, b/1 a/1 subnet",
		},
		"routed: all networks differ": {
			rails("a/1 10.0.0.0/31", "b/1 10.0.1.0/31"), rails("a/1 10.1.0.0/31", "b/1 10.1.1.0/31"), "a/1 a/1 name, b/1 b/1 name",
		},
		"one network for all": {
			rails("a/1 10.0.0.0/16", "b/1 10.0.0.0/16"), rails("x/1 10.0.0.0/16", "y/1 10.0.0.0/16"), "a/1 x/1 order, b/1 y/1 order",
		},
		"link layers differ": {rails("a/1 ib"), rails("a/1"), "a/1 : the other node has no port left for it,  a/1: this node has no port left for it"},
		"fewer there":        {rails("a/1", "b/1"), rails("b/1"), "a/1 : the other node has no port left for it, b/1 b/1 name"},
		"fewer here":         {rails("b/1"), rails("a/1", "b/1"), "b/1 b/1 name,  a/1: this node has no port left for it"},
		"down there":         {rails("a/1", "b/1"), rails("a/1 DOWN", "b/1"), "a/1 a/1 name: a/1 is DOWN on the other node, b/1 b/1 name"},
		"down at both":       {rails("a/1 DOWN"), rails("a/1 INIT"), "a/1 a/1 name: a/1 is DOWN here; a/1 is INIT on the other node"},
		"down without a peer": {
			rails("a/1 DOWN", "b/1"), rails("x/1"), "a/1 : a/1 is DOWN, b/1 x/1 order",
		},
		// Routes go with the link: the network of a port that is down is not known.
		"cabled the other way round, and one is down there": {
			rails("a/1 10.0.0.0/24", "b/1 10.0.1.0/24"), rails("a/1 10.0.1.0/24", "b/1 DOWN"),
			"a/1 b/1 order: b/1 is DOWN on the other node, b/1 a/1 subnet",
		},
		"cabled the other way round, and one is down here": {
			rails("a/1 DOWN", "b/1 10.0.1.0/24"), rails("a/1 10.0.1.0/24", "b/1 10.0.0.0/24"),
			"a/1 b/1 order: a/1 is DOWN here, b/1 a/1 subnet",
		},
		"none": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range MatchRails(tt.ours, tt.theirs) {
				text := strings.TrimRight(fmt.Sprintf("%s %s %s", p.Rail, p.Peer, p.By), " ")
				if p.Peer == "" {
					text += " "
				}
				if p.NotMeasured != "" {
					text += ": " + p.NotMeasured
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Whatever the two nodes have, each port is in one pair at most, and none is lost.
func FuzzMatchRails(f *testing.F) {
	f.Add("a/1 10.0.0.0/24;b/1", "b/1;c/1 DOWN")
	f.Add("a/1 ib;a/2;b/1 10.0.0.0/8 10.1.0.0/16", "a/1 10.0.0.0/8;a/2 ib")
	f.Fuzz(func(t *testing.T, a, b string) {
		ours, theirs := rails(strings.Split(a, ";")...), rails(strings.Split(b, ";")...)
		here, there := 0, 0
		for _, p := range MatchRails(ours, theirs) {
			if p.Rail != "" {
				here++
			}
			if p.Peer != "" {
				there++
			}
			if (p.Rail == "" || p.Peer == "") == (p.By != "") || p.By == "" && p.NotMeasured == "" || (p.NotMeasured == "") != (p.Why == "") {
				t.Errorf("%+v", p)
			}
		}
		if here != len(ours) || there != len(theirs) {
			t.Errorf("%d of %d rails here, %d of %d there", here, len(ours), there, len(theirs))
		}
	})
}
