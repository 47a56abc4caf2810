package pci_test

import (
	"math"
	"testing"

	"github.com/gdrcheck/gdrcheck/pci"
)

// TestUsableBytesPerSec compares with published figures: GB/s a lane after line
// encoding, and the share of payload in a packet of 24 bytes overhead.
func TestUsableBytesPerSec(t *testing.T) {
	lane := map[float64]float64{2.5: 0.25, 5: 0.5, 8: 0.985, 16: 1.969, 32: 3.938, 64: 8.0 * 236 / 256}
	share := map[int]float64{128: 0.842, 256: 0.914, 512: 0.955}
	for speed, gb := range lane {
		for mps, eff := range share {
			for _, width := range []int{1, 4, 16} {
				want := gb * 1e9 * float64(width) * eff
				got := pci.UsableBytesPerSec(speed, width, mps)
				if math.Abs(got-want)/want > 0.001 {
					t.Errorf("%g GT/s x%d, MPS %d: %.4g bytes/s, want %.4g", speed, width, mps, got, want)
				}
			}
		}
	}
	for _, zero := range []float64{
		pci.UsableBytesPerSec(0, 16, 256), pci.UsableBytesPerSec(32, 0, 256), pci.UsableBytesPerSec(32, 16, 0),
		pci.UsableBytesPerSec(-1, 16, 256),
	} {
		if zero != 0 {
			t.Errorf("a link that is down carries %g bytes/s", zero)
		}
	}
}

func TestGeneration(t *testing.T) {
	for speed, want := range map[float64]int{2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6, 0: 0, 3: 0} {
		if got := pci.Generation(speed); got != want {
			t.Errorf("Generation(%g) = %d, want %d", speed, got, want)
		}
	}
}

func TestACS(t *testing.T) {
	tests := []struct {
		ctl       uint16
		text      string
		redirects bool
	}{
		{0, "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-", false},
		{0x1d, "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-", true},
		{0x11, "SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd+ EgressCtrl- DirectTrans-", false},
		{0x20, "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl+ DirectTrans-", true},
		{0x42, "SrcValid- TransBlk+ ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans+", false},
	}
	for _, tt := range tests {
		if got := pci.ACSString(tt.ctl); got != tt.text {
			t.Errorf("ACSString(%#x) = %q, want %q", tt.ctl, got, tt.text)
		}
		if got := pci.ACSRedirects(tt.ctl); got != tt.redirects {
			t.Errorf("ACSRedirects(%#x) = %v, want %v", tt.ctl, got, tt.redirects)
		}
	}
}
