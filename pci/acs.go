package pci

import "strings"

// acsNames are lspci's, in the order of the bits.
var acsNames = [...]string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"}

// ACSString writes an ACS capability or control register as lspci does:
// "SrcValid+ TransBlk- ReqRedir+ …".
func ACSString(bits uint16) string {
	var b strings.Builder
	for i, name := range acsNames {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name)
		if bits>>i&1 != 0 {
			b.WriteByte('+')
		} else {
			b.WriteByte('-')
		}
	}
	return b.String()
}

// ACSRedirects says whether a control register sends traffic between two
// functions below its bridge up to the root complex.
func ACSRedirects(ctl uint16) bool { return ctl&ACSRedirectMask != 0 }
