package netif

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// packets are those of libibmad and ibsim: what was sent and what came back,
// for NodeInfo and then for NodeDescription, each with its header.
func packets(t testing.TB) (sent, got [][]byte) {
	t.Helper()
	text, err := os.ReadFile("testdata/smp-ibsim.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		kind, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := hex.DecodeString(digits)
		switch {
		case kind == "sent" && err == nil:
			sent = append(sent, b)
		case kind == "got" && err == nil:
			got = append(got, b)
		}
	}
	if len(sent) != 2 || len(got) != 2 {
		t.Fatalf("%d sent, %d got", len(sent), len(got))
	}
	return sent, got
}

// answered makes a reply to the request of what ibsim answered to another.
func answered(reply, request []byte) []byte {
	b := bytes.Clone(reply)
	copy(b[12:16], request[12:16]) // the half of the transaction that is ours
	return b
}

// ibsim answers as the simulator did, with the replies changed.
func ibsim(t testing.TB, change func(attribute uint16, reply []byte) []byte) askSMP {
	_, got := packets(t)
	return func(request []byte) ([]byte, error) {
		attribute := binary.BigEndian.Uint16(request[16:])
		reply := got[0][umadHeader:]
		if attribute == attrNodeDescription {
			reply = got[1][umadHeader:]
		}
		return change(attribute, answered(reply, request)), nil
	}
}

func quiet(string) {}

// The whole packet, header and all, is what libibmad sends, but for the numbers
// that are free: transaction, timeout, retries.
func TestSMPRequest(t *testing.T) {
	sent, got := packets(t)
	for i, attribute := range []uint16{attrNodeInfo, attrNodeDescription} {
		request := make(chan []byte, 1)
		u, kernel := umadPair(t)
		go func() {
			b := make([]byte, 4096)
			n, _ := unix.Read(kernel, b)
			_, _ = unix.Write(kernel, append(bytes.Clone(got[i][:umadHeader]), answered(got[i][umadHeader:], b[umadHeader:n])...))
			request <- b[:n]
		}()
		if _, err := u.ask(smpRequest(attribute, 1)); err != nil {
			t.Fatal(err)
		}
		mine := <-request
		for _, b := range [][]byte{mine, sent[i]} {
			clear(b[umadTimeout : umadRetries+4])
			clear(b[umadHeader+8 : umadHeader+16])
		}
		if d := cmp.Diff(hex.Dump(sent[i]), hex.Dump(mine)); d != "" {
			t.Errorf("attribute %#x (-libibmad +ours):\n%s", attribute, d)
		}
	}
}

// libibmad's own decoder gave for the same bytes: type 2, GUID 0x200000, port 7,
// "S-leaf1".
func TestNeighbour(t *testing.T) {
	same := func(_ uint16, b []byte) []byte { return b }
	want := qos.Neighbour{
		System: fact.Of("S-leaf1", srcNodeDescription), Chassis: fact.Of("0000:0000:0020:0000", srcNodeInfo), Port: fact.Of("7", srcNodeInfo),
		PortText: fact.Missing[string](fact.Absent, srcNodeInfo, "ports have no description on InfiniBand"),
	}
	if d := cmp.Diff(want, neighbour(ibsim(t, same), 1, quiet)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	name := func(text string) askSMP {
		return ibsim(t, func(attribute uint16, b []byte) []byte {
			if attribute == attrNodeDescription {
				copy(b[smpData:], text)
			}
			return b
		})
	}
	for text, want := range map[string]string{
		"MF0;leaf1:MQM9700/U1\x00rubbish": "MF0;leaf1:MQM9700/U1",
		strings.Repeat("x", 64):           strings.Repeat("x", 64), // no end of its own
		"leaf\xff1\x00":                   "leaf\ufffd1",
	} {
		if n := neighbour(name(text), 1, quiet); n.System.V != want {
			t.Errorf("%q: %+v", text, n.System)
		}
	}
	if n := neighbour(name(strings.Repeat("\x00", 64)), 1, quiet); n.System.State != fact.Absent || n.Port.V != "7" {
		t.Errorf("no name: %+v", n)
	}
}

// An answer that is none makes nothing known.
func TestNeighbourHostile(t *testing.T) {
	change := func(at int, to byte) func(uint16, []byte) []byte {
		return func(_ uint16, b []byte) []byte { b[at] = to; return b }
	}
	for name, tt := range map[string]struct {
		change func(uint16, []byte) []byte
		reason string
	}{
		"cut short":                     {func(_ uint16, b []byte) []byte { return b[:100] }, "cut short"},
		"empty":                         {func(uint16, []byte) []byte { return nil }, "cut short"},
		"a request":                     {change(3, 1), "not to what was asked"},
		"a LID-routed one":              {change(1, 1), "not to what was asked"},
		"another transaction":           {change(15, 0x77), "not to what was asked"},
		"another attribute":             {change(17, 0x15), "not to what was asked"},
		"unsupported method (status 8)": {change(5, 8), "refuses: status 0x0008"},
		"busy":                          {change(5, 1), "refuses: status 0x0001"},
	} {
		n := neighbour(ibsim(t, tt.change), 1, quiet)
		for _, v := range []fact.Value[string]{n.System, n.Chassis, n.Port, n.PortText} {
			if v.State != fact.Failed || !strings.Contains(v.Reason, tt.reason) {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
	half := neighbour(ibsim(t, func(attribute uint16, b []byte) []byte {
		if attribute == attrNodeDescription {
			return b[:10]
		}
		return b
	}), 1, quiet)
	if half.Port.V != "7" || half.System.State != fact.Failed {
		t.Errorf("only NodeInfo: %+v", half)
	}
}

// umadPair is a port whose kernel is the other end of a socket that keeps
// packets apart, as the device does.
func umadPair(t *testing.T) (*umad, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	u := &umad{fd: fds[0], patient: 300 * time.Millisecond}
	t.Cleanup(func() { u.Close(); _ = unix.Close(fds[1]) })
	return u, fds[1]
}

func TestUMAD(t *testing.T) {
	_, got := packets(t)
	request := smpRequest(attrNodeInfo, 1)
	good := append(bytes.Clone(got[0][:umadHeader]), answered(got[0][umadHeader:], request)...)
	late := append(bytes.Clone(got[1][:umadHeader]), answered(got[1][umadHeader:], smpRequest(attrNodeDescription, 1))...)
	status := func(no unix.Errno) []byte { // as send_handler of user_mad.c gives back what it could not send
		b := append(make([]byte, umadHeader), request[:24]...)
		binary.NativeEndian.PutUint32(b[umadStatus:], uint32(no))
		return b
	}
	for name, tt := range map[string]struct {
		replies [][]byte
		err     error
	}{
		"answered":                {[][]byte{good}, nil},
		"a late answer before it": {[][]byte{late, good}, nil},
		"late answers alone":      {[][]byte{late, late}, errSilent},
		"silent":                  {nil, errSilent},
		"the kernel's timeout":    {[][]byte{status(unix.ETIMEDOUT)}, errSilent},
		"not sent":                {[][]byte{status(unix.EIO)}, unix.EIO},
		"cut short":               {[][]byte{good[:20]}, errShort},
	} {
		u, kernel := umadPair(t)
		for _, b := range tt.replies {
			if _, err := unix.Write(kernel, b); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		reply, err := u.ask(request)
		if !errors.Is(err, tt.err) || err == nil && !bytes.Equal(reply, good[umadHeader:]) {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("%s: took %s", name, d)
		}
	}
	u, kernel := umadPair(t)
	_ = unix.Close(kernel) // the device is gone
	if _, err := u.ask(request); err == nil {
		t.Error("no error from a device that is gone")
	}
}

func TestFindUMAD(t *testing.T) {
	class := t.TempDir()
	for path, text := range map[string]string{
		"umad0/ibdev": "mlx5_0\n", "umad0/port": "1\n", "issm0/ibdev": "mlx5_1\n", "issm0/port": "2\n",
		"umad10/ibdev": "mlx5_1\n", "umad10/port": "2\n", "abi_version": "5\n",
	} {
		path = filepath.Join(class, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if name, err := findUMAD(class, "mlx5_1", "2"); name != "umad10" || err != nil {
		t.Errorf("%q %v", name, err)
	}
	for _, port := range []string{"1", "12", ""} {
		if name, err := findUMAD(class, "mlx5_1", port); fact.StateOf(err) != fact.Absent {
			t.Errorf("port %q: %q %v", port, name, err)
		}
	}
	if _, err := findUMAD(class+"/none", "mlx5_1", "2"); fact.StateOf(err) != fact.Absent || !strings.Contains(err.Error(), "modprobe ib_umad") {
		t.Error(err)
	}
}

// The ioctl's number has the size of its structure in it (ioctl(2), _IOWR), and
// the kernel looks for the class at byte 8 (include/uapi/rdma/ib_user_mad.h).
func TestRegistrationLayout(t *testing.T) {
	var r registration
	if size := unsafe.Sizeof(r); size != 40 || registerAgent2 != 3<<30|size<<16|0x1b<<8|4 {
		t.Errorf("%d bytes, ioctl %#x", size, registerAgent2)
	}
	if unsafe.Offsetof(r.class) != 8 || unsafe.Offsetof(r.methods) != 16 || unsafe.Offsetof(r.oui) != 32 {
		t.Errorf("class at %d, methods at %d, OUI at %d", unsafe.Offsetof(r.class), unsafe.Offsetof(r.methods), unsafe.Offsetof(r.oui))
	}
}

// A node that is no umad has states of its own: the ioctl tells.
func TestNeighbourStates(t *testing.T) {
	if _, err := openUMAD("/dev/null"); fact.StateOf(err) != fact.Unsupported {
		t.Errorf("/dev/null: %v", err)
	}
	if _, err := openUMAD(t.TempDir() + "/umad0"); fact.StateOf(err) != fact.Absent {
		t.Errorf("no node: %v", err)
	}
	for _, subject := range []string{"", "mlx5_0", "mlx5_0/x", "mlx5_0/256", "no-such-device/1"} {
		if n := Neighbour(subject, quiet); n.System.State != fact.Absent || n.PortText.State != fact.Absent {
			t.Errorf("%q: %+v", subject, n)
		}
	}
}

// Whatever comes back, a name or a port is known only of an answer of full
// length to the very question.
func FuzzNeighbour(f *testing.F) {
	_, got := packets(f)
	f.Add(got[0][umadHeader:], got[1][umadHeader:])
	f.Add([]byte{}, []byte{1, 0x81})
	f.Fuzz(func(t *testing.T, info, description []byte) {
		n := neighbour(func(request []byte) ([]byte, error) {
			reply := bytes.Clone(info)
			if binary.BigEndian.Uint16(request[16:]) == attrNodeDescription {
				reply = bytes.Clone(description)
			}
			if len(reply) >= 18 {
				copy(reply[12:18], request[12:18])
			}
			return reply, nil
		}, 1, quiet)
		if n.Port.State == fact.Known && (len(info) < 100 || info[3] != 0x81 || n.Port.V == "") {
			t.Errorf("port %+v of %x", n.Port, info)
		}
		if n.System.State == fact.Known && (len(description) < madBytes || n.System.V == "" || len(n.System.V) > 3*smpData) {
			t.Errorf("name %+v of %x", n.System, description)
		}
		if n.Port.State == fact.NotCollected || n.System.State == fact.NotCollected {
			t.Errorf("%+v", n)
		}
	})
}
