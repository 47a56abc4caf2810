package qos

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

const (
	nicAddr  = "0000:3b:00.0"
	netClass = "/sys/class/net/ens3"
	ccParams = "/sys/kernel/debug/mlx5/" + nicAddr + "/cc_params"
)

func known[T any](v T) fact.Value[T] { return fact.Of(v, "test") }

func address(t testing.TB, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// oneNIC is a node whose only RDMA device, of a driver and transport, has ens3.
func oneNIC(t testing.TB, device, driver string, tr rdma.Transport) *rdma.Facts {
	a := known(address(t, nicAddr))
	return &rdma.Facts{
		Devices: []rdma.Device{{
			Name: device, Dir: "/sys/class/infiniband/" + device, PCI: a, Driver: known(driver), Transport: known(tr),
			Ports: []rdma.Port{{
				Number: 1, NetDev: known("ens3"),
				TrafficClass: fact.Missing[int](fact.Absent, "tc/1/traffic_class", "file does not exist"),
			}},
		}},
		NetDevs: []rdma.NetDev{{Name: "ens3", PCI: a, Master: fact.Missing[string](fact.Absent, "master", "file does not exist")}},
	}
}

func tree(t testing.TB, driver string, files map[string]string) *facttest.Source {
	all := map[string]string{netClass + "/device/driver": "-> ../../../bus/pci/drivers/" + driver}
	maps.Copy(all, files)
	return facttest.Tree(t, all)
}

// answer is a record of the worker about ens3.
func answer(t testing.TB, data any) []fact.Record {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return []fact.Record{{Subject: "ens3", State: fact.Known, Source: "netlink", Data: b}}
}

// ofed writes the files of congestion control that NVIDIA's driver has.
func ofed(np, rp string) map[string]string {
	files := map[string]string{
		netClass + "/ecn/roce_np/cnp_dscp": "48\n", netClass + "/ecn/roce_np/cnp_802p_prio": "6\n",
	}
	for i := range PriorityCount {
		files[netClass+"/ecn/roce_np/enable/"+strconv.Itoa(i)] = np[i:i+1] + "\n"
		files[netClass+"/ecn/roce_rp/enable/"+strconv.Itoa(i)] = rp[i:i+1] + "\n"
	}
	return files
}

// shown is a value and where it was read, or a state and a part of its reason.
func shown[T any](v fact.Value[T]) string {
	if x, ok := v.Get(); ok {
		b, _ := json.Marshal(x)
		return string(b) + " " + v.Source
	}
	return v.State.String() + ": " + v.Reason
}

func TestECN(t *testing.T) {
	denied := map[string]error{}
	for _, f := range []string{"np_cnp_dscp", "np_cnp_prio"} {
		denied[ccParams+"/"+f] = syscall.EACCES
	}
	configfs := "/sys/kernel/config/bnxt_re/rocep1s0/ports/1/cc/"
	debugfs := "/sys/kernel/debug/bnxt_re/" + nicAddr + "/cc_config/"
	noVF := "unsupported: the kernel's own mlx5 driver shows no switch of ECN, NVIDIA's driver does; a VF has none"
	for _, tt := range []struct {
		name, device, driver string
		files                map[string]string
		errs                 map[string]error
		want                 [4]string // NP, RP, CNP DSCP and priority
	}{
		{"mlx5, NVIDIA's driver", "mlx5_0", "mlx5_core", ofed("00010000", "11111111"), nil, [4]string{
			"8 " + netClass + "/ecn/roce_np/enable", "255 " + netClass + "/ecn/roce_rp/enable",
			"48 " + netClass + "/ecn/roce_np/cnp_dscp", "6 " + netClass + "/ecn/roce_np/cnp_802p_prio",
		}},
		{"mlx5, off", "mlx5_0", "mlx5_core", ofed("00000000", "00000000"), nil, [4]string{
			"0 " + netClass + "/ecn/roce_np/enable", "0 " + netClass + "/ecn/roce_rp/enable",
			"48 " + netClass + "/ecn/roce_np/cnp_dscp", "6 " + netClass + "/ecn/roce_np/cnp_802p_prio",
		}},
		{"mlx5, the kernel's driver, root", "mlx5_0", "mlx5_core", map[string]string{ccParams + "/np_cnp_dscp": "48\n", ccParams + "/np_cnp_prio": "6\n"}, nil, [4]string{
			noVF, noVF, "48 " + ccParams + "/np_cnp_dscp", "6 " + ccParams + "/np_cnp_prio",
		}},
		{"mlx5, the kernel's driver, not root", "mlx5_0", "mlx5_core", map[string]string{ccParams + "/np_cnp_dscp": "", ccParams + "/np_cnp_prio": ""}, denied, [4]string{
			noVF, noVF, "denied: permission denied", "denied: permission denied",
		}},
		{"mlx5, nonsense", "mlx5_0", "mlx5_core", func() map[string]string {
			f := ofed("00010000", "00012000")
			f[netClass+"/ecn/roce_np/cnp_dscp"] = "64\n"
			f[netClass+"/ecn/roce_np/cnp_802p_prio"] = "-1\n"
			return f
		}(), nil, [4]string{
			"8 " + netClass + "/ecn/roce_np/enable", `failed: "2": want 0 or 1`,
			`failed: "64": want a number of 0 to 63`, `failed: "-1": want a number of 0 to 7`,
		}},
		{"bnxt, Broadcom's driver", "rocep1s0", "bnxt_en", map[string]string{
			configfs + "ecn_enable": "0x1\n", configfs + "cnp_dscp": "0x30\n", configfs + "cnp_prio": "0x7\n",
			debugfs + "enable_cc": "0\n", // the first place counts
		}, nil, [4]string{
			"255 " + configfs + "ecn_enable", "255 " + configfs + "ecn_enable", "48 " + configfs + "cnp_dscp", "7 " + configfs + "cnp_prio",
		}},
		{"bnxt, the kernel's driver", "rocep1s0", "bnxt_en", map[string]string{
			debugfs + "enable_cc": "0\n", debugfs + "alt_vlan_dscp": "48\n", debugfs + "alt_vlan_pcp": "7\n",
		}, nil, [4]string{
			"0 " + debugfs + "enable_cc", "0 " + debugfs + "enable_cc", "48 " + debugfs + "alt_vlan_dscp", "7 " + debugfs + "alt_vlan_pcp",
		}},
		{"irdma, Intel's driver", "rdmap1s0", "ice", map[string]string{"/sys/module/irdma/parameters/dcqcn_enable": "N\n"}, nil, [4]string{
			"0 /sys/module/irdma/parameters/dcqcn_enable", "0 /sys/module/irdma/parameters/dcqcn_enable",
			"unsupported: the kernel's own irdma driver shows no switch of DCQCN, Intel's does",
			"unsupported: the kernel's own irdma driver shows no switch of DCQCN, Intel's does",
		}},
		{"a driver nobody has heard of", "x0", "x_core", nil, nil, [4]string{
			"unsupported: where this driver shows it is not known", "unsupported: where this driver shows it is not known",
			"unsupported: where this driver shows it is not known", "unsupported: where this driver shows it is not known",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := tree(t, tt.driver, tt.files)
			src.Errors = tt.errs
			e := Collect(t.Context(), src, oneNIC(t, tt.device, tt.driver, rdma.RoCE), nil, Options{Stats: true}).Ports[0].ECN
			got := [4]string{shown(e.NP), shown(e.RP), shown(e.CNPDSCP), shown(e.CNPPriority)}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestToS(t *testing.T) {
	r := oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE)
	r.Devices[0].Ports[0].TrafficClass = fact.Of(106, "tc/1/traffic_class")
	tos := Collect(t.Context(), tree(t, "mlx5_core", map[string]string{
		"/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos":  "104\n",
		"/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode": "RoCE v2\n",
		"/sys/class/infiniband/mlx5_0/ttl/1/ttl":                      "64\n",
	}), r, nil, Options{Stats: true}).Ports[0].ToS
	want := ToS{
		Forced:     fact.Of(106, "/sys/class/infiniband/mlx5_0/tc/1/traffic_class"),
		RDMACM:     fact.Of(104, "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"),
		RDMACMMode: fact.Of("RoCE v2", "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode"),
		TTL:        fact.Of(64, "/sys/class/infiniband/mlx5_0/ttl/1/ttl"),
	}
	if d := cmp.Diff(want, tos); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Where the kernel shows no setting of rdma_cm, what is known of it differs
// (drivers/infiniband/core/cma.c and cma_configfs.c): it is kept with the device,
// from 0 and RoCE v2, and a directory that is gone leaves what was set through it.
func TestRDMACMUnseen(t *testing.T) {
	const (
		config = "/sys/kernel/config"
		ports  = config + "/rdma_cm/mlx5_0/ports/1"
		mkdir  = "sudo mkdir " + config + "/rdma_cm/mlx5_0"
	)
	for name, tt := range map[string]struct {
		files     map[string]string
		errs      map[string]error
		tos, mode string // state: part of the reason
		mark      fact.State
	}{
		"configfs not mounted":       {nil, nil, "unsupported: 0, unless somebody set it; shown only where configfs is mounted (sudo mount -t configfs none " + config + ")", "unsupported: RoCE v2 where the port has that, unless", fact.Unsupported},
		"no directory":               {map[string]string{config + "/rdma_cm/mlx5_1/ports/1/default_roce_tos": "106\n"}, nil, "unsupported: 0, unless somebody set it; shown only once its directory is made: " + mkdir, "unsupported: RoCE v2", fact.Unsupported},
		"rdma_cm without configfs":   {map[string]string{config + "/usb_gadget/x": ""}, nil, "absent: 0: there is no " + config + "/rdma_cm", "absent: RoCE v2", fact.Known},
		"a kernel before 4.11":       {map[string]string{ports + "/default_roce_mode": "IB/RoCE v1\n"}, nil, "absent: this kernel has no such setting: 0", `"IB/RoCE v1" ` + ports, fact.Known},
		"a device rdma_cm is not on": {map[string]string{ports + "/default_roce_tos": ""}, map[string]error{ports + "/default_roce_tos": syscall.ENODEV}, "absent: rdma_cm does not serve this device", "absent:", fact.Known},
		"unreadable":                 {map[string]string{ports + "/default_roce_tos": ""}, map[string]error{ports + "/default_roce_tos": syscall.EACCES}, "denied: permission denied", "absent:", fact.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			src := tree(t, "mlx5_core", tt.files)
			src.Errors = tt.errs
			f := Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), nil, Options{})
			tos := f.Ports[0].ToS
			if got := shown(tos.RDMACM); !strings.HasPrefix(got, tt.tos) {
				t.Errorf("ToS %s, want %s", got, tt.tos)
			}
			if got := shown(tos.RDMACMMode); !strings.HasPrefix(got, tt.mode) {
				t.Errorf("mode %s, want %s", got, tt.mode)
			}
			if m := f.Marks(&f.Ports[0])[2]; m.Program != RDMACM || m.ToS.State != tt.mark || m.ToS.V != 0 || m.Chosen {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestTrustAndZeros(t *testing.T) {
	dcb := func(change func(*DCB)) DCB {
		d := DCB{
			DCBX: known(DCBX{Host: true, IEEE: true}), PFC: known(PFC{MaxClasses: 8}), ETS: known(ETS{MaxClasses: 8}),
			Apps: known([]App{}), Trust: fact.Missing[Trust](fact.Unsupported, "netlink:IEEE_GET", "no trust table"),
		}
		change(&d)
		return d
	}
	dscp := func(d *DCB) { d.Apps = known([]App{{ByEtherType, 0x8915, 4}, {ByDSCP, 26, 3}}) }
	for _, tt := range []struct {
		name, driver string
		files        map[string]string
		dcb          DCB
		trust, pfc   string
	}{
		{"mlx5, a DSCP entry", "mlx5_core", nil, dcb(dscp), `"dscp" test (app table)`, "known"},
		{"mlx5, none", "mlx5_core", nil, dcb(func(*DCB) {}), `"pcp" test (app table)`, "known"},
		{"mlx5, app table not seen", "mlx5_core", nil, dcb(func(d *DCB) {
			d.Apps = fact.Missing[[]App](fact.Unsupported, "netlink:IEEE_GET", "left out")
		}), "unsupported: no trust table", "known"},
		{"MLNX_OFED 4", "mlx5_core", map[string]string{netClass + "/qos/trust": "dscp\n"}, dcb(func(*DCB) {}), `"dscp" ` + netClass + "/qos/trust", "known"},
		{"the kernel's table", "mlx5_core", nil, dcb(func(d *DCB) { d.Trust = known(TrustBoth) }), `"dscp pcp" test`, "known"},
		{"bnxt, nothing set since it was loaded", "bnxt_en", nil, dcb(func(*DCB) {}), "unsupported: no trust table", "unsupported"},
		{"bnxt, PFC set", "bnxt_en", nil, dcb(func(d *DCB) { d.PFC.V.Enabled = 8 }), "unsupported: no trust table", "known"},
		{"bnxt, DCBX by firmware", "bnxt_en", nil, dcb(func(d *DCB) { d.DCBX.V.Host = false }), "unsupported: no trust table", "known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := tree(t, tt.driver, tt.files)
			src.Answers[fact.AskDCB] = answer(t, tt.dcb)
			p := Collect(t.Context(), src, oneNIC(t, "dev0", tt.driver, rdma.RoCE), nil, Options{Stats: true}).Ports[0]
			if shown(p.DCB.Trust) != tt.trust || p.DCB.PFC.State.String() != tt.pfc {
				t.Errorf("trust %s, PFC %s", shown(p.DCB.Trust), shown(p.DCB.PFC))
			}
			if unset := tt.driver == "bnxt_en" && tt.dcb.DCBX.V.Host; unset && p.DCB.Apps.State != fact.Unsupported {
				t.Errorf("an empty app table that nobody set: %s", shown(p.DCB.Apps))
			}
		})
	}
}

// The question as a whole, or the one subject, can fail: every setting says so.
func TestDCBNotAnswered(t *testing.T) {
	for name, tt := range map[string]struct {
		answer []fact.Record
		want   string
	}{
		"a tree":      {nil, "not_collected: dcb: only a live machine can answer"},
		"hung":        {[]fact.Record{{Subject: "ens3", State: fact.Failed, Reason: "netlink DCB IEEE_GET: no answer within 5s"}}, "failed: netlink DCB IEEE_GET: no answer within 5s"},
		"left out":    {[]fact.Record{}, "failed: no answer for this device"},
		"no VF's DCB": {answer(t, DCB{PFC: fact.Value[PFC]{State: fact.Unsupported, Source: "netlink:IEEE_GET", Errno: syscall.EOPNOTSUPP, Reason: "operation not supported"}}), "unsupported: operation not supported"},
		"garbled":     {[]fact.Record{{Subject: "ens3", State: fact.Known, Data: json.RawMessage(`{"pfc":7}`)}}, "failed: unreadable answer: json: cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			src := tree(t, "mlx5_core", nil)
			if tt.answer != nil {
				src.Answers[fact.AskDCB] = tt.answer
			}
			d := Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), nil, Options{Stats: true}).Ports[0].DCB
			if !strings.HasPrefix(shown(d.PFC), tt.want) {
				t.Errorf("%s", shown(d.PFC))
			}
			if name != "no VF's DCB" && !strings.HasPrefix(shown(d.CEEPeerPFC), tt.want) {
				t.Errorf("the last field: %s", shown(d.CEEPeerPFC))
			}
		})
	}
}

// A bond under RoCE LAG: one RDMA device, two ways out, each with its own
// function and files. A leg with a device of its own is not this device's.
func TestBond(t *testing.T) {
	second := "0000:3b:00.1"
	bond := func(devices ...rdma.Device) *rdma.Facts {
		master := known("bond0")
		return &rdma.Facts{
			Devices: devices,
			NetDevs: []rdma.NetDev{
				{Name: "bond0", Slaves: []string{"ens3", "ens4"}, BondMode: fact.Of("802.3ad", "bonding/mode")},
				{Name: "ens3", PCI: known(address(t, nicAddr)), Master: master},
				{Name: "ens4", PCI: known(address(t, second)), Master: master},
			},
		}
	}
	device := func(name, addr, netdev string) rdma.Device {
		return rdma.Device{
			Name: name, PCI: known(address(t, addr)), Driver: known("mlx5_core"), Transport: known(rdma.RoCE),
			Ports: []rdma.Port{{Number: 1, NetDev: known(netdev)}},
		}
	}
	src := tree(t, "mlx5_core", map[string]string{
		"/sys/class/net/ens4/device/driver": "-> ../../bus/pci/drivers/mlx5_core", "/sys/class/net/ens4/ecn/roce_np/cnp_dscp": "40\n",
		netClass + "/ecn/roce_np/cnp_dscp":                        "48\n",
		"/sys/class/net/bond0/bonding/xmit_hash_policy":           "layer3+4 1\n",
		"/sys/kernel/debug/mlx5/" + nicAddr + "/lag/state":        "active\n",
		"/sys/kernel/debug/mlx5/" + second + "/lag/state":         "active\n",
		"/sys/kernel/debug/mlx5/" + second + "/lag/port_sel_mode": "hash\n",
	})
	f := Collect(t.Context(), src, bond(device("mlx5_bond_0", nicAddr, "bond0")), nil, Options{})
	if len(f.Ports) != 2 || f.Ports[0].NetDev != "ens3" || f.Ports[1].NetDev != "ens4" || f.Ports[1].PCI.V.String() != second {
		t.Fatalf("%+v", f.Ports)
	}
	if len(f.Of("mlx5_bond_0", 1)) != 2 || len(f.Of("mlx5_bond_0", 2)) != 0 {
		t.Error("Of")
	}
	l := f.Ports[1].LAG
	got := []string{shown(l.Bond), shown(l.Mode), shown(l.Hash), shown(l.State), shown(l.PortSelect), strings.Join(l.Legs, ","), shown(f.Ports[0].ECN.CNPDSCP), shown(f.Ports[1].ECN.CNPDSCP)}
	want := []string{
		`"bond0" test`, `"802.3ad" /sys/class/net/bond0/bonding/mode`, `"layer3+4" /sys/class/net/bond0/bonding/xmit_hash_policy`,
		`"active" /sys/kernel/debug/mlx5/` + second + "/lag/state", `"hash" /sys/kernel/debug/mlx5/` + second + "/lag/port_sel_mode", "ens3,ens4",
		"48 " + netClass + "/ecn/roce_np/cnp_dscp", "40 /sys/class/net/ens4/ecn/roce_np/cnp_dscp",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	two := Collect(t.Context(), src, bond(device("mlx5_0", nicAddr, "bond0"), device("mlx5_1", second, "bond0")), nil, Options{})
	if len(two.Ports) != 2 || two.Ports[0].NetDev != "ens3" || two.Ports[1].NetDev != "ens4" {
		t.Errorf("two devices on one bond: %+v", two.Ports)
	}
}

// InfiniBand has none of this; a port without an interface and a VF say why.
func TestNotEthernet(t *testing.T) {
	src := tree(t, "mlx5_core", ofed("11111111", "11111111"))
	p := Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.InfiniBand), nil, Options{Stats: true}).Ports[0]
	if p.DCB.PFC.State != fact.Absent || p.ECN.NP.State != fact.Absent || p.ToS.Forced.State != fact.Absent || src.Asked[fact.AskDCB] != 0 {
		t.Errorf("%+v", p)
	}
	r := oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE)
	r.Devices[0].Ports[0].NetDev = fact.Missing[string](fact.Absent, "device/net", "no network interface on this port")
	p = Collect(t.Context(), src, r, nil, Options{Stats: true}).Ports[0]
	if shown(p.DCB.PFC) != "absent: the port has no network interface" || p.NetDir != "" || p.ECN.NP.State != fact.Unsupported || p.LAG.Bond.State != fact.Absent {
		t.Errorf("%+v", p)
	}
	vf := []pci.Function{{Address: address(t, nicAddr), PhysFn: known(address(t, "0000:3a:00.0"))}}
	if p = Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), vf, Options{Stats: true}).Ports[0]; !p.IsVF {
		t.Error("no VF")
	}
}

// broken panics at one question.
type broken struct {
	*facttest.Source
	question string
}

func (b broken) Ask(ctx context.Context, name string, args ...string) ([]fact.Record, error) {
	if name == b.question {
		panic("out of order")
	}
	return b.Source.Ask(ctx, name, args...)
}

// A panic beside the caller comes up in the caller, who knows what to do with it.
func TestPanicReachesCaller(t *testing.T) {
	for _, question := range []string{fact.AskDCB, fact.AskFiles, fact.AskEnviron, fact.AskDevlink} {
		func() {
			defer func() {
				if p := recover(); p != "out of order" {
					t.Errorf("%s: recovered %v", question, p)
				}
			}()
			Collect(t.Context(), broken{tree(t, "mlx5_core", nil), question}, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), nil, Options{})
			t.Errorf("%s: no panic", question)
		}()
	}
}

// Every driver's file can be read, names places with marks that are known, and
// says why there may be none.
func TestDrivers(t *testing.T) {
	all, err := drivers()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mlx5_core", "bnxt_en", "ice", "ionic", "efa", "mana", "hns3", "cxgb4", "rdma_rxe"} {
		d := all[name]
		if d == nil || d.ECN.Unseen == "" {
			t.Errorf("%s: %+v", name, d)
			continue
		}
		p := port{Port: Port{Device: "dev", Number: 1, NetDir: netClass, PCI: known(address(t, nicAddr))}, driver: d}
		for _, f := range p.files() {
			if f != "" && (!strings.HasPrefix(f, "/sys/") || strings.ContainsAny(f, "{}")) {
				t.Errorf("%s: place %q", name, f)
			}
		}
	}
	if driverOf("nobody").ECN.Unseen == "" {
		t.Error("an unknown driver has no reason")
	}
}

// What a job finds: the environment before files, the program's own file before
// the user's and the system's.
func TestJob(t *testing.T) {
	environ := func(vars, files map[string]string) []fact.Record {
		b, err := json.Marshal(Environ{Variables: vars, Files: files})
		if err != nil {
			t.Fatal(err)
		}
		return []fact.Record{{Subject: "self", State: fact.Known, Data: b}}
	}
	system := map[string]string{"/etc/nccl.conf": "NCCL_IB_TC=41\nNCCL_IB_SL=1\nNCCL_DEBUG=INFO\n", "/etc/ucx/ucx.conf": "UCX_IB_TRAFFIC_CLASS=106\n"}
	user := map[string]string{"~/.nccl.conf": "NCCL_IB_TC=96\nNCCL_IB_GID_INDEX=3\n"}
	own := map[string]string{"~/.nccl.conf": "NCCL_IB_GID_INDEX=3\n", "$NCCL_CONF_FILE": "NCCL_IB_TC=52\n", "~/ucx.conf": "UCX_IB_TRAFFIC_CLASS=104\n"}
	for _, tt := range []struct {
		name   string
		env    []fact.Record
		system map[string]string
		want   string
	}{
		{"nothing", environ(nil, nil), nil, ""},
		{"the system's files", environ(nil, nil), system, "NCCL_IB_SL=1 /etc/nccl.conf; NCCL_IB_TC=41 /etc/nccl.conf; UCX_IB_TRAFFIC_CLASS=106 /etc/ucx/ucx.conf"},
		{"the user's", environ(nil, user), system, "NCCL_IB_GID_INDEX=3 ~/.nccl.conf; NCCL_IB_SL=1 /etc/nccl.conf; NCCL_IB_TC=96 ~/.nccl.conf; UCX_IB_TRAFFIC_CLASS=106 /etc/ucx/ucx.conf"},
		{"one of its own in place of the user's", environ(nil, own), system, "NCCL_IB_SL=1 /etc/nccl.conf; NCCL_IB_TC=52 $NCCL_CONF_FILE; UCX_IB_TRAFFIC_CLASS=104 ~/ucx.conf"},
		{"the environment", environ(map[string]string{"NCCL_IB_TC": "106"}, own), nil, "NCCL_IB_TC=106 environment; UCX_IB_TRAFFIC_CLASS=104 ~/ucx.conf"},
		{"a tree", nil, system, "NCCL_IB_SL=1 /etc/nccl.conf; NCCL_IB_TC=41 /etc/nccl.conf; UCX_IB_TRAFFIC_CLASS=106 /etc/ucx/ucx.conf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := tree(t, "mlx5_core", tt.system)
			if tt.env != nil {
				src.Answers[fact.AskEnviron] = tt.env
			}
			job := Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), nil, Options{}).Job
			var got []string
			for _, s := range job.V {
				got = append(got, s.Name+"="+s.Value+" "+s.Source)
			}
			if strings.Join(got, "; ") != tt.want || job.State != fact.Known {
				t.Errorf("%s: %s", job.State, strings.Join(got, "; "))
			}
		})
	}
	src := tree(t, "mlx5_core", system)
	src.Errors = map[string]error{"/etc/nccl.conf": syscall.EACCES}
	if job := Collect(t.Context(), src, oneNIC(t, "mlx5_0", "mlx5_core", rdma.RoCE), nil, Options{}).Job; job.State != fact.Denied || job.Source != "/etc/nccl.conf" {
		t.Errorf("%+v", job)
	}
}

func FuzzPlaces(f *testing.F) {
	for _, s := range []string{"0", "1", "0x1", "Y", "N", "48", "0x30", "-1", "layer2 0", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseNumber(s, 63); err == nil && (n < 0 || n > 63) {
			t.Errorf("%q: %d", s, n)
		}
		if on, err := parseSwitch(s); err != nil && on {
			t.Errorf("%q is on", s)
		}
	})
}

func TestPriorities(t *testing.T) {
	for p, want := range map[Priorities][2]string{
		0: {"none", "0,0,0,0,0,0,0,0"}, 1 << 3: {"3", "0,0,0,1,0,0,0,0"}, 1<<3 | 1<<6: {"3,6", "0,0,0,1,0,0,1,0"}, 255: {"0,1,2,3,4,5,6,7", "1,1,1,1,1,1,1,1"},
	} {
		if p.String() != want[0] || p.Mask() != want[1] || p.Count() != strings.Count(want[1], "1") {
			t.Errorf("%d: %s %s", p, p, p.Mask())
		}
	}
	if Priorities(255).Has(8) || Priorities(255).Has(-1) || !Priorities(255).Has(7) {
		t.Error("Has")
	}
}

func TestPriorityOf(t *testing.T) {
	apps := []App{{ByDSCP, 26, 3}, {ByDatagram, 26, 7}, {ByDSCP, 26, 5}, {ByDSCP, 0, 0}}
	for dscp, want := range map[int]struct {
		prio  int
		table bool
	}{26: {5, true}, 0: {0, true}, 48: {6, false}, 63: {7, false}} {
		if p, by := PriorityOf(apps, dscp); p != want.prio || by != want.table {
			t.Errorf("DSCP %d: %d %v", dscp, p, by)
		}
	}
	if DSCP(106) != 26 || DSCP(104) != 26 || DSCP(255) != 63 {
		t.Error("DSCP")
	}
}
