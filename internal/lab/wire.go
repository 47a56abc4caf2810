package lab

import (
	"fmt"
	"os"
	"syscall"
)

// Wire returns both ends of a connection between two guests, or between two
// devices of one, for Guest.Files: network interfaces take datagrams,
// character devices a stream. Close both when the guests have ended.
func Wire(kind int) (a, b *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "wire"), os.NewFile(uintptr(fds[1]), "wire"), nil
}
