package netif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const umadClass = "/sys/class/infiniband_mad"

// Of include/uapi/rdma/ib_user_mad.h: struct ib_user_mad_hdr goes before each
// packet, with status, timeout_ms, retries in the machine's byte order and lid
// in the network's.
const (
	umadHeader  = 64
	umadStatus  = 4
	umadTimeout = 8
	umadRetries = 12
	umadLID     = 28

	registerAgent2 = 0xc0281b04 // IB_USER_MAD_REGISTER_AGENT2
)

// A switch answers within milliseconds. Our own deadline comes after that of
// the kernel, which is the one to say that nobody answered.
const (
	smpTimeout  = 500 * time.Millisecond
	smpRetries  = 1
	umadPatient = (smpRetries + 2) * smpTimeout
)

// findUMAD names the device by which a port sends and gets MADs.
func findUMAD(class, device, port string) (string, error) {
	list, err := os.ReadDir(class)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the module ib_umad is not loaded (sudo modprobe ib_umad): %w", unix.ENOENT)
	}
	if err != nil {
		return "", err
	}
	for _, e := range list {
		dev, _ := os.ReadFile(filepath.Join(class, e.Name(), "ibdev"))
		number, _ := os.ReadFile(filepath.Join(class, e.Name(), "port"))
		if strings.HasPrefix(e.Name(), "umad") && strings.TrimSpace(string(dev)) == device && strings.TrimSpace(string(number)) == port {
			return e.Name(), nil
		}
	}
	return "", fmt.Errorf("no umad of %s/%s: %w", device, port, unix.ENODEV)
}

// umad is an open port with an agent on its QP0.
type umad struct {
	fd      int
	agent   uint32
	patient time.Duration
}

// registration is struct ib_user_mad_reg_req2. Without a class the agent gets
// the answers to what it asked, and nothing else.
type registration struct {
	id, qpn             uint32
	class, classVersion uint8
	_                   uint16
	flags               uint32
	methods             [2]uint64
	oui                 uint32
	rmppVersion         uint8
	_                   [3]uint8
}

func openUMAD(path string) (*umad, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var r registration
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), registerAgent2, uintptr(unsafe.Pointer(&r))); no != 0 {
		_ = unix.Close(fd)
		if no == unix.EPROTONOSUPPORT { // a virtual function, RoCE
			return nil, fmt.Errorf("the port has no QP0: %w", unix.EOPNOTSUPP)
		}
		return nil, no
	}
	return &umad{fd, r.id, umadPatient}, nil
}

func (u *umad) Close() { _ = unix.Close(u.fd) }

// ask sends a request and waits for the answer, or the kernel's word that there
// is none.
func (u *umad) ask(request []byte) ([]byte, error) {
	packet := make([]byte, umadHeader, umadHeader+len(request))
	binary.NativeEndian.PutUint32(packet, u.agent)
	binary.NativeEndian.PutUint32(packet[umadTimeout:], uint32(smpTimeout.Milliseconds()))
	binary.NativeEndian.PutUint32(packet[umadRetries:], smpRetries)
	binary.BigEndian.PutUint16(packet[umadLID:], 0xffff)
	if _, err := unix.Write(u.fd, append(packet, request...)); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(u.patient); ; {
		reply, err := u.receive(deadline)
		if err != nil {
			return nil, err
		}
		// A late answer to the question before is none to this one.
		if _, err := smpReply(request, reply); !errors.Is(err, errOtherAnswer) {
			return reply, nil
		}
	}
}

var errSilent = errors.New("no answer: nobody is there, or an M_Key protects reading")

func (u *umad) receive(deadline time.Time) ([]byte, error) {
	p := []unix.PollFd{{Fd: int32(u.fd), Events: unix.POLLIN}}
	for p[0].Revents == 0 {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, errSilent
		}
		if _, err := unix.Poll(p, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
	const jumbo = 2048 // the largest MAD that there is, Omni-Path's
	b := make([]byte, umadHeader+jumbo)
	n, err := unix.Read(u.fd, b)
	if err != nil {
		return nil, err
	}
	if n < umadHeader {
		return nil, fmt.Errorf("%w: %d bytes of a packet's header", errShort, n)
	}
	switch status := unix.Errno(binary.NativeEndian.Uint32(b[umadStatus:])); status {
	case 0:
		return b[umadHeader:n], nil
	case unix.ETIMEDOUT:
		return nil, errSilent
	default:
		return nil, status
	}
}
