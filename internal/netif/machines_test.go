package netif

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/checks"
)

// bonded makes the interfaces of the GPUs' NICs bonds of two ports of one card, as
// the kernel shows RoCE LAG: one RDMA device with the bond in its GID table, and
// settings on each port. eth3 and eth3p2 are those of mlx5_3.
func bonded(s *setting) {
	for n := range 8 {
		first, second, bond := fmt.Sprintf("eth%d", n), fmt.Sprintf("eth%dp2", n), fmt.Sprintf("bond%d", n)
		to, err := s.Source.Readlink("/sys/class/net/" + first)
		if err != nil {
			s.t.Fatal(err)
		}
		card := path.Base(strings.TrimSuffix(to, "/net/"+first))
		port2 := strings.TrimSuffix(card, "0") + "1"
		s.twins = append(s.twins, second, first, port2, card)
		s.links["/sys/class/net/"+second] = strings.ReplaceAll(to, card+"/net/"+first, port2+"/net/"+second)
		s.links["/sys/class/net/"+bond] = "../../devices/virtual/net/" + bond
		s.links["/sys/class/net/"+first+"/master"] = "../../../../../../../virtual/net/" + bond
		s.links["/sys/class/net/"+second+"/master"] = "../../../../../../../virtual/net/" + bond
		for name, text := range map[string]string{"bonding/slaves": first + " " + second, "bonding/mode": "802.3ad 4", "mtu": "9000", "operstate": "up", "carrier": "1", "type": "1"} {
			s.files["/sys/class/net/"+bond+"/"+name] = text + "\n"
		}
		for i := range 4 {
			s.files[fmt.Sprintf("/sys/class/infiniband/mlx5_%d/ports/1/gid_attrs/ndevs/%d", n, i)] = bond + "\n"
		}
		s.nics[second] = goodNIC()
		s.raw[bond] = func(netlink.Message) ([]netlink.Message, syscall.Errno) {
			s.t.Error("a bond has no DCB: its ports have")
			return nil, unix.EOPNOTSUPP
		}
	}
}

// From the settings of a bond's ports to what an administrator reads: of the one
// that is not right alone, with its own name in the command.
func TestBondToFinding(t *testing.T) {
	const cnp = "/sys/class/net/eth3p2/ecn/roce_np/"
	eth3p2 := func(change func(*nic)) func(*setting) {
		return func(s *setting) { change(s.nics["eth3p2"]) }
	}
	file := func(name, text string) func(*setting) {
		return func(s *setting) { s.files[name] = text }
	}
	noInterface := func(s *setting) {
		s.raw["eth3p2"] = func(netlink.Message) ([]netlink.Message, syscall.Errno) { return nil, unix.ENODEV }
	}
	for name, tt := range map[string]struct {
		change  func(*setting)
		check   string
		subject string
		verdict checks.Verdict
		message string // part of it
		fix     string // part of it
	}{
		"good":                      {func(*setting) {}, "rdma-lag", "mlx5_3/1", checks.Info, "bond3 (802.3ad) of 2 ports", ""},
		"good, PFC":                 {func(*setting) {}, "roce-pfc", "mlx5_3/1 eth3p2", checks.Pass, "on for priority 3 alone", ""},
		"good, alike":               {func(*setting) {}, "nic-consistency", "mlx5_3", checks.Pass, "as on its siblings", ""},
		"PFC off":                   {eth3p2(func(n *nic) { n.pfc.En = 0 }), "roce-pfc", "mlx5_3/1 eth3p2", checks.Fail, "PFC is off", "sudo mlnx_qos -i eth3p2 --pfc 0,0,0,1,0,0,0,0"},
		"PFC off, the odd one":      {eth3p2(func(n *nic) { n.pfc.En = 0 }), "nic-consistency", "mlx5_3", checks.Fail, "PFC priority none, while 15 of 16 have priority 3", "sudo mlnx_qos -i eth3p2 --pfc 0,0,0,1,0,0,0,0"},
		"trust pcp":                 {eth3p2(func(n *nic) { n.apps = nil }), "roce-trust", "mlx5_3/1 eth3p2", checks.Fail, "untagged packets", "sudo mlnx_qos -i eth3p2 --trust dscp"},
		"DSCP leads elsewhere":      {eth3p2(func(n *nic) { n.apps = []cApp{{5, 4, 26}} }), "roce-tos", "mlx5_3/1 eth3p2", checks.Fail, "goes by priority 4", ""},
		"buffer without a size":     {eth3p2(func(n *nic) { n.buffer.Size[1] = 0 }), "roce-buffer", "mlx5_3/1 eth3p2", checks.Fail, "has no size", "dev eth3p2"},
		"DCBX by firmware":          {eth3p2(func(n *nic) { n.dcbx = 0x02 | 0x08 }), "roce-dcbx", "mlx5_3/1 eth3p2", checks.Info, "by firmware", "sudo mlnx_qos -i eth3p2 -d os"},
		"global pause":              {func(s *setting) { s.pause["eth3p2"] = [2]bool{true, true} }, "roce-global-pause", "mlx5_3/1 eth3p2", checks.Fail, "beside PFC", "sudo ethtool -A eth3p2 autoneg off rx off tx off"},
		"ECN off":                   {file(cnp+"enable/3", "0\n"), "roce-ecn", "mlx5_3/1 eth3p2", checks.Warn, "notification point off for priority 3", "/sys/class/net/eth3p2/ecn/roce_np/enable/3"},
		"CNPs on the lossless":      {file(cnp+"cnp_802p_prio", "3\n"), "roce-cnp", "mlx5_3/1 eth3p2", checks.Warn, "go by priority 3, which is lossless", "echo 6 | sudo tee " + cnp + "cnp_802p_prio"},
		"in another namespace":      {noInterface, "roce-pfc", "mlx5_3/1 eth3p2", checks.Unknown, "network interface eth3p2 is not in this network namespace", "--net=host"},
		"in another, alike":         {noInterface, "nic-consistency", "mlx5_3", checks.Unknown, "interface of mlx5_3/1 eth3p2 is not in this network namespace", ""},
		"a mode without an offload": {file("/sys/class/net/bond3/bonding/mode", "balance-rr 0\n"), "rdma-lag", "mlx5_3/1", checks.Warn, "balance-rr, which the NIC cannot offload", "sudo ip link set bond3 type bond mode 802.3ad"},
		"ports of two cards": {func(s *setting) {
			to := s.links["/sys/class/net/eth3p2"]
			s.links["/sys/class/net/eth3p2"] = strings.ReplaceAll(to, "0000:36:00.1", "0000:38:00.0")
			s.twins = append(s.twins, "0000:38:00.0", "0000:36:00.0")
		}, "rdma-lag", "mlx5_3/1", checks.Warn, "ports of 2 cards (eth3, eth3p2)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := judge(t, "lossless", func(s *setting) { bonded(s); tt.change(s) })
			i := slices.IndexFunc(found, func(f checks.Finding) bool { return f.Check == tt.check && f.Subject == tt.subject })
			if i < 0 {
				t.Fatalf("no finding of %s on %s", tt.check, tt.subject)
			}
			if f := found[i]; f.Verdict != tt.verdict || !strings.Contains(f.Message, tt.message) || !strings.Contains(strings.Join(f.Fix, "\n"), tt.fix) {
				t.Errorf("%s %s: %s\n%s\nwant %s: %s\n%s", f.Check, f.Verdict, f.Message, strings.Join(f.Fix, "\n"), tt.verdict, tt.message, tt.fix)
			}
			for _, f := range found {
				switch {
				case f.Subject == "mlx5_3/1" && strings.HasPrefix(f.Check, "roce-") && !strings.HasPrefix(f.Check, "roce-gid"):
					t.Errorf("%s judges the bond, not its ports", f.Check)
				case !strings.Contains(f.Subject, "mlx5_3") || strings.HasSuffix(f.Subject, " eth3"):
					if f.Verdict == checks.Fail || f.Verdict == checks.Warn || f.Verdict == checks.Unknown {
						t.Errorf("besides: %s %s %s: %s", f.Check, f.Subject, f.Verdict, f.Message)
					}
				case strings.HasPrefix(name, "good") && (f.Verdict == checks.Fail || f.Verdict == checks.Warn || f.Verdict == checks.Unknown):
					t.Errorf("%s %s %s: %s", f.Check, f.Subject, f.Verdict, f.Message)
				}
			}
		})
	}
}

// infiniBand makes every port a native InfiniBand one, as the kernel shows it: one
// GID without an interface, LIDs of a subnet manager, an IPoIB interface. Nobody
// may be asked for DCB.
func infiniBand(s *setting) {
	s.dcb = func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		s.t.Errorf("asked for DCB: %q", m.Data)
		return nil, unix.EOPNOTSUPP
	}
	for n, netdev := range []string{"eth0", "eth1", "eth2", "eth3", "eth4", "eth5", "eth6", "eth7", "eth8", "eth10"} {
		port := fmt.Sprintf("/sys/class/infiniband/mlx5_%d/ports/1/", n)
		for name, text := range map[string]string{"link_layer": "InfiniBand", "lid": fmt.Sprintf("%#x", n+1), "sm_lid": "0x40", "gids/0": fmt.Sprintf("fe80:0000:0000:0000:0000:00ff:fe00:01%02x", n),
			"gid_attrs/types/0": "IB/RoCE v1", "gids/1": zeroGID, "gids/2": zeroGID, "gids/3": zeroGID} {
			s.files[port+name] = text + "\n"
		}
		s.missing = append(s.missing, port+"gid_attrs/ndevs/0")
		s.files["/sys/class/net/"+netdev+"/type"] = "32\n" // ARPHRD_INFINIBAND
	}
}

const zeroGID = "0000:0000:0000:0000:0000:0000:0000:0000"

// On a node with InfiniBand alone no check of RoCE fails, and none passes for
// what is not there: each says that it does not apply, and why.
func TestInfiniBandNode(t *testing.T) {
	for _, network := range []string{"", "lossless", "spectrum-x", "lossy", "dscp=26,priority=3,cnp_dscp=48,cnp_priority=6"} {
		judged := map[string]int{}
		for _, f := range judge(t, network, infiniBand) {
			switch {
			case strings.HasPrefix(f.Check, "roce-"):
				judged[f.Check]++
				if f.Verdict != checks.NotApplicable || !strings.Contains(f.Message, "InfiniBand") {
					t.Errorf("%s: %s %s %s: %s", network, f.Check, f.Subject, f.Verdict, f.Message)
				}
			case f.Verdict == checks.Fail || f.Verdict == checks.Warn || f.Verdict == checks.Unknown:
				t.Errorf("%s: %s %s %s: %s", network, f.Check, f.Subject, f.Verdict, f.Message)
			}
		}
		for _, c := range checks.All() {
			if strings.HasPrefix(c.ID, "roce-") && judged[c.ID] == 0 {
				t.Errorf("%s: %s said nothing", network, c.ID)
			}
		}
	}
}
