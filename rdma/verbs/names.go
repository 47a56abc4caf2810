package verbs

import "fmt"

// portState names enum ibv_port_state as ibv_devinfo prints it.
func portState(s int) string {
	names := [...]string{"PORT_NOP", "PORT_DOWN", "PORT_INIT", "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER"}
	if s >= 0 && s < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PORT_STATE_%d", s)
}

// mtuBytes turns enum ibv_mtu (1: 256 bytes to 5: 4096) into bytes; 0 for what
// the enum does not hold.
func mtuBytes(m int) int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}
