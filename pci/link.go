package pci

// tlpOverheadBytes is what a memory write of PCI Express costs beside its
// payload: framing and sequence number 4, header with a 64-bit address 16,
// link CRC 4.
const tlpOverheadBytes = 24

// UsableBytesPerSec is the payload that a link carries in one direction:
// speed × lanes × line encoding × the share of payload in a packet of the given
// Max_Payload_Size. It leaves out flow control and acknowledgements, so it is a
// ceiling, not a promise. 0 where an argument is not positive.
func UsableBytesPerSec(speedGT float64, width, mpsBytes int) float64 {
	if speedGT <= 0 || width <= 0 || mpsBytes <= 0 {
		return 0
	}
	payload := float64(mpsBytes)
	return speedGT * 1e9 / 8 * float64(width) * encoding(speedGT) * payload / (payload + tlpOverheadBytes)
}

// encoding is the share of transferred bits that carry packets: 8b/10b up to
// 5 GT/s, 128b/130b up to 32, and 236 packet bytes in a 256-byte flit above
// (PCIe Base Spec 4.2).
func encoding(speedGT float64) float64 {
	switch {
	case speedGT <= 5:
		return 8.0 / 10
	case speedGT <= 32:
		return 128.0 / 130
	}
	return 236.0 / 256
}

// Generation is the PCI Express generation of a speed: 1 for 2.5 GT/s to 6 for
// 64; 0 for a speed that is none.
func Generation(speedGT float64) int {
	for code, s := range speeds {
		if s == speedGT {
			return code
		}
	}
	return 0
}
