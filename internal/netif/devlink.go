package netif

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// Sources of facts, the questions by the names that the kernel gives them
// (include/uapi/linux/devlink.h).
const (
	srcInfo    = "devlink:INFO_GET"
	srcParam   = "devlink:PARAM_GET"
	srcEswitch = "devlink:ESWITCH_GET"
	srcPorts   = "devlink:PORT_GET"
)

// devlinkParams are the parameters to ask for. Each is asked by its name: a list
// of all would be of all devices.
var devlinkParams = []string{"enable_roce", "enable_rdma", "enable_iwarp", "esw_multiport"}

// Devlink asks over one connection.
type Devlink struct {
	*family
	ports map[string][]qos.DevlinkPort // by PCI address; of all devices
	err   error
}

// OpenDevlink connects to devlink; the error is Unsupported on kernels without.
func OpenDevlink() (*Devlink, error) {
	conn, err := dialGenl()
	if err != nil {
		return nil, err
	}
	return newDevlink(conn)
}

func newDevlink(conn *genetlink.Conn) (*Devlink, error) {
	f, err := openFamily(conn, unix.DEVLINK_GENL_NAME)
	if err != nil {
		return nil, err
	}
	return &Devlink{family: f}, nil
}

// Get asks about a PCI function. at is told each question before it is put, and
// part what is known after each.
func (d *Devlink) Get(address string, at func(string), part func(any)) qos.Devlink {
	var out qos.Devlink
	at(srcPorts)
	out.Ports = d.portsOf(address)
	part(out)
	at(srcInfo)
	out.Versions = answer(d, unix.DEVLINK_CMD_INFO_GET, address, "", srcInfo, decodeVersions)
	part(out)
	at(srcEswitch)
	out.EswitchMode = answer(d, unix.DEVLINK_CMD_ESWITCH_GET, address, "", srcEswitch, decodeEswitch)
	part(out)
	out.Params = fact.Of([]qos.Param{}, srcParam)
	for _, name := range devlinkParams {
		at(srcParam + " " + name)
		v := answer(d, unix.DEVLINK_CMD_PARAM_GET, address, name, srcParam, decodeParam)
		switch {
		case v.State == fact.Known:
			out.Params.V = append(out.Params.V, v.V)
		case v.Errno == unix.EINVAL: // a parameter that this driver has not
		default:
			out.Params = fact.As(v, []qos.Param(nil))
			return out
		}
	}
	return out
}

// answer asks about a function and decodes what comes back.
func answer[T any](d *Devlink, cmd uint8, address, param, source string, decode func([]byte) (T, error)) fact.Value[T] {
	reply, err := d.one(cmd, func(ae *netlink.AttributeEncoder) {
		ae.String(unix.DEVLINK_ATTR_BUS_NAME, "pci")
		ae.String(unix.DEVLINK_ATTR_DEV_NAME, address)
		if param != "" {
			ae.String(unix.DEVLINK_ATTR_PARAM_NAME, param)
		}
	})
	if err != nil {
		return fromError[T](err, source)
	}
	return structure(reply, source, decode)
}

var versionKinds = map[uint16]string{
	unix.DEVLINK_ATTR_INFO_VERSION_FIXED: "fixed", unix.DEVLINK_ATTR_INFO_VERSION_RUNNING: "running", unix.DEVLINK_ATTR_INFO_VERSION_STORED: "stored",
}

// decodeVersions takes the versions and nothing else: an answer to INFO_GET also
// has the serial number.
func decodeVersions(b []byte) ([]qos.Version, error) {
	out := []qos.Version{}
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		kind, ok := versionKinds[ad.Type()]
		if !ok {
			return nil
		}
		v := qos.Version{Kind: kind}
		err := attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
			switch ad.Type() {
			case unix.DEVLINK_ATTR_INFO_VERSION_NAME:
				v.Name = ad.String()
			case unix.DEVLINK_ATTR_INFO_VERSION_VALUE:
				v.Value = ad.String()
			}
			return nil
		})
		out = append(out, v)
		return err
	})
	return out, err
}

var eswitchModes = map[uint16]string{0: "legacy", 1: "switchdev", 2: "switchdev_inactive"}

func decodeEswitch(b []byte) (string, error) {
	mode := ""
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		if ad.Type() == unix.DEVLINK_ATTR_ESWITCH_MODE {
			n := ad.Uint16()
			if mode = eswitchModes[n]; mode == "" {
				mode = fmt.Sprintf("mode %d", n)
			}
		}
		return nil
	})
	if err == nil && mode == "" {
		err = errors.New("unreadable answer: no eswitch mode")
	}
	return mode, err
}

// Kinds of a parameter's value, as enum in include/net/netlink.h.
const (
	nlaU8     = 1
	nlaU16    = 2
	nlaU32    = 3
	nlaU64    = 4
	nlaString = 5
	nlaFlag   = 6
)

var paramModes = map[uint8]string{0: "runtime", 1: "driverinit", 2: "permanent"}

func decodeParam(b []byte) (qos.Param, error) {
	p := qos.Param{Values: map[string]string{}}
	kind := uint8(0)
	var values [][]byte
	err := attributes(b, func(ad *netlink.AttributeDecoder) error {
		if ad.Type() != unix.DEVLINK_ATTR_PARAM {
			return nil
		}
		return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
			switch ad.Type() {
			case unix.DEVLINK_ATTR_PARAM_NAME:
				p.Name = ad.String()
			case unix.DEVLINK_ATTR_PARAM_TYPE:
				kind = ad.Uint8()
			case unix.DEVLINK_ATTR_PARAM_VALUES_LIST:
				return attributes(ad.Bytes(), func(ad *netlink.AttributeDecoder) error {
					values = append(values, ad.Bytes())
					return nil
				})
			}
			return nil
		})
	})
	if err != nil {
		return p, err
	}
	for _, v := range values {
		mode, value, err := decodeParamValue(v, kind)
		if err != nil {
			return p, err
		}
		p.Values[mode] = value
	}
	if p.Name == "" {
		return p, errors.New("unreadable answer: a parameter without a name")
	}
	return p, nil
}

func decodeParamValue(b []byte, kind uint8) (mode, value string, err error) {
	if kind == nlaFlag { // there or not
		value = "false"
	}
	err = attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.DEVLINK_ATTR_PARAM_VALUE_CMODE:
			n := ad.Uint8()
			if mode = paramModes[n]; mode == "" {
				mode = fmt.Sprintf("mode %d", n)
			}
		case unix.DEVLINK_ATTR_PARAM_VALUE_DATA:
			switch kind {
			case nlaU8:
				value = strconv.FormatUint(uint64(ad.Uint8()), 10)
			case nlaU16:
				value = strconv.FormatUint(uint64(ad.Uint16()), 10)
			case nlaU32:
				value = strconv.FormatUint(uint64(ad.Uint32()), 10)
			case nlaU64:
				value = strconv.FormatUint(ad.Uint64(), 10)
			case nlaString:
				value = ad.String()
			case nlaFlag:
				value = "true"
			default:
				return fmt.Errorf("unreadable answer: a parameter of kind %d", kind)
			}
		}
		return nil
	})
	if err == nil && (mode == "" || value == "") {
		err = errors.New("unreadable answer: a parameter's value cut short")
	}
	return mode, value, err
}

// portsOf lists the ports of a function; all devices' are asked for once.
func (d *Devlink) portsOf(address string) fact.Value[[]qos.DevlinkPort] {
	if d.ports == nil && d.err == nil {
		var list [][]byte
		list, d.err = d.ask(unix.DEVLINK_CMD_PORT_GET, netlink.Dump, func(*netlink.AttributeEncoder) {})
		d.ports = map[string][]qos.DevlinkPort{}
		for _, b := range list {
			addr, p, err := decodePort(b)
			if err != nil {
				d.err = err
				break
			}
			d.ports[addr] = append(d.ports[addr], p)
		}
	}
	if d.err != nil {
		return fromError[[]qos.DevlinkPort](d.err, srcPorts)
	}
	if ports := d.ports[address]; ports != nil {
		return fact.Of(ports, srcPorts)
	}
	return fact.Missing[[]qos.DevlinkPort](fact.Absent, srcPorts, "devlink knows no port of "+address)
}

var (
	portTypes    = map[uint16]string{0: "notset", 1: "auto", 2: "eth", 3: "ib"}
	portFlavours = map[uint16]string{0: "physical", 1: "cpu", 2: "dsa", 3: "pcipf", 4: "pcivf", 5: "virtual", 6: "unused", 7: "pcisf"}
)

// decodePort is "" where the port is not of a PCI function.
func decodePort(b []byte) (address string, p qos.DevlinkPort, err error) {
	bus := ""
	err = attributes(b, func(ad *netlink.AttributeDecoder) error {
		switch ad.Type() {
		case unix.DEVLINK_ATTR_BUS_NAME:
			bus = ad.String()
		case unix.DEVLINK_ATTR_DEV_NAME:
			address = ad.String()
		case unix.DEVLINK_ATTR_PORT_NETDEV_NAME:
			p.NetDev = ad.String()
		case unix.DEVLINK_ATTR_PORT_TYPE:
			p.Type = portTypes[ad.Uint16()]
		case unix.DEVLINK_ATTR_PORT_FLAVOUR:
			p.Flavour = portFlavours[ad.Uint16()]
		}
		return nil
	})
	if bus != "pci" || strings.Count(address, ":") != 2 {
		address = ""
	}
	return address, p, err
}
