package netif

import (
	"encoding/json"
	"slices"
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

const nicAddr = "0000:3b:00.0"

func handle(address string) []byte {
	return append(attr(unix.DEVLINK_ATTR_BUS_NAME, str("pci")), attr(unix.DEVLINK_ATTR_DEV_NAME, str(address))...)
}

func version(kind int, name, value string) []byte {
	return attr(kind, attr(unix.DEVLINK_ATTR_INFO_VERSION_NAME, str(name)), attr(unix.DEVLINK_ATTR_INFO_VERSION_VALUE, str(value)))
}

func paramValue(mode uint8, data ...[]byte) []byte {
	in := [][]byte{}
	for _, d := range data {
		in = append(in, attr(unix.DEVLINK_ATTR_PARAM_VALUE_DATA, d))
	}
	in = append(in, attr(unix.DEVLINK_ATTR_PARAM_VALUE_CMODE, u8(mode)))
	return attr(unix.DEVLINK_ATTR_PARAM_VALUE, in...)
}

func param(name string, kind uint8, values ...[]byte) []byte {
	return slices.Concat(handle(nicAddr), attr(unix.DEVLINK_ATTR_PARAM,
		attr(unix.DEVLINK_ATTR_PARAM_NAME, str(name)), attr(unix.DEVLINK_ATTR_PARAM_GENERIC), attr(unix.DEVLINK_ATTR_PARAM_TYPE, u8(kind)),
		attr(unix.DEVLINK_ATTR_PARAM_VALUES_LIST, values...)))
}

// devlinkKernel has a ConnectX-7 at nicAddr: firmware that waits for a reset,
// RoCE to be off after the next reload, switchdev.
func devlinkKernel(t testing.TB) kernel {
	params := map[string][]byte{
		"enable_roce":   param("enable_roce", nlaFlag, paramValue(1), paramValue(2, nil)),
		"esw_multiport": param("esw_multiport", nlaFlag, paramValue(0)),
	}
	ports := [][]byte{
		slices.Concat(handle(nicAddr), attr(unix.DEVLINK_ATTR_PORT_INDEX, u32(65535)), attr(unix.DEVLINK_ATTR_PORT_TYPE, c(uint16(2))),
			attr(unix.DEVLINK_ATTR_PORT_NETDEV_NAME, str("ens3np0")), attr(unix.DEVLINK_ATTR_PORT_FLAVOUR, c(uint16(0)))),
		slices.Concat(handle(nicAddr), attr(unix.DEVLINK_ATTR_PORT_INDEX, u32(2)), attr(unix.DEVLINK_ATTR_PORT_TYPE, c(uint16(2))),
			attr(unix.DEVLINK_ATTR_PORT_NETDEV_NAME, str("ens3pf0vf1")), attr(unix.DEVLINK_ATTR_PORT_FLAVOUR, c(uint16(4)))),
		slices.Concat(attr(unix.DEVLINK_ATTR_BUS_NAME, str("auxiliary")), attr(unix.DEVLINK_ATTR_DEV_NAME, str("mlx5_core.sf.4")), attr(unix.DEVLINK_ATTR_PORT_INDEX, u32(1))),
	}
	info := slices.Concat(handle(nicAddr), attr(unix.DEVLINK_ATTR_INFO_DRIVER_NAME, str("mlx5_core")), attr(unix.DEVLINK_ATTR_INFO_SERIAL_NUMBER, str("MT0123456789")),
		version(unix.DEVLINK_ATTR_INFO_VERSION_FIXED, "fw.psid", "MT_0000000838"),
		version(unix.DEVLINK_ATTR_INFO_VERSION_RUNNING, "fw.version", "28.39.1002"), version(unix.DEVLINK_ATTR_INFO_VERSION_STORED, "fw.version", "28.41.1000"))
	return genlKernel(t, unix.DEVLINK_GENL_NAME, func(cmd uint8, attrs []byte) (uint8, [][]byte, syscall.Errno) {
		var dev, name string
		_ = attributes(attrs, func(ad *netlink.AttributeDecoder) error {
			switch ad.Type() {
			case unix.DEVLINK_ATTR_DEV_NAME:
				dev = ad.String()
			case unix.DEVLINK_ATTR_PARAM_NAME:
				name = ad.String()
			}
			return nil
		})
		if cmd == unix.DEVLINK_CMD_PORT_GET {
			return unix.DEVLINK_CMD_PORT_NEW, ports, 0
		}
		if dev != nicAddr {
			return 0, nil, unix.ENODEV
		}
		switch cmd {
		case unix.DEVLINK_CMD_INFO_GET:
			return cmd, [][]byte{info}, 0
		case unix.DEVLINK_CMD_ESWITCH_GET:
			return cmd, [][]byte{slices.Concat(handle(nicAddr), attr(unix.DEVLINK_ATTR_ESWITCH_MODE, c(uint16(1))))}, 0
		case unix.DEVLINK_CMD_PARAM_GET:
			if p := params[name]; p != nil {
				return cmd, [][]byte{p}, 0
			}
			return 0, nil, unix.EINVAL
		}
		return 0, nil, unix.EOPNOTSUPP
	})
}

func getDevlink(t testing.TB, k kernel, address string) qos.Devlink {
	t.Helper()
	d, err := newDevlink(genetlink.NewConn(nltest.Dial(k.nltest)))
	if err != nil {
		t.Fatal(err)
	}
	return d.Get(address, func(string) {}, func(any) {})
}

func TestDevlink(t *testing.T) {
	want := qos.Devlink{
		Versions: fact.Of([]qos.Version{{Name: "fw.psid", Kind: "fixed", Value: "MT_0000000838"}, {Name: "fw.version", Kind: "running", Value: "28.39.1002"}, {Name: "fw.version", Kind: "stored", Value: "28.41.1000"}}, srcInfo),
		Params: fact.Of([]qos.Param{
			{Name: "enable_roce", Values: map[string]string{"driverinit": "false", "permanent": "true"}},
			{Name: "esw_multiport", Values: map[string]string{"runtime": "false"}},
		}, srcParam),
		EswitchMode: fact.Of("switchdev", srcEswitch),
		Ports:       fact.Of([]qos.DevlinkPort{{NetDev: "ens3np0", Type: "eth", Flavour: "physical"}, {NetDev: "ens3pf0vf1", Type: "eth", Flavour: "pcivf"}}, srcPorts),
	}
	if d := cmp.Diff(want, getDevlink(t, devlinkKernel(t), nicAddr)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestDevlinkAgainstTool compares with devlink what we make of the same bytes.
func TestDevlinkAgainstTool(t *testing.T) {
	k := devlinkKernel(t)
	got := getDevlink(t, k, nicAddr)
	show := func(into any, args ...string) {
		t.Helper()
		out := k.tool(t, "devlink", append([]string{"-j"}, args...)...)
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("devlink %v: %v\n%s", args, err, out)
		}
	}
	const dev = "pci/" + nicAddr
	var info struct {
		Info map[string]struct{ Versions map[string]map[string]string }
	}
	show(&info, "dev", "info", dev)
	versions := map[string]map[string]string{}
	for _, v := range got.Versions.V {
		if versions[v.Kind] == nil {
			versions[v.Kind] = map[string]string{}
		}
		versions[v.Kind][v.Name] = v.Value
	}
	if d := cmp.Diff(info.Info[dev].Versions, versions); d != "" {
		t.Errorf("versions (-devlink +ours):\n%s", d)
	}
	var esw struct {
		Dev map[string]struct{ Mode string }
	}
	show(&esw, "dev", "eswitch", "show", dev)
	if esw.Dev[dev].Mode != got.EswitchMode.V {
		t.Errorf("eswitch: devlink %q, we %q", esw.Dev[dev].Mode, got.EswitchMode.V)
	}
	for _, p := range got.Params.V {
		var js struct {
			Param map[string][]struct {
				Name   string
				Values []struct {
					Cmode string
					Value any
				}
			}
		}
		show(&js, "dev", "param", "show", dev, "name", p.Name)
		values := map[string]string{}
		for _, v := range js.Param[dev][0].Values {
			b, _ := json.Marshal(v.Value)
			values[v.Cmode] = string(b)
		}
		if d := cmp.Diff(values, p.Values); d != "" {
			t.Errorf("%s (-devlink +ours):\n%s", p.Name, d)
		}
	}
	var ports struct {
		Port map[string]struct{ Type, NetDev, Flavour string }
	}
	show(&ports, "port", "show")
	for _, p := range got.Ports.V {
		found := false
		for _, q := range ports.Port {
			found = found || q.NetDev == p.NetDev && q.Type == p.Type && q.Flavour == p.Flavour
		}
		if !found {
			t.Errorf("port %+v is not among devlink's %+v", p, ports.Port)
		}
	}
}

func TestDevlinkStates(t *testing.T) {
	k := devlinkKernel(t)
	got := getDevlink(t, k, "0000:00:00.0")
	for name, s := range map[string]fact.State{
		"versions": got.Versions.State, "eswitch": got.EswitchMode.State, "params": got.Params.State, "ports": got.Ports.State,
	} {
		if s != fact.Absent {
			t.Errorf("%s of a function that devlink does not know: %s", name, s)
		}
	}
	refused := kernel(func(m netlink.Message) ([]netlink.Message, syscall.Errno) {
		if m.Header.Type != unix.GENL_ID_CTRL && m.Data[0] == unix.DEVLINK_CMD_ESWITCH_GET {
			return nil, unix.EPERM // this one asks for CAP_NET_ADMIN
		}
		return k(m)
	})
	if got := getDevlink(t, refused, nicAddr); got.EswitchMode.State != fact.Denied || got.Versions.State != fact.Known || got.Params.State != fact.Known {
		t.Errorf("%+v", got)
	}
}

// A kernel without the family: ENOENT from the controller is not an absent device.
func TestNoFamily(t *testing.T) {
	conn := genetlink.NewConn(nltest.Dial(realKernel(t).nltest))
	_, err := openFamily(conn, "no-such-family")
	if fact.StateOf(err) != fact.Unsupported {
		t.Errorf("%v is %s", err, fact.StateOf(err))
	}
}

func FuzzDevlinkReply(f *testing.F) {
	f.Add(param("enable_roce", nlaFlag, paramValue(1), paramValue(2, nil)))
	f.Add(param("x", nlaU32, paramValue(0, u32(7))))
	f.Add(param("x", nlaString, paramValue(0, str("smfs"))))
	f.Add(slices.Concat(handle(nicAddr), version(unix.DEVLINK_ATTR_INFO_VERSION_FIXED, "fw.psid", "MT_0000000838")))
	f.Add(attr(unix.DEVLINK_ATTR_ESWITCH_MODE, c(uint16(1))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodeParam(b); err == nil && p.Name == "" {
			t.Error("a parameter without a name")
		}
		if m, err := decodeEswitch(b); err == nil && m == "" {
			t.Error("no mode")
		}
		_, _ = decodeVersions(b)
		_, _, _ = decodePort(b)
	})
}
