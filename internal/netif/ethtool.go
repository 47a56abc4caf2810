package netif

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// Sources of facts, the questions by the names that the kernel gives them
// (include/uapi/linux/ethtool_netlink.h).
const (
	srcLinkModes = "ethtool:LINKMODES_GET"
	srcLinkState = "ethtool:LINKSTATE_GET"
	srcFEC       = "ethtool:FEC_GET"
	srcPause     = "ethtool:PAUSE_GET"
)

// Ethtool asks over one connection.
type Ethtool struct{ *family }

// OpenEthtool connects to ethtool netlink; the error is Unsupported on kernels
// before 5.6.
func OpenEthtool() (*Ethtool, error) {
	conn, err := dialGenl()
	if err != nil {
		return nil, err
	}
	return newEthtool(conn)
}

func newEthtool(conn *genetlink.Conn) (*Ethtool, error) {
	f, err := openFamily(conn, unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, err
	}
	return &Ethtool{f}, nil
}

// Get asks for the link, its FEC and global pause of an interface. at is told
// each question before it is put, and part what is known after each.
func (e *Ethtool) Get(ifName string, at func(string), part func(any)) qos.Ethtool {
	var out qos.Ethtool
	for _, q := range []struct {
		cmd    uint8
		flags  uint32
		source string
		decode func([]byte, *qos.Ethtool) error
		fail   func(why fact.Value[bool])
	}{
		{unix.ETHTOOL_MSG_LINKSTATE_GET, 0, srcLinkState, decodeLinkState, func(why fact.Value[bool]) {
			out.Link.Up, out.Link.DownReason, out.Link.Downs = why, fact.As(why, ""), fact.As(why, uint64(0))
		}},
		{unix.ETHTOOL_MSG_LINKMODES_GET, 0, srcLinkModes, decodeLinkModes, func(why fact.Value[bool]) { qos.Fill(&out.Link, why) }},
		{unix.ETHTOOL_MSG_FEC_GET, unix.ETHTOOL_FLAG_STATS, srcFEC, decodeFEC, func(why fact.Value[bool]) { qos.Fill(&out.FEC, why) }},
		{unix.ETHTOOL_MSG_PAUSE_GET, unix.ETHTOOL_FLAG_STATS, srcPause, decodePause, func(why fact.Value[bool]) { qos.Fill(&out.Pause, why) }},
	} {
		at(q.source)
		reply, err := e.about(q.cmd, ifName, q.flags, nil)
		if err == nil {
			err = q.decode(reply, &out)
		}
		if err != nil {
			q.fail(fromError[bool](err, q.source))
		}
		part(out)
	}
	return out
}

// about asks about an interface. The header is the first attribute of every
// question and of every answer.
func (e *Ethtool) about(cmd uint8, ifName string, flags uint32, more func(*netlink.AttributeEncoder)) ([]byte, error) {
	const header = 1 // ETHTOOL_A_*_HEADER
	if err := checkName(ifName); err != nil {
		return nil, err
	}
	return e.one(cmd, func(ae *netlink.AttributeEncoder) {
		ae.Nested(header, func(ae *netlink.AttributeEncoder) error {
			ae.String(unix.ETHTOOL_A_HEADER_DEV_NAME, ifName)
			if flags != 0 {
				ae.Uint32(unix.ETHTOOL_A_HEADER_FLAGS, flags)
			}
			return nil
		})
		if more != nil {
			more(ae)
		}
	})
}

func decodeLinkState(b []byte, out *qos.Ethtool) error {
	l := qos.Link{DownReason: fact.Missing[string](fact.Absent, srcLinkState, "the driver gives none")}
	var state, sub *uint8
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.ETHTOOL_A_LINKSTATE_LINK:
			l.Up = fact.Of(ad.Uint8() != 0, srcLinkState)
		case unix.ETHTOOL_A_LINKSTATE_EXT_STATE:
			state = new(ad.Uint8())
		case unix.ETHTOOL_A_LINKSTATE_EXT_SUBSTATE:
			sub = new(ad.Uint8())
		case unix.ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT:
			l.Downs = fact.Of(uint64(ad.Uint32()), srcLinkState)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if state != nil {
		l.DownReason = fact.Of(downReason(*state, sub), srcLinkState)
	}
	leftOut(&l, srcLinkState)
	out.Link.Up, out.Link.DownReason, out.Link.Downs = l.Up, l.DownReason, l.Downs
	return nil
}

func decodeLinkModes(b []byte, out *qos.Ethtool) error {
	l := qos.Link{
		Up: out.Link.Up, DownReason: out.Link.DownReason, Downs: out.Link.Downs,
		PeerModes: fact.Missing[[]qos.Mode](fact.Absent, srcLinkModes, "the link partner offered none"),
	}
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.ETHTOOL_A_LINKMODES_AUTONEG:
			l.Autoneg = fact.Of(ad.Uint8() != 0, srcLinkModes)
		case unix.ETHTOOL_A_LINKMODES_SPEED:
			l.SpeedMbps = speed(ad.Uint32())
		case unix.ETHTOOL_A_LINKMODES_DUPLEX:
			l.FullDuplex = duplex(ad.Uint8())
		case unix.ETHTOOL_A_LINKMODES_LANES:
			l.Lanes = fact.Of(int(ad.Uint32()), srcLinkModes)
		case unix.ETHTOOL_A_LINKMODES_OURS:
			l.Modes = structure(ad.Bytes(), srcLinkModes, linkModes)
		case unix.ETHTOOL_A_LINKMODES_PEER:
			l.PeerModes = structure(ad.Bytes(), srcLinkModes, linkModes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	leftOut(&l, srcLinkModes)
	out.Link = l
	return nil
}

func speed(mbps uint32) fact.Value[int] {
	if mbps == 0 || mbps >= math.MaxInt32 { // SPEED_UNKNOWN is ~0
		return fact.Missing[int](fact.Absent, srcLinkModes, "the driver knows no speed now")
	}
	return fact.Of(int(mbps), srcLinkModes)
}

func duplex(d uint8) fact.Value[bool] {
	const half, full = 0, 1
	switch d {
	case half, full:
		return fact.Of(d == full, srcLinkModes)
	}
	return fact.Missing[bool](fact.Absent, srcLinkModes, "the driver knows none now")
}

// linkModes are the speeds among the names in a bitset; the kernel's set also
// has connectors, pause and FEC.
func linkModes(b []byte) ([]qos.Mode, error) {
	modes := []qos.Mode{}
	err := bitset(b, func(name string) {
		if strings.Contains(name, "base") {
			modes = append(modes, qos.Mode(name))
		}
	})
	return modes, err
}

// bitset walks the names of the bits that a bitset lists. We never ask for
// compact ones, which have no names.
func bitset(b []byte, each func(name string)) error {
	return attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.ETHTOOL_A_BITSET_VALUE, unix.ETHTOOL_A_BITSET_MASK:
			return errors.New("unreadable answer: a compact bitset")
		case unix.ETHTOOL_A_BITSET_BITS:
			return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
				return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
					if ad.Type() == unix.ETHTOOL_A_BITSET_BIT_NAME {
						each(ad.String())
					}
					return nil
				})
			})
		}
		return nil
	})
}

// Attributes of FEC_GET's answer.
const (
	fecModes         = 2
	fecAuto          = 3
	fecActive        = 4
	fecStats         = 5
	fecCorrected     = 2
	fecUncorrectable = 3
	fecCorrectedBits = 4
)

// fecNames are those of enum ethtool_link_mode_bit_indices.
var fecNames = map[uint32]string{49: "None", 50: "RS", 51: "BASER", 74: "LLRS"}

func decodeFEC(b []byte, out *qos.Ethtool) error {
	f := qos.FEC{Active: fact.Missing[string](fact.Absent, srcFEC, "none is active: no link")}
	auto := false
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case fecModes:
			f.Configured = structure(ad.Bytes(), srcFEC, func(b []byte) ([]string, error) {
				names := []string{}
				return names, bitset(b, func(name string) { names = append(names, name) })
			})
		case fecAuto:
			auto = ad.Uint8() != 0
		case fecActive:
			bit := ad.Uint32()
			name, known := fecNames[bit]
			if !known {
				name = fmt.Sprintf("link mode %d", bit)
			}
			f.Active = fact.Of(name, srcFEC)
		case fecStats:
			return decodeFECStats(ad.Bytes(), &f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if auto && f.Configured.State == fact.Known {
		f.Configured.V = append(f.Configured.V, "Auto")
	}
	leftOut(&f, srcFEC)
	out.FEC = f
	return nil
}

// decodeFECStats reads arrays of counts: the sum, then one for each lane.
func decodeFECStats(b []byte, f *qos.FEC) error {
	var corrected, uncorrectable []uint64
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		var into *fact.Value[uint64]
		counts, err := uint64s(ad.Bytes())
		switch ad.Type() {
		case fecCorrected:
			into, corrected = &f.Corrected, counts
		case fecUncorrectable:
			into, uncorrectable = &f.Uncorrectable, counts
		case fecCorrectedBits:
			into = &f.CorrectedBits
		default:
			return nil
		}
		if err == nil && len(counts) > 0 {
			*into = fact.Of(counts[0], srcFEC)
		}
		return err
	})
	if len(corrected) == len(uncorrectable) {
		for i := 1; i < len(corrected); i++ {
			f.Lanes = append(f.Lanes, qos.FECLane{Corrected: corrected[i], Uncorrectable: uncorrectable[i]})
		}
	}
	return err
}

func decodePause(b []byte, out *qos.Ethtool) error {
	var p qos.Pause
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.ETHTOOL_A_PAUSE_AUTONEG:
			p.Autoneg = fact.Of(ad.Uint8() != 0, srcPause)
		case unix.ETHTOOL_A_PAUSE_RX:
			p.RX = fact.Of(ad.Uint8() != 0, srcPause)
		case unix.ETHTOOL_A_PAUSE_TX:
			p.TX = fact.Of(ad.Uint8() != 0, srcPause)
		case unix.ETHTOOL_A_PAUSE_STATS:
			return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
				switch ad.Type() {
				case unix.ETHTOOL_A_PAUSE_STAT_TX_FRAMES:
					p.Sent = fact.Of(ad.Uint64(), srcPause)
				case unix.ETHTOOL_A_PAUSE_STAT_RX_FRAMES:
					p.Received = fact.Of(ad.Uint64(), srcPause)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	leftOut(&p, srcPause)
	out.Pause = p
	return nil
}
