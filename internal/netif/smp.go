package netif

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// Subnet management packets (SMPs) of InfiniBand, by which the other end of a
// cable tells what it is, as smpquery -D 0,1 nodeinfo does. Only SubnGet is
// ever sent. Layouts: InfiniBand specification 1, 14.2.1.2 and 14.2.5.

// Attributes of SMPs, with the names of their sources.
const (
	attrNodeDescription = 0x10
	attrNodeInfo        = 0x11

	srcNodeInfo        = "smp:NodeInfo"
	srcNodeDescription = "smp:NodeDescription"
)

// What all our SMPs have in common: base version, class (directed route) and
// its version, methods.
const (
	baseVersion, directedRoute, classVersion = 1, 0x81, 1
	methodGet, methodGetResponse             = 1, 0x81

	madBytes = 256
	smpData  = 64 // where the attribute begins; it has as many bytes
)

// askSMP sends a request and returns the answer to it.
type askSMP func(request []byte) ([]byte, error)

// Neighbour asks what is at the other end of the cable of a device's port
// ("mlx5_0/1"). at is told each question before it is put.
func Neighbour(subject string, at func(string)) qos.Neighbour {
	var n qos.Neighbour
	fail := func(err error) qos.Neighbour {
		qos.Fill(&n, fromError[string](err, srcNodeInfo))
		return n
	}
	device, number, _ := strings.Cut(subject, "/")
	port, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return fail(fmt.Errorf("%q is no port: %w", subject, unix.ENODEV))
	}
	name, err := findUMAD(umadClass, device, number)
	if err != nil {
		return fail(err)
	}
	at("open /dev/infiniband/" + name)
	u, err := openUMAD("/dev/infiniband/" + name)
	if err != nil {
		return fail(err)
	}
	defer u.Close()
	return neighbour(u.ask, uint8(port), at)
}

func neighbour(ask askSMP, port uint8, at func(string)) qos.Neighbour {
	var n qos.Neighbour
	get := func(attribute uint16, source string) ([]byte, error) {
		at(source)
		request := smpRequest(attribute, port)
		reply, err := ask(request)
		if err != nil {
			return nil, err
		}
		return smpReply(request, reply)
	}
	info, err := get(attrNodeInfo, srcNodeInfo)
	if err != nil {
		qos.Fill(&n, fromError[string](err, srcNodeInfo))
		return n
	}
	const nodeGUID, localPort = 12, 36
	n.Chassis = fact.Of(guid(info[nodeGUID:]), srcNodeInfo)
	n.Port = fact.Of(strconv.Itoa(int(info[localPort])), srcNodeInfo)
	n.PortText = fact.Missing[string](fact.Absent, srcNodeInfo, "ports have no description on InfiniBand")
	description, err := get(attrNodeDescription, srcNodeDescription)
	if err != nil {
		n.System = fromError[string](err, srcNodeDescription)
		return n
	}
	text, _, _ := bytes.Cut(description, []byte{0}) // none where it fills the field
	n.System = fact.Of(strings.TrimSpace(strings.ToValidUTF8(string(text), "\ufffd")), srcNodeDescription)
	if n.System.V == "" {
		n.System = fact.Missing[string](fact.Absent, srcNodeDescription, "the neighbour gives no name")
	}
	return n
}

// guid writes a GUID as sysfs does: "b83f:d203:00ab:cdef".
func guid(b []byte) string {
	h := hex.EncodeToString(b[:8])
	return h[:4] + ":" + h[4:8] + ":" + h[8:12] + ":" + h[12:]
}

// smpRequest is a SubnGet one hop away, out of our own port.
func smpRequest(attribute uint16, port uint8) []byte {
	const hopCount, transaction, attributeID, drSLID, drDLID, initialPath = 7, 8, 16, 32, 34, 128
	const permissiveLID = 0xffff // the whole way is by directed route
	b := make([]byte, madBytes)
	b[0], b[1], b[2], b[3] = baseVersion, directedRoute, classVersion, methodGet
	b[hopCount] = 1
	// The kernel writes the upper half. One of its own for each attribute, so
	// that a late answer to another is told apart.
	binary.BigEndian.PutUint64(b[transaction:], uint64(attribute))
	binary.BigEndian.PutUint16(b[attributeID:], attribute)
	binary.BigEndian.PutUint16(b[drSLID:], permissiveLID)
	binary.BigEndian.PutUint16(b[drDLID:], permissiveLID)
	b[initialPath+1] = port
	return b
}

var errOtherAnswer = errors.New("unreadable answer: not to what was asked")

// smpReply returns the attribute that an answer holds.
func smpReply(request, b []byte) ([]byte, error) {
	const status, transactionLow, attributeID, direction = 4, 12, 16, 0x8000
	if len(b) < madBytes {
		return nil, fmt.Errorf("%w: %d bytes of %d", errShort, len(b), madBytes)
	}
	if b[0] != baseVersion || b[1] != directedRoute || b[2] != classVersion || b[3] != methodGetResponse ||
		!bytes.Equal(b[transactionLow:attributeID+2], request[transactionLow:attributeID+2]) {
		return nil, errOtherAnswer
	}
	// The first bit only says which way the packet goes.
	if s := binary.BigEndian.Uint16(b[status:]); s&^direction != 0 {
		return nil, fmt.Errorf("the neighbour refuses: status %#04x", s&^direction)
	}
	return b[smpData : 2*smpData], nil
}
