package rdma

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Subnets tells the networks that each network interface reaches without a
// gateway, from the kernel's routes and its IPv6 addresses; link-local ones,
// which are everywhere, are left out. What cannot be read is not in it.
func Subnets(src fact.Source) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	if b, err := src.ReadFile("/proc/net/route"); err == nil {
		parseRoutes(string(b), out)
	}
	if b, err := src.ReadFile("/proc/net/if_inet6"); err == nil {
		parseInet6(string(b), out)
	}
	return out
}

// parseRoutes reads /proc/net/route (proc_net(5)): Iface, Destination, Gateway,
// Flags, RefCnt, Use, Metric, Mask; addresses as the CPU reads their four bytes.
func parseRoutes(text string, into map[string][]netip.Prefix) {
	const destination, gateway, flags, mask = 1, 2, 3, 7
	const up, reject = 1, 0x200 // RTF_UP, RTF_REJECT
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= mask || f[gateway] != "00000000" {
			continue
		}
		is, err := strconv.ParseUint(f[flags], 16, 16)
		to, okTo := routeAddress(f[destination])
		m, okMask := routeAddress(f[mask])
		if err != nil || is&up == 0 || is&reject != 0 || !okTo || !okMask {
			continue
		}
		if p, ok := prefix(to, m); ok {
			add(into, f[0], p)
		}
	}
}

func routeAddress(text string) (netip.Addr, bool) {
	n, err := strconv.ParseUint(text, 16, 32)
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], uint32(n))
	return netip.AddrFrom4(b), err == nil && len(text) == 2*len(b)
}

// prefix is a network by its mask, unless that is no mask or stands for everything.
func prefix(to, mask netip.Addr) (netip.Prefix, bool) {
	b := mask.As4()
	m := binary.BigEndian.Uint32(b[:])
	ones := bits.LeadingZeros32(^m)
	if ones == 0 || m<<ones != 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(to, ones).Masked(), true
}

// parseInet6 reads /proc/net/if_inet6 (proc_net(5)): address, index, length of
// the prefix, scope, flags, name; numbers in hexadecimal.
func parseInet6(text string, into map[string][]netip.Prefix) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		const fields, prefixLength, name = 6, 2, 5
		if len(f) != fields {
			continue
		}
		b, err := hex.DecodeString(f[0])
		length, err2 := strconv.ParseUint(f[prefixLength], 16, 8)
		a, ok := netip.AddrFromSlice(b)
		if err != nil || err2 != nil || !ok || !a.Is6() || a.IsLinkLocalUnicast() || a.IsLoopback() || length == 0 {
			continue
		}
		if p, err := a.Prefix(int(length)); err == nil {
			add(into, f[name], p)
		}
	}
}

func add(into map[string][]netip.Prefix, name string, p netip.Prefix) {
	if !slices.Contains(into[name], p) {
		into[name] = append(into[name], p)
	}
}
