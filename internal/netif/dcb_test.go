package netif

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// The structures of include/uapi/linux/dcbnl.h with the gaps that C leaves.
type (
	cPFC struct {
		Cap, En, MBC, _       uint8
		Delay                 uint16
		_                     uint16
		Requests, Indications [8]uint64
	}
	cETS struct {
		Willing, Cap, CBS                                  uint8
		TxBW, RxBW, TSA, PrioTC, RecoBW, RecoTSA, RecoPrio [8]uint8
	}
	cBuffer struct {
		Prio2Buffer [8]uint8
		Size        [8]uint32
		Total       uint32
	}
	cMaxRate [8]uint64
	cApp     struct {
		Selector, Priority uint8
		Protocol           uint16
	}
)

func c(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// nic is the kernel's side of one interface with DCB; nil: the driver's getter
// is missing or failed, so that the kernel leaves the attribute out.
type nic struct {
	pfc, peerPFC *cPFC
	ets          *cETS
	buffer       *cBuffer
	maxRate      *cMaxRate
	apps         []cApp
	noApps       bool
	trust        []byte
	dcbx         uint8
	noDCBX       bool
	ceePFC       []byte // by priority
}

func (n *nic) ieee() []byte {
	var in [][]byte
	if n.ets != nil {
		in = append(in, attr(1, c(n.ets)))
	}
	if n.maxRate != nil {
		in = append(in, attr(7, c(n.maxRate)))
	}
	if n.pfc != nil {
		in = append(in, attr(2, c(n.pfc)))
	}
	if n.buffer != nil {
		in = append(in, attr(10, c(n.buffer)))
	}
	if !n.noApps {
		var apps [][]byte
		for _, a := range n.apps {
			typ := 1 // DCB_ATTR_IEEE_APP
			if a.Selector == 255 {
				typ = 2 // DCB_ATTR_DCB_APP
			}
			apps = append(apps, attr(typ, c(a)))
		}
		in = append(in, attr(3, apps...))
	}
	if n.trust != nil {
		var list [][]byte
		for _, s := range n.trust {
			typ := 1
			if s == 255 {
				typ = 2
			}
			list = append(list, attr(typ, []byte{s}))
		}
		in = append(in, attr(11, list...))
	}
	if n.peerPFC != nil {
		in = append(in, attr(5, c(n.peerPFC)))
	}
	return attr(13, in...)
}

func (n *nic) cee() []byte {
	var up [][]byte
	for i, v := range n.ceePFC {
		up = append(up, attr(1+i, []byte{v}))
	}
	return attr(16, attr(6, up...), attr(2, []byte{1, 0, 0x10, 8}))
}

// dcbKernel answers for some interfaces as net/dcb/dcbnl.c does; nil: one whose
// driver has no DCB.
func dcbKernel(nics map[string]*nic) kernel {
	return func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if m.Header.Type != unix.RTM_GETDCB || m.Header.Flags&netlink.Request == 0 || len(m.Data) < 4 {
			return nil, unix.EOPNOTSUPP
		}
		cmd, name := m.Data[1], ""
		err := attributes(m.Data[4:], func(ad *netlink.AttributeDecoder) error {
			if ad.Type() == 1 {
				name = ad.String()
			}
			return nil
		})
		if err != nil || name == "" {
			return nil, unix.EINVAL
		}
		n, there := nics[name]
		if !there {
			return nil, unix.ENODEV
		}
		if n == nil {
			return nil, unix.EOPNOTSUPP
		}
		attrs := [][]byte{attr(1, append([]byte(name), 0))}
		switch cmd {
		case 21: // DCB_CMD_IEEE_GET
			attrs = append(attrs, n.ieee())
			if !n.noDCBX {
				attrs = append(attrs, attr(14, []byte{n.dcbx}))
			}
		case 22: // DCB_CMD_GDCBX
			if n.noDCBX {
				return nil, unix.EOPNOTSUPP
			}
			attrs = append(attrs, attr(14, []byte{n.dcbx}))
		case 26: // DCB_CMD_CEE_GET
			attrs = append(attrs, n.cee(), attr(14, []byte{n.dcbx}))
		default:
			return nil, unix.EOPNOTSUPP
		}
		data := append([]byte{0, cmd, 0, 0}, bytes.Join(attrs, nil)...)
		return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB}, Data: data}}, 0
	}
}

func getDCB(k kernel, name string) qos.DCB {
	d := &DCB{nltest.Dial(k.nltest)}
	return d.Get(name, func(string) {})
}

// goodNIC is a ConnectX as NVIDIA wants it for RoCE: DSCP trusted, priority 3
// lossless with a buffer of its own.
func goodNIC() *nic {
	return &nic{
		pfc: &cPFC{Cap: 8, En: 1 << 3, Delay: 7, Requests: [8]uint64{3: 11}, Indications: [8]uint64{3: 1 << 40}},
		ets: &cETS{
			Cap: 8, PrioTC: [8]uint8{1, 0, 2, 3, 4, 5, 6, 7}, TSA: [8]uint8{2, 2, 2, 2, 2, 0, 0, 255},
			TxBW: [8]uint8{10, 10, 10, 50, 20}, RxBW: [8]uint8{100},
		},
		buffer:  &cBuffer{Prio2Buffer: [8]uint8{3: 1}, Size: [8]uint32{20016, 156096}, Total: 195120},
		maxRate: &cMaxRate{0, 25_000_000},
		apps:    []cApp{{5, 3, 26}, {5, 6, 48}, {1, 4, 0x8915}, {3, 2, 4791}},
		dcbx:    0x01 | 0x08,
	}
}

var dcbCases = []struct {
	name   string
	change func(*nic)
}{
	{"all right", func(*nic) {}},
	{"PFC on the wrong priority", func(n *nic) { n.pfc.En = 1 << 4 }},
	{"two lossless priorities", func(n *nic) { n.pfc.En = 1<<3 | 1<<4 }},
	{"CNP priority lossless too", func(n *nic) { n.pfc.En = 1<<3 | 1<<6 }},
	{"PFC off", func(n *nic) { n.pfc.En = 0 }},
	{"all eight, macsec", func(n *nic) { n.pfc.En, n.pfc.MBC, n.pfc.Delay = 0xff, 1, 65535 }},
	{"trust pcp", func(n *nic) { n.apps = []cApp{{1, 4, 0x8915}} }},
	{"no app entry", func(n *nic) { n.apps = nil }},
	{"one buffer for all", func(n *nic) { n.buffer = &cBuffer{Size: [8]uint32{262016}, Total: 262016} }},
	{"DCBX by firmware", func(n *nic) { n.dcbx, n.ets.Willing = 0x02|0x08, 1 }},
	{"CEE", func(n *nic) { n.dcbx, n.ceePFC = 0x01|0x04, []byte{0, 0, 0, 1, 0, 0, 0, 0} }},
	{"static", func(n *nic) { n.dcbx = 0x01 | 0x10 }},
	{"no buffers, no limits", func(n *nic) { n.buffer, n.maxRate = nil, nil }},
	{"credit based shaper", func(n *nic) { n.ets.CBS, n.ets.TSA[0] = 1, 1 }},
}

// TestDCBAgainstTool compares with iproute2's dcb what we make of the same bytes.
func TestDCBAgainstTool(t *testing.T) {
	for _, tt := range dcbCases {
		t.Run(tt.name, func(t *testing.T) {
			n := goodNIC()
			tt.change(n)
			k := dcbKernel(map[string]*nic{"eth7": n})
			got := getDCB(k, "eth7")
			show := func(into any, args ...string) {
				t.Helper()
				out := k.tool(t, "dcb", append([]string{"-s", "-N", "-j"}, args...)...)
				if err := json.Unmarshal(out, into); err != nil {
					t.Fatalf("dcb %v: %v\n%s", args, err, out)
				}
			}
			comparePFC(t, got, show)
			compareETS(t, got, show)
			compareApps(t, got, show)
			if n.buffer != nil {
				compareBuffer(t, got, show)
			}
			if n.maxRate != nil {
				compareMaxRate(t, got, show)
			}
			var js map[string]bool
			show(&js, "dcbx", "show", "dev", "eth7")
			want := fact.Of(qos.DCBX{Host: js["host"], CEE: js["cee"], IEEE: js["ieee"], Static: js["static"], LLDManaged: js["lld_managed"]}, "netlink:IEEE_GET")
			if d := cmp.Diff(want, got.DCBX); d != "" {
				t.Errorf("dcbx (-dcb +ours):\n%s", d)
			}
		})
	}
}

type shower func(into any, args ...string)

func comparePFC(t *testing.T, got qos.DCB, show shower) {
	t.Helper()
	var js struct {
		Cap         int    `json:"pfc_cap"`
		Bypass      bool   `json:"macsec_bypass"`
		Delay       int    `json:"delay"`
		Prio        []bool `json:"prio_pfc"`
		Requests    []uint64
		Indications []uint64
	}
	show(&js, "pfc", "show", "dev", "eth7")
	want := qos.PFC{MaxClasses: js.Cap, MACsec: js.Bypass, DelayBits: js.Delay}
	for i, on := range js.Prio {
		if on {
			want.Enabled |= 1 << i
		}
	}
	copy(want.Sent[:], js.Requests)
	copy(want.Received[:], js.Indications)
	if d := cmp.Diff(fact.Of(want, "netlink:IEEE_GET"), got.PFC); d != "" {
		t.Errorf("pfc (-dcb +ours):\n%s", d)
	}
}

func compareETS(t *testing.T, got qos.DCB, show shower) {
	t.Helper()
	var js struct {
		Willing bool
		Cap     int `json:"ets_cap"`
		CBS     bool
		TxBW    [8]int    `json:"tc_bw"`
		PgBW    [8]int    `json:"pg_bw"`
		TSA     [8]string `json:"tc_tsa"`
		Prio    [8]int    `json:"prio_tc"`
	}
	show(&js, "ets", "show", "dev", "eth7")
	want := qos.ETS{Willing: js.Willing, MaxClasses: js.Cap, CreditShaper: js.CBS, TxPercent: js.TxBW, RxPercent: js.PgBW, PriorityClass: js.Prio}
	for i, s := range js.TSA {
		want.Selection[i] = qos.TSA(s)
	}
	if d := cmp.Diff(fact.Of(want, "netlink:IEEE_GET"), got.ETS); d != "" {
		t.Errorf("ets (-dcb +ours):\n%s", d)
	}
}

func compareApps(t *testing.T, got qos.DCB, show shower) {
	t.Helper()
	var js map[string][][2]any // protocol and priority
	show(&js, "app", "show", "dev", "eth7")
	kinds := map[string]qos.Selector{
		"ethtype_prio": qos.ByEtherType, "stream_port_prio": qos.ByStream, "dgram_port_prio": qos.ByDatagram,
		"port_prio": qos.ByPort, "dscp_prio": qos.ByDSCP,
	}
	var want []string
	for kind, list := range js {
		for _, e := range list {
			n, err := strconv.ParseInt(fmt.Sprint(e[0]), 0, 32)
			if err != nil {
				t.Fatalf("dcb app: %v", e)
			}
			want = append(want, fmt.Sprint(kinds[kind], " ", n, " ", e[1]))
		}
	}
	var have []string
	for _, a := range got.Apps.V {
		have = append(have, fmt.Sprint(a.Selector, " ", a.Protocol, " ", a.Priority))
	}
	slices.Sort(want)
	slices.Sort(have)
	if d := cmp.Diff(want, have); d != "" || got.Apps.State != fact.Known {
		t.Errorf("apps are %s (-dcb +ours):\n%s", got.Apps.State, d)
	}
}

func compareBuffer(t *testing.T, got qos.DCB, show shower) {
	t.Helper()
	var js struct {
		Prio  [8]int    `json:"prio_buffer"`
		Size  [8]uint32 `json:"buffer_size"`
		Total uint32    `json:"total_size"`
	}
	show(&js, "buffer", "show", "dev", "eth7")
	want := qos.Buffer{Priority: js.Prio, SizeBytes: js.Size, TotalBytes: js.Total}
	if d := cmp.Diff(fact.Of(want, "netlink:IEEE_GET"), got.Buffer); d != "" {
		t.Errorf("buffer (-dcb +ours):\n%s", d)
	}
}

// dcb shows the number as the kernel gave it, and takes it for byte/s in its
// text; the kernel's header and its drivers say kbit/s.
func compareMaxRate(t *testing.T, got qos.DCB, show shower) {
	t.Helper()
	var js struct {
		Rate [8]uint64 `json:"tc_maxrate"`
	}
	show(&js, "maxrate", "show", "dev", "eth7")
	var want qos.MaxRate
	for i, kbps := range js.Rate {
		want[i] = kbps * 1000
	}
	if d := cmp.Diff(fact.Of(want, "netlink:IEEE_GET"), got.MaxRate); d != "" {
		t.Errorf("maxrate (-dcb +ours):\n%s", d)
	}
}
