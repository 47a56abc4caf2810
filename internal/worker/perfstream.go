package worker

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// streamAddress gives the data connection of a test over TCP the address of the
// NIC's network interface, and says so where it cannot.
func streamAddress(l *perftest.Local) (notes []string, err error) {
	if l.Address != "" {
		return nil, nil
	}
	if l.Device == "" {
		l.Address = "127.0.0.1"
		return []string{"no NIC was named: the data connection stays within this node's kernel"}, nil
	}
	netdevs := netdevsOf("/", l.Device, l.Port)
	for _, name := range netdevs {
		if a, ok := addressOf(name, l.IPv6); ok {
			l.Address = a.String()
			return nil, nil
		}
	}
	a, ok := defaultAddress()
	if !ok {
		return nil, &perftest.Failure{
			Call: "data connection", Subject: l.Device, Cause: "neither the NIC's network interface nor the default route has an IP address",
			Check: "ip -br address; give the interface one: sudo ip address add ADDRESS/PREFIX dev INTERFACE",
		}
	}
	l.Address = a.String()
	return []string{fmt.Sprintf("%s has no IP address (%s): the data connection takes %s, of the default route", l.Device, strings.Join(netdevs, ", "), a)}, nil
}

// netdevsOf lists the network interfaces of a port: those that its GIDs are
// from, and for InfiniBand those of its PCI function.
func netdevsOf(root, device string, port int) []string {
	dir := filepath.Join(root, "/sys/class/infiniband", filepath.Base(device))
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	gids, _ := filepath.Glob(filepath.Join(dir, "ports", strconv.Itoa(port), "gid_attrs/ndevs/*"))
	slices.SortFunc(gids, func(a, b string) int { return len(a) - len(b) }) // 2 before 10
	for _, g := range gids {
		add(readWord(g)) // most entries are empty, and cannot be read
	}
	if len(names) > 0 {
		return names
	}
	list, _ := os.ReadDir(filepath.Join(dir, "device/net"))
	for _, e := range list {
		// dev_port counts from 0.
		if at := readWord(filepath.Join(dir, "device/net", e.Name(), "dev_port")); at == "" || at == strconv.Itoa(port-1) {
			add(e.Name())
		}
	}
	return names
}

// addressOf is the interface's first address that needs no zone.
func addressOf(netdev string, ipv6 bool) (netip.Addr, bool) {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return netip.Addr{}, false
	}
	list, _ := i.Addrs() // none: the same
	var found []netip.Addr
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() {
			found = append(found, p.Addr())
		}
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int {
		if a.Is6() == b.Is6() {
			return 0
		}
		if a.Is6() == ipv6 {
			return -1
		}
		return 1
	})
	if len(found) == 0 {
		return netip.Addr{}, false
	}
	return found[0], true
}

// defaultAddress is the node's own on its default route. No packet is sent:
// connecting a UDP socket only looks it up. RFC 5737 and RFC 3849 set the
// addresses aside for documentation.
func defaultAddress() (netip.Addr, bool) {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		a := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
		_ = c.Close()
		return a, true
	}
	return netip.Addr{}, false
}

// sentBytes is what each network interface has sent since the kernel's start.
func sentBytes() map[string]uint64 {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil
	}
	return parseNetDev(string(b))
}

// parseNetDev reads the bytes sent of each interface in /proc/net/dev: the ninth
// number behind its name.
func parseNetDev(text string) map[string]uint64 {
	const sent = 8
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) <= sent {
			continue
		}
		if n, err := strconv.ParseUint(f[sent], 10, 64); err == nil {
			out[strings.TrimSpace(name)] = n
		}
	}
	return out
}

// carriers names the interfaces that sent so many bytes meanwhile, but for some
// that may have been counted before or will be after; empty: none did.
func carriers(before, after map[string]uint64, bytes uint64) string {
	const share = 0.9
	var names []string
	for name, n := range after {
		if more := n - before[name]; n >= before[name] && float64(more) >= share*float64(bytes) && more > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
