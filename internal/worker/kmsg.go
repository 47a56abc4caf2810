package worker

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

const kmsgPath = "/dev/kmsg"

// askKernelLog reads the kernel's ring buffer and answers with what host knows
// of it; the rest never leaves this process.
func askKernelLog(s *session, _ []string) {
	s.subject(gpu.SubjectSystem, func() fact.Record {
		s.at(kmsgPath)
		records, err := readKernelLog(kmsgPath)
		if err != nil {
			return toRecord(fact.FromError[host.KernelLog](err, kmsgPath))
		}
		return toRecord(fact.Of(host.ParseKernelLog(records), kmsgPath))
	})
}

// readKernelLog returns the records that the buffer holds now. A read gives one
// record; EPIPE says that some were overwritten meanwhile, EAGAIN that no more
// are there (Documentation/ABI/testing/dev-kmsg).
func readKernelLog(path string) ([]string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// The largest record is below 8 KiB; a buffer is seldom above 16 MiB.
	const recordBytes, mostBytes, mostReads = 16 << 10, 32 << 20, 1 << 18
	buf := make([]byte, recordBytes)
	var out []string
	total := 0
	for range mostReads {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return out, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		}
		if total += n; total > mostBytes {
			break
		}
		out = append(out, string(buf[:n]))
	}
	return out, nil
}
