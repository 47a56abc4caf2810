package fact

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// measured redacts a measurement. Its GIDs are written as package net/netip
// writes them, and told again in sentences: no form tells those from a version.
func (r *redactor) measured(question string, data json.RawMessage) (json.RawMessage, error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	pseudonyms := map[string]string{}
	r.gids(v, pseudonyms)
	text := string(data)
	// The longer ones first: 10.0.0.1 is a part of 10.0.0.11.
	originals := make([]string, 0, len(pseudonyms))
	for o := range pseudonyms {
		originals = append(originals, o)
	}
	slices.SortFunc(originals, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(originals))
	for _, o := range originals {
		pairs = append(pairs, o, pseudonyms[o])
	}
	return r.json(question, json.RawMessage(strings.NewReplacer(pairs...).Replace(text)))
}

// gids gives every value of a field "gid" its pseudonym, as it is written and,
// where it stands for an IPv4 address, as that.
func (r *redactor) gids(v any, into map[string]string) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			r.gids(e, into)
		}
	case map[string]any:
		for k, e := range x {
			text, ok := e.(string)
			a, err := netip.ParseAddr(text)
			if k != "gid" || !ok || err != nil {
				r.gids(e, into)
				continue
			}
			b := a.As16()
			p := netip.AddrFrom16([16]byte(r.gid(b[:])))
			if p == a {
				continue
			}
			into[text] = p.String()
			into[a.Unmap().String()] = p.Unmap().String()
			// Not searched for at the end: one short address is a part of another.
		}
	}
}
