package pci

import (
	"encoding/binary"
	"errors"
	"io"
)

// Capabilities in extended configuration space that ParseConfig decodes, with
// their size in bytes (PCIe Base Spec 7.7 and 7.8).
var extendedSizes = map[uint16]int{
	ecapACS:   8,
	ecapATS:   8,
	ecapReBAR: 4 + 6*8, // at most six BARs
}

// ReadConfig reads a function's configuration space as ParseConfig needs it:
// the first 256 bytes, and of the extended space only the capability headers
// and the capabilities that ParseConfig decodes; the bytes between are zero.
// Each dword is a bus access for the kernel, some 20 ns to 1 us on bare metal
// and over 10 us in a guest, where all 4096 bytes take 20 ms a function.
//
// The result is as long as the space that r has: 64, 128, 256 or 4096 bytes.
func ReadConfig(r io.ReaderAt) ([]byte, error) {
	const legacy, full = 256, 4096
	image := make([]byte, full)
	n, err := r.ReadAt(image[:legacy], 0)
	if n < legacy {
		if errors.Is(err, io.EOF) {
			err = nil // 64 or 128 bytes are all that the caller may see
		}
		return image[:n], err
	}
	// A list that loops or leaves the space is ParseConfig's to report: every
	// header that it can follow has been read here.
	seen := make(map[int]bool)
	for at := legacy; at >= legacy && at <= full-4 && !seen[at]; {
		seen[at] = true
		n, err := r.ReadAt(image[at:at+4], int64(at))
		if at == legacy && n == 0 && errors.Is(err, io.EOF) {
			return image[:legacy], nil
		}
		if n < 4 {
			return nil, err
		}
		header := binary.LittleEndian.Uint32(image[at:])
		if size, ok := extendedSizes[uint16(header)]; ok {
			end := min(at+size, full)
			if n, err := r.ReadAt(image[at+4:end], int64(at+4)); n < end-at-4 {
				return nil, err
			}
		}
		at = int(header >> 20 & 0xffc)
	}
	return image, nil
}
