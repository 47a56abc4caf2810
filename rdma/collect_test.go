package rdma

import (
	"encoding/json"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/pci"
)

func known[T any](v T) fact.Value[T] { return fact.Of(v, "test") }

func addr(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func function(t *testing.T, s string, vendor, device pci.ID) pci.Function {
	a := addr(t, s)
	return pci.Function{
		Address: a, Dir: "/sys/bus/pci/devices/" + s, Vendor: known(vendor), Device: known(device), NUMANode: known(1),
	}
}

// slotFile writes one slot of a GID table as the kernel does: type and netdev
// of an empty one answer EINVAL.
func slotFile(files map[string]string, errs map[string]error, dev, slot, gid, kind, netdev string) {
	port := classDir + "/" + dev + "/ports/1"
	files[port+"/gids/"+slot] = gid + "\n"
	for path, text := range map[string]string{
		port + "/gid_attrs/types/" + slot: kind, port + "/gid_attrs/ndevs/" + slot: netdev,
	} {
		files[path] = text + "\n"
		delete(errs, path)
		if text == "" {
			errs[path] = syscall.EINVAL
		}
	}
}

// device writes a device below a sysfs path and its class link.
func device(files map[string]string, path, name string, attrs map[string]string) {
	files[classDir+"/"+name] = "-> ../../devices/" + path + "/infiniband/" + name
	for k, v := range attrs {
		files["/sys/devices/"+path+"/infiniband/"+name+"/"+k] = v
	}
}

// node is a machine with every way that an RDMA device hangs on the PCI tree.
func node(t *testing.T) (*facttest.Source, []pci.Function) {
	files := map[string]string{
		"/sys/class/net/bonding_masters":                             "bond0\n",
		"/sys/class/net/ib0":                                         "-> ../../devices/pci0000:10/0000:10:01.0/0000:3b:00.0/net/ib0",
		"/sys/devices/pci0000:10/0000:10:01.0/0000:3b:00.0/net/ib0/": "",
		"/sys/class/net/eth10":                                       "-> ../../devices/pci0000:10/0000:10:01.0/0000:3b:00.1/net/eth10",
		"/sys/class/net/eth2":                                        "-> ../../devices/pci0000:10/0000:10:02.0/0000:40:00.0/virtio1/net/eth2",
		"/sys/class/net/v0":                                          "-> ../../devices/virtual/net/v0",
		"/sys/class/net/dummy0":                                      "-> ../../devices/virtual/net/dummy0",
		"/sys/devices/virtual/net/dummy0/mtu":                        "1500\n",
		"/sys/class/net/bond0":                                       "-> ../../devices/virtual/net/bond0",
		"/sys/devices/virtual/net/bond0/bonding/slaves":              "eth10 eth2\n",
		"/sys/devices/virtual/net/bond0/bonding/mode":                "802.3ad 4\n",
		"/sys/devices/virtual/net/bond0/upper_bond0.100":             "-> ../bond0.100",
		"/sys/devices/virtual/net/bond0.100/uevent":                  "DEVTYPE=vlan\nINTERFACE=bond0.100\n",
		"/sys/devices/virtual/net/bond0.100/lower_bond0":             "-> ../bond0",
		"/sys/class/net/bond0.100":                                   "-> ../../devices/virtual/net/bond0.100",
		"/sys/devices/virtual/net/v0/lower_eth2":                     "-> ../../../pci0000:10/0000:10:02.0/0000:40:00.0/virtio1/net/eth2",
		"/sys/devices/virtual/net/v0/mtu":                            "9000\n",
		"/lib/x86_64-linux-gnu/libibverbs.so.1":                      "-> libibverbs.so.1.14.44.0",
		"/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0":              "",
		"/proc/self/status":                                          "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t\nCapEff:\t0\n",
		"/sys/bus/pci/devices/0000:3b:00.0":                          "-> ../../../devices/pci0000:10/0000:10:01.0/0000:3b:00.0",
		"/sys/bus/pci/drivers/mlx5_core/":                            "",
	}
	const ib = "pci0000:10/0000:10:01.0/0000:3b:00.0"
	device(files, ib, "mlx5_0", map[string]string{
		"device": "-> ../../../0000:3b:00.0", "node_type": "1: CA\n", "node_desc": "host HCA-1\n", "fw_ver": "28.39.1002\n",
		"board_id": "MT_0000000838\n", "hca_type": "MT4129\n", "node_guid": "946d:ae03:00cd:e72c\n", "sys_image_guid": "946d:ae03:00cd:e72c\n",
		"ports/1/state": "4: ACTIVE\n", "ports/1/phys_state": "5: LinkUp\n", "ports/1/rate": "400 Gb/sec (4X NDR)\n",
		"ports/1/link_layer": "InfiniBand\n", "ports/1/lid": "0x4b\n", "ports/1/sm_lid": "0x14e\n", "ports/1/cap_mask": "0xa751e848\n",
		"ports/1/pkeys/0": "0xffff\n", "ports/1/pkeys/1": "0x0000\n", "ports/1/pkeys/10": "0x8001\n",
		"ports/1/counters/port_xmit_data": "18446744073709551615\n", "ports/1/hw_counters/lifespan": "10\n", "ports/1/hw_counters/out_of_sequence": "7\n",
	})
	files["/sys/devices/"+ib+"/driver"] = "-> ../../../../bus/pci/drivers/mlx5_core"
	files["/sys/devices/"+ib+"/net/ib0/dev_port"] = "0\n"
	files["/sys/devices/"+ib+"/net/ib0/type"] = "32\n"
	files["/sys/devices/"+ib+"/net/ib0/speed"] = "-1\n"
	files["/sys/devices/"+ib+"/net/ib0/mtu"] = "4092\n"

	const roce = "pci0000:10/0000:10:01.0/0000:3b:00.1"
	device(files, roce+"/mlx5_core.sf.4", "mlx5_10", map[string]string{
		"device": "-> ../../../mlx5_core.sf.4", "node_type": "1: CA\n", "fw_ver": "28.39.1002\n", "ports/1/link_layer": "Ethernet\n",
	})
	files["/sys/devices/"+roce+"/net/eth10/mtu"] = "4200\n"
	files["/sys/devices/"+roce+"/net/eth10/speed"] = "400000\n"
	files["/sys/devices/"+roce+"/net/eth10/carrier"] = "1\n"
	files["/sys/devices/"+roce+"/net/eth10/master"] = "-> ../../../../../virtual/net/bond0"
	files["/sys/devices/pci0000:10/0000:10:02.0/0000:40:00.0/virtio1/net/eth2/mtu"] = "1500\n"
	device(files, "pci0000:10/0000:10:01.0/0000:3b:02.1", "mlx5_2", map[string]string{
		"device": "-> ../../../0000:3b:02.1", "node_type": "1: CA\n", "ports/1/link_layer": "InfiniBand\n", "ports/1/state": "1: DOWN\n",
	})
	device(files, "virtual", "rxe0", map[string]string{
		"parent": "v0\n", "node_type": "1: CA\n", "ports/1/link_layer": "Ethernet\n", "ports/1/state": "4: ACTIVE\n",
	})
	device(files, "virtual", "siw0", map[string]string{
		"node_type": "4: RNIC\n", "node_desc": "Software iWARP stack\n", "ports/1/link_layer": "Ethernet\n",
		"ports/1/gids/0": "0200:0000:0000:0000:0000:0000:0000:0000\n", "ports/1/gid_attrs/ndevs/0": "eth2\n",
	})
	device(files, "pci0000:10/0000:10:03.0/0000:50:00.0", "rdmap80s0", map[string]string{
		"device": "-> ../../../0000:50:00.0", "node_type": "7: unspecified\n", "ports/1/link_layer": "Unspecified\n",
	})
	files["/sys/devices/pci0000:10/0000:10:03.0/0000:50:00.0/driver"] = "-> ../../../../bus/pci/drivers/efa"
	files["/sys/bus/pci/drivers/efa/"] = ""
	for dev, ibdev := range map[string]string{"uverbs0": "mlx5_0", "uverbs1": "mlx5_10", "uverbs2": "gone"} {
		files["/sys/class/infiniband_verbs/"+dev+"/ibdev"] = ibdev + "\n"
		files["/sys/class/infiniband_verbs/"+dev+"/dev"] = "231:19" + dev[len(dev)-1:] + "\n"
	}
	files["/sys/class/infiniband_verbs/abi_version"] = "6\n"
	files["/sys/class/infiniband_mad/umad0/ibdev"] = "mlx5_0\n"
	files["/sys/class/infiniband_mad/issm0/ibdev"] = "mlx5_0\n"
	files["/dev/infiniband/uverbs0"] = ""

	vf := function(t, "0000:3b:02.1", 0x15b3, 0x101e)
	vf.PhysFn = known(addr(t, "0000:3b:00.0"))
	return facttest.Tree(t, files), []pci.Function{
		function(t, "0000:3b:00.0", 0x15b3, 0x1021), function(t, "0000:3b:00.1", 0x15b3, 0x1021), vf,
		function(t, "0000:50:00.0", 0x1d0f, 0xefa2),
	}
}

func TestCollectDevices(t *testing.T) {
	src, functions := node(t)
	f := Collect(t.Context(), src, functions, Options{})
	type row struct {
		Name, PCI, Driver string
		Transport         Transport
		Software          bool
		Model             string
		VF                bool
		NUMA              int
		NetDev            string
	}
	want := []row{
		{"mlx5_0", "0000:3b:00.0", "mlx5_core", InfiniBand, false, "ConnectX-7", false, 1, "ib0"},
		{"mlx5_2", "0000:3b:02.1", "", InfiniBand, false, "ConnectX-7", true, 1, ""},
		{"mlx5_10", "0000:3b:00.1", "", RoCE, false, "ConnectX-7", false, 1, "eth10"},
		{"rdmap80s0", "0000:50:00.0", "efa", EFA, false, "AWS EFA gen2", false, 1, ""},
		{"rxe0", "0000:40:00.0", "rdma_rxe", RoCE, true, "", false, 0, "v0"},
		{"siw0", "0000:40:00.0", "siw", IWARP, true, "", false, 0, "eth2"},
	}
	var got []row
	for _, d := range f.Devices {
		got = append(got, row{
			d.Name, d.PCI.V.String(), d.Driver.V, d.Transport.V, d.Software, d.Model.V.Name, d.Model.V.IsVF, d.NUMANode.V, d.Ports[0].NetDev.V,
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if f.LibIBVerbs.V != "1.14.44.0" {
		t.Errorf("libibverbs %+v", f.LibIBVerbs)
	}
}

func TestCollectPort(t *testing.T) {
	src, functions := node(t)
	f := Collect(t.Context(), src, functions, Options{})
	p := f.Devices[0].Ports[0]
	if p.State.V != "ACTIVE" || p.PhysState.V != "LinkUp" || p.Rate.V.BitsPerSec != 400e9 || p.LID.V != 75 || p.SMLID.V != 334 || p.CapMask.V != 0xa751e848 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff([]PKey{{0, 0xffff}, {10, 0x8001}}, p.PKeys.V); diff != "" {
		t.Error(diff)
	}
	want := []Counter{
		{Name: "port_xmit_data", Value: fact.Of(uint64(1<<64-1), "ports/1/counters/port_xmit_data")},
		{Name: "out_of_sequence", Value: fact.Of(uint64(7), "ports/1/hw_counters/out_of_sequence")},
	}
	if diff := cmp.Diff(want, p.Counters); diff != "" {
		t.Error(diff)
	}
	// No verbs here: RoCE's MTU follows from the netdev, InfiniBand's from nothing.
	if p.ActiveMTU.State != fact.NotCollected || f.Devices[2].Ports[0].ActiveMTU.V != 4096 || f.Devices[4].Ports[0].ActiveMTU.V != 4096 {
		t.Errorf("MTUs: %+v, %+v", p.ActiveMTU, f.Devices[2].Ports[0].ActiveMTU)
	}
	quiet := Collect(t.Context(), src, functions, Options{SkipCounters: true})
	if n := len(quiet.Devices[0].Ports[0].Counters); n != 0 || quiet.Devices[0].Ports[0].State.V != "ACTIVE" {
		t.Errorf("%d counters though skipped", n)
	}
}

func TestCollectNetDevs(t *testing.T) {
	src, functions := node(t)
	src.Errors["/sys/class/net/eth2/speed"] = syscall.EINVAL
	src.Errors["/sys/class/net/eth2/carrier"] = syscall.EINVAL
	f := Collect(t.Context(), src, functions, Options{})
	byName := map[string]NetDev{}
	var names []string
	for _, n := range f.NetDevs {
		byName[n.Name] = n
		names = append(names, n.Name)
	}
	// dummy0 belongs to nothing.
	if diff := cmp.Diff([]string{"bond0", "bond0.100", "eth2", "eth10", "ib0", "v0"}, names); diff != "" {
		t.Fatal(diff)
	}
	if n := byName["eth10"]; n.PCI.V.String() != "0000:3b:00.1" || n.SpeedMbps.V != 400000 || n.MTU.V != 4200 || !n.Carrier.V || n.Master.V != "bond0" {
		t.Errorf("eth10 %+v", n)
	}
	if n := byName["eth2"]; n.PCI.V.String() != "0000:40:00.0" || n.SpeedMbps.State != fact.Absent || n.Carrier.State != fact.Absent {
		t.Errorf("eth2 %+v", n)
	}
	if n := byName["bond0"]; n.BondMode.V != "802.3ad" || !cmp.Equal(n.Slaves, []string{"eth2", "eth10"}) {
		t.Errorf("bond0 %+v", n)
	}
	if n := byName["ib0"]; n.Type.V != 32 || n.SpeedMbps.State != fact.Absent {
		t.Errorf("ib0 %+v", n)
	}
}

func TestCollectCharDevices(t *testing.T) {
	src, functions := node(t)
	f := Collect(t.Context(), src, functions, Options{})
	d := f.Devices[0]
	if len(d.Uverbs) != 1 || d.Uverbs[0].Name != "uverbs0" || d.Uverbs[0].Dev.V != "231:190" || d.Uverbs[0].Node.State != fact.Known {
		t.Fatalf("%+v", d.Uverbs)
	}
	// 0644 and not the owner's (tests that run as uid 1000 own the file).
	if a, ok := d.Uverbs[0].Access.Get(); !ok || a != (d.Uverbs[0].Node.V.UID == 1000) {
		t.Errorf("access %+v of %+v", d.Uverbs[0].Access, d.Uverbs[0].Node.V)
	}
	if len(d.Umad) != 1 || d.Umad[0].Name != "umad0" {
		t.Errorf("umad %+v", d.Umad)
	}
	if u := f.Devices[2].Uverbs[0]; u.Node.State != fact.Absent || u.Access.State != fact.Absent {
		t.Errorf("a missing node: %+v", u)
	}
	if DevNumber(231<<8|192) != "231:192" {
		t.Error(DevNumber(231<<8 | 192))
	}
}

func TestCollectAsks(t *testing.T) {
	src, functions := node(t)
	data := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	src.Answers[fact.AskVerbs] = []fact.Record{
		{Subject: "mlx5_0", State: fact.Known, Source: "verbs", Data: data(VerbsProbe{Ports: []VerbsPort{{Number: 1, ActiveMTUBytes: 2048, MaxMTUBytes: 4096}}})},
		{Subject: "mlx5_10", State: fact.Failed, Reason: "ibv_open_device did not answer"},
	}
	src.Answers[fact.AskRDMAMap] = []fact.Record{{Subject: "mlx5_0", State: fact.Known, Data: data(MapEntry{Ports: []string{"1"}})}}
	f := Collect(t.Context(), src, functions, Options{})
	p := f.Devices[0].Ports[0]
	if p.ActiveMTU != fact.Of(2048, "verbs:ibv_query_port") || p.MaxMTU.V != 4096 {
		t.Errorf("MTU %+v, %+v", p.ActiveMTU, p.MaxMTU)
	}
	if f.Devices[0].RDMAMap.V.Ports[0] != "1" || f.Devices[1].RDMAMap.State != fact.Failed {
		t.Errorf("rdmamap %+v, %+v", f.Devices[0].RDMAMap, f.Devices[1].RDMAMap)
	}
	if v := f.Devices[2].Verbs; v.State != fact.Failed || v.Reason != "ibv_open_device did not answer" {
		t.Errorf("verbs %+v", v)
	}
	for q, n := range src.Asked {
		if n != 1 {
			t.Errorf("%s asked %d times", q, n)
		}
	}
}

// A broken device costs itself, and every failed read keeps its cause.
func TestCollectBroken(t *testing.T) {
	src, functions := node(t)
	dir := classDir + "/mlx5_0/"
	for _, f := range []string{"ports/1/state", "ports/1/pkeys/1", "fw_ver"} {
		src.Errors[dir+f] = syscall.EIO
	}
	src.Errors[dir+"board_id"] = syscall.EACCES
	src.Errors[dir+"ports/1/hw_counters/out_of_sequence"] = syscall.EINVAL
	f := Collect(t.Context(), src, functions, Options{})
	d := f.Devices[0]
	p := d.Ports[0]
	if p.State.State != fact.Failed || p.State.Errno != syscall.EIO || p.PKeys.State != fact.Failed || d.Firmware.State != fact.Failed || d.BoardID.State != fact.Denied {
		t.Errorf("state %+v, P_Keys %+v, fw %+v, board %+v", p.State, p.PKeys, d.Firmware, d.BoardID)
	}
	if c := p.Counters[1]; c.Value.State != fact.Unsupported {
		t.Errorf("counter %+v", c)
	}
	if len(f.Devices) != 6 || f.Devices[1].Ports[0].State.V != "DOWN" || f.Devices[4].Ports[0].State.V != "ACTIVE" {
		t.Error("the other devices suffered")
	}
	src.Errors["/sys/class/infiniband_verbs"] = syscall.EACCES
	if u := Collect(t.Context(), src, functions, Options{}).Devices[0].Uverbs; len(u) != 1 || u[0].Node.State != fact.Denied {
		t.Errorf("uverbs that cannot be listed: %+v", u)
	}
	src.Errors[classDir] = syscall.EACCES
	if f := Collect(t.Context(), src, functions, Options{}); f.Listed.State != fact.Denied || len(f.Devices) != 0 {
		t.Errorf("%+v", f.Listed)
	}
	if f := Collect(t.Context(), facttest.Tree(t, map[string]string{"/sys/bus/": ""}), nil, Options{}); f.Listed.State != fact.NotCollected {
		t.Errorf("%+v", f.Listed)
	}
	empty := Collect(t.Context(), facttest.Tree(t, map[string]string{"/sys/class/net/": ""}), nil, Options{})
	if empty.Listed.State != fact.Absent || empty.LibIBVerbs.State != fact.Absent || empty.RDMACM.Node.State != fact.Absent {
		t.Errorf("%+v", empty)
	}
}

func TestDataDirect(t *testing.T) {
	files := map[string]string{}
	var functions []pci.Function
	for i, v3 := range []string{"uuid-a", "uuid-b", "uuid-c"} {
		slot := strconv.Itoa(i + 1)
		nic := "0000:0" + slot + ":00.0"
		device(files, "pci0000:00/"+nic, "mlx5_"+strconv.Itoa(i), map[string]string{"device": "-> ../../../" + nic})
		functions = append(functions, function(t, nic, 0x15b3, 0x1023))
		files["/sys/bus/pci/devices/"+nic+"/vpd"] = vpd("V3", v3)
	}
	for i, v3 := range []string{"uuid-b", "uuid-a"} {
		dd := "0000:a" + strconv.Itoa(i) + ":00.0"
		functions = append(functions, function(t, dd, 0x15b3, 0x2100))
		files["/sys/bus/pci/devices/"+dd+"/vpd"] = vpd("V3", v3)
	}
	src := facttest.Tree(t, files)
	d := Collect(t.Context(), src, functions, Options{}).Devices
	if d[0].DataDirect.V.String() != "0000:a1:00.0" || d[1].DataDirect.V.String() != "0000:a0:00.0" || d[2].DataDirect.State != fact.Absent {
		t.Errorf("%+v, %+v, %+v", d[0].DataDirect, d[1].DataDirect, d[2].DataDirect)
	}
	// Without root no VPD can be read: nobody can say that there is no partner.
	src.Errors["/sys/bus/pci/devices/0000:a0:00.0/vpd"] = syscall.EACCES
	d = Collect(t.Context(), src, functions, Options{}).Devices
	if d[0].DataDirect.State != fact.Known || d[1].DataDirect.State != fact.Denied {
		t.Errorf("%+v, %+v", d[0].DataDirect, d[1].DataDirect)
	}
	// A NIC that can have one, on a machine that has none.
	d = Collect(t.Context(), src, functions[:3], Options{}).Devices
	if d[0].DataDirect.State != fact.Absent {
		t.Errorf("%+v", d[0].DataDirect)
	}
}

// Without the PCI tree the model follows from hca_type, the PCI id in decimal
// (MT4129 is 15b3:1021 in pci.ids).
func TestModelByType(t *testing.T) {
	for hca, want := range map[string]string{"MT4129": "ConnectX-7", "MT4119": "ConnectX-5", "MT4131": "ConnectX-8", "MT1": "", "4129": "", "": ""} {
		if m, ok := modelByType(hca); m.Name != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", hca, m.Name, ok)
		}
	}
}

func TestModelTable(t *testing.T) {
	table, err := nics()
	if err != nil || len(table) < 100 {
		t.Fatalf("%d models, %v", len(table), err)
	}
	f := function(t, "0000:01:00.0", 0x1dd8, 0x1002)
	if m := findModel(&f, ""); m.V.Name != "AMD Pensando DSC" {
		t.Errorf("%+v", m)
	}
	f.SubsystemVendor, f.SubsystemDevice = known(pci.ID(0x1dd8)), known(pci.ID(0x5201))
	if m := findModel(&f, ""); m.V.MaxGbps != 400 {
		t.Errorf("%+v", m)
	}
	f = function(t, "0000:01:00.0", 0x8086, 0x1234)
	if m := findModel(&f, ""); m.State != fact.Absent {
		t.Errorf("%+v", m)
	}
	f.Vendor = fact.Missing[pci.ID](fact.Failed, "vendor", "input/output error")
	if m := findModel(&f, ""); m.State != fact.Failed {
		t.Errorf("%+v", m)
	}
	for _, device := range mlx5Generation {
		if _, ok := table[nicKey{mellanox, device, 0}]; !ok {
			t.Errorf("generation %s is not in the table", device)
		}
	}
}
