package fact

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
)

// redactor gives pseudonyms, each original its own.
type redactor struct {
	key       []byte
	given     map[string]string // kind and original: pseudonym
	taken     map[string]bool   // kind and pseudonym
	originals map[string]bool   // identifiers that must not be left anywhere
	kernel    [2]string         // release and its pseudonym
	called    *regexp.Regexp    // what the machine is called, if that was learnt
}

func newRedactor(key []byte) *redactor {
	return &redactor{key: key, given: map[string]string{}, taken: map[string]bool{}, originals: map[string]bool{}}
}

// pseudonym returns the pseudonym of an original of a kind. make forms one from
// random bytes; it is asked again where that one is taken.
func (r *redactor) pseudonym(kind, original string, form func(random []byte) string) string {
	if p, ok := r.given[kind+original]; ok {
		return p
	}
	const tries = 4096 // enough for the last part of an IPv4 address
	var p string
	for i := range tries {
		h := hmac.New(sha256.New, r.key)
		fmt.Fprintf(h, "%s\x00%s\x00%d", kind, original, i)
		if p = form(h.Sum(nil)); !r.taken[kind+p] {
			break
		}
	}
	r.given[kind+original], r.taken[kind+p] = p, true
	return p
}

// identifier is a pseudonym of something that must be nowhere in the result.
func (r *redactor) identifier(kind, original string, form func(random []byte) string) string {
	r.originals[original] = true
	return r.pseudonym(kind, original, form)
}

// word stands for a name whose form means nothing.
func (r *redactor) word(s string) string {
	return r.pseudonym("word", s, func(b []byte) string { return "x" + hex.EncodeToString(b[:4]) })
}

const (
	hex2 = `[0-9a-f]{2}`
	hex4 = `[0-9a-f]{4}`
)

// lazy compiles a regular expression when it is first used: all commands pay
// for what is made at start, and few redact.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// identifiers are told apart by their form; of two that begin at the same place
// the first in this list is meant.
var identifiers = lazy(`(?i)` +
	`(?P<ipoib>\b` + hex2 + `(?::` + hex2 + `){19}\b)` +
	`|(?P<gid>\b` + hex4 + `(?::` + hex4 + `){7}\b)` +
	`|(?P<guid>\b` + hex4 + `(?::` + hex4 + `){3}\b)` +
	`|(?P<mac>\b` + hex2 + `(?::` + hex2 + `){5}\b)` +
	`|(?P<mac_dashes>\b` + hex2 + `(?:-` + hex2 + `){5}\b)` +
	`|(?P<uuid>\b[0-9a-f]{8}-` + hex4 + `-` + hex4 + `-` + hex4 + `-[0-9a-f]{12}\b)` +
	`|(?P<hex>\b[0-9a-f]{32,64}\b)` +
	`|(?P<netdev>\b(?:enx|wlx|ibx|rocex|iwx|opax)[0-9a-f]{12,16})` +
	`|(?P<login>\([\w.+-]+@[\w.-]*\))` +
	`|(?P<serial>\bserial(?: number)?[ :=#]+[0-9a-z]{6,})` +
	`|(?P<home>/home/[^/\s"':]+)`)

var identifierKinds = identifiers().SubexpNames()

// efiGlobal is a UUID that every UEFI machine has in the names of its variables.
const efiGlobal = "8be4df61-93ca-11d2-aa0d-00e098032b8c"

// text replaces whatever has the form of an identifier.
func (r *redactor) text(s string) string {
	if r.kernel[0] != "" {
		s = strings.ReplaceAll(s, r.kernel[0], r.kernel[1])
	}
	out, last := strings.Builder{}, 0
	for _, m := range identifiers().FindAllStringSubmatchIndex(s, -1) {
		out.WriteString(s[last:m[0]])
		last = m[1]
		for i := 1; i < len(identifierKinds); i++ {
			if m[2*i] >= 0 {
				out.WriteString(r.replace(identifierKinds[i], s[m[0]:m[1]]))
				break
			}
		}
	}
	return out.String() + s[last:]
}

func (r *redactor) replace(kind, s string) string {
	low := strings.ToLower(s)
	digits, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "").Replace(low))
	if err == nil && isPlain(digits) {
		return s // all zero or all one: not set, broadcast
	}
	switch kind {
	case "ipoib": // flags and queue pair, then the port's GID
		return colons(append(digits[:4:4], r.gid(digits[4:])...), 1)
	case "gid":
		r.originals[low] = true
		return colons(r.gid(digits), 2)
	case "guid":
		r.originals[low] = true
		return colons(r.eui64(digits), 2)
	case "mac":
		r.originals[low] = true
		return colons(r.mac(digits), 1)
	case "mac_dashes":
		r.originals[low] = true
		return strings.ReplaceAll(colons(r.mac(digits), 1), ":", "-")
	case "uuid":
		if low == efiGlobal {
			return s
		}
		return r.identifier("uuid", low, func(b []byte) string {
			x := hex.EncodeToString(b[:16])
			return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
		})
	case "hex":
		return r.identifier("hex", low, func(b []byte) string { return hex.EncodeToString(b)[:len(low)] })
	case "netdev":
		i := strings.IndexByte(low, 'x') + 1
		b, err := hex.DecodeString(low[i:])
		switch {
		case err == nil && len(b) == 6:
			r.originals[low[i:]] = true
			return low[:i] + hex.EncodeToString(r.mac(b))
		case err == nil && len(b) == 8:
			r.originals[low[i:]] = true
			return low[:i] + hex.EncodeToString(r.eui64(b))
		}
		return low[:i] + r.identifier("netdev", low[i:], func(b []byte) string { return hex.EncodeToString(b)[:len(low)-i] })
	case "serial":
		i := strings.LastIndexAny(s, " :=#") + 1
		if !strings.ContainsAny(s[i:], "0123456789") {
			return s // the word after it, as in "serial console"
		}
		return s[:i] + r.identifier("serial", s[i:], func(b []byte) string { return "x" + hex.EncodeToString(b[:4]) })
	case "login":
		return "(user@host)"
	case "home":
		return "/home/" + r.word(s[len("/home/"):])
	}
	return s
}

func isPlain(b []byte) bool {
	for _, x := range b {
		if x != b[0] || x != 0 && x != 0xff {
			return false
		}
	}
	return true
}

// colons writes bytes in groups of n.
func colons(b []byte, n int) string {
	var parts []string
	for i := 0; i < len(b); i += n {
		parts = append(parts, hex.EncodeToString(b[i:i+n]))
	}
	return strings.Join(parts, ":")
}

// bytesFor is a pseudonym of as many bytes as b has.
func (r *redactor) bytesFor(kind string, b []byte, shape func([]byte)) []byte {
	p := r.pseudonym(kind, string(b), func(random []byte) string {
		x := random[:len(b)]
		shape(x)
		return string(x)
	})
	return []byte(p)
}

// mac is locally administered, whoever made the original.
func (r *redactor) mac(b []byte) []byte {
	return r.bytesFor("mac", b, func(x []byte) { x[0] = 2 })
}

// eui64 keeps the relation to a MAC address that the GUID or interface
// identifier was formed from, by EUI-64 (RFC 4291, appendix A) or as ConnectX does.
func (r *redactor) eui64(b []byte) []byte {
	if isPlain(b) {
		return b
	}
	middle := [2]byte{b[3], b[4]}
	join := func(flip byte) []byte {
		m := r.mac([]byte{b[0] ^ flip, b[1], b[2], b[5], b[6], b[7]})
		return []byte{m[0] ^ flip, m[1], m[2], middle[0], middle[1], m[3], m[4], m[5]}
	}
	switch middle {
	case [2]byte{0xff, 0xfe}:
		return join(2)
	case [2]byte{0x03, 0x00}:
		return join(0)
	}
	return r.bytesFor("guid", b, func(x []byte) { x[0], x[3] = 2, 0 })
}

var (
	v4Mapped = [12]byte{10: 0xff, 11: 0xff}
	ulaNet   = netip.MustParsePrefix("fc00::/7")
)

// gid keeps the kind of an address: link-local, IPv4-mapped, unique local,
// global or InfiniBand's own subnet prefix.
func (r *redactor) gid(b []byte) []byte {
	prefix, id := [8]byte(b[:8]), b[8:]
	addr := netip.AddrFrom16([16]byte(b))
	switch {
	case isPlain(b):
		return b
	case [12]byte(b[:12]) == v4Mapped:
		return append(v4Mapped[:], r.v4([4]byte(b[12:]))...)
	case addr.IsLinkLocalUnicast() || isPlain(prefix[:]):
	default: // two of one subnet stay in one
		copy(prefix[:], r.bytesFor("subnet", prefix[:], func(x []byte) {
			switch {
			case ulaNet.Contains(addr):
				x[0] = 0xfd
			case b[0]>>5 == 1: // global unicast: documentation, RFC 3849
				copy(x, []byte{0x20, 0x01, 0x0d, 0xb8})
			default:
				x[0], x[1] = b[0], b[1]
			}
		}))
	}
	return append(prefix[:], r.eui64(id)...)
}

// v4 keeps private, link-local and loopback addresses such, and two of one /24
// in one /24; all others become addresses for benchmarks (RFC 2544).
func (r *redactor) v4(b [4]byte) []byte {
	a := netip.AddrFrom4(b)
	if a.IsLoopback() || a.IsUnspecified() || b[0] == 255 {
		return b[:]
	}
	net := r.bytesFor("v4net", b[:3], func(x []byte) {
		switch {
		case b[0] == 10:
			x[0] = 10
		case b[0] == 172 && b[1]>>4 == 1:
			x[0], x[1] = 172, 16|x[1]&15
		case b[0] == 192 && b[1] == 168, b[0] == 169 && b[1] == 254:
			x[0], x[1] = b[0], b[1]
		default:
			x[0], x[1] = 198, 18|x[1]&1
		}
	})
	host := r.bytesFor("v4host"+string(b[:3]), b[3:], func(x []byte) { x[0] = 1 + x[0]%254 })
	return append(net, host...)
}
