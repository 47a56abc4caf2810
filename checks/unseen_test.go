package checks

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// factKind is all facts of a machine that are of one kind, as the rate of every
// port of every NIC.
type factKind struct {
	path string
	sets []func(withhold bool, state fact.State)
}

// factKinds are the kinds of all facts of a machine, and the parts that are
// collected as a whole.
func factKinds(m *topo.Machine) []factKind {
	var out []factKind
	add := func(path string, set func(bool, fact.State)) {
		i := slices.IndexFunc(out, func(k factKind) bool { return k.path == path })
		if i < 0 {
			i = len(out)
			out = append(out, factKind{path: path})
		}
		out[i].sets = append(out[i].sets, set)
	}
	withheld := func(v reflect.Value, state fact.State) {
		source := v.FieldByName("Source").String()
		v.SetZero()
		v.FieldByName("State").Set(reflect.ValueOf(state))
		v.FieldByName("Source").SetString(source)
		v.FieldByName("Reason").SetString("withheld in the test")
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), path)
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i), path)
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				was := v.MapIndex(key)
				if !isFact(was) {
					continue
				}
				add(path+"["+key.String()+"]", func(withhold bool, state fact.State) {
					item := reflect.New(was.Type()).Elem()
					item.Set(was)
					if withhold {
						withheld(item, state)
					}
					v.SetMapIndex(key, item)
				})
			}
		case reflect.Struct:
			if isFact(v) {
				was := reflect.New(v.Type()).Elem()
				was.Set(v)
				add(path, func(withhold bool, state fact.State) {
					if v.Set(was); withhold {
						withheld(v, state)
					}
				})
				walk(v.FieldByName("V"), path)
				return
			}
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					walk(v.Field(i), path+"."+f.Name)
				}
			}
		default:
		}
	}
	walk(reflect.ValueOf(m), "")
	was := *m
	for part, clear := range map[string]func(){
		"pci":  func() { m.PCI = nil },
		"gpu":  func() { m.GPU = gpu.Facts{} },
		"rdma": func() { m.RDMA = rdma.Facts{} },
		"qos":  func() { m.QoS = qos.Facts{} },
	} {
		add("part "+part, func(withhold bool, _ fact.State) {
			pci, g, r, q := was.PCI, was.GPU, was.RDMA, was.QoS
			m.PCI, m.GPU, m.RDMA, m.QoS, m.Problems = pci, g, r, q, was.Problems
			if withhold {
				clear()
				m.Problems = append(slices.Clone(was.Problems), topo.Problem{Part: part, Reason: "withheld in the test"})
			}
		})
	}
	return out
}

func (k factKind) withhold(on bool, state fact.State) {
	for _, set := range k.sets {
		set(on, state)
	}
}

// unseenSuffices are checks, or checks with a kind of fact, that pass or do not
// apply without it, each for a reason.
var unseenSuffices = map[string]bool{
	// The GPU's own window on the bus is the same as the driver's BAR1.
	"bar1-size GPU.GPUs.NVML.BAR1": true,
	// The card's configuration space tells the same link.
	"pcie-link-width PCI.Link": true, "pcie-link-speed PCI.Link": true,
	// It weighs what promises a way, and says so ("libibverbs was not asked"). Each of
	// these facts has a check that is unknown without it: kernel-dmabuf, nic-model,
	// gpu-direct-attribute, confidential-computing, gpu-driver, gdr-registration.
	"gdr-way": true,
	// A driver that registers DMA-BUF proves it, whatever the table says.
	"nic-model RDMA.Devices.Model": true,
	// It compares what is seen on siblings and says how many settings those are; but
	// for trust and PFC, each has a check of its own that is unknown without it.
	"nic-consistency QoS.Ports.DCB.Apps": true, "nic-consistency QoS.Ports.ECN.NP": true, "nic-consistency QoS.Ports.ECN.RP": true,
	"nic-consistency QoS.Ports.ECN.CNPDSCP": true, "nic-consistency QoS.Ports.FEC.Active": true, "nic-consistency QoS.Ports.Pause.RX": true,
	"nic-consistency QoS.Ports.ToS.Forced": true, "nic-consistency QoS.Ports.ToS.RDMACM": true,
	"nic-consistency part qos": true, // on InfiniBand, where none of them is set on the host
	// Modules and firmware settings are read on request alone.
	"nic-settings QoS.Ports.NVConfig.Settings": true, "nic-settings part qos": true,
	"rdma-module QoS.Ports.Module.Type": true, "rdma-module part qos": true,
}

// neverPassesUnseen withholds each kind of fact from a machine on which a check
// fails or warns: what cannot be seen must then be unknown, or fail for another
// reason, but never pass or not apply. (Absent and Unsupported are no way of not
// seeing: there is no such thing.)
func neverPassesUnseen(t testing.TB, m *topo.Machine, check Check, subject string, opt Options) {
	t.Helper()
	n, err := NewNode(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	judgeIt := func() Finding {
		n.Graph, n.Platform = topo.New(m), derivePlatform(m)
		found := runCheck(n, &check, nil)
		if i := slices.IndexFunc(found, func(f Finding) bool { return f.Subject == subject || f.Subject == nodeID }); i >= 0 {
			return found[i]
		}
		return Finding{} // other devices are judged: that this one is gone, another check says
	}
	whole := judgeIt()
	for _, k := range factKinds(m) {
		if unseenSuffices[check.ID+" "+strings.TrimPrefix(k.path, ".")] || unseenSuffices[check.ID] {
			continue
		}
		for _, state := range []fact.State{fact.Failed, fact.Denied, fact.NotCollected} {
			k.withhold(true, state)
			f := judgeIt()
			k.withhold(false, state)
			if state == fact.Failed && reflect.DeepEqual(f, whole) {
				break // the check does not look at it
			}
			if f.Verdict == Pass || f.Verdict == NotApplicable {
				t.Errorf("%s %s without %s (%s): %s becomes %s: %s", check.ID, subject, strings.TrimPrefix(k.path, "."), state, whole.Verdict, f.Verdict, f.Message)
			}
		}
	}
	if again := judgeIt(); !reflect.DeepEqual(again, whole) {
		t.Errorf("%s %s: the machine was not put back", check.ID, subject)
	}
}

// errorsOf stands for a test, and notes what it reports.
type errorsOf struct {
	testing.TB
	list []string
}

func (e *errorsOf) Helper() {}

func (e *errorsOf) Errorf(format string, args ...any) {
	e.list = append(e.list, fmt.Sprintf(format, args...))
}

// A check that passes on what it did not see is found out, whatever kind of fact
// that is; one that asks for it is not.
func TestPassingUnseenIsFound(t *testing.T) {
	lanes := func(c *Case) fact.Value[int] { return c.Subject.Leg.Link.Lanes }
	loaded := func(c *Case) fact.Value[[]host.Module] { return c.Machine.Host.Modules }
	symbol := func(c *Case) fact.Value[bool] { return c.Machine.Host.Symbols["x"] }
	for name, tc := range map[string]struct {
		eval func(*Case)
		want int // states of one kind of fact, or parts, in which it passes
	}{
		"lanes":         {func(c *Case) { warnIf(c, lanes(c).V == 4) }, 3 + 3}, // and the part qos
		"a list":        {func(c *Case) { warnIf(c, len(loaded(c).V) == 1) }, 3},
		"a map":         {func(c *Case) { warnIf(c, symbol(c).V) }, 3},
		"it asks":       {func(c *Case) { n, _ := Need(c, "lanes", lanes(c)); warnIf(c, n == 4) }, 0},
		"it must see":   {func(c *Case) { _, ok := mustSee(c, "modules", loaded(c)); warnIf(c, ok) }, 0},
		"not to apply":  {func(c *Case) { notFor(c, lanes(c).State != fact.Known) }, 3 + 3},
		"what it knows": {func(c *Case) { warnIf(c, true) }, 0},
	} {
		m := goodNode()
		m.Host.Symbols = map[string]fact.Value[bool]{"x": known(true)}
		e := &errorsOf{TB: t}
		neverPassesUnseen(e, m, Check{ID: "x", Subjects: EachLeg, Eval: tc.eval}, "mlx5_0/1", Options{})
		if len(e.list) != tc.want {
			t.Errorf("%s: %d found, want %d: %q", name, len(e.list), tc.want, e.list)
		}
	}
}

func warnIf(c *Case, bad bool) {
	if bad {
		c.Warn("bad")
		return
	}
	c.Pass("good")
}

func notFor(c *Case, it bool) {
	if it {
		c.NotApplicable("not for this")
		return
	}
	c.Warn("bad")
}

// Where devices may have been overlooked, nothing to judge is unknown; a device
// that is on no bus, or of which nobody asked, is none that was overlooked.
func TestNothingToJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*topo.Machine)
		want   Verdict
	}{
		"all seen":               {func(*topo.Machine) {}, NotApplicable},
		"GPUs not collected":     {func(m *topo.Machine) { m.Problems = []topo.Problem{{Part: "gpu", Reason: "x"}} }, Unknown},
		"a NIC's place denied":   {func(m *topo.Machine) { denied(&nic(m).PCI) }, Unknown},
		"a NIC on no bus":        {func(m *topo.Machine) { nic(m).PCI = absent[pci.Address]() }, NotApplicable},
		"software RDMA":          {func(m *topo.Machine) { denied(&nic(m).PCI); nic(m).Software = true }, NotApplicable},
		"nobody asked":           {func(m *topo.Machine) { nic(m).PCI = fact.Value[pci.Address]{} }, NotApplicable},
		"a function's class":     {func(m *topo.Machine) { denied(&fn(m, uplink).Class) }, Unknown},
		"host facts do not tell": {func(m *topo.Machine) { m.Problems = []topo.Problem{{Part: "host", Reason: "x"}} }, NotApplicable},
	} {
		m := goodNode()
		m.GPU.GPUs = nil
		tc.change(m)
		for _, check := range []Check{numaBalancing, kernelDMABuf, gpuMemory} { // by none, and by the runner
			if f := findingOf(t, m, check, nodeID); f.Verdict != tc.want {
				t.Errorf("%s: %s: %s %s", name, check.ID, f.Verdict, f.Message)
			}
		}
	}
}

// What a policy expects of a NIC whose model, rate or firmware was not seen is
// unknown: such a NIC is not left out.
func TestPolicyUnseen(t *testing.T) {
	opt := func(text string) Options {
		p, err := ParsePolicy([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return Options{Policy: p}
	}
	slow := func(m *topo.Machine) { port(m).Rate.V = rdma.Rate{BitsPerSec: 200e9, Text: "200 Gb/sec"} }
	runCasesOn(t, "policy-nic-rate", opt("expect: {nics: {model: ConnectX-7, rate_gbps: 400}}"), []verdictCase{
		{"as expected", nil, "mlx5_0/1", Pass, "400", ""},
		{"slower", slow, "mlx5_0/1", Fail, "200 Gb/s, expected 400 Gb/s", ""},
		{"model not seen", func(m *topo.Machine) { denied(&nic(m).Model) }, "mlx5_0/1", Unknown, "model of mlx5_0 may not be read", ""},
		{"state not seen", all2(slow, func(m *topo.Machine) { denied(&port(m).State) }), "mlx5_0/1", Unknown, "state may not be read", ""},
		{"another model", all2(slow, func(m *topo.Machine) { nic(m).Model.V.Name = "ConnectX-6" }), "node", NotApplicable, "", ""},
	})
	runCasesOn(t, "policy-nic-firmware", opt(`expect: {nics: {model: ConnectX-7, firmware: "28.45"}}`), []verdictCase{
		{"another", nil, "mlx5_0", Fail, "28.43.2566, expected 28.45", ""},
		{"model not seen", func(m *topo.Machine) { denied(&nic(m).Model) }, "mlx5_0", Unknown, "model of mlx5_0 may not be read", ""},
	})
	runCasesOn(t, "policy-nics", opt("expect: {nics: {model: ConnectX-7, count: 2}}"), []verdictCase{
		{"one of two", nil, "node", Fail, "1 ConnectX-7 NIC, the policy says 2", ""},
		{"two", secondNIC(func(*rdma.Device) {}), "node", Pass, "2 ConnectX-7 NICs", ""},
		{"the second's model not seen", secondNIC(func(d *rdma.Device) { denied(&d.Model) }), "node", Unknown, "model of mlx5_1 may not be read", ""},
	})
	runCasesOn(t, "policy-gpus", opt("expect: {gpus: {count: 2}}"), []verdictCase{
		{"one of two", nil, "node", Fail, "1 GPU, the policy says 2", ""},
	})
	runCasesOn(t, "policy-gpu-model", opt("expect: {gpus: {model: B200}}"), []verdictCase{
		{"another", nil, "GPU0", Fail, "expected B200", ""},
	})
}
