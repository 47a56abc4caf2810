package netif

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// Numbers of include/uapi/linux/dcbnl.h.
const (
	dcbIEEEGet = 21 // DCB_CMD_IEEE_GET
	dcbGDCBX   = 22 // DCB_CMD_GDCBX
	dcbCEEGet  = 26 // DCB_CMD_CEE_GET

	dcbAttrIfName = 1
	dcbAttrIEEE   = 13
	dcbAttrDCBX   = 14
	dcbAttrCEE    = 16

	dcbMsgBytes = 4 // struct dcbmsg: family, command, padding
)

var dcbNames = map[uint8]string{dcbIEEEGet: "IEEE_GET", dcbGDCBX: "GDCBX", dcbCEEGet: "CEE_GET"}

func dcbSource(cmd uint8) string { return "netlink:" + dcbNames[cmd] }

// DCB asks over one connection.
type DCB struct{ conn *netlink.Conn }

// OpenDCB connects to route netlink.
func OpenDCB() (*DCB, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	return &DCB{c}, nil
}

// Get asks for all DCB settings of an interface. at is told each question
// before it is put.
func (d *DCB) Get(ifName string, at func(string)) qos.DCB {
	var out qos.DCB
	ask := func(cmd uint8, decode func([]byte) error) error {
		at("netlink DCB " + dcbNames[cmd])
		reply, err := d.ask(cmd, ifName)
		if err != nil {
			return err
		}
		return decode(reply)
	}
	err := ask(dcbIEEEGet, func(b []byte) error { return decodeIEEE(b, &out) })
	if err != nil {
		qos.Fill(&out, fromError[qos.DCB](err, dcbSource(dcbIEEEGet)))
		if fact.StateOf(err) == fact.Unsupported {
			return out // no DCB at all
		}
	}
	if out.DCBX.State == fact.Unsupported {
		err = ask(dcbGDCBX, func(b []byte) (err error) {
			out.DCBX, err = decodeDCBX(b)
			return err
		})
		if err != nil {
			out.DCBX = fromError[qos.DCBX](err, dcbSource(dcbGDCBX))
		}
	}
	cee := fact.As(out.DCBX, qos.Priorities(0))
	if mode, known := out.DCBX.Get(); known && mode.CEE {
		if err = ask(dcbCEEGet, func(b []byte) error { return decodeCEE(b, &out) }); err == nil {
			return out
		}
		cee = fromError[qos.Priorities](err, dcbSource(dcbCEEGet))
	} else if known {
		cee = fact.Missing[qos.Priorities](fact.Absent, out.DCBX.Source, "DCBX is not CEE")
	}
	out.CEEPFC, out.CEEPeerPFC = cee, cee
	return out
}

// ask puts one question and returns the attributes of the answer.
func (d *DCB) ask(cmd uint8, ifName string) ([]byte, error) {
	data, err := dcbRequest(cmd, ifName)
	if err != nil {
		return nil, err
	}
	// Without an acknowledgement: the answer is one, and errors come anyway.
	req := netlink.Message{Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request}, Data: data}
	reply, err := only(d.conn.Execute(req))
	if err != nil {
		return nil, err
	}
	return dcbReply(reply, cmd)
}

// dcbRequest is the body of a question: struct dcbmsg and the interface.
func dcbRequest(cmd uint8, ifName string) ([]byte, error) {
	if err := checkName(ifName); err != nil {
		return nil, err
	}
	ae := netlink.NewAttributeEncoder()
	ae.String(dcbAttrIfName, ifName)
	attrs, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	return append([]byte{unix.AF_UNSPEC, cmd, 0, 0}, attrs...), nil
}

// dcbReply returns the attributes of an answer to cmd. The kernel answers with
// RTM_GETDCB and the command of the question.
func dcbReply(m netlink.Message, cmd uint8) ([]byte, error) {
	if m.Header.Type != unix.RTM_GETDCB || len(m.Data) < dcbMsgBytes {
		return nil, fmt.Errorf("unreadable answer: message of type %d with %d bytes", m.Header.Type, len(m.Data))
	}
	if m.Data[1] != cmd {
		return nil, fmt.Errorf("an answer to DCB command %d, not %d", m.Data[1], cmd)
	}
	return m.Data[dcbMsgBytes:], nil
}

var errTwice = errors.New("unreadable answer: an attribute is there twice")

// decodeIEEE fills in what the attributes of an answer to IEEE_GET hold.
// Attributes that it does not know are left alone: newer kernels have more.
func decodeIEEE(attrs []byte, out *qos.DCB) error {
	source := dcbSource(dcbIEEEGet)
	var d qos.DCB
	found := false
	err := attributes(attrs, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case dcbAttrDCBX:
			d.DCBX = fact.Of(dcbxMode(ad.Uint8()), source)
		case dcbAttrIEEE:
			if found {
				return errTwice
			}
			found = true
			return decodeIEEENest(ad.Bytes(), &d, source)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !found {
		return errors.New("unreadable answer: no IEEE attribute")
	}
	leftOut(&d, source)
	*out = d
	return nil
}

func decodeIEEENest(b []byte, d *qos.DCB, source string) error {
	seen := map[uint16]bool{}
	return attributes(b, func(ad *netlink.AttributeDecoder) error {
		if seen[ad.Type()] {
			return errTwice
		}
		seen[ad.Type()] = true
		switch b := ad.Bytes(); ad.Type() {
		case 1: // DCB_ATTR_IEEE_ETS
			d.ETS = structure(b, source, parseETS)
		case 2: // DCB_ATTR_IEEE_PFC
			d.PFC = structure(b, source, parsePFC)
		case 3: // DCB_ATTR_IEEE_APP_TABLE
			d.Apps = structure(b, source, parseApps)
		case 4: // DCB_ATTR_IEEE_PEER_ETS
			d.PeerETS = structure(b, source, parseETS)
		case 5: // DCB_ATTR_IEEE_PEER_PFC
			d.PeerPFC = structure(b, source, parsePFC)
		case 6: // DCB_ATTR_IEEE_PEER_APP
			d.PeerApps = structure(b, source, parseApps)
		case 7: // DCB_ATTR_IEEE_MAXRATE
			d.MaxRate = structure(b, source, parseMaxRate)
		case 10: // DCB_ATTR_DCB_BUFFER
			d.Buffer = structure(b, source, parseBuffer)
		case 11: // DCB_ATTR_DCB_APP_TRUST_TABLE
			d.Trust = structure(b, source, parseTrust)
		}
		return nil
	})
}

// structure parses one attribute; one that is unreadable costs itself.
func structure[T any](b []byte, source string, parse func([]byte) (T, error)) fact.Value[T] {
	v, err := parse(b)
	if err != nil {
		return fact.Missing[T](fact.Failed, source, err.Error())
	}
	return fact.Of(v, source)
}

func decodeDCBX(attrs []byte) (fact.Value[qos.DCBX], error) {
	v := fact.Missing[qos.DCBX](fact.Unsupported, dcbSource(dcbGDCBX), notInAnswer)
	err := attributes(attrs, func(ad *netlink.AttributeDecoder) error {
		if ad.Type() == dcbAttrDCBX {
			v = fact.Of(dcbxMode(ad.Uint8()), dcbSource(dcbGDCBX))
		}
		return nil
	})
	return v, err
}

func dcbxMode(b uint8) qos.DCBX {
	return qos.DCBX{Host: b&1 != 0, LLDManaged: b&2 != 0, CEE: b&4 != 0, IEEE: b&8 != 0, Static: b&0x10 != 0}
}

// decodeCEE fills in the priorities that CEE made lossless.
func decodeCEE(attrs []byte, d *qos.DCB) error {
	source := dcbSource(dcbCEEGet)
	own := fact.Missing[qos.Priorities](fact.Unsupported, source, notInAnswer)
	peer := own
	err := attributes(attrs, func(ad *netlink.AttributeDecoder) error {
		if ad.Type() != dcbAttrCEE {
			return nil
		}
		return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
			switch b := ad.Bytes(); ad.Type() {
			case 2: // DCB_ATTR_CEE_PEER_PFC
				peer = structure(b, source, parseCEEPeerPFC)
			case 6: // DCB_ATTR_CEE_PFC
				own = structure(b, source, parseCEEPFC)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	d.CEEPFC, d.CEEPeerPFC = own, peer
	return nil
}

// parseTrust reads the selectors in the order in which they are tried.
func parseTrust(b []byte) (qos.Trust, error) {
	var names []string
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		name, known := selectors[ad.Uint8()]
		if !known || slices.Contains(names, string(name)) {
			return errors.New("unreadable trust table")
		}
		names = append(names, string(name))
		return nil
	})
	return qos.Trust(strings.Join(names, " ")), err
}
