// Package netif asks the kernel about network interfaces: DCB over route
// netlink, ethtool and devlink over generic netlink, statistics by ioctl; and
// over MADs what InfiniBand ports are cabled to. Only a worker does, since drivers answer under a lock that a broken one may hold.
package netif

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// fromError is fact.FromError with what the kernel answered in words of ours:
// mdlayher/netlink's own ("netlink receive: …") say nothing more.
func fromError[T any](err error, source string) fact.Value[T] {
	v := fact.FromError[T](err, source)
	op, ok := errors.AsType[*netlink.OpError](err)
	if !ok || v.Errno == 0 {
		return v
	}
	v.Reason = v.Errno.Error()
	if op.Message != "" {
		v.Reason += ": " + op.Message // the kernel's own explanation
	}
	return v
}

// notInAnswer: the driver cannot tell, or its firmware did not answer it. It
// never means off.
const notInAnswer = "not in the driver's answer"

// leftOut gives whatever an answer did not set its state.
func leftOut[T any](into *T, source string) {
	qos.Fill(into, fact.Missing[T](fact.Unsupported, source, notInAnswer))
}

// only is the answer to a question that has one.
func only[T any](list []T, err error) (T, error) {
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d answers to one question", len(list))
	}
	if err != nil {
		return *new(T), err
	}
	return list[0], nil
}

// checkName keeps from the kernel what cannot be an interface's name.
func checkName(ifName string) error {
	if ifName == "" || len(ifName) >= unix.IFNAMSIZ || strings.ContainsRune(ifName, 0) {
		return fmt.Errorf("%q is no name of an interface: %w", ifName, unix.ENODEV)
	}
	return nil
}

// attributes walks a list of netlink attributes; each may stop the walk with an
// error. What the list looks like is the kernel's word only if it is whole, so
// a list that is cut short fails.
func attributes(b []byte, each func(ad *netlink.AttributeDecoder) error) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return fmt.Errorf("unreadable answer: %w", err)
	}
	for ad.Next() {
		if err := each(ad); err != nil {
			return err
		}
	}
	if err := ad.Err(); err != nil {
		return fmt.Errorf("unreadable answer: %w", err)
	}
	return nil
}
