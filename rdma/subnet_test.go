package rdma

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// As a little-endian kernel prints what "ip route" shows as: default via
// 192.168.1.1 dev eth0; 192.168.1.0/24 dev eth0; 10.1.0.0/31 dev eth1;
// 10.2.0.0/16 via 10.1.0.1 dev eth1; unreachable 10.9.0.0/16.
const routes = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	0101A8C0	0003	0	0	0	00000000	0	0	0
eth0	0001A8C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
eth1	0000010A	00000000	0001	0	0	0	FEFFFFFF	0	0	0
eth1	0000020A	0100010A	0003	0	0	0	0000FFFF	0	0	0
*	0000090A	00000000	0200	0	0	0	0000FFFF	0	0	0
eth1	000A0A0A	00000000	0001	0	0	0	00FF00FF	0	0	0
`

const inet6 = `00000000000000000000000000000001 01 80 10 80       lo
fe800000000000005054fffffe123456 02 40 20 80     eth0
20010db8000100000000000000000007 03 40 00 80     eth1
fd00000000000000000000000000000a 03 78 00 80     eth1
`

func TestSubnets(t *testing.T) {
	got := Subnets(facttest.Tree(t, map[string]string{"/proc/net/route": routes, "/proc/net/if_inet6": inet6}))
	want := map[string][]netip.Prefix{
		"eth0": prefixes("192.168.1.0/24"),
		"eth1": prefixes("10.1.0.0/31", "2001:db8:1::/64", "fd00::/120"),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := Subnets(facttest.Tree(t, nil)); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func FuzzSubnets(f *testing.F) {
	f.Add(routes, inet6)
	f.Fuzz(func(t *testing.T, routes, inet6 string) {
		got := map[string][]netip.Prefix{}
		parseRoutes(routes, got)
		parseInet6(inet6, got)
		for name, list := range got {
			for _, p := range list {
				if !p.IsValid() || p.Masked() != p || p.Bits() == 0 || name == "" {
					t.Errorf("%s: %v", name, p)
				}
			}
		}
	})
}
