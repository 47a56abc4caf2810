package qos

import (
	"errors"
	"strings"
)

// ParseMST reads what mstconfig -e query prints: after the line that begins
// with "Configurations:", a setting a line with its default, current and next
// value. Marks stand before a name: "*" (next is other than current or default)
// and "RO".
func ParseMST(text string) ([]NVSetting, error) {
	var out []NVSetting
	table := false
	for l := range strings.Lines(text) {
		f := strings.Fields(l)
		if len(f) > 0 && f[0] == "Configurations:" {
			if table = strings.Contains(l, "Default") && strings.Contains(l, "Current") && strings.Contains(l, "Next Boot"); !table {
				return nil, errors.New("unreadable answer of mstconfig: not the columns of -e")
			}
			continue
		}
		for len(f) > 0 && (f[0] == "*" || f[0] == "RO") {
			f = f[1:]
		}
		const columns = 4
		if table && len(f) == columns && isSetting(f[0]) {
			out = append(out, NVSetting{Name: f[0], Default: f[1], Current: f[2], NextBoot: f[3]})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("unreadable answer of mstconfig: no settings in it")
	}
	return out, nil
}

// isSetting tells a name, LINK_TYPE_P1 or FOO[0..7], from words of a sentence.
func isSetting(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_[].") == ""
}
