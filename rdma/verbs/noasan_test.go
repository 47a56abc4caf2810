//go:build !asan

package verbs

const (
	lastingTests = 400
	// quarantineKiB is what AddressSanitizer keeps of freed memory, at most.
	quarantineKiB = 0
)
