package checks

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/topo"
)

// facts finds every fact.Value of a machine: its path and its address.
func facts(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			facts(v.Elem(), path, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			facts(v.Index(i), path, visit)
		}
	case reflect.Struct:
		if strings.HasPrefix(v.Type().Name(), "Value[") {
			visit(path, v)
			facts(v.FieldByName("V"), path, visit)
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				facts(v.Field(i), path+"."+f.Name, visit)
			}
		}
	default:
	}
}

// busyNode has something for every check to read.
func busyNode() *topo.Machine {
	m := goodNode()
	m.Host.Modules.V = append(m.Host.Modules.V, host.Module{Name: "gdrdrv", Version: known("2.5")})
	m.Host.CharMajors = known(map[string]int{"gdrdrv": 239})
	m.Host.Nodes = []host.DeviceNode{{Path: "/dev/gdrdrv", Info: known(fact.Info{}), Access: known(true)}}
	for _, a := range []string{gpuAddr, nicAddr} {
		fn(m, a).IOMMUGroup, fn(m, a).IOMMUGroupType = known(3), known("identity")
	}
	return m
}

// Whichever single fact is lost, in whichever way: no check breaks, and none
// passes on a fact that it looked at and did not see, unless another fact
// suffices for it.
func TestEveryFactLost(t *testing.T) {
	// Checks with several ways to the same answer.
	oneSuffices := []string{"gdr-way", "nic-model", "bar1-size"}
	var total int
	facts(reflect.ValueOf(busyNode()), "", func(string, reflect.Value) { total++ })
	if total < 150 {
		t.Fatalf("only %d facts found", total)
	}
	for i := range total {
		for _, state := range []fact.State{fact.NotCollected, fact.Absent, fact.Unsupported, fact.Denied, fact.Failed} {
			m := busyNode()
			var where string
			n := 0
			facts(reflect.ValueOf(m), "", func(path string, v reflect.Value) {
				if n == i {
					where = path
					source := v.FieldByName("Source").String()
					v.SetZero()
					v.FieldByName("State").Set(reflect.ValueOf(state))
					v.FieldByName("Source").SetString(source)
					v.FieldByName("Reason").SetString("lost in the test")
				}
				n++
			})
			for _, f := range mustRun(t, m, Options{}).Findings {
				if strings.Contains(f.Message, "gdrcheck's own error") {
					t.Errorf("%s %s: %s: %s", where, state, f.Check, f.Message)
				}
				checkFindingQuietly(t, where+" "+state.String(), f)
				if f.Verdict != Pass || state == fact.Absent || slices.Contains(oneSuffices, f.Check) {
					continue
				}
				for _, e := range f.Evidence {
					if strings.Contains(e.Got, "lost in the test") {
						t.Errorf("%s %s: %s passes on a fact that it did not see: %+v", where, state, f.Check, e)
					}
				}
			}
		}
	}
}

// checkFindingQuietly is checkFinding with the change that led to it.
func checkFindingQuietly(t *testing.T, change string, f Finding) {
	t.Helper()
	if f.Message == "" || strings.Contains(f.Message, "%!") {
		t.Errorf("%s: %s: message %q", change, f.Check, f.Message)
	}
	if f.Verdict == Fail || f.Verdict == Warn {
		if len(f.Fix) == 0 || len(f.Evidence) == 0 {
			t.Errorf("%s: %s %s: %s without fix or evidence", change, f.Check, f.Verdict, f.Message)
		}
	}
}

// An empty machine, as a collection that broke at once leaves it.
func TestEmptyMachine(t *testing.T) {
	o := mustRun(t, &topo.Machine{Problems: []topo.Problem{
		{Part: "pci", Reason: "x"}, {Part: "gpu", Reason: "x"}, {Part: "rdma", Reason: "x"}, {Part: "host", Reason: "x"}}}, Options{})
	if o.Verdict != Unknown || o.Counts[Pass] != 0 || o.Counts[Fail] != 0 {
		t.Errorf("%s %v", o.Verdict, o.Counts)
	}
	if o := mustRun(t, &topo.Machine{}, Options{}); o.Verdict == Pass || o.Counts[Pass] != 0 {
		t.Errorf("without problems named: %s %v", o.Verdict, o.Counts)
	}
}
