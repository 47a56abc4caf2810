//go:build asan

package verbs

const (
	lastingTests = 1000
	// quarantineKiB is what AddressSanitizer keeps of freed memory, at most.
	quarantineKiB = 320 << 10
)
