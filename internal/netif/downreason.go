package netif

import "fmt"

// Why a link is down, by enum ethtool_link_ext_state and the substates of each
// (include/uapi/linux/ethtool.h).
var downReasons = map[uint8]struct {
	name string
	sub  map[uint8]string
}{
	0: {"autonegotiation", map[uint8]string{
		1: "no partner detected", 2: "no acknowledgement received", 3: "next page exchange failed",
		4: "no partner detected in force mode", 5: "FEC mismatch", 6: "no common mode",
	}},
	1: {"link training failed", map[uint8]string{
		1: "no frame lock", 2: "link inhibit timeout", 3: "the partner did not become ready to receive", 4: "remote fault",
	}},
	2: {"logical mismatch", map[uint8]string{
		1: "PCS without block lock", 2: "PCS without alignment marker lock", 3: "PCS without alignment", 4: "FC FEC not locked", 5: "RS FEC not locked",
	}},
	3: {"bad signal integrity", map[uint8]string{
		1: "many physical errors", 2: "unsupported rate", 3: "serdes reference clock lost", 4: "serdes loss of signal",
	}},
	4:  {"no cable", nil},
	5:  {"cable issue", map[uint8]string{1: "unsupported cable", 2: "cable test failed"}},
	6:  {"module EEPROM issue", nil},
	7:  {"calibration failed", nil},
	8:  {"power budget exceeded", nil},
	9:  {"overheated", nil},
	10: {"module", map[uint8]string{1: "CMIS module not ready"}},
}

// downReason names a state and, where the driver gave one, its substate.
func downReason(state uint8, sub *uint8) string {
	r, known := downReasons[state]
	if !known {
		r.name = fmt.Sprintf("reason %d", state)
	}
	if sub == nil {
		return r.name
	}
	if s, known := r.sub[*sub]; known {
		return r.name + ": " + s
	}
	return fmt.Sprintf("%s: %d", r.name, *sub)
}
