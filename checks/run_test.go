package checks

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func mustRun(t *testing.T, m *topo.Machine, opt Options) Outcome {
	t.Helper()
	o, err := Run(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestGoodNodePasses(t *testing.T) {
	o := mustRun(t, goodNode(), Options{})
	// What a good node does not have, or is told for information.
	besides := map[string]Verdict{
		"gdrdrv": Info, "nvidia-fs": NotApplicable, "ibgda": Info, "huge-pages": Info, "p2p-host-bridge": NotApplicable,
		"module-holders": NotApplicable, "rdma-link-layer": NotApplicable, "rdma-pkey": NotApplicable, "rdma-link-errors": NotApplicable,
		"data-direct-group": NotApplicable, "gpu-fabric": NotApplicable, "imex": NotApplicable, "efa-peermem": NotApplicable, "nvlink": NotApplicable,
		"nic-consistency": NotApplicable, "nic-neighbour": NotApplicable,
		"gdr-registration": NotApplicable, "gdrcopy-works": NotApplicable, // nobody asked
	}
	for _, f := range o.Findings {
		if strings.HasPrefix(f.Check, "policy-") {
			continue // no policy asks for anything here
		}
		if want := besides[f.Check]; f.Verdict != Pass && (want == Unknown || f.Verdict != want) {
			t.Errorf("%s %s: %s %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
	}
	if o.Verdict != Pass || o.ExitCode != 0 {
		t.Errorf("verdict %s, exit %d", o.Verdict, o.ExitCode)
	}
	want := []Ladder{{GPU: "GPU0", NIC: "mlx5_0"}}
	if diff := cmp.Diff(want, o.Ladders, cmp.Transformer("steps", func(l Ladder) [3]string {
		return [3]string{l.GPU, l.NIC, string(l.Broken)}
	})); diff != "" {
		t.Error(diff)
	}
	var notes []string
	for _, s := range o.Ladders[0].Steps {
		if s.Verdict != Pass || len(s.Checks) == 0 {
			t.Errorf("step %+v", s)
		}
		notes = append(notes, s.Note)
	}
	if diff := cmp.Diff([]string{"Gen5 x16", "PIX", "", "128 GiB", "DMA-BUF", "400 Gb/s"}, notes); diff != "" {
		t.Error(diff)
	}
}

func TestOverall(t *testing.T) {
	is := func(v Verdict, s Severity) Finding { return Finding{Verdict: v, Severity: s} }
	for _, tc := range []struct {
		name     string
		findings []Finding
		strict   bool
		want     Verdict
		exit     int
	}{
		{"all pass", []Finding{is(Pass, SeverityError)}, false, Pass, 0},
		{"an error failed", []Finding{is(Pass, SeverityError), is(Fail, SeverityError), is(Unknown, SeverityError)}, false, Fail, 1},
		{"an error is unknown", []Finding{is(Pass, SeverityError), is(Unknown, SeverityError), is(Warn, SeverityError)}, false, Unknown, 3},
		{"a warning is unknown", []Finding{is(Pass, SeverityError), is(Unknown, SeverityWarning)}, false, Pass, 0},
		{"a warning failed", []Finding{is(Pass, SeverityError), is(Fail, SeverityWarning)}, false, Warn, 0},
		{"strict", []Finding{is(Pass, SeverityError), is(Warn, SeverityWarning)}, true, Fail, 1},
		{"strict over unknown", []Finding{is(Unknown, SeverityError), is(Warn, SeverityWarning)}, true, Fail, 1},
		{"info failed", []Finding{is(Pass, SeverityError), is(Fail, SeverityInfo)}, true, Pass, 0},
		{"nothing judged", []Finding{is(NotApplicable, SeverityError)}, false, Unknown, 3},
		{"no findings", nil, false, Unknown, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Outcome{Verdict: overall(tc.findings, tc.strict)}
			if got := ExitOf(o.Result()); o.Verdict != tc.want || got.Code != tc.exit {
				t.Errorf("got %s, exit %d; want %s, %d", o.Verdict, got.Code, tc.want, tc.exit)
			}
		})
	}
}

func TestNodeWithNothingIsNotReady(t *testing.T) {
	m := goodNode()
	m.PCI, m.GPU.GPUs, m.RDMA.Devices = nil, nil, nil
	m.RDMA.Listed = absent[int]()
	o := mustRun(t, m, Options{})
	if o.Verdict != Fail || o.ExitCode != 1 {
		t.Errorf("verdict %s, exit %d", o.Verdict, o.ExitCode)
	}
	for _, id := range []string{"gpu-present", "rdma-device-present"} {
		if f := one(t, o, id, "node"); f.Verdict != Fail || !strings.Contains(f.Message, "GPUDirect RDMA cannot work here") {
			t.Errorf("%s: %s %s", id, f.Verdict, f.Message)
		}
	}
}

func one(t *testing.T, o Outcome, check, subject string) Finding {
	t.Helper()
	i := slices.IndexFunc(o.Findings, func(f Finding) bool { return f.Check == check && f.Subject == subject })
	if i < 0 {
		t.Fatalf("no finding %s %s", check, subject)
	}
	return o.Findings[i]
}

// A part of the collection that broke must not look like a node without it.
func TestLostPartIsUnknown(t *testing.T) {
	m := goodNode()
	m.GPU.GPUs = nil
	m.Problems = []topo.Problem{{Part: "gpu", Reason: "ran out of time"}}
	o := mustRun(t, m, Options{})
	if f := one(t, o, "gpu-present", "node"); f.Verdict != Unknown || !strings.Contains(f.Message, "ran out of time") {
		t.Errorf("%s %s", f.Verdict, f.Message)
	}
	if o.ExitCode != 3 {
		t.Errorf("exit %d", o.ExitCode)
	}
	if o := mustRun(t, m, Options{Only: []string{"acs-redirect"}}); o.ExitCode != 3 {
		t.Errorf("a run of one check that has lost its subjects exits %d", o.ExitCode)
	}
}

func TestNeedMapsStates(t *testing.T) {
	for _, tc := range []struct {
		state fact.State
		na    bool
		want  Verdict
		say   string
	}{
		{fact.Known, false, Pass, "got 7 true"},
		{fact.Absent, false, Pass, "got 0 false"},
		{fact.Denied, false, Unknown, "may not be read (a reason)"},
		{fact.Failed, false, Unknown, "failed (a reason)"},
		{fact.NotCollected, false, Unknown, "not collected (a reason)"},
		{fact.Unsupported, false, Unknown, "not supported here (a reason)"},
		{fact.Unsupported, true, NotApplicable, "not supported here (a reason)"},
	} {
		t.Run(tc.state.String(), func(t *testing.T) {
			v := fact.Value[int]{State: tc.state, Source: "file", Reason: "a reason"}
			if tc.state == fact.Known {
				v.V = 7
			}
			c := Check{ID: "x", UnsupportedIsNotApplicable: tc.na, Eval: func(c *Case) {
				got, ok := Need(c, "fact", v, "/dir")
				c.Pass("got %d %v", got, ok)
			}}
			f := judge(&c, &Node{Machine: &topo.Machine{Origin: "live"}}, Subject{ID: "node"})
			if f.Verdict != tc.want || !strings.Contains(f.Message, tc.say) {
				t.Errorf("got %s %q", f.Verdict, f.Message)
			}
			if len(f.Evidence) != 1 || f.Evidence[0].Source != "/dir/file" {
				t.Errorf("evidence %+v", f.Evidence)
			}
			if tc.state == fact.Denied && !slices.Contains(f.Fix, "Run as root: sudo gdrcheck check --only x") {
				t.Errorf("fix %q", f.Fix)
			}
		})
	}
}

func TestHowToSee(t *testing.T) {
	for _, tc := range []struct {
		name   string
		state  fact.State
		change func(*topo.Machine)
		want   string
	}{
		{"denied to a user", fact.Denied, func(m *topo.Machine) { m.Host.Root = known(false) }, "Run as root: sudo"},
		{"denied to root in a container", fact.Denied, func(m *topo.Machine) { m.Host.Container = known("docker") }, "--privileged"},
		{"not collected of a recording", fact.NotCollected, func(m *topo.Machine) { m.Origin = "recording" }, "Run on the live node"},
		{"not collected in time", fact.NotCollected, func(*topo.Machine) {}, "--timeout 60s"},
		{"failed", fact.Failed, func(*topo.Machine) {}, "dmesg"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			tc.change(m)
			port(m).Rate = fact.Missing[rdma.Rate](tc.state, "ports/1/rate", "why")
			f := findingOf(t, m, rdmaPortRate, "mlx5_0/1")
			if f.Verdict != Unknown || !strings.Contains(strings.Join(f.Fix, "\n"), tc.want) {
				t.Errorf("%s: %q lacks %q", f.Verdict, f.Fix, tc.want)
			}
		})
	}
}

func TestBugsEndAsUnknown(t *testing.T) {
	for name, eval := range map[string]func(*Case){
		"panic":        func(c *Case) { c.Pass("%s", c.Subject.NIC.Name) },
		"no verdict":   func(*Case) {},
		"two verdicts": func(c *Case) { c.Pass("good"); c.Fail("bad") },
	} {
		t.Run(name, func(t *testing.T) {
			c := Check{ID: "x", Severity: SeverityError, Eval: eval}
			f := judge(&c, &Node{Machine: &topo.Machine{}}, Subject{ID: "node"})
			if f.Verdict != Unknown || !strings.Contains(f.Message, "gdrcheck's own error") {
				t.Errorf("got %s %q", f.Verdict, f.Message)
			}
			if name == "panic" && (!strings.Contains(f.Message, "nil pointer") || !strings.Contains(f.Evidence[0].Source, "run_test.go:")) {
				t.Errorf("got %q, %+v", f.Message, f.Evidence)
			}
		})
	}
	c := Check{ID: "x", Subjects: func(*Node) []Subject { panic("boom") }}
	if f := runCheck(&Node{Machine: &topo.Machine{}}, &c, nil); f[0].Verdict != Unknown || !strings.Contains(f[0].Message, "boom") {
		t.Errorf("got %+v", f)
	}
}

func TestBlocking(t *testing.T) {
	verdictOf := map[string]Verdict{}
	mk := func(id string, deps ...string) Check {
		return Check{ID: id, DependsOn: deps, Subjects: func(*Node) []Subject {
			return []Subject{{ID: "GPU0 mlx5_0", Parts: []string{"GPU0", "mlx5_0"}}, {ID: "GPU1 mlx5_1", Parts: []string{"GPU1", "mlx5_1"}}}
		}, Eval: func(c *Case) {
			switch verdictOf[id] {
			case Fail:
				c.Fail("bad")
			case Warn:
				c.Warn("so so")
			default:
				c.Pass("good")
			}
		}}
	}
	root := Check{ID: "root", Subjects: func(*Node) []Subject {
		return []Subject{{ID: "GPU0", Parts: []string{"GPU0"}}, {ID: "GPU1", Parts: []string{"GPU1"}}}
	}, Eval: func(c *Case) {
		if c.Subject.ID == "GPU0" && verdictOf["root"] != Pass {
			c.decide(verdictOf["root"], "root")
			return
		}
		c.Pass("good")
	}}
	// Listed before what they depend on: the order must not matter.
	list := []Check{mk("leaf", "middle"), mk("middle", "root"), root}
	for _, tc := range []struct {
		root Verdict
		want string
	}{
		{Fail, "blocked by root GPU0"}, {Warn, ""}, {Unknown, ""}, {Pass, ""},
	} {
		verdictOf["root"] = tc.root
		o := run(&Node{Machine: &topo.Machine{}, Graph: topo.New(&topo.Machine{})}, list, false)
		for _, id := range []string{"middle", "leaf"} {
			f := one(t, o, id, "GPU0 mlx5_0")
			got := ""
			if f.Verdict == Blocked {
				got = "blocked by " + f.BlockedBy
			}
			if got != tc.want {
				t.Errorf("root %s: %s is %q, want %q", tc.root, id, got, tc.want)
			}
			if f := one(t, o, id, "GPU1 mlx5_1"); f.Verdict != Pass {
				t.Errorf("root %s: the other pair's %s is %s", tc.root, id, f.Verdict)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	ids := func(opt Options) []string {
		list, err := choose(all, opt)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range list {
			out = append(out, c.ID)
		}
		return out
	}
	if got := ids(Options{Only: []string{"memlock", "acs-redirect"}}); !slices.Equal(got, []string{"acs-redirect", "memlock"}) {
		t.Errorf("only: %v", got)
	}
	for _, id := range ids(Options{Skip: []string{"rdma", "memlock"}}) {
		if c, _ := Lookup(id); c.Area == AreaRDMA || id == "memlock" {
			t.Errorf("%s was not skipped", id)
		}
	}
	for _, opt := range []Options{{Only: []string{"acs"}}, {Skip: []string{"nonsense"}}} {
		_, err := Run(goodNode(), opt)
		var bad *UnknownNameError
		if !errors.As(err, &bad) || !slices.Contains(bad.Valid, "acs-redirect") || !slices.Contains(bad.Valid, "pcie") {
			t.Errorf("%+v: error %v", opt, err)
		}
	}
}

func TestPartialLadders(t *testing.T) {
	m := goodNode()
	m.RDMA.Devices, m.RDMA.Listed = nil, absent[int]()
	o := mustRun(t, m, Options{})
	if len(o.Ladders) != 1 || o.Ladders[0].GPU != "GPU0" || o.Ladders[0].NIC != "" || o.Ladders[0].Broken != RungPath {
		t.Errorf("GPU without NIC: %+v", o.Ladders)
	}
	for _, s := range mustRun(t, m, Options{Only: []string{"gpu-direct-attribute"}}).Ladders[0].Steps {
		if s.Rung == RungWay && s.Verdict != NotApplicable {
			t.Errorf("GPU without NIC: a way between one device is %s", s.Verdict)
		}
	}
	m.RDMA.Listed = fact.Missing[int](fact.NotCollected, "/sys/class/infiniband", "not in what was read")
	if note := mustRun(t, m, Options{}).Ladders[0].Steps[1].Note; note != "NICs not seen" {
		t.Errorf("a NIC that nobody looked for is called %q", note)
	}
	m = goodNode()
	m.GPU.GPUs = nil
	o = mustRun(t, m, Options{})
	if len(o.Ladders) != 1 || o.Ladders[0].NIC != "mlx5_0" || o.Ladders[0].GPU != "" || o.Ladders[0].Broken != RungPath {
		t.Errorf("NIC without GPU: %+v", o.Ladders)
	}
	m = goodNode()
	idle := goodNIC("mlx5_1", "0000:80:00.0", "ens2")
	m.RDMA.Devices = append(m.RDMA.Devices, idle)
	m.PCI = append(m.PCI, function("0000:80:00.0", "", 0x020000, 0))
	o = mustRun(t, m, Options{})
	if l := o.Ladders[len(o.Ladders)-1]; len(o.Ladders) != 2 || l.NIC != "mlx5_1" || l.GPU != "" || l.Broken != RungNone ||
		l.Steps[1].Verdict != Info || l.Steps[1].Note != "idle" {
		t.Errorf("idle NIC: %+v", o.Ladders)
	}
	o = mustRun(t, goodNode(), Options{Only: []string{"bar1-size"}})
	for _, s := range o.Ladders[0].Steps {
		if want := map[bool]Verdict{true: Pass, false: Unknown}[s.Rung == RungBAR1]; s.Verdict != want {
			t.Errorf("with bar1-size alone, rung %s is %s", s.Rung, s.Verdict)
		}
	}
}

func TestSoftwareRDMAIsNotReady(t *testing.T) {
	m := goodNode()
	nic(m).Name, nic(m).Software, nic(m).Driver = "rxe0", true, fact.Of("rdma_rxe", "parent")
	o := mustRun(t, m, Options{})
	if o.Verdict != Fail || one(t, o, "rdma-device-present", "node").Verdict != Fail {
		t.Errorf("verdict %s", o.Verdict)
	}
	for _, l := range o.Ladders {
		if l.Broken == RungNone {
			t.Errorf("ladder %+v looks ready", l)
		}
	}
}

func TestStep(t *testing.T) {
	is := func(v Verdict, s Severity) Finding {
		return Finding{Check: "x", Verdict: v, Severity: s, Rung: RungWay}
	}
	for _, tc := range []struct {
		name     string
		findings []Finding
		want     Verdict
	}{
		{"pass", []Finding{is(Pass, SeverityError), is(NotApplicable, SeverityError), is(Info, SeverityInfo)}, Pass},
		{"a serious unknown", []Finding{is(Pass, SeverityError), is(Unknown, SeverityError), is(Warn, SeverityError)}, Unknown},
		{"a lesser unknown", []Finding{is(Pass, SeverityError), is(Unknown, SeverityWarning)}, Pass},
		{"a lesser unknown alone", []Finding{is(Unknown, SeverityWarning)}, Unknown},
		{"a lesser failure", []Finding{is(Pass, SeverityError), is(Fail, SeverityWarning)}, Warn},
		{"a failure", []Finding{is(Unknown, SeverityError), is(Fail, SeverityError), is(Blocked, SeverityError)}, Fail},
		{"blocked", []Finding{is(Pass, SeverityError), is(Blocked, SeverityError)}, Blocked},
		{"nothing", nil, Unknown},
		{"another pair's", []Finding{{Verdict: Fail, Severity: SeverityError, Rung: RungWay, Parts: []string{"GPU1"}}}, Unknown},
	} {
		if got := step(RungWay, []string{"GPU0", "mlx5_0"}, tc.findings); got.Verdict != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got.Verdict, tc.want)
		}
	}
}

// A guest with two GPUs passed through on a flat bus and no RDMA NIC: the one
// failure is the missing NIC, and nothing else stands in doubt.
func TestFlatGuestWithoutNIC(t *testing.T) {
	m := goodNode()
	guest(m)
	second := m.GPU.GPUs[0]
	second.Index, second.Addr = 1, at("0000:00:07.0")
	m.GPU.GPUs[0].Addr = at("0000:00:06.0")
	m.GPU.GPUs = append(m.GPU.GPUs, second)
	m.PCI = nil
	for _, a := range []string{"0000:00:06.0", "0000:00:07.0"} {
		f := function(a, "", pci.Class3D<<8, pci.PortEndpoint)
		f.NUMANode = absent[int]()
		m.PCI = append(m.PCI, f)
	}
	m.RDMA.Devices, m.RDMA.NetDevs, m.RDMA.Listed = nil, nil, known(0)
	noPeermem(m)
	o := mustRun(t, m, Options{})
	for _, f := range o.Findings {
		want := f.Verdict
		switch {
		case f.Check == "rdma-device-present":
			want = Fail
		case f.Verdict == Fail || f.Verdict == Unknown || f.Verdict == Warn:
			want = Pass
		}
		if f.Verdict != want {
			t.Errorf("%s %s: %s %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
	}
	if o.ExitCode != 1 || len(o.Ladders) != 2 || o.Ladders[1].GPU != "GPU1" || o.Ladders[1].Broken != RungPath {
		t.Errorf("exit %d, ladders %+v", o.ExitCode, o.Ladders)
	}
}

// A recording must be judged as the live machine is.
func TestRecordingJudgedAlike(t *testing.T) {
	for name, m := range map[string]*topo.Machine{"good": goodNode(), "broken": func() *topo.Machine {
		m := goodNode()
		denied(&fn(m, gpuPort).Config.ACS)
		port(m).State = fact.Of("DOWN", "ports/1/state")
		return m
	}()} {
		if diff := cmp.Diff(mustRun(t, m, Options{}), mustRun(t, clone(t, m), Options{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
