package netif

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/checks"
	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// node is the example node with other settings of its network interfaces: what
// the kernel answers over netlink, what files hold, where links lead.
type node struct {
	fact.Source
	dcb   kernel
	pause map[string][2]bool // global pause, obeyed and sent
	files map[string]string
	links map[string]string
	// twins has pairs of a name and the one that the example node knows it by:
	// what stands below the first is as below the second, until it is changed.
	twins   []string
	missing []string // files that answer EINVAL, as attributes of no interface do
	t       *testing.T
}

func (n *node) twin(name string) string { return strings.NewReplacer(n.twins...).Replace(name) }

func (n *node) Readlink(name string) (string, error) {
	if to, ok := n.links[name]; ok {
		return to, nil
	}
	return n.Source.Readlink(n.twin(name))
}

func (n *node) ReadFile(name string) ([]byte, error) {
	if text, ok := n.files[name]; ok {
		return []byte(text), nil
	}
	if slices.Contains(n.missing, name) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: unix.EINVAL}
	}
	return n.Source.ReadFile(n.twin(name))
}

// ReadDir lists the interfaces that are there by a link of ours, too.
func (n *node) ReadDir(name string) ([]fact.Entry, error) {
	out, err := n.Source.ReadDir(n.twin(name))
	for link := range n.links {
		if name == "/sys/class/net" && path.Dir(link) == name {
			out = append(out, fact.Entry{Name: path.Base(link), Type: fs.ModeSymlink})
		}
	}
	return out, err
}

func (n *node) Ask(ctx context.Context, question string, args ...string) ([]fact.Record, error) {
	var out []fact.Record
	var err error
	if question == fact.AskDCB {
		for _, name := range args {
			out = append(out, n.record(name, getDCB(n.dcb, name)))
		}
		return out, nil
	}
	own := slices.DeleteFunc(slices.Clone(args), func(name string) bool { return n.twin(name) != name })
	if len(own) > 0 || len(args) == 0 {
		out, err = n.Source.Ask(ctx, question, own...)
	}
	for _, name := range args {
		if as := n.twin(name); as != name {
			i := slices.IndexFunc(out, func(r fact.Record) bool { return r.Subject == as })
			if i < 0 {
				recs, _ := n.Source.Ask(ctx, question, as)
				out, i = append(out, recs[0]), len(out)
			}
			r := out[i]
			r.Subject = name
			out = append(out, r)
		}
	}
	for i, r := range out {
		text, isFile := n.files[r.Subject]
		pause, paused := n.pause[r.Subject]
		switch {
		case question == fact.AskFiles && isFile:
			out[i] = n.record(r.Subject, []byte(text))
		case question == fact.AskEthtool && (paused || n.twins != nil):
			e := fact.Decode[qos.Ethtool](r).V
			port := port400()
			port[unix.ETHTOOL_MSG_PAUSE_GET] = slices.Concat(headOfReply, attr(unix.ETHTOOL_A_PAUSE_AUTONEG, u8(0)),
				attr(unix.ETHTOOL_A_PAUSE_RX, u8(flag(pause[0]))), attr(unix.ETHTOOL_A_PAUSE_TX, u8(flag(pause[1]))))
			said := getEthtool(n.t, ethtoolKernel(n.t, port), "eth7")
			e.Pause = said.Pause
			if n.twins != nil { // of which the recording has no link modes
				e.Link = said.Link
			}
			out[i] = n.record(r.Subject, e)
		}
	}
	return out, err
}

func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

func (n *node) record(subject string, data any) fact.Record {
	b, err := json.Marshal(data)
	if err != nil {
		n.t.Fatal(err)
	}
	return fact.Record{Subject: subject, State: fact.Known, Source: "netlink", Data: b}
}

// setting is a node on its way: each interface has a good NIC until it is changed.
type setting struct {
	nics map[string]*nic
	raw  map[string]kernel // in place of the NIC's
	*node
}

func (s *setting) each(change func(*nic)) {
	for _, n := range s.nics {
		change(n)
	}
}

func (s *setting) answer(m netlink.Message) ([]netlink.Message, syscall.Errno) {
	for name, k := range s.raw {
		if bytes.Contains(m.Data, append([]byte(name), 0)) {
			return k(m)
		}
	}
	return dcbKernel(s.nics)(m)
}

// judge gives the findings of the example node once changed.
func judge(t *testing.T, network string, change func(*setting)) []checks.Finding {
	t.Helper()
	text, err := os.ReadFile("../../cmd/gdrcheck/example.rec")
	if err != nil {
		t.Fatal(err)
	}
	rec, err := fact.OpenRecording(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &setting{nics: map[string]*nic{}, raw: map[string]kernel{}}
	s.node = &node{Source: rec, dcb: s.answer, pause: map[string][2]bool{}, files: map[string]string{}, links: map[string]string{}, t: t}
	for _, name := range []string{"eth0", "eth1", "eth2", "eth3", "eth4", "eth5", "eth6", "eth7", "eth8", "eth10"} {
		s.nics[name] = goodNIC()
	}
	change(s)
	opt := checks.Options{Only: []string{"rdma"}}
	if network != "" {
		if opt.Network, err = checks.ParseNetwork(network); err != nil {
			t.Fatal(err)
		}
	}
	collected := collect.All()
	collected.Config = pci.ConfigPaths
	o, err := checks.Run(collect.Machine(t.Context(), s.node, collected), opt)
	if err != nil {
		t.Fatal(err)
	}
	return o.Findings
}

// vf3 is the link that makes mlx5_3 a virtual function.
func vf3(t *testing.T, s *setting) string {
	t.Helper()
	to, err := s.Source.Readlink("/sys/class/infiniband/mlx5_3/device")
	if err != nil {
		t.Fatal(err)
	}
	return "/sys/bus/pci/devices/" + path.Base(to) + "/physfn"
}

// From the bytes that the kernel answers to what an administrator reads. All
// rows change eth3, the interface of mlx5_3, unless they say otherwise.
func TestSettingToFinding(t *testing.T) {
	const cnp = "/sys/class/net/eth3/ecn/roce_np/"
	eth3 := func(change func(*nic)) func(*setting) {
		return func(s *setting) { change(s.nics["eth3"]) }
	}
	refuse := func(no syscall.Errno) func(*setting) {
		return func(s *setting) {
			s.raw["eth3"] = func(netlink.Message) ([]netlink.Message, syscall.Errno) { return nil, no }
		}
	}
	cut := func(s *setting) {
		s.raw["eth3"] = func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			data := append([]byte{0, dcbIEEEGet, 0, 0}, attr(13, attr(2, c(&cPFC{En: 8})[:60]))...)
			return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_GETDCB}, Data: data}}, 0
		}
	}
	const dev = "/sys/class/infiniband/mlx5_3/"
	port := func(files map[string]string, change ...func(*setting)) func(*setting) {
		return func(s *setting) {
			for name, text := range files {
				s.files[dev+name] = text
			}
			for _, f := range change {
				f(s)
			}
		}
	}
	noDSCP := eth3(func(n *nic) { n.apps = nil })
	v6 := "2001:0db8:0000:0000:0000:0000:0000:0003\n"
	infiniBand := map[string]string{"ports/1/link_layer": "InfiniBand\n", "ports/1/state": "2: INIT\n", "ports/1/sm_lid": "0x0\n", "ports/1/lid": "0xffff\n"}
	type row struct {
		network string
		change  func(*setting)
		check   string
		verdict checks.Verdict
		message string // part of it
		fix     string // part of it
	}
	for name, tt := range map[string]row{
		"PFC on the wrong priority":               {"lossless,priority=3", eth3(func(n *nic) { n.pfc.En = 1 << 4 }), "roce-pfc", checks.Fail, "PFC is on for priority 4, but RoCE goes by 3", "sudo mlnx_qos -i eth3 --pfc 0,0,0,1,0,0,0,0"},
		"the same, nobody named a priority":       {"lossless", eth3(func(n *nic) { n.pfc.En = 1 << 4 }), "roce-tos", checks.Fail, "goes by priority 3", "gdrcheck check --only nic-consistency"},
		"the same, of PFC itself":                 {"lossless", eth3(func(n *nic) { n.pfc.En = 1 << 4 }), "roce-pfc", checks.Info, "on for priority 4 alone, but programs' marks lead to 3", ""},
		"the odd one of eight":                    {"lossless", eth3(func(n *nic) { n.pfc.En = 1 << 4 }), "nic-consistency", checks.Fail, "PFC priority 4, while 7 of 8 have priority 3", "sudo mlnx_qos -i eth3 --pfc 0,0,0,1,0,0,0,0"},
		"its buffer waits for that":               {"lossless,priority=3", eth3(func(n *nic) { n.pfc.En = 1 << 4 }), "roce-buffer", checks.Blocked, "roce-pfc mlx5_3/1 comes first", ""},
		"trust pcp":                               {"lossless", eth3(func(n *nic) { n.apps = []cApp{{1, 4, 0x8915}} }), "roce-trust", checks.Fail, "untagged packets go by priority", "sudo mlnx_qos -i eth3 --trust dscp"},
		"two lossless priorities":                 {"lossless", eth3(func(n *nic) { n.pfc.En = 1<<3 | 1<<4 }), "roce-pfc", checks.Warn, "on for 2 priorities (3,4)", "--pfc 0,0,0,1,0,0,0,0"},
		"PFC off":                                 {"lossless", eth3(func(n *nic) { n.pfc.En = 0 }), "roce-pfc", checks.Fail, "PFC is off for all priorities", "sudo dcb pfc set dev eth3 prio-pfc all:off 3:on"},
		"PFC off, network assumed":                {"", eth3(func(n *nic) { n.pfc.En = 0 }), "roce-pfc", checks.Warn, "PFC is off for all priorities", "mlnx_qos -i eth3"},
		"PFC off, lossy":                          {"lossy", func(s *setting) { s.each(func(n *nic) { n.pfc.En = 0 }) }, "roce-pfc", checks.Pass, "as on a lossy network", ""},
		"marks, lossy":                            {"lossy", func(s *setting) { s.each(func(n *nic) { n.pfc.En = 0 }) }, "roce-tos", checks.NotApplicable, "no lossless priority", ""},
		"trust pcp, lossy":                        {"lossy", eth3(func(n *nic) { n.apps = nil }), "roce-trust", checks.NotApplicable, "does not ask for it", ""},
		"PFC off, Spectrum-X":                     {"spectrum-x", eth3(func(n *nic) { n.pfc.En = 0 }), "roce-pfc", checks.Fail, "PFC is off", "--pfc 0,0,0,1,0,0,0,0"},
		"ECN, Spectrum-X":                         {"spectrum-x", func(*setting) {}, "roce-ecn", checks.NotApplicable, "by other means", ""},
		"custom: another priority":                {"dscp=26,priority=5", func(*setting) {}, "roce-pfc", checks.Fail, "on for priority 3, but RoCE goes by 5", "--pfc 0,0,0,0,0,1,0,0"},
		"custom: DSCP not mapped":                 {"dscp=10,priority=3", func(*setting) {}, "roce-tos", checks.Fail, "DSCP 10 leads to priority 1", "sudo mlnx_qos -i eth3 --dscp2prio set,10,3"},
		"custom: another mark of CNPs":            {"priority=3,cnp_dscp=46,cnp_priority=7", func(*setting) {}, "roce-cnp", checks.Fail, "the network has 46 and 7", "echo 46 | sudo tee /sys/class/net/eth3/ecn/roce_np/cnp_dscp"},
		"CNP on the lossless priority":            {"lossless", func(s *setting) { s.files[cnp+"cnp_802p_prio"] = "3\n" }, "roce-cnp", checks.Warn, "go by priority 3, which is lossless", "echo 6 | sudo tee " + cnp + "cnp_802p_prio"},
		"CNP's DSCP mapped to it":                 {"lossless", eth3(func(n *nic) { n.apps[1].Priority = 3 }), "roce-cnp", checks.Warn, "DSCP 48, which leads to priority 3", ""},
		"global pause besides PFC":                {"lossless", func(s *setting) { s.pause["eth3"] = [2]bool{true, true} }, "roce-global-pause", checks.Fail, "beside PFC (priority 3)", "sudo ethtool -A eth3 autoneg off rx off tx off"},
		"global pause, of its siblings none":      {"lossless", func(s *setting) { s.pause["eth3"] = [2]bool{true, true} }, "nic-consistency", checks.Fail, "global pause, sent yes, while 7 of 8 have no", "ethtool -A eth3 autoneg off rx off tx off"},
		"global pause, obeyed alone":              {"lossless", func(s *setting) { s.pause["eth3"] = [2]bool{true, false} }, "roce-global-pause", checks.Fail, "beside PFC (priority 3)", "ethtool -A eth3"},
		"buffer shared, the only one with a size": {"lossless", eth3(func(n *nic) { n.buffer = &cBuffer{Size: [8]uint32{262016}, Total: 262016} }), "roce-buffer", checks.Fail, "shares buffer 0 with lossy priority 0", "sudo dcb buffer set dev eth3 buffer-size 0:20016 1:156096 2:0 3:0 4:0 5:0 6:0 7:0 prio-buffer 0:0 1:0 2:0 3:1 4:0 5:0 6:0 7:0"},
		"the same on all": {"lossless", func(s *setting) {
			s.each(func(n *nic) { n.buffer = &cBuffer{Size: [8]uint32{262016}, Total: 262016} })
		}, "roce-buffer", checks.Fail, "shares buffer 0 with lossy priority 0", "sudo dcb buffer set dev eth3 buffer-size all:0 0:130048 1:130048 prio-buffer all:0 3:1"},
		"buffer without a size":          {"lossless", eth3(func(n *nic) { n.buffer.Size[1] = 0 }), "roce-buffer", checks.Fail, "has no size", "--buffer_size=20016,156096,0,0,0,0,0,0"},
		"DCBX by firmware":               {"lossless", eth3(func(n *nic) { n.dcbx = 0x02 | 0x08 }), "roce-dcbx", checks.Info, "by firmware", "sudo mlnx_qos -i eth3 -d os"},
		"the driver has no DCB":          {"lossless", refuse(unix.EOPNOTSUPP), "roce-pfc", checks.Unknown, "not supported", ""},
		"denied":                         {"lossless", refuse(unix.EPERM), "roce-pfc", checks.Unknown, "may not be read", ""},
		"interface in another namespace": {"lossless", refuse(unix.ENODEV), "roce-pfc", checks.Unknown, "network interface eth3 is not in this network namespace", "--net=host"},
		"the same, buffer":               {"lossless", refuse(unix.ENODEV), "roce-buffer", checks.Unknown, "not in this network namespace", "--net=host"},
		"the same, CNP":                  {"lossless", refuse(unix.ENODEV), "roce-cnp", checks.Unknown, "not in this network namespace", "--net=host"},
		"the same, marks":                {"lossless", refuse(unix.ENODEV), "roce-tos", checks.Unknown, "not in this network namespace", "--net=host"},
		"the same, DCBX":                 {"lossless", refuse(unix.ENODEV), "roce-dcbx", checks.Unknown, "not in this network namespace", "--net=host"},
		"the same, alike":                {"lossless", refuse(unix.ENODEV), "nic-consistency", checks.Unknown, "interface of mlx5_3/1 is not in this network namespace", ""},
		"CNPs' priority lossless, too":   {"lossless", eth3(func(n *nic) { n.pfc.En = 1<<3 | 1<<6 }), "roce-cnp", checks.Warn, "CNPs go by priority 6, which is lossless", "sudo mlnx_qos -i eth3 --pfc 0,0,0,1,0,0,0,0"},
		"RoCE by the CNPs' priority":     {"lossless,priority=6,dscp=48", eth3(func(n *nic) { n.pfc.En = 1 << 6 }), "roce-cnp", checks.Warn, "CNPs go by priority 6, which is lossless", "echo 7 | sudo tee /sys/class/net/eth3/ecn/roce_np/cnp_802p_prio"},
		"answer cut short":               {"lossless", cut, "roce-pfc", checks.Unknown, "cut short", ""},
		"attributes left out":            {"lossless", func(s *setting) { s.nics["eth3"] = &nic{noApps: true, noDCBX: true} }, "roce-pfc", checks.Unknown, "not supported", ""},
		"attributes left out: global pause": {"lossless", func(s *setting) {
			s.nics["eth3"], s.pause["eth3"] = &nic{noApps: true, noDCBX: true}, [2]bool{true, true}
		}, "roce-global-pause", checks.Unknown, "not supported", ""},
		"a VF": {"lossless", func(s *setting) {
			refuse(unix.EOPNOTSUPP)(s)
			s.links[vf3(t, s)] = "../0000:00:00.0"
		}, "roce-pfc", checks.Unknown, "a VF has no such settings of its own", "On the host: sudo gdrcheck rdma qos"},
		"GID index of its own":    {"", port(map[string]string{"ports/1/gid_attrs/types/2": "RoCE v2\n", "ports/1/gid_attrs/types/3": "IB/RoCE v1\n"}), "roce-gid-index", checks.Warn, "2 on mlx5_3/1", "ip addr flush dev eth3"},
		"IPv6 alone":              {"", port(map[string]string{"ports/1/gids/2": v6, "ports/1/gids/3": v6}), "roce-gid", checks.Pass, "RoCE v2 with global IPv6 at GID index 3", ""},
		"IPv6 alone, programs":    {"", port(map[string]string{"ports/1/gids/2": v6, "ports/1/gids/3": v6}), "roce-gid-choice", checks.Warn, "a routable one is at index 3", "NCCL_IB_GID_INDEX=3"},
		"address on a VLAN":       {"lossless", port(map[string]string{"ports/1/gid_attrs/ndevs/3": "eth3.100\n"}, noDSCP), "roce-trust", checks.Info, "on the VLAN eth3.100", ""},
		"EFA":                     {"lossless", func(s *setting) { s.links[dev+"device/driver"] = "../../../../bus/pci/drivers/efa"; noDSCP(s) }, "roce-trust", checks.NotApplicable, "EFA repairs losses itself", ""},
		"iWARP":                   {"lossless", port(map[string]string{"node_type": "4: RNIC\n"}, noDSCP), "roce-trust", checks.NotApplicable, "iWARP stands on TCP", ""},
		"InfiniBand":              {"lossless", port(map[string]string{"ports/1/link_layer": "InfiniBand\n"}, noDSCP), "roce-trust", checks.NotApplicable, "credits", ""},
		"InfiniBand without a SM": {"", port(infiniBand), "rdma-port-state", checks.Fail, "INIT", "sminfo -C mlx5_3 -P 1"},
		"mixed firmware":          {"", port(map[string]string{"fw_ver": "20.1.1\n"}), "nic-firmware", checks.Warn, "firmware 20.1.1, while mlx5_0 of the same board runs", "mlxfwmanager"},
		"mixed rates":             {"", port(map[string]string{"ports/1/rate": "200 Gb/sec (2X NDR)\n"}), "rdma-port-rate", checks.Warn, "200 Gb/s, while mlx5_0/1 of the same model runs at 400 Gb/s", "ethtool eth3"},
		"bnxt by the host: zero says nothing": {"lossless", func(s *setting) {
			s.links["/sys/class/net/eth3/device/driver"] = "../../../../bus/pci/drivers/bnxt_en"
			s.nics["eth3"] = &nic{pfc: &cPFC{Cap: 8}, ets: &cETS{Cap: 8}, dcbx: 0x01 | 0x08}
		}, "roce-pfc", checks.Unknown, "the driver answers zero until somebody sets it", "sudo dcb pfc set dev eth3 prio-pfc all:off 3:on"},
	} {
		t.Run(name, func(t *testing.T) {
			found := judge(t, tt.network, tt.change)
			i := slices.IndexFunc(found, func(f checks.Finding) bool {
				return f.Check == tt.check && (f.Subject == "mlx5_3/1" || f.Subject == "mlx5_3" || f.Subject == "node")
			})
			if i < 0 {
				t.Fatalf("no finding of %s", tt.check)
			}
			f := found[i]
			if f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || !strings.Contains(strings.Join(f.Fix, "\n"), tt.fix) {
				t.Errorf("%s %s: %s\n%s\nwant %s: %s\n%s", f.Check, f.Verdict, f.Message, strings.Join(f.Fix, "\n"), tt.verdict, tt.message, tt.fix)
			}
			for i, line := range f.Fix {
				if slices.Contains(f.Fix[:i], line) {
					t.Errorf("twice: %s", line)
				}
			}
			if tt.verdict == checks.Unknown || strings.HasSuffix(name, "lossy") {
				for _, f := range found {
					if strings.Contains(f.Subject, "mlx5_3") && strings.HasPrefix(f.Check, "roce-") && (f.Verdict == checks.Fail || f.Verdict == checks.Warn) {
						t.Errorf("besides: %s %s: %s", f.Check, f.Verdict, f.Message)
					}
				}
			}
		})
	}
}

// Where all is right nothing is found, whatever the network is.
func TestGoodSettingToFinding(t *testing.T) {
	for _, network := range []string{"", "lossless", "spectrum-x", "lossy", "custom,dscp=26,priority=3,cnp_dscp=48,cnp_priority=6"} {
		for _, f := range judge(t, network, func(*setting) {}) {
			if f.Verdict == checks.Fail || f.Verdict == checks.Warn || f.Verdict == checks.Unknown {
				t.Errorf("%s: %s %s %s: %s", network, f.Check, f.Subject, f.Verdict, f.Message)
			}
		}
	}
}
