package netif

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// What we send is what iproute2's dcb sends, but for the acknowledgement that
// it asks for.
func TestDCBRequests(t *testing.T) {
	for _, object := range []string{"pfc", "ets", "app", "buffer", "maxrate"} {
		var sent netlink.Message
		k := kernel(func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
			sent = m
			return dcbKernel(map[string]*nic{"enp1s0f0np0": goodNIC()})(m)
		})
		k.tool(t, "dcb", object, "show", "dev", "enp1s0f0np0")
		ours, err := dcbRequest(dcbIEEEGet, "enp1s0f0np0")
		if err != nil {
			t.Fatal(err)
		}
		if sent.Header.Type != unix.RTM_GETDCB || !bytes.Equal(sent.Data, ours) {
			t.Errorf("%s: dcb sends type %d %x, we send %x", object, sent.Header.Type, sent.Data, ours)
		}
	}
}

func states(d qos.DCB) map[string]fact.State {
	out := map[string]fact.State{}
	v := reflect.ValueOf(d)
	for field, value := range v.Fields() {
		out[field.Name] = value.FieldByName("State").Interface().(fact.State)
	}
	return out
}

func all(s fact.State) map[string]fact.State {
	out := states(qos.DCB{})
	for name := range out {
		out[name] = s
	}
	return out
}

// The kernel's answers to a question that it does not answer.
func TestDCBStates(t *testing.T) {
	refuse := func(no syscall.Errno) kernel {
		return func(netlink.Message) ([]netlink.Message, syscall.Errno) { return nil, no }
	}
	for _, tt := range []struct {
		name   string
		kernel kernel
		ifName string
		want   fact.State
		reason string
	}{
		{"VF, ionic, efa: no DCB in the driver", dcbKernel(map[string]*nic{"vf0": nil}), "vf0", fact.Unsupported, "operation not supported"},
		{"no such interface", dcbKernel(nil), "eth9", fact.Absent, "no such device"},
		{"EPERM", refuse(unix.EPERM), "eth7", fact.Denied, "operation not permitted"},
		{"EACCES", refuse(unix.EACCES), "eth7", fact.Denied, "permission denied"},
		{"EINVAL", refuse(unix.EINVAL), "eth7", fact.Failed, "invalid argument"},
		{"ENOBUFS", refuse(unix.ENOBUFS), "eth7", fact.Failed, "no buffer space"},
		{"a name too long for the kernel", dcbKernel(nil), "abcdefghijklmnop", fact.Absent, "no name of an interface"},
		{"no name", dcbKernel(nil), "", fact.Absent, "no name of an interface"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := getDCB(tt.kernel, tt.ifName)
			if d := cmp.Diff(all(tt.want), states(got)); d != "" {
				t.Errorf("states (-want +got):\n%s", d)
			}
			if !strings.Contains(got.PFC.Reason, tt.reason) || got.PFC.Source != "netlink:IEEE_GET" {
				t.Errorf("%q from %q", got.PFC.Reason, got.PFC.Source)
			}
		})
	}
}

// A setting that the driver leaves out is not known; it is never off.
func TestDCBLeftOut(t *testing.T) {
	n := &nic{noApps: true, noDCBX: true}
	got := getDCB(dcbKernel(map[string]*nic{"eth7": n}), "eth7")
	if d := cmp.Diff(all(fact.Unsupported), states(got)); d != "" {
		t.Errorf("states (-want +got):\n%s", d)
	}
	if got.PFC.Reason == "" || got.PFC.Errno != 0 {
		t.Errorf("%+v", got.PFC)
	}
}

// DCBX alone by its own question, as from a kernel that leaves it out of the first.
func TestDCBXAlone(t *testing.T) {
	n := goodNIC()
	full := dcbKernel(map[string]*nic{"eth7": n})
	got := getDCB(func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		n.noDCBX = m.Data[1] == dcbIEEEGet
		return full(m)
	}, "eth7")
	if !got.DCBX.V.Host || !got.DCBX.V.IEEE || got.DCBX.Source != "netlink:GDCBX" || got.CEEPFC.State != fact.Absent {
		t.Errorf("%+v, %+v", got.DCBX, got.CEEPFC)
	}
}

func TestCEE(t *testing.T) {
	n := goodNIC()
	n.dcbx, n.ceePFC = 1|4, []byte{0, 0, 0, 1, 0, 0, 1, 0}
	got := getDCB(dcbKernel(map[string]*nic{"eth7": n}), "eth7")
	if got.CEEPFC.V != 1<<3|1<<6 || got.CEEPeerPFC.V != 1<<4 || got.CEEPFC.State != fact.Known {
		t.Errorf("%+v %+v", got.CEEPFC, got.CEEPeerPFC)
	}
	n.ceePFC = n.ceePFC[:5] // three priorities of which nothing is said
	if got = getDCB(dcbKernel(map[string]*nic{"eth7": n}), "eth7"); got.CEEPFC.State != fact.Failed {
		t.Errorf("%+v", got.CEEPFC)
	}
}

// The kernel's own table of what is trusted (Linux 6.2 and newer).
func TestDCBTrust(t *testing.T) {
	for _, tt := range []struct {
		selectors []byte
		want      qos.Trust
		state     fact.State
	}{
		{[]byte{5}, qos.TrustDSCP, fact.Known},
		{[]byte{255}, qos.TrustPCP, fact.Known},
		{[]byte{5, 255}, qos.TrustBoth, fact.Known},
		{[]byte{5, 5}, "", fact.Failed},
		{[]byte{77}, "", fact.Failed},
	} {
		n := goodNIC()
		n.trust = tt.selectors
		got := getDCB(dcbKernel(map[string]*nic{"eth7": n}), "eth7").Trust
		if got.V != tt.want || got.State != tt.state {
			t.Errorf("%v: %+v", tt.selectors, got)
		}
	}
}

// Answers of a kernel gone wrong: each costs what it says and nothing else.
func TestDCBHostile(t *testing.T) {
	reply := func(attrs ...[]byte) kernel {
		data := append([]byte{0, dcbIEEEGet, 0, 0}, bytes.Join(attrs, nil)...)
		return func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB}, Data: data}}, 0
		}
	}
	whole := goodNIC().ieee()
	cut := bytes.Clone(whole)
	binary.NativeEndian.PutUint16(cut, uint16(len(cut)+100))
	for _, tt := range []struct {
		name   string
		kernel kernel
		reason string
	}{
		{"no IEEE attribute", reply(), "no IEEE attribute"},
		{"an attribute longer than the message", reply(cut), "unreadable answer"},
		{"IEEE twice", reply(whole, whole), "twice"},
		{"PFC twice", reply(attr(13, attr(2, c(&cPFC{En: 8})), attr(2, c(&cPFC{})))), "twice"},
		{"DCBX of two bytes", reply(whole, attr(14, []byte{1, 2})), "unreadable answer"},
		{"another command", func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB}, Data: []byte{0, 22, 0, 0}}}, 0
		}, "DCB command 22"},
		{"another kind of message", func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_NEWLINK}, Data: []byte{0, 21, 0, 0}}}, 0
		}, "message of type 16"},
		{"nothing in it", func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB}}}, 0
		}, "0 bytes"},
		{"two answers", func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
			one, _ := dcbKernel(map[string]*nic{"eth7": goodNIC()})(m)
			return append(one, one...), 0
		}, "2 answers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := getDCB(tt.kernel, "eth7")
			if got.PFC.State != fact.Failed || !strings.Contains(got.PFC.Reason, tt.reason) {
				t.Errorf("%+v", got.PFC)
			}
		})
	}
	short := getDCB(reply(attr(13, attr(2, c(&cPFC{En: 8})[:72]), attr(1, c(goodNIC().ets)), attr(3, attr(1, []byte{5, 3})))), "eth7")
	if short.PFC.State != fact.Failed || short.Apps.State != fact.Failed || short.ETS.State != fact.Known {
		t.Errorf("%+v\n%+v\n%+v", short.PFC, short.Apps, short.ETS)
	}
	bad := getDCB(reply(attr(13, attr(3, attr(1, []byte{5, 9, 26, 0})))), "eth7")
	if bad.Apps.State != fact.Failed {
		t.Errorf("priority 9: %+v", bad.Apps)
	}
}

// TestDCBHere asks this machine's kernel, and dcb does.
func TestDCBHere(t *testing.T) {
	d, err := OpenDCB()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fact.State{"lo": fact.Unsupported, "no-such-netdev": fact.Absent} {
		got := d.Get(name, func(string) {})
		out, err := exec.CommandContext(t.Context(), "dcb", "pfc", "show", "dev", name).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		said := strings.ToLower(string(out))
		if err == nil || !strings.Contains(said, got.PFC.Errno.Error()) {
			t.Errorf("%s: dcb says %q (%v), we %v", name, out, err, got.PFC.Errno)
		}
		if d := cmp.Diff(all(want), states(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// FuzzDCBReply: whatever answers, nothing panics, and nothing is known that was
// not said.
func FuzzDCBReply(f *testing.F) {
	n := goodNIC()
	f.Add(n.ieee())
	n.trust, n.peerPFC, n.apps = []byte{5, 255}, n.pfc, append(n.apps, cApp{255, 1, 3})
	f.Add(append(n.ieee(), attr(14, []byte{9})...))
	n.ceePFC = make([]byte, 8)
	f.Add(n.cee())
	f.Fuzz(func(t *testing.T, attrs []byte) {
		var d qos.DCB
		if err := decodeIEEE(attrs, &d); err == nil {
			for name, s := range states(d) {
				if s == fact.NotCollected && !strings.HasPrefix(name, "CEE") {
					t.Errorf("%s has no state", name)
				}
			}
			if d.PFC.State == fact.Known && !bytes.Contains(attrs, []byte{byte(d.PFC.V.MaxClasses), byte(d.PFC.V.Enabled)}) {
				t.Errorf("PFC %+v out of nothing", d.PFC.V)
			}
		}
		_ = decodeCEE(attrs, &d)
		_, _ = decodeDCBX(attrs)
	})
}

func BenchmarkDCB(b *testing.B) {
	k := dcbKernel(map[string]*nic{"eth7": goodNIC()})
	d := &DCB{nltest.Dial(k.nltest)}
	for b.Loop() {
		d.Get("eth7", func(string) {})
	}
}
