package netif

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

const (
	srcModule = "ethtool:MODULE_GET"
	srcEEPROM = "ethtool:MODULE_EEPROM_GET"
)

// Attributes of MODULE_GET's answer and of MODULE_EEPROM_GET
// (include/uapi/linux/ethtool_netlink.h).
const (
	modulePolicy = 2
	moduleMode   = 3

	eepromOffset = 2
	eepromLength = 3
	eepromPage   = 4
	eepromBank   = 5
	eepromI2C    = 6
	eepromData   = 7
)

// halfPage is what a module's memory is read by: 128 bytes, of which the lower
// are always the same and the upper are one of many pages.
const halfPage = 128

// Module asks what module an interface has. Only root may read its memory,
// which takes some milliseconds for each half page. To read a latched alarm
// clears it, as with ethtool -m.
func (e *Ethtool) Module(ifName string, at func(string)) qos.Module {
	at(srcModule)
	policy, mode := e.modulePower(ifName)
	m := decodeModule(func(page, offset uint8) ([]byte, error) {
		at(fmt.Sprintf("%s page %#02x", srcEEPROM, page))
		return e.eeprom(ifName, page, offset)
	})
	m.PowerPolicy, m.PowerMode = policy, mode
	return m
}

func (e *Ethtool) modulePower(ifName string) (policy, mode fact.Value[string]) {
	reply, err := e.about(unix.ETHTOOL_MSG_MODULE_GET, ifName, 0, nil)
	policy = fact.Missing[string](fact.Unsupported, srcModule, notInAnswer)
	mode = policy
	if err == nil {
		err = attributes(reply, func(ad *netlink.AttributeDecoder) error {
			switch ad.Type() {
			case modulePolicy:
				policy = named(ad.Uint8(), map[uint8]string{1: "high", 2: "auto"})
			case moduleMode:
				mode = named(ad.Uint8(), map[uint8]string{1: "low", 2: "high"})
			}
			return nil
		})
	}
	if err != nil {
		policy = fromError[string](err, srcModule)
		mode = policy
	}
	return policy, mode
}

func named(n uint8, names map[uint8]string) fact.Value[string] {
	if s := names[n]; s != "" {
		return fact.Of(s, srcModule)
	}
	return fact.Missing[string](fact.Failed, srcModule, fmt.Sprintf("unreadable answer: %d", n))
}

// eeprom reads a half page.
func (e *Ethtool) eeprom(ifName string, page, offset uint8) ([]byte, error) {
	const firstI2C = 0x50
	reply, err := e.about(unix.ETHTOOL_MSG_MODULE_EEPROM_GET, ifName, 0, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(eepromLength, halfPage)
		ae.Uint32(eepromOffset, uint32(offset))
		ae.Uint8(eepromPage, page)
		ae.Uint8(eepromBank, 0)
		ae.Uint8(eepromI2C, firstI2C)
	})
	if err != nil {
		return nil, err
	}
	var data []byte
	err = attributes(reply, func(ad *netlink.AttributeDecoder) error {
		if ad.Type() == eepromData {
			data = ad.Bytes()
		}
		return nil
	})
	if err == nil && len(data) != halfPage {
		err = fmt.Errorf("%w: %d bytes of the module's memory", errShort, len(data))
	}
	return data, err
}
