package checks

import (
	"bytes"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// policyText takes the mark off that editors put before UTF-8, and refuses what
// is no UTF-8, of which the YAML library makes other words than were written.
func policyText(text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, &PolicyError{Line: 1, Column: 1, Message: "the file is UTF-16; save it as UTF-8"}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if utf8.Valid(text) {
		return text, nil
	}
	line, column := 1, 1
	for rest := text; ; {
		r, n := utf8.DecodeRune(rest)
		if r == utf8.RuneError && n == 1 {
			return nil, &PolicyError{Line: line, Column: column, Message: "the file is not UTF-8 here; save it as UTF-8"}
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		rest = rest[n:]
	}
}

// formed compares a policy with the type that it is for. The decoder would take
// 8.5 for 8 and the key 1 for none, and tells of other faults in the words of Go.
// A key that does not exist is left to it.
func formed(n ast.Node, t reflect.Type) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return formedMapping(n, t)
	case reflect.Slice:
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			return faultAt(n, "want a list, as in [a, b]")
		}
		for _, e := range list.Values {
			if err := formed(e, t.Elem()); err != nil {
				return err
			}
		}
	case reflect.String:
		if _, ok := n.(ast.ScalarNode); !ok || n.Type() == ast.NullType {
			return faultAt(n, "want a text")
		}
		if k := n.Type(); k == ast.FloatType || k == ast.IntegerType { // 28.10 would become 28.1
			return faultAt(n, "want a text: put %[1]s in quotes, \"%[1]s\"", n.GetToken().Value)
		}
	case reflect.Float64:
		if n.Type() != ast.FloatType && n.Type() != ast.IntegerType {
			return faultAt(n, "want a number")
		}
	default:
		if n.Type() != ast.IntegerType {
			return faultAt(n, "want a whole number")
		}
	}
	if k := n.Type(); (k == ast.FloatType || k == ast.IntegerType) && t.Kind() != reflect.String && strings.HasPrefix(n.GetToken().Value, "-") {
		return faultAt(n, "a number below zero")
	}
	return nil
}

func formedMapping(n ast.Node, t reflect.Type) error {
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return faultAt(n, "want keys with their values, as in key: value")
	}
	for each := mapping.MapRange(); each.Next(); {
		key, value := each.Key(), each.Value()
		name, ok := key.(*ast.StringNode)
		if !ok {
			return faultAt(key, "unknown field %q", key.String())
		}
		of := t
		if t.Kind() == reflect.Map {
			if of = t.Elem(); value.Type() == ast.NullType {
				return faultAt(key, "%s is given no value", name.Value)
			}
		} else if of = fieldNamed(t, name.Value); of == nil || value.Type() == ast.NullType {
			continue
		}
		if err := formed(value, of); err != nil {
			return err
		}
	}
	return nil
}

// fieldNamed is the type of a field by its key in YAML; nil: there is none.
func fieldNamed(t reflect.Type, key string) reflect.Type {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == key {
			return f.Type
		}
	}
	return nil
}
