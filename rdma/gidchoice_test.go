package rdma

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

const (
	linkLocal = "fe80:0000:0000:0000:9640:c9ff:fe8c:a09c"
	mapped    = "0000:0000:0000:0000:0000:ffff:c0a8:0684"
	global6   = "2001:0db8:0000:0000:0000:0000:0000:0001"
)

func tableOf(gids ...GID) *Port { return &Port{GIDs: gids, GIDTable: known(16)} }

func gid(i int, addr, kind string) GID {
	return GID{Index: i, GID: addr, Type: known(kind), NetDev: known("eth0")}
}

func homeless(g GID) GID {
	g.NetDev = fact.Missing[string](fact.Absent, "test", "another namespace")
	return g
}

// The wanted indexes follow from the programs' sources by hand.
func TestGIDChoice(t *testing.T) {
	both := []GID{gid(0, linkLocal, roceV1), gid(1, linkLocal, roceV2), gid(2, mapped, roceV1), gid(3, mapped, roceV2)}
	for _, c := range []struct {
		name          string
		port          *Port
		nccl, ucx, cm int // -1: none
		routable      int
	}{
		{"usual", tableOf(both...), 3, 3, 3, 3},
		{"two addresses", tableOf(append(both, gid(4, "0000:0000:0000:0000:0000:ffff:0a00:0001", roceV1), gid(5, "0000:0000:0000:0000:0000:ffff:0a00:0001", roceV2))...), 3, 3, 3, 3},
		{"v2 before v1", tableOf(gid(0, linkLocal, roceV2), gid(1, mapped, roceV2), gid(2, mapped, roceV1)), 1, 1, 1, 1},
		{"IPv6 alone", tableOf(gid(0, linkLocal, roceV1), gid(1, linkLocal, roceV2), gid(2, global6, roceV1), gid(3, global6, roceV2)), 0, 1, 3, 3},
		{"IPv4 after IPv6", tableOf(gid(0, linkLocal, roceV1), gid(1, global6, roceV2), gid(7, mapped, roceV2)), 7, 7, 7, 7},
		{"IPv4 of another namespace", tableOf(gid(0, linkLocal, roceV1), gid(1, global6, roceV2), homeless(gid(3, mapped, roceV2))), 3, 1, 1, 1},
		{"v1 alone", tableOf(gid(0, linkLocal, roceV1), gid(2, mapped, roceV1)), 2, 2, -1, -1},
		{"a hole at 0", tableOf(gid(3, mapped, roceV2)), 3, 3, 3, 3},
		{"empty", tableOf(), 0, 0, -1, -1},
	} {
		routable := -1
		if g := c.port.RoutableGID(); g != nil {
			routable = g.Index
		}
		n, u, m := c.port.NCCLGID(), c.port.UCXGID(), c.port.CMGID(false)
		if n.Or(-1) != c.nccl || u.Or(-1) != c.ucx || m.Or(-1) != c.cm || routable != c.routable {
			t.Errorf("%s: NCCL %d, UCX %d, rdma_cm %d, routable %d; want %d, %d, %d, %d", c.name, n.Or(-1), u.Or(-1), m.Or(-1), routable, c.nccl, c.ucx, c.cm, c.routable)
		}
	}
	if v := tableOf(both...).CMGID(true); v.Or(-1) != 2 {
		t.Errorf("default_roce_mode v1: %+v", v)
	}
}

// What was not seen could have been the one that is taken.
func TestGIDChoiceUnseen(t *testing.T) {
	unread := gid(3, mapped, "")
	unread.Type = fact.Missing[string](fact.Failed, "ports/1/gid_attrs/types/3", "input/output error")
	broken := tableOf(gid(3, mapped, roceV2))
	broken.GIDTable = fact.Missing[int](fact.Denied, "ports/1/gids", "permission denied")
	for _, p := range []*Port{tableOf(gid(0, linkLocal, roceV1), unread), broken, {}} {
		for _, v := range []fact.Value[int]{p.NCCLGID(), p.UCXGID(), p.CMGID(false)} {
			if v.State == fact.Known {
				t.Errorf("%+v of a table that was not seen", v)
			}
		}
	}
}

// ncclRule is NCCL's pairwise rule with its own notions, on raw bytes and with
// family and version as variables.
func ncclRule(table map[int]GID, entries int) int {
	raw := func(i int) [16]byte {
		if a := table[i].Addr(); a.IsValid() {
			return a.As16()
		}
		return [16]byte{}
	}
	const inet, inet6, version = 2, 10, 2
	family := func(b [16]byte) int {
		if binary.BigEndian.Uint64(b[:]) == 0 && binary.BigEndian.Uint32(b[8:]) == 0xffff {
			return inet
		}
		return inet6
	}
	valid := func(b [16]byte) bool {
		head, next := binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint32(b[4:])
		return b != [16]byte{} && (head != 0xfe800000 || next != 0)
	}
	best := 0
	for i := 1; i < entries; i++ {
		have, candidate := raw(best), raw(i)
		if family(candidate) != family(have) && family(candidate) == inet {
			best = i
			continue
		}
		if family(candidate) != inet || !valid(candidate) {
			continue
		}
		if (gidVersion(table[best]) != gidVersion(table[i]) || !valid(have)) && gidVersion(table[i]) == version {
			best = i
		}
	}
	return best
}

func TestNCCLGIDAsItsRule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds, addrs := []string{roceV1, roceV2}, []string{linkLocal, mapped, global6, "0000:0000:0000:0000:0000:ffff:a9fe:0001"}
	for range 5000 {
		const entries = 8
		table, p := map[int]GID{}, tableOf()
		for i := range entries {
			if r.IntN(3) > 0 {
				g := gid(i, addrs[r.IntN(len(addrs))], kinds[r.IntN(2)])
				table[i], p.GIDs = g, append(p.GIDs, g)
			}
		}
		if got, want := p.NCCLGID().Or(-1), ncclRule(table, entries); got != want {
			t.Fatalf("%+v: %d, want %d", p.GIDs, got, want)
		}
	}
}

// A real NIC's table, as show_gids printed it: both take the entry that
// everybody's documents call index 3.
func TestGIDChoiceRecorded(t *testing.T) {
	b, err := os.ReadFile(facttest.Fixture(t, "outputs/text/show_gids.txt"))
	if err != nil {
		t.Fatal(err)
	}
	p := tableOf()
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "mlx5_0" {
			continue
		}
		i, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		g := gid(i, f[3], roceV1)
		if f[len(f)-2] == "v2" {
			g.Type = known(roceV2)
		}
		p.GIDs = append(p.GIDs, g)
	}
	if len(p.GIDs) != 4 || p.NCCLGID().Or(-1) != 3 || p.UCXGID().Or(-1) != 3 || p.GIDAt(3).Addr().Unmap() != netip.MustParseAddr("192.168.6.132") {
		t.Errorf("%+v: NCCL %+v, UCX %+v", p.GIDs, p.NCCLGID(), p.UCXGID())
	}
}
