package netif

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"

	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// The structures of include/uapi/linux/dcbnl.h, in the machine's byte order.
// A longer one is a newer kernel's.

var errShort = errors.New("unreadable answer: cut short")

func need(b []byte, n int, what string) error {
	if len(b) < n {
		return fmt.Errorf("%w: %s has %d bytes of %d", errShort, what, len(b), n)
	}
	return nil
}

// uint64s reads an array of counts.
func uint64s(b []byte) ([]uint64, error) {
	const size = 8
	if len(b)%size != 0 {
		return nil, fmt.Errorf("%w: an array of %d bytes", errShort, len(b))
	}
	var out []uint64
	for ; len(b) > 0; b = b[size:] {
		out = append(out, binary.NativeEndian.Uint64(b))
	}
	return out, nil
}

// parsePFC reads struct ieee_pfc.
func parsePFC(b []byte) (qos.PFC, error) {
	const delay, requests, indications, size = 4, 8, 72, 136
	if err := need(b, size, "ieee_pfc"); err != nil {
		return qos.PFC{}, err
	}
	p := qos.PFC{
		MaxClasses: int(b[0]), Enabled: qos.Priorities(b[1]), MACsec: b[2] != 0,
		DelayBits: int(binary.NativeEndian.Uint16(b[delay:])),
	}
	for i := range qos.PriorityCount {
		p.Sent[i] = binary.NativeEndian.Uint64(b[requests+8*i:])
		p.Received[i] = binary.NativeEndian.Uint64(b[indications+8*i:])
	}
	return p, nil
}

var selections = map[uint8]qos.TSA{0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}

// parseETS reads struct ieee_ets.
func parseETS(b []byte) (qos.ETS, error) {
	const tx, rx, tsa, prio, size = 3, 11, 19, 27, 59
	if err := need(b, size, "ieee_ets"); err != nil {
		return qos.ETS{}, err
	}
	e := qos.ETS{Willing: b[0] != 0, MaxClasses: int(b[1]), CreditShaper: b[2] != 0}
	for i := range qos.PriorityCount {
		e.TxPercent[i], e.RxPercent[i] = int(b[tx+i]), int(b[rx+i])
		e.PriorityClass[i] = int(b[prio+i])
		name, known := selections[b[tsa+i]]
		if !known {
			name = qos.TSA(fmt.Sprintf("reserved-%d", b[tsa+i]))
		}
		e.Selection[i] = name
	}
	return e, nil
}

// parseBuffer reads struct dcbnl_buffer.
func parseBuffer(b []byte) (qos.Buffer, error) {
	const sizes, total, size = 8, 40, 44
	if err := need(b, size, "dcbnl_buffer"); err != nil {
		return qos.Buffer{}, err
	}
	out := qos.Buffer{TotalBytes: binary.NativeEndian.Uint32(b[total:])}
	for i := range qos.PriorityCount {
		out.Priority[i] = int(b[i])
		out.SizeBytes[i] = binary.NativeEndian.Uint32(b[sizes+4*i:])
	}
	return out, nil
}

// parseMaxRate reads struct ieee_maxrate, which has kbit/s.
func parseMaxRate(b []byte) (qos.MaxRate, error) {
	const size = 64
	var out qos.MaxRate
	if err := need(b, size, "ieee_maxrate"); err != nil {
		return out, err
	}
	for i := range out {
		kbps := binary.NativeEndian.Uint64(b[8*i:])
		if kbps > 1<<53 { // 10^19 bit/s: no rate, and it would not fit
			return out, fmt.Errorf("a rate limit of %d kbit/s", kbps)
		}
		out[i] = kbps * 1000
	}
	return out, nil
}

var selectors = map[uint8]qos.Selector{
	1: qos.ByEtherType, 2: qos.ByStream, 3: qos.ByDatagram, 4: qos.ByPort, 5: qos.ByDSCP, 255: qos.ByPCP,
}

// parseApps reads a table of struct dcb_app, one an attribute
// (DCB_ATTR_IEEE_APP, or DCB_ATTR_DCB_APP for selectors beyond the standard).
func parseApps(b []byte) ([]qos.App, error) {
	const size, priorities = 4, 8
	apps := []qos.App{}
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		b := ad.Bytes()
		if err := need(b, size, "dcb_app"); err != nil {
			return err
		}
		a := qos.App{Priority: int(b[1]), Protocol: int(binary.NativeEndian.Uint16(b[2:]))}
		var known bool
		if a.Selector, known = selectors[b[0]]; !known {
			a.Selector = qos.Selector(fmt.Sprintf("reserved-%d", b[0]))
		}
		if a.Priority >= priorities {
			return fmt.Errorf("an app entry for priority %d", a.Priority)
		}
		apps = append(apps, a)
		return nil
	})
	return apps, err
}

// parseCEEPFC reads one attribute a priority, DCB_PFC_UP_ATTR_0 and on. All
// eight are there in a whole answer.
func parseCEEPFC(b []byte) (qos.Priorities, error) {
	const first = 1 // DCB_PFC_UP_ATTR_0
	var set, seen qos.Priorities
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		n := int(ad.Type()) - first
		if n < 0 || n >= qos.PriorityCount {
			return nil
		}
		seen |= 1 << n
		if ad.Uint8() != 0 {
			set |= 1 << n
		}
		return nil
	})
	if err == nil && seen.Count() != qos.PriorityCount {
		err = fmt.Errorf("%w: PFC of priorities %s only", errShort, seen)
	}
	return set, err
}

// parseCEEPeerPFC reads struct cee_pfc: willing, error, enabled, classes.
func parseCEEPeerPFC(b []byte) (qos.Priorities, error) {
	if err := need(b, 4, "cee_pfc"); err != nil {
		return 0, err
	}
	return qos.Priorities(b[2]), nil
}
