// Package netif asks the kernel about network interfaces: DCB over route
// netlink, ethtool and devlink over generic netlink, statistics by ioctl; and
// over MADs what InfiniBand ports are cabled to. Only a worker does, since drivers answer under a lock that a broken one may hold.
package netif

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"

	"github.com/gdrcheck/gdrcheck/internal/fact"
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

// leftOut is the state of an attribute that an answer lacks: the driver cannot
// tell, or its firmware did not answer it. It never means off.
func leftOut[T any](source, what string) fact.Value[T] {
	return fact.Missing[T](fact.Unsupported, source, "the driver's answer has no "+what)
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
