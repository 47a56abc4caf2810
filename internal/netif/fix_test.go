package netif

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var dcbCommand = regexp.MustCompile(`\bdcb ((?:pfc|app|buffer|dcbx) (?:set|add|replace|del|flush) dev [^&;()]*)`)

// iproute2's dcb takes every command of dcb's that a finding gives, for each
// driver: the kernel behind it accepts whatever is set.
func TestDCBFixes(t *testing.T) {
	k := func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if m.Header.Type != unix.RTM_SETDCB {
			return dcbKernel(map[string]*nic{"eth3": goodNIC()})(m)
		}
		status := attr(dcbAttrIEEE, u8(0)) // as dcbnl_ieee_set and dcbnl_ieee_del say that it is done
		if m.Data[1] == 23 {               // DCB_CMD_SDCBX
			status = attr(dcbAttrDCBX, u8(0))
		}
		return []netlink.Message{{Header: netlink.Header{Type: unix.RTM_SETDCB}, Data: append([]byte{0, m.Data[1], 0, 0}, status...)}}, 0
	}
	commands := map[string]bool{}
	for _, driver := range []string{"mlx5_core", "bnxt_en", "ice", "mlx4_en"} {
		for _, change := range []func(*setting){
			func(s *setting) { s.nics["eth3"].pfc.En = 0 },
			func(s *setting) { s.nics["eth3"].pfc.En = 1<<3 | 1<<4 },
			func(s *setting) { s.nics["eth3"].apps = nil },
			func(s *setting) { s.nics["eth3"].apps = []cApp{{5, 2, 26}} },
			func(s *setting) { s.nics["eth3"].buffer = &cBuffer{Size: [8]uint32{262016}} },
			func(s *setting) { s.nics["eth3"].dcbx = 2 | 8 },
			func(s *setting) { // the siblings are the odd ones
				s.each(func(n *nic) { n.apps, n.pfc.En, n.buffer = nil, 0, &cBuffer{Size: [8]uint32{262016}} })
				s.nics["eth3"] = goodNIC()
			},
		} {
			for _, f := range judge(t, "lossless,dscp=26,priority=3", func(s *setting) {
				s.links["/sys/class/net/eth3/device/driver"] = "../../../../bus/pci/drivers/" + driver
				change(s)
			}) {
				for _, m := range dcbCommand.FindAllStringSubmatch(strings.Join(f.Fix, "\n"), -1) {
					for line := range strings.Lines(m[1]) {
						if strings.Contains(line, " dev eth3 ") {
							commands[strings.TrimSpace(line)] = true
						}
						break
					}
				}
			}
		}
	}
	for _, object := range []string{"pfc set", "app add", "app replace", "app flush", "buffer set", "dcbx set"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(commands)), func(c string) bool { return strings.HasPrefix(c, object) }) {
			t.Errorf("no command of dcb %s among %d", object, len(commands))
		}
	}
	for command := range commands {
		t.Run(command, func(t *testing.T) { kernel(k).tool(t, "dcb", strings.Fields(command)...) })
	}
}
