package perftest

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What the kernel says of a way that does not lead there names the port to open.
func TestNextStep(t *testing.T) {
	dial := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, err := range []error{
		dial(syscall.EHOSTUNREACH), dial(syscall.ENETUNREACH), dial(syscall.ETIMEDOUT), &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, context.DeadlineExceeded,
	} {
		if got := nextStep(err, "10.0.0.1:18516"); !strings.Contains(got, "TCP port 18516") || !strings.Contains(got, "firewall") || !strings.Contains(got, "--listen") {
			t.Errorf("%v: %q", err, got)
		}
	}
	if got := nextStep(dial(syscall.EACCES), "10.0.0.1:18516"); got != "" {
		t.Errorf("of a local refusal: %q", got)
	}
}
