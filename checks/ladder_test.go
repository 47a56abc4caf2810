package checks

import (
	"slices"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

func stepOf(t *testing.T, o Outcome, gpu, nic string, r Rung) Step {
	t.Helper()
	for _, l := range o.Ladders {
		for _, s := range l.Steps {
			if l.GPU == gpu && l.NIC == nic && s.Rung == r {
				return s
			}
		}
	}
	t.Fatalf("no ladder %q %q: %+v", gpu, nic, o.Ladders)
	return Step{}
}

// What stands beside a rung.
func TestRungNotes(t *testing.T) {
	noNIC := func(m *topo.Machine) { m.RDMA.Devices, m.RDMA.Listed = nil, absent[int]() }
	noGPU := func(m *topo.Machine) { m.GPU.GPUs = nil }
	lost := func(part string) func(*topo.Machine) {
		return func(m *topo.Machine) { m.Problems = []topo.Problem{{Part: part, Reason: "x"}} }
	}
	narrow := func(m *topo.Machine) { setLink(m, 16, 8, nicAddr, nicPort) }
	for _, tc := range []struct {
		name     string
		change   func(*topo.Machine)
		gpu, nic string
		rung     Rung
		want     string
	}{
		{"the narrowest link", narrow, "GPU0", "mlx5_0", RungLink, "Gen4 x8"},
		{"no NIC", noNIC, "GPU0", "", RungPath, "no RDMA NIC"},
		{"NICs not listed", func(m *topo.Machine) { noNIC(m); denied(&m.RDMA.Listed) }, "GPU0", "", RungPath, "NICs not seen"},
		{"no NIC among those listed", func(m *topo.Machine) { m.RDMA.Devices, m.RDMA.Listed = nil, known(0) }, "GPU0", "", RungPath, "no RDMA NIC"},
		{"no GPU", noGPU, "", "mlx5_0", RungPath, "no GPU"},
		{"GPUs lost", all2(noGPU, lost("gpu")), "", "mlx5_0", RungPath, "GPUs not seen"},
		{"another part lost", all2(noGPU, lost("host")), "", "mlx5_0", RungPath, "no GPU"},
		{"a pair, a part lost", lost("gpu"), "GPU0", "mlx5_0", RungPath, "PIX"},
		{"port down", func(m *topo.Machine) { port(m).State.V = "DOWN" }, "GPU0", "mlx5_0", RungPort, "DOWN"},
		{"rate not known", func(m *topo.Machine) { denied(&port(m).Rate) }, "GPU0", "mlx5_0", RungPort, "ACTIVE"},
		{"the port that is up", func(m *topo.Machine) {
			p := *port(m)
			p.Number, p.Rate = 2, known(rdma.Rate{BitsPerSec: 200e9})
			nic(m).Ports = append(nic(m).Ports, p)
			nic(m).Ports[0].State = known("DOWN")
		}, "GPU0", "mlx5_0", RungPort, "200 Gb/s"},
		{"an idle NIC", idleNIC(func(*rdma.Device) {}), "", "mlx5_1", RungPath, "idle"},
		{"BAR1 not known", func(m *topo.Machine) { denied(&dev(m).BAR1) }, "GPU0", "mlx5_0", RungBAR1, ""},
	} {
		m := goodNode()
		tc.change(m)
		if got := stepOf(t, mustRun(t, m, Options{}), tc.gpu, tc.nic, tc.rung).Note; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A rung's verdict comes from its own pair's findings.
func TestLadderOfItsOwnNIC(t *testing.T) {
	m := goodNode()
	secondNIC(func(d *rdma.Device) { d.Ports[0].State.V = "DOWN" })(m)
	o := mustRun(t, m, Options{})
	if s := stepOf(t, o, "GPU0", "mlx5_1", RungPort); s.Verdict != Fail {
		t.Errorf("the port that is down: %+v", s)
	}
	if s := stepOf(t, o, "GPU0", "mlx5_0", RungPort); s.Verdict != Pass {
		t.Errorf("the port beside it: %+v", s)
	}
	// One side alone has no rung of the other's.
	m = goodNode()
	m.RDMA.Devices, m.RDMA.Listed = nil, absent[int]()
	o = mustRun(t, m, Options{})
	if s := stepOf(t, o, "GPU0", "", RungPort); s.Verdict != NotApplicable && s.Verdict != Blocked {
		t.Errorf("the port of no NIC: %+v", s)
	}
	if s := stepOf(t, mustRun(t, m, Options{Only: []string{"bar1-size"}}), "GPU0", "", RungPort); s.Verdict != NotApplicable || s.Note != "" {
		t.Errorf("the port of no NIC, not checked: %+v", s)
	}
	if s := stepOf(t, mustRun(t, goodNode(), Options{Only: []string{"bar1-size"}}), "GPU0", "mlx5_0", RungPort); s.Verdict != Unknown || s.Note != "not checked" {
		t.Errorf("not checked: %+v", s)
	}
}

// A rung names the checks that made its verdict, and those that are bad besides.
func TestStepChecks(t *testing.T) {
	is := func(check string, v Verdict, s Severity) Finding {
		return Finding{Check: check, Subject: "x", Verdict: v, Severity: s, Rung: RungWay}
	}
	waived := func(f Finding) Finding { f.Waived = &Waiver{}; return f }
	for _, tc := range []struct {
		name     string
		findings []Finding
		want     Verdict
		checks   []string
	}{
		{"all pass", []Finding{is("a", Pass, SeverityError), is("b", Pass, SeverityWarning), is("c", Info, SeverityInfo)}, Pass, []string{"a x", "b x"}},
		{"a warning besides", []Finding{is("a", Warn, SeverityError), is("b", Fail, SeverityError), is("c", Pass, SeverityError)}, Fail, []string{"b x", "a x"}},
		{"information alone", []Finding{is("a", Info, SeverityInfo), is("b", NotApplicable, SeverityInfo)}, Info, []string{"a x"}},
		{"information over a lesser unknown", []Finding{is("a", Unknown, SeverityWarning), is("b", Info, SeverityInfo)}, Info, []string{"b x"}},
		{"a lesser unknown over nothing", []Finding{is("a", NotApplicable, SeverityError), is("b", Unknown, SeverityWarning)}, Unknown, []string{"b x"}},
		{"a waived failure", []Finding{waived(is("a", Fail, SeverityError)), is("b", Pass, SeverityError)}, Warn, []string{"a x"}},
		{"a waived unknown", []Finding{waived(is("a", Unknown, SeverityError)), is("b", Pass, SeverityError)}, Warn, []string{"a x"}},
		{"a waived pass", []Finding{waived(is("a", Pass, SeverityError))}, Pass, []string{"a x"}},
	} {
		if s := step(RungWay, nil, tc.findings); s.Verdict != tc.want || !slices.Equal(s.Checks, tc.checks) {
			t.Errorf("%s: %s by %v, want %s by %v", tc.name, s.Verdict, s.Checks, tc.want, tc.checks)
		}
	}
}

// The drivers that a NIC without RDMA may want, each once.
func TestSuggestedDrivers(t *testing.T) {
	m := goodNode()
	m.RDMA.Devices, m.RDMA.Listed = nil, known(0)
	m.PCI = append(m.PCI, function("0000:0c:00.0", rootPort, pci.ClassEthernet<<8, pci.PortEndpoint), function("0000:0d:00.0", rootPort, pci.ClassEthernet<<8, pci.PortEndpoint),
		function("0000:0e:00.0", rootPort, pci.ClassEthernet<<8, pci.PortEndpoint))
	fn(m, nicAddr).Driver, fn(m, "0000:0c:00.0").Driver = known("mlx5_core"), known("mlx5_core")
	fn(m, "0000:0d:00.0").Driver, fn(m, "0000:0e:00.0").Driver = known("e1000e"), fact.Missing[string](fact.Failed, "driver", "x")
	for i, a := range []string{"0000:0c:00.0", "0000:0d:00.0", "0000:0e:00.0"} {
		m.RDMA.NetDevs = append(m.RDMA.NetDevs, rdma.NetDev{Name: []string{"ens5", "ens6", "ens7"}[i], PCI: known(at(a))})
	}
	f := findingOf(t, m, rdmaDevicePresent, "node")
	if want := []string{"ens1 (" + nicAddr + ", driver mlx5_core) may have RDMA: sudo modprobe mlx5_ib", "Then see that the devices are there: ls /sys/class/infiniband"}; !slices.Equal(f.Fix, want) {
		t.Errorf("%q, want %q", f.Fix, want)
	}
}
