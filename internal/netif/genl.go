package netif

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// family is one of generic netlink's families: ethtool, devlink.
type family struct {
	conn *genetlink.Conn
	name string
	id   uint16
	ver  uint8
}

// openFamily finds a family; an error is Unsupported where the kernel has none.
func openFamily(conn *genetlink.Conn, name string) (*family, error) {
	f, err := conn.GetFamily(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this kernel has no %s netlink: %w", name, unix.EOPNOTSUPP)
	}
	if err != nil {
		return nil, err
	}
	return &family{conn, name, f.ID, f.Version}, nil
}

func dialGenl() (*genetlink.Conn, error) {
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return nil, err
	}
	// The kernel's own words for an error, where it has some.
	_ = conn.SetOption(netlink.ExtendedAcknowledge, true)
	return conn, nil
}

// ask puts a question and returns the attributes of each answer.
func (f *family) ask(cmd uint8, flags netlink.HeaderFlags, attrs func(*netlink.AttributeEncoder)) ([][]byte, error) {
	ae := netlink.NewAttributeEncoder()
	attrs(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	m := genetlink.Message{Header: genetlink.Header{Command: cmd, Version: f.ver}, Data: data}
	msgs, err := f.conn.Execute(m, f.id, netlink.Request|flags)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(msgs))
	for i, m := range msgs {
		out[i] = m.Data
	}
	return out, nil
}

// one is ask for a question with one answer.
func (f *family) one(cmd uint8, attrs func(*netlink.AttributeEncoder)) ([]byte, error) {
	return only(f.ask(cmd, 0, attrs))
}
