package perftest

import (
	"fmt"
	"net/netip"
	"strings"
)

// GIDType is enum ibv_gid_type of libibverbs.
type GIDType int

// Types of a GID table's entries.
const (
	GIDInfiniBand GIDType = iota
	GIDRoCEv1
	GIDRoCEv2
	GIDUnknownType GIDType = -1 // this libibverbs cannot tell
)

// String names the type as sysfs does.
func (t GIDType) String() string {
	switch t {
	case GIDInfiniBand:
		return "IB"
	case GIDRoCEv1:
		return "RoCE v1"
	case GIDRoCEv2:
		return "RoCE v2"
	case GIDUnknownType:
	}
	return "of unknown type"
}

// GIDEntry is one filled entry of a port's GID table.
type GIDEntry struct {
	Index int
	Addr  netip.Addr // 16 bytes; an IPv4 address is mapped into them
	Type  GIDType
}

// ChooseGID chooses the entry of a RoCE port's table: RoCE v2 before v1, then
// the wanted family before the other, then any address before a link-local
// one, then the lowest index. The reason is for people. v4-mapped is IPv4.
func ChooseGID(entries []GIDEntry, ipv6 bool) (GIDEntry, string, error) {
	var best GIDEntry
	bestScore := -1
	for _, e := range entries {
		if !e.Addr.IsValid() || e.Addr.IsUnspecified() {
			continue
		}
		if s := gidScore(e, ipv6); s > bestScore {
			best, bestScore = e, s
		}
	}
	if bestScore < 0 {
		return best, "", &Failure{
			Call: "choosing a GID", Cause: "the port's GID table is empty",
			Check: "give its network interface an IP address and bring it up",
		}
	}
	if best.Type == GIDUnknownType {
		return best, "", &Failure{
			Call: "choosing a GID", Cause: "this libibverbs cannot tell RoCE v1 from v2 (ibv_query_gid_ex came with IBVERBS_1.11)",
			Check: "name one with --gid-index; the types are in /sys/class/infiniband/DEVICE/ports/N/gid_attrs/types",
		}
	}
	return best, gidReason(best, len(entries), ipv6), nil
}

func gidScore(e GIDEntry, ipv6 bool) int {
	const v2, family, global = 4, 2, 1
	score := 0
	if e.Type == GIDRoCEv2 {
		score += v2
	}
	if e.Addr.Is4In6() != ipv6 {
		score += family
	}
	if !e.Addr.Unmap().IsLinkLocalUnicast() {
		score += global
	}
	return score
}

func gidReason(e GIDEntry, of int, ipv6 bool) string {
	family := "IPv4"
	if !e.Addr.Is4In6() {
		family = "IPv6"
	}
	parts := []string{e.Type.String(), family}
	if e.Addr.Unmap().IsLinkLocalUnicast() {
		parts = append(parts, "link-local, since there is no other of its kind")
	}
	if e.Addr.Is4In6() == ipv6 {
		parts = append(parts, "not of the family asked for, which no better entry has")
	}
	return fmt.Sprintf("%s (%s), chosen of %d entries", e.Addr.Unmap(), strings.Join(parts, ", "), of)
}
