package lab

import (
	"encoding/xml"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/pci"
)

// hwlocObject is an object of lstopo's XML (hwloc 2).
type hwlocObject struct {
	Type    string        `xml:"type,attr"`
	Nodeset string        `xml:"nodeset,attr"`
	BusID   string        `xml:"pci_busid,attr"`
	Objects []hwlocObject `xml:"object"`
}

// hwlocFunction is where hwloc sees a PCI function.
type hwlocFunction struct {
	parent pci.Address // the bridge above; zero below a host bridge
	nodes  uint64      // NUMA nodes near it, one bit each
}

// parseHwloc returns the PCI functions of lstopo's XML.
func parseHwloc(t *testing.T, text string) map[pci.Address]hwlocFunction {
	t.Helper()
	var topology struct {
		Objects []hwlocObject `xml:"object"`
	}
	if err := xml.Unmarshal([]byte(text), &topology); err != nil {
		t.Fatal(err)
	}
	out := map[pci.Address]hwlocFunction{}
	var walk func(list []hwlocObject, at hwlocFunction)
	walk = func(list []hwlocObject, at hwlocFunction) {
		for _, o := range list {
			here := at
			if o.Nodeset != "" {
				n, err := strconv.ParseUint(strings.TrimPrefix(o.Nodeset, "0x"), 16, 64)
				if err != nil {
					t.Fatalf("nodeset %q: %v", o.Nodeset, err)
				}
				here.nodes = n
			}
			if o.BusID != "" {
				addr := address(t, o.BusID)
				out[addr] = here
				here.parent = addr
			}
			walk(o.Objects, here)
		}
	}
	walk(topology.Objects, hwlocFunction{})
	if len(out) == 0 {
		t.Fatal("lstopo's XML has no PCI function")
	}
	return out
}

// ibvDevice is what "ibv_devinfo -v" says of a device with one port.
type ibvDevice struct {
	firmware, nodeGUID            string
	state, linkLayer              string
	maxMTU, activeMTU, smLID, lid int
	gidTable                      int
	gids                          map[int]ibvGID // filled entries
}

type ibvGID struct {
	addr netip.Addr
	kind string // "RoCE v2"
}

var ibvGIDRE = regexp.MustCompile(`^GID\[\s*(\d+)\]:\s+(\S+), (.*)$`)

func parseIBVDevinfo(t *testing.T, text string) map[string]*ibvDevice {
	t.Helper()
	out := map[string]*ibvDevice{}
	var d *ibvDevice
	for sc := lines(text); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if m := ibvGIDRE.FindStringSubmatch(line); m != nil {
			addr, err := netip.ParseAddr(m[2])
			if err != nil {
				t.Fatal(err)
			}
			d.gids[number(t, m[1])] = ibvGID{addr, m[3]}
			continue
		}
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		word, _, _ := strings.Cut(value, " ")
		switch key {
		case "hca_id":
			d = &ibvDevice{gids: map[int]ibvGID{}}
			out[value] = d
		case "fw_ver":
			d.firmware = value
		case "node_guid":
			d.nodeGUID = value
		case "state":
			d.state = word
		case "link_layer":
			d.linkLayer = value
		case "max_mtu":
			d.maxMTU = number(t, word)
		case "active_mtu":
			d.activeMTU = number(t, word)
		case "sm_lid":
			d.smLID = number(t, word)
		case "port_lid":
			d.lid = number(t, word)
		case "gid_tbl_len":
			d.gidTable = number(t, word)
		}
	}
	if len(out) == 0 {
		t.Fatalf("no device in ibv_devinfo's output: %.200s", text)
	}
	return out
}

// rdmaLink is a line of "rdma -j link".
type rdmaLink struct {
	Name          string `json:"ifname"`
	Port          int    `json:"port"`
	State         string `json:"state"`
	PhysicalState string `json:"physical_state"`
	NetDev        string `json:"netdev"`
}

// ipLink is a line of "ip -j link".
type ipLink struct {
	Name      string   `json:"ifname"`
	MTU       int      `json:"mtu"`
	OperState string   `json:"operstate"`
	Address   string   `json:"address"`
	Flags     []string `json:"flags"`
}

func TestParseHwloc(t *testing.T) {
	const text = `<topology version="2.0"><object type="Machine" nodeset="0x00000003">
	<object type="Package" nodeset="0x00000002">
	  <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[80-82]">
	    <object type="Bridge" bridge_type="1-1" pci_busid="0000:80:00.0"><object type="PCIDev" pci_busid="0000:81:00.0"/></object>
	  </object>
	</object>
	<object type="Bridge" bridge_type="0-1"><object type="PCIDev" pci_busid="0000:00:1f.0"/></object>
	</object></topology>`
	got := parseHwloc(t, text)
	want := map[pci.Address]hwlocFunction{
		address(t, "0000:80:00.0"): {pci.Address{}, 2},
		address(t, "0000:81:00.0"): {address(t, "0000:80:00.0"), 2},
		address(t, "0000:00:1f.0"): {pci.Address{}, 3},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(hwlocFunction{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseIBVDevinfo(t *testing.T) {
	const text = "hca_id:\trxe0\n\tfw_ver:\t\t1.2\n\tnode_guid:\t\t5054:00ff:fe12:3456\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n" +
		"\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tsm_lid:\t\t\t7\n\t\t\tport_lid:\t\t9\n\t\t\tlink_layer:\t\tEthernet\n\t\t\tgid_tbl_len:\t\t1024\n" +
		"\t\t\tGID[  1]:\t\t::ffff:10.1.0.1, RoCE v2\n"
	got := parseIBVDevinfo(t, text)
	want := map[string]*ibvDevice{"rxe0": {
		firmware: "1.2", nodeGUID: "5054:00ff:fe12:3456", state: "PORT_ACTIVE", linkLayer: "Ethernet",
		maxMTU: 4096, activeMTU: 1024, smLID: 7, lid: 9, gidTable: 1024,
		gids: map[int]ibvGID{1: {netip.MustParseAddr("::ffff:10.1.0.1"), "RoCE v2"}},
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(ibvDevice{}, ibvGID{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
