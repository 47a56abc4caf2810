package netif

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// realKernel passes a question of generic netlink on to this machine's kernel:
// what families it has, and the names of link modes.
func realKernel(t testing.TB) kernel {
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		m.Header.Sequence, m.Header.PID, m.Header.Length = 0, 0, 0
		m.Header.Flags &^= netlink.Acknowledge
		out, err := conn.Execute(m)
		if no, ok := errors.AsType[syscall.Errno](err); ok {
			return nil, no
		}
		if err != nil {
			t.Error(err)
			return nil, unix.EIO
		}
		return out, 0
	}
}

// genlKernel answers the questions of one family about one subject; whatever
// else is asked, the real kernel answers. answers are by command, without the
// reply's own command, which may differ.
func genlKernel(t testing.TB, familyName string, answer func(cmd uint8, attrs []byte) (replyCmd uint8, reply [][]byte, no syscall.Errno)) kernel {
	t.Helper()
	under := realKernel(t)
	id, ctrl := servedFamily(t, familyName, under)
	return func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if uint16(m.Header.Type) != id || len(m.Data) < 4 {
			return ctrl(m)
		}
		cmd, replies, no := answer(m.Data[0], m.Data[4:])
		if replies == nil && no == 0 {
			return under(m)
		}
		var out []netlink.Message
		for _, r := range replies {
			h := netlink.Header{Type: netlink.HeaderType(id)}
			if m.Header.Flags&netlink.Dump == netlink.Dump {
				h.Flags = netlink.Multi
			}
			out = append(out, netlink.Message{Header: h, Data: append([]byte{cmd, 1, 0, 0}, r...)})
		}
		return out, no
	}
}

// servedFamily is the number of a family and who answers for it: this machine's
// kernel where it has the family, else one made up here.
func servedFamily(t testing.TB, name string, under kernel) (uint16, kernel) {
	t.Helper()
	conn := genetlink.NewConn(nltest.Dial(under.nltest))
	if fam, err := conn.GetFamily(name); err == nil {
		return fam.ID, under
	}
	const id = 0x7f
	reply := slices.Concat([]byte{unix.CTRL_CMD_NEWFAMILY, 2, 0, 0},
		attr(unix.CTRL_ATTR_FAMILY_NAME, str(name)), attr(unix.CTRL_ATTR_FAMILY_ID, c(uint16(id))),
		attr(unix.CTRL_ATTR_VERSION, u32(1)), attr(unix.CTRL_ATTR_HDRSIZE, u32(0)), attr(unix.CTRL_ATTR_MAXATTR, u32(200)))
	return id, func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if m.Header.Type == unix.GENL_ID_CTRL && bytes.Contains(m.Data, str(name)) {
			return []netlink.Message{{Header: netlink.Header{Type: unix.GENL_ID_CTRL}, Data: reply}}, 0
		}
		return under(m)
	}
}

func u8(v uint8) []byte   { return []byte{v} }
func u32(v uint32) []byte { return c(v) }
func str(s string) []byte { return append([]byte(s), 0) }

type modeBit struct {
	index uint32
	name  string
	set   bool
}

func bits(list []modeBit) []byte {
	var out []byte
	for _, b := range list {
		in := append(attr(unix.ETHTOOL_A_BITSET_BIT_INDEX, u32(b.index)), attr(unix.ETHTOOL_A_BITSET_BIT_NAME, str(b.name))...)
		if b.set {
			in = append(in, attr(unix.ETHTOOL_A_BITSET_BIT_VALUE)...)
		}
		out = append(out, attr(unix.ETHTOOL_A_BITSET_BITS_BIT, in)...)
	}
	return append(attr(unix.ETHTOOL_A_BITSET_SIZE, u32(121)), attr(unix.ETHTOOL_A_BITSET_BITS, out)...)
}

var headOfReply = attr(1, attr(unix.ETHTOOL_A_HEADER_DEV_INDEX, u32(7)), attr(unix.ETHTOOL_A_HEADER_DEV_NAME, str("eth7")))

// port400 is a 400 Gb/s port with RS-FEC, counts on four lanes, and pause.
func port400() map[uint8][]byte {
	with := func(parts ...[]byte) []byte { return slices.Concat(append([][]byte{headOfReply}, parts...)...) }
	ours := bits([]modeBit{
		{6, "Autoneg", true}, {10, "FIBRE", true}, {62, "200000baseKR4/Full", true}, {66, "200000baseCR4/Full", false},
		{85, "400000baseKR4/Full", true}, {89, "400000baseCR4/Full", true}, {50, "RS", true},
	})
	nomask := append(attr(unix.ETHTOOL_A_BITSET_NOMASK), bits([]modeBit{{6, "Autoneg", true}, {89, "400000baseCR4/Full", true}})...)
	return map[uint8][]byte{
		unix.ETHTOOL_MSG_LINKSTATE_GET: with(attr(unix.ETHTOOL_A_LINKSTATE_LINK, u8(1)), attr(unix.ETHTOOL_A_LINKSTATE_EXT_DOWN_CNT, u32(3))),
		unix.ETHTOOL_MSG_LINKMODES_GET: with(
			attr(unix.ETHTOOL_A_LINKMODES_AUTONEG, u8(1)), attr(unix.ETHTOOL_A_LINKMODES_OURS, ours), attr(unix.ETHTOOL_A_LINKMODES_PEER, nomask),
			attr(unix.ETHTOOL_A_LINKMODES_SPEED, u32(400000)), attr(unix.ETHTOOL_A_LINKMODES_DUPLEX, u8(1)), attr(unix.ETHTOOL_A_LINKMODES_LANES, u32(4))),
		unix.ETHTOOL_MSG_FEC_GET: with(
			attr(fecModes, attr(unix.ETHTOOL_A_BITSET_NOMASK), bits([]modeBit{{50, "RS", true}})), attr(fecAuto, u8(1)), attr(fecActive, u32(50)),
			attr(fecStats,
				attr(fecCorrected, c([]uint64{1000, 400, 300, 200, 100})), attr(fecUncorrectable, c([]uint64{7, 0, 7, 0, 0})),
				attr(fecCorrectedBits, c([]uint64{1234})))),
		unix.ETHTOOL_MSG_PAUSE_GET: with(
			attr(unix.ETHTOOL_A_PAUSE_AUTONEG, u8(0)), attr(unix.ETHTOOL_A_PAUSE_RX, u8(1)), attr(unix.ETHTOOL_A_PAUSE_TX, u8(0)),
			attr(unix.ETHTOOL_A_PAUSE_STATS, attr(unix.ETHTOOL_A_PAUSE_STAT_TX_FRAMES, c(uint64(0))), attr(unix.ETHTOOL_A_PAUSE_STAT_RX_FRAMES, c(uint64(1)<<33)))),
	}
}

// ethtoolKernel answers about eth7 with what port has; EOPNOTSUPP for what it
// has not, as for a driver without the operation.
func ethtoolKernel(t testing.TB, port map[uint8][]byte) kernel {
	return genlKernel(t, unix.ETHTOOL_GENL_NAME, func(cmd uint8, attrs []byte) (uint8, [][]byte, syscall.Errno) {
		name := ""
		_ = attributes(attrs, func(ad *netlink.AttributeDecoder) error {
			if ad.Type() == 1 {
				return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
					if ad.Type() == unix.ETHTOOL_A_HEADER_DEV_NAME {
						name = ad.String()
					}
					return nil
				})
			}
			return nil
		})
		if name != "eth7" {
			return 0, nil, 0
		}
		reply, has := port[cmd]
		if !has {
			return 0, nil, unix.EOPNOTSUPP
		}
		return cmd, [][]byte{reply}, 0
	})
}

func getEthtool(t testing.TB, k kernel, name string) qos.Ethtool {
	t.Helper()
	e, err := newEthtool(genetlink.NewConn(nltest.Dial(k.nltest)))
	if err != nil {
		t.Fatal(err)
	}
	return e.Get(name, func(string) {}, func(any) {})
}

var linkMode = regexp.MustCompile(`\d+base\S+`)

// TestEthtoolAgainstTool compares with ethtool what we make of the same bytes.
func TestEthtoolAgainstTool(t *testing.T) {
	k := ethtoolKernel(t, port400())
	got := getEthtool(t, k, "eth7")

	said := string(k.tool(t, "ethtool", "eth7"))
	for line, want := range map[string]bool{
		"Speed: 400000Mb/s": got.Link.SpeedMbps.V == 400000, "Duplex: Full": got.Link.FullDuplex.V, "Lanes: 4": got.Link.Lanes.V == 4,
		"Auto-negotiation: on": got.Link.Autoneg.V, "Link detected: yes": got.Link.Up.V,
	} {
		if !strings.Contains(said, line) || !want {
			t.Errorf("ethtool says\n%s\nwe %+v; about %s", said, got.Link, line)
		}
	}
	supported, _, _ := strings.Cut(said, "Supported pause")
	if d := cmp.Diff(linkMode.FindAllString(supported, -1), modeNames(got.Link.Modes)); d != "" {
		t.Errorf("supported modes (-ethtool +ours):\n%s", d)
	}
	_, partner, _ := strings.Cut(said, "Link partner advertised link modes")
	partner, _, _ = strings.Cut(partner, "Link partner advertised pause")
	if d := cmp.Diff(linkMode.FindAllString(partner, -1), modeNames(got.Link.PeerModes)); d != "" {
		t.Errorf("the partner's modes (-ethtool +ours):\n%s", d)
	}

	var fec []struct {
		Config     []string
		Active     []string
		Statistics struct {
			Corrected struct {
				Total uint64
				Lanes []uint64
			} `json:"corrected_blocks"`
			Uncorrectable struct {
				Total uint64
				Lanes []uint64
			} `json:"uncorrectable_blocks"`
			Bits struct{ Total uint64 } `json:"corrected_bits"`
		}
	}
	toolJSON(t, k, &fec, "-I", "--json", "--show-fec", "eth7")
	st := fec[0].Statistics
	want := qos.FEC{
		Configured: fact.Of(fec[0].Config, srcFEC), Active: fact.Of(fec[0].Active[0], srcFEC),
		Corrected: fact.Of(st.Corrected.Total, srcFEC), Uncorrectable: fact.Of(st.Uncorrectable.Total, srcFEC), CorrectedBits: fact.Of(st.Bits.Total, srcFEC),
	}
	for i := range st.Corrected.Lanes {
		want.Lanes = append(want.Lanes, qos.FECLane{Corrected: st.Corrected.Lanes[i], Uncorrectable: st.Uncorrectable.Lanes[i]})
	}
	slices.Sort(got.FEC.Configured.V)
	slices.Sort(want.Configured.V)
	if d := cmp.Diff(want, got.FEC); d != "" {
		t.Errorf("FEC (-ethtool +ours):\n%s", d)
	}

	// The text: the JSON of ethtool 6.1 says true whatever it was told.
	said = string(k.tool(t, "ethtool", "-I", "-a", "eth7"))
	num := func(name string) uint64 {
		n, err := strconv.ParseUint(said1(t, said, name), 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	wantPause := qos.Pause{
		Autoneg: fact.Of(said1(t, said, "Autonegotiate") == "on", srcPause),
		RX:      fact.Of(said1(t, said, "RX") == "on", srcPause), TX: fact.Of(said1(t, said, "TX") == "on", srcPause),
		Sent: fact.Of(num("tx_pause_frames"), srcPause), Received: fact.Of(num("rx_pause_frames"), srcPause),
	}
	if d := cmp.Diff(wantPause, got.Pause); d != "" {
		t.Errorf("pause (-ethtool +ours):\n%s", d)
	}
}

// said1 is the value in the line "NAME: VALUE" of a tool's output.
func said1(t *testing.T, text, name string) string {
	t.Helper()
	for l := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	t.Errorf("no %s in\n%s", name, text)
	return ""
}

func modeNames(v fact.Value[[]qos.Mode]) []string {
	var out []string
	for _, m := range v.V {
		out = append(out, string(m))
	}
	return out
}

func toolJSON(t *testing.T, k kernel, into any, args ...string) {
	t.Helper()
	out := k.tool(t, "ethtool", args...)
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("ethtool %v: %v\n%s", args, err, out)
	}
}

// Why a link is down, in ethtool's words and in ours.
func TestDownReason(t *testing.T) {
	for _, tt := range []struct {
		state uint8
		sub   []uint8
		tool  string
		want  string
	}{
		{4, nil, "No cable", "no cable"},
		{0, []uint8{1}, "Autoneg, No partner detected", "autonegotiation: no partner detected"},
		{2, []uint8{5}, "Logical mismatch, RS FEC is not locked", "logical mismatch: RS FEC not locked"},
		{10, []uint8{1}, "Module, CMIS module is not in ModuleReady state", "module: CMIS module not ready"},
		{9, nil, "Overheat", "overheated"},
		{200, nil, "", "reason 200"},
		{4, []uint8{9}, "", "no cable: 9"},
	} {
		port := port400()
		reply := slices.Concat(headOfReply, attr(unix.ETHTOOL_A_LINKSTATE_LINK, u8(0)), attr(unix.ETHTOOL_A_LINKSTATE_EXT_STATE, u8(tt.state)))
		for _, s := range tt.sub {
			reply = append(reply, attr(unix.ETHTOOL_A_LINKSTATE_EXT_SUBSTATE, u8(s))...)
		}
		port[unix.ETHTOOL_MSG_LINKSTATE_GET] = reply
		k := ethtoolKernel(t, port)
		got := getEthtool(t, k, "eth7").Link
		if got.DownReason.V != tt.want || got.Up.V || got.Up.State != fact.Known {
			t.Errorf("%d %v: %+v", tt.state, tt.sub, got.DownReason)
		}
		if said := string(k.tool(t, "ethtool", "eth7")); tt.tool != "" && !strings.Contains(said, "Link detected: no ("+tt.tool+")") {
			t.Errorf("%d %v: ethtool says\n%s", tt.state, tt.sub, said)
		}
	}
}

// Each question has a state of its own.
func TestEthtoolStates(t *testing.T) {
	port := port400()
	delete(port, unix.ETHTOOL_MSG_FEC_GET)
	port[unix.ETHTOOL_MSG_LINKMODES_GET] = slices.Concat(headOfReply,
		attr(unix.ETHTOOL_A_LINKMODES_SPEED, u32(1<<32-1)), attr(unix.ETHTOOL_A_LINKMODES_DUPLEX, u8(255)))
	port[unix.ETHTOOL_MSG_PAUSE_GET] = port[unix.ETHTOOL_MSG_PAUSE_GET][:60]
	got := getEthtool(t, ethtoolKernel(t, port), "eth7")
	for name, tt := range map[string]struct{ got, want fact.State }{
		"speed": {got.Link.SpeedMbps.State, fact.Absent}, "duplex": {got.Link.FullDuplex.State, fact.Absent},
		"lanes": {got.Link.Lanes.State, fact.Unsupported}, "peer": {got.Link.PeerModes.State, fact.Absent},
		"up": {got.Link.Up.State, fact.Known}, "FEC": {got.FEC.Active.State, fact.Unsupported},
		"FEC counts": {got.FEC.Corrected.State, fact.Unsupported}, "pause cut short": {got.Pause.RX.State, fact.Failed},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", name, tt.got, tt.want)
		}
	}
	if got.FEC.Active.Errno != unix.EOPNOTSUPP || got.FEC.Active.Source != srcFEC {
		t.Errorf("%+v", got.FEC.Active)
	}
}

// This machine's own kernel: what ethtool says of its interfaces.
func TestEthtoolHere(t *testing.T) {
	e, err := OpenEthtool()
	if err != nil {
		t.Skip(err)
	}
	list, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range list {
		name := entry.Name()
		got := e.Get(name, func(string) {}, func(any) {})
		out, err := exec.CommandContext(t.Context(), "ethtool", name).Output()
		if errors.Is(err, exec.ErrNotFound) {
			t.Skip(err)
		}
		said := string(out)
		if got.Link.Up.State == fact.Known && strings.Contains(said, "Link detected: yes") != got.Link.Up.V {
			t.Errorf("%s: ethtool says\n%s\nwe %+v", name, said, got.Link)
		}
		if strings.Contains(said, "Speed: Unknown!") && got.Link.SpeedMbps.State != fact.Absent {
			t.Errorf("%s: speed %+v", name, got.Link.SpeedMbps)
		}
	}
	if got := e.Get("no-such-netdev", func(string) {}, func(any) {}); got.Link.Up.State != fact.Absent || got.Pause.RX.State != fact.Absent {
		t.Errorf("no such interface: %+v", got)
	}
}

func FuzzEthtoolReply(f *testing.F) {
	for _, reply := range port400() {
		f.Add(reply)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out qos.Ethtool
		_, _, _, _ = decodeLinkState(b, &out), decodeLinkModes(b, &out), decodeFEC(b, &out), decodePause(b, &out)
		if s, ok := out.Link.SpeedMbps.Get(); ok && s <= 0 {
			t.Errorf("speed %d", s)
		}
	})
}
