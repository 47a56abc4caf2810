package fact

import (
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Sentences of other programs, of the kernel and of ours hold what no file of a
// known form does. Nobody judges them, so more may be replaced in them than in
// text(): 20.6.5.11 may be an address or the version of a firmware.
var addresses = lazy(`(?i)\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[0-9a-f]{1,4}(?::{1,2}[0-9a-f]{0,4}){2,7}`)

// prose redacts a sentence.
func (r *redactor) prose(s string) string {
	if r.called != nil {
		// As words() does it in node_desc itself.
		s = r.called.ReplaceAllStringFunc(s, func(name string) string { return r.words(name, deviceWords()) })
	}
	var out strings.Builder
	last := 0
	for _, m := range addresses().FindAllStringIndex(s, -1) {
		addr, err := netip.ParseAddr(s[m[0]:m[1]])
		if err != nil { // a MAC or PCI address
			continue
		}
		b := addr.As16()
		out.WriteString(r.text(s[last:m[0]]) + netip.AddrFrom16([16]byte(r.gid(b[:]))).Unmap().String())
		last = m[1]
	}
	return out.String() + r.text(s[last:])
}

// learnNames takes the machine's name from where the kernel tells it: an RDMA
// device is described as "NAME DEVICE" (rdma-core, rdma-ndd).
func (r *redactor) learnNames(doc *recording) {
	var names []string
	for name, f := range doc.Files {
		if path.Base(name) != "node_desc" || f.Text == nil {
			continue
		}
		for _, w := range regexp.MustCompile(`[\w.-]+`).FindAllString(*f.Text, -1) {
			for _, w := range []string{w, strings.SplitN(w, ".", 2)[0]} {
				const least = 4 // a shorter one is a part of too much
				if len(w) >= least && !deviceWords().MatchString(w) {
					names = append(names, regexp.QuoteMeta(w))
				}
			}
		}
	}
	if len(names) == 0 {
		return
	}
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) }) // the longest first
	r.called = regexp.MustCompile(`(?i)\b(?:` + strings.Join(slices.Compact(names), "|") + `)\b`)
}

var (
	// ourModules are those whose options checks judge, and what names them.
	ourModules = lazy(`^(nvidia|nv_|nouveau|nova|mlx[45x]|ib_|iw_|rdma_|peer_mem|irdma|bnxt|efa|gdrdrv|amdgpu|amdkfd|ice|vfio)[\w-]*$`)
	// keptWords of their lines in modprobe.d name nobody.
	keptWords = lazy(`^("?NVreg_\w+=\S*|"?\w+=[\w,;:"-]*|` +
		`(/usr)?/s?bin/\w+|true|false|modprobe|--[\w-]+|\$CMDLINE_OPTS|&&|\|\||;|pre:|post:)$`)
	modprobeWord = lazy(`[^\s"\\]+|"`)
)

// modprobe redacts a file of modprobe.d: lines about modules that matter keep
// their options, the others their form alone.
func (r *redactor) modprobe(s string) string {
	var out strings.Builder
	number, ours := 0, false // of words in the line; a backslash joins lines
	for line := range strings.Lines(s) {
		if number == 0 && strings.HasPrefix(strings.TrimSpace(line), "#") {
			out.WriteString("#\n")
			continue
		}
		out.WriteString(modprobeWord().ReplaceAllStringFunc(line, func(w string) string {
			number++
			if number == 2 {
				ours = ourModules().MatchString(w)
			}
			if number == 1 || w == `"` || ours && (number == 2 || keptWords().MatchString(w) || ourModules().MatchString(w)) {
				return r.text(w)
			}
			return r.word(w)
		}))
		if !strings.HasSuffix(strings.TrimRight(line, "\r\n"), `\`) {
			number, ours = 0, false
		}
	}
	return out.String()
}
