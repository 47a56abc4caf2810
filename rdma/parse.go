package rdma

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// CompareNames orders device names as people count: mlx5_2 before mlx5_10.
func CompareNames(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx > 0 && dy > 0 {
			nx, ny := strings.TrimLeft(x[:dx], "0"), strings.TrimLeft(y[:dy], "0")
			if c := cmp.Or(cmp.Compare(len(nx), len(ny)), cmp.Compare(nx, ny)); c != 0 {
				return c
			}
			x, y = x[dx:], y[dy:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// ParseState takes the name out of "4: ACTIVE" and "5: LinkUp"
// (drivers/infiniband/core/sysfs.c, state_show and phys_state_show).
func ParseState(s string) (string, error) {
	n, name, ok := strings.Cut(s, ": ")
	if _, err := strconv.ParseUint(n, 10, 8); err != nil || !ok || name == "" {
		return "", fmt.Errorf("bad state %q: want \"4: ACTIVE\"", s)
	}
	return name, nil
}

// ParseRate parses "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" and the old
// "10 Gb/sec (4X)" (drivers/infiniband/core/sysfs.c, rate_show).
func ParseRate(s string) (Rate, error) {
	bad := fmt.Errorf("bad rate %q: want \"400 Gb/sec (4X NDR)\"", s)
	num, rest, ok := strings.Cut(s, " Gb/sec")
	gbps, err := strconv.ParseFloat(num, 64)
	if !ok || err != nil || !(gbps >= 0 && gbps < 1e6) {
		return Rate{}, bad
	}
	r := Rate{BitsPerSec: gbps * 1e9, Text: s}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return r, nil
	}
	rest, opened := strings.CutPrefix(rest, "(")
	rest, closed := strings.CutSuffix(rest, ")")
	lanes, speed, _ := strings.Cut(rest, "X")
	n, err := strconv.ParseUint(lanes, 10, 8)
	if !opened || !closed || err != nil {
		return Rate{}, bad
	}
	r.Lanes, r.Speed = int(n), strings.TrimSpace(speed)
	return r, nil
}

// parseHex16 parses a LID or a P_Key, "0x4b".
func parseHex16(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 0, 16)
	return uint16(n), err
}

func parseLID(s string) (int, error) {
	n, err := parseHex16(s)
	return int(n), err
}

func parseHex32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return uint32(n), err
}

// parseTrafficClass parses "Global tclass=106".
func parseTrafficClass(s string) (int, error) {
	text, ok := strings.CutPrefix(s, "Global tclass=")
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, 8)
	if !ok || err != nil {
		return 0, fmt.Errorf("bad traffic class %q: want \"Global tclass=106\"", s)
	}
	return int(n), nil
}

// errNoCounter: the device has no such counter although the file exists.
var errNoCounter = errors.New("the device does not count this")

// ParseCounter parses a counter file; "N/A (no PMA)" is errNoCounter.
func ParseCounter(s string) (uint64, error) {
	if strings.HasPrefix(s, "N/A") {
		return 0, errNoCounter
	}
	return strconv.ParseUint(s, 10, 64)
}

// zeroGID is what an empty slot of a GID table reads as.
func zeroGID(s string) bool { return strings.Trim(s, "0:") == "" }

// transportOf tells what carries RDMA. nodeType is the node_type file ("1: CA",
// "" where it could not be read), layer the port's link_layer, hca the hca_type
// file. node_type "4: RNIC" is iWARP whatever the link layer.
func transportOf(nodeType, layer, driver, hca string) (Transport, error) {
	mlx := strings.HasPrefix(hca, "MT") || strings.HasPrefix(driver, "mlx")
	switch {
	case driver == "efa":
		return EFA, nil
	case strings.HasPrefix(nodeType, "4:"), strings.HasPrefix(hca, "I40IW"):
		return IWARP, nil
	case nodeType != "" && !strings.HasPrefix(nodeType, "1:"):
		return Other, nil
	case layer == "InfiniBand":
		return InfiniBand, nil
	case layer == "Ethernet" && (nodeType != "" || mlx):
		return RoCE, nil
	case layer == "Ethernet":
		return "", errors.New("link layer Ethernet and no node_type: RoCE or iWARP")
	case layer == "Unspecified":
		return Other, nil
	}
	return "", fmt.Errorf("unknown link layer %q", layer)
}

// roceMTU is the largest RDMA MTU that a netdev's MTU carries, in bytes
// (include/rdma/ib_addr.h, iboe_get_mtu: GRH 40, UDP 8, BTH 12, XRC 4,
// AtomicETH 28, ICRC 4).
func roceMTU(netdev int) (int, error) {
	const headers = 40 + 8 + 12 + 4 + 28 + 4
	for _, mtu := range []int{4096, 2048, 1024, 512, 256} {
		if netdev-headers >= mtu {
			return mtu, nil
		}
	}
	return 0, fmt.Errorf("netdev MTU %d carries no RDMA MTU", netdev)
}

// errNoV3 says that a VPD was read whole and has no V3 field.
var errNoV3 = errors.New("no V3 field in the VPD")

// vpdV3 finds the vendor field V3 in the read-only part of Vital Product Data
// (PCI Local Bus Specification 3.0, appendix I): on mlx5 a UUID that a NIC and
// its Data Direct function share.
func vpdV3(b []byte) (string, error) {
	for len(b) > 0 {
		tag := b[0]
		if tag&0x80 == 0 { // small resource: length in the tag
			if tag>>3 == 0x0f { // end tag
				break
			}
			n := 1 + int(tag&7)
			if len(b) < n {
				return "", errors.New("VPD cut short")
			}
			b = b[n:]
			continue
		}
		if len(b) < 3 {
			return "", errors.New("VPD cut short")
		}
		n := int(binary.LittleEndian.Uint16(b[1:]))
		if len(b) < 3+n {
			return "", errors.New("VPD cut short")
		}
		body := b[3 : 3+n]
		b = b[3+n:]
		if tag != 0x90 { // VPD-R
			continue
		}
		for len(body) >= 3 {
			end := 3 + int(body[2])
			if end > len(body) {
				return "", errors.New("VPD field longer than its section")
			}
			if string(body[:2]) == "V3" {
				return strings.TrimRight(string(body[3:end]), "\x00 "), nil
			}
			body = body[end:]
		}
	}
	return "", errNoV3
}
