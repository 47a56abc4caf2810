package checks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/topo"
)

// operation is one change to a machine. Paths are those of the machine's JSON,
// with list items chosen by their key, "[*]" for all of them:
//
//	rdma.devices[mlx5_3].ports[1].state
//	pci[0000:12:00.0].config.acs
//	host.modules[nvidia_peermem]
//
// A path goes through facts: "gpu.gpus[0].nvml.bar1.total_bytes".
type operation struct {
	Set    string `yaml:"set"`    // this fact is known, and To; or in another State
	To     any    `yaml:"to"`     // as in JSON
	State  string `yaml:"state"`  // absent, denied, …
	Reason string `yaml:"reason"` // beside State
	Add    string `yaml:"add"`    // a list, which Item is added to
	Item   any    `yaml:"item"`
	Remove string `yaml:"remove"` // an item of a list or map
}

// apply carries out one operation. A path that leads nowhere is an error: a
// description that changes nothing would prove nothing.
func (o operation) apply(m *topo.Machine) error {
	var hits int
	var err error
	visit := func(f func(reflect.Value) error) func(reflect.Value) error {
		return func(v reflect.Value) error { hits++; return f(v) }
	}
	path := o.Set + o.Add + o.Remove
	switch {
	case o.Set != "":
		err = walk(reflect.ValueOf(m).Elem(), o.Set, visit(o.set))
	case o.Add != "":
		err = walk(reflect.ValueOf(m).Elem(), o.Add, visit(func(v reflect.Value) error {
			v = known1(v)
			item := reflect.New(v.Type().Elem())
			if err := decode(o.Item, item.Interface()); err != nil {
				return err
			}
			v.Set(reflect.Append(v, item.Elem()))
			return nil
		}))
	case o.Remove != "":
		at := strings.LastIndexByte(o.Remove, '[')
		if at < 0 {
			return fmt.Errorf("remove %s: not an item", path)
		}
		key := strings.TrimSuffix(o.Remove[at+1:], "]")
		err = walk(reflect.ValueOf(m).Elem(), o.Remove[:at], func(v reflect.Value) error {
			hits += removeItems(known1(v), key)
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if hits == 0 {
		return fmt.Errorf("%q: there is no such thing on the machine", path)
	}
	return nil
}

func (o operation) set(v reflect.Value) error {
	if !isFact(v) {
		return decode(o.To, v.Addr().Interface())
	}
	if o.State == "" {
		x := v.FieldByName("V").Addr()
		v.FieldByName("V").SetZero()
		if err := decode(o.To, x.Interface()); err != nil {
			return err
		}
		v.FieldByName("State").Set(reflect.ValueOf(fact.Known))
	} else {
		var s fact.State
		if err := s.UnmarshalText([]byte(o.State)); err != nil {
			return err
		}
		v.FieldByName("V").SetZero()
		v.FieldByName("State").Set(reflect.ValueOf(s))
		v.FieldByName("Reason").SetString(o.Reason)
	}
	if src := v.FieldByName("Source"); src.String() == "" {
		src.SetString("test")
	}
	return nil
}

// decode goes through JSON, so that a value is written as documents show it.
func decode(from, into any) error {
	b, err := json.Marshal(from)
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func isFact(v reflect.Value) bool { return strings.HasPrefix(v.Type().Name(), "Value[") }

// known1 is a fact's value, and makes the fact known; anything else is itself.
func known1(v reflect.Value) reflect.Value {
	if !isFact(v) {
		return v
	}
	v.FieldByName("State").Set(reflect.ValueOf(fact.Known))
	return v.FieldByName("V")
}

// walk calls f on each value that a path leads to.
func walk(v reflect.Value, path string, f func(reflect.Value) error) error {
	for v.Kind() == reflect.Pointer && path != "" {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	if path == "" {
		return f(v)
	}
	v = known1(v)
	if rest, ok := strings.CutPrefix(path, "["); ok {
		key, rest, ok := strings.Cut(rest, "]")
		if !ok {
			return fmt.Errorf("%q: a bracket is open", path)
		}
		return walkItems(v, key, strings.TrimPrefix(rest, "."), f)
	}
	end := strings.IndexAny(path, ".[")
	name, rest := path, ""
	if end >= 0 {
		name, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	}
	if v.Kind() != reflect.Struct {
		return fmt.Errorf("%q: not in a struct but a %s", path, v.Type())
	}
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if tag == name {
			return walk(v.Field(i), rest, f)
		}
	}
	return fmt.Errorf("%s has no %q", v.Type(), name)
}

func walkItems(v reflect.Value, key, rest string, f func(reflect.Value) error) error {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			if key == "*" || hasKey(v.Index(i), i, key) {
				if err := walk(v.Index(i), rest, f); err != nil {
					return err
				}
			}
		}
		return nil
	case reflect.Map:
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if old := v.MapIndex(reflect.ValueOf(key)); old.IsValid() {
			item.Set(old)
		}
		if err := walk(item, rest, f); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key), item)
		return nil
	default:
		return fmt.Errorf("[%s]: not a list or a map but a %s", key, v.Type())
	}
}

// hasKey says whether an item is the one that a key names: by its name, address,
// path, number or place in the list.
func hasKey(v reflect.Value, i int, key string) bool {
	if v.Kind() == reflect.Struct {
		for n := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(n).Tag.Get("json"), ",")
			switch tag {
			case "name", "device", "addr", "path", "number", "index", "id":
				return fmt.Sprint(v.Field(n).Interface()) == key
			}
		}
	}
	return strconv.Itoa(i) == key
}

func removeItems(v reflect.Value, key string) (removed int) {
	if v.Kind() == reflect.Map {
		k := reflect.ValueOf(key)
		if !v.MapIndex(k).IsValid() {
			return 0
		}
		v.SetMapIndex(k, reflect.Value{})
		return 1
	}
	out := reflect.MakeSlice(v.Type(), 0, v.Len())
	for i := range v.Len() {
		if key == "*" || hasKey(v.Index(i), i, key) {
			removed++
			continue
		}
		out = reflect.Append(out, v.Index(i))
	}
	v.Set(out)
	return removed
}
