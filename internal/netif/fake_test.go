package netif

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kernel stands for the kernel's side of a netlink socket: it answers a request
// with messages, of which only type, flags and data matter, or an errno.
type kernel func(netlink.Message) ([]netlink.Message, syscall.Errno)

// nltest is the kernel as nltest.Dial takes it.
func (k kernel) nltest(req []netlink.Message) ([]netlink.Message, error) {
	out, no := k(req[0])
	if no != 0 {
		return nil, no
	}
	if req[0].Header.Flags&netlink.Dump == netlink.Dump {
		out = append(out, netlink.Message{Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi}, Data: make([]byte, 4)})
	}
	for i := range out {
		out[i].Header.Sequence, out[i].Header.PID = req[0].Header.Sequence, req[0].Header.PID
	}
	return out, nil
}

// tool runs one of iproute2's tools, or ethtool, with the kernel k behind it,
// and returns what it prints.
func (k kernel) tool(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	sock := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: sock, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go k.serve(l)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+proxyLibrary(t), "MNL_PROXY="+sock)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

func (k kernel) serve(l *net.UnixListener) {
	conn, err := l.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		var req netlink.Message
		if req.UnmarshalBinary(bytes.Clone(buf[:n])) != nil {
			return
		}
		if _, err := conn.Write(k.wire(req)); err != nil {
			return
		}
	}
}

// wire is the answer as the kernel would send it, acknowledgement and all.
func (k kernel) wire(req netlink.Message) []byte {
	msgs, no := k(req)
	dump := req.Header.Flags&netlink.Dump == netlink.Dump
	switch {
	case no != 0, req.Header.Flags&netlink.Acknowledge != 0 && !dump:
		code := make([]byte, 4)
		binary.NativeEndian.PutUint32(code, uint32(-int32(no)))
		head := make([]byte, 16) // of the request
		binary.NativeEndian.PutUint32(head, 16)
		msgs = append(msgs, netlink.Message{Header: netlink.Header{Type: netlink.Error}, Data: append(code, head...)})
	case dump:
		msgs = append(msgs, netlink.Message{Header: netlink.Header{Type: netlink.Done, Flags: netlink.Multi}, Data: make([]byte, 4)})
	}
	var out []byte
	for _, m := range msgs {
		m.Header.Sequence, m.Header.PID = req.Header.Sequence, 0
		m.Header.Length = uint32(unix.NLMSG_HDRLEN + len(m.Data))
		b, err := m.MarshalBinary()
		if err != nil {
			panic(err)
		}
		out = append(out, b...)
	}
	return out
}

var proxyDir string // where the library is built, once

func TestMain(m *testing.M) {
	var err error
	if proxyDir, err = os.MkdirTemp("", "mnlproxy"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(proxyDir)
	os.Exit(code)
}

var buildProxy = sync.OnceValues(func() (string, error) {
	lib := filepath.Join(proxyDir, "mnlproxy.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", lib, "testdata/mnlproxy.c").CombinedOutput()
	if err != nil {
		err = errors.New(string(out) + err.Error())
	}
	return lib, err
})

func proxyLibrary(t *testing.T) string {
	t.Helper()
	lib, err := buildProxy()
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// attr is one netlink attribute, padded.
func attr(typ int, data ...[]byte) []byte {
	body := bytes.Join(data, nil)
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(typ))
	b = append(b, body...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}
