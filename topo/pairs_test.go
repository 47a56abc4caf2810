package topo_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/topotest"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Bytes/s by hand from the specification: speed x lanes / 8 x 128/130 (8/10 for
// Gen1 and Gen2), times P/(P+24) for a payload of P bytes.
func TestCeiling(t *testing.T) {
	const (
		gen5x16 = 63.015384e9
		gen4x16 = 31.507692e9
		gen4x8  = 15.753846e9
		gen1x16 = 4e9
	)
	eff := func(mps float64) float64 { return mps / (mps + 24) }
	for _, tt := range []struct {
		name, tree string
		now, best  float64
		limitedBy  string
		reason     string
		mps        int
		assumedMPS bool
	}{
		{name: "all links alike: the first hop", tree: `
pci0000:00
  00:01.0 root mps=256
    01:00.0 up link=32x16 mps=256
      02:00.0 down mps=256
        03:00.0 gpu link=32x16 mps=256
      02:01.0 down mps=256
        04:00.0 nic=mlx5_0 link=32x16 mps=256`,
			now: gen5x16 * eff(256), best: gen5x16 * eff(256), limitedBy: "0000:03:00.0", mps: 256},
		{name: "the NIC runs at half its width", tree: `
pci0000:00
  00:01.0 root mps=512
    01:00.0 up link=16x16 mps=512
      02:00.0 down mps=512
        03:00.0 gpu link=16x16 mps=512
      02:01.0 down link=16x8/16x16 mps=512
        04:00.0 nic=mlx5_0 link=16x8/16x16 mps=512`,
			now: gen4x8 * eff(512), best: gen4x16 * eff(512), limitedBy: "0000:04:00.0", mps: 512},
		{name: "an idle GPU in Gen1", tree: `
pci0000:00
  00:01.0 root link=2.5x16/32x16 mps=512
    01:00.0 gpu link=2.5x16/32x16 mps=512
  00:02.0 root mps=512
    02:00.0 nic=mlx5_0 link=32x16 mps=512`,
			now: gen1x16 * eff(512), best: gen5x16 * eff(512), limitedBy: "0000:01:00.0", mps: 512},
		{name: "the smallest payload of the path counts, the common bridge's too", tree: `
pci0000:00
  00:01.0 root mps=128
    01:00.0 up link=2.5x1 mps=128
      02:00.0 down mps=512
        03:00.0 gpu link=32x16 mps=512
      02:01.0 down mps=512
        04:00.0 nic=mlx5_0 link=32x16 mps=512`,
			now: gen5x16 * eff(128), best: gen5x16 * eff(128), limitedBy: "0000:03:00.0", mps: 128},
		{name: "a slot that is narrower than its card", tree: `
pci0000:00
  00:01.0 root link=16x8/16x8 mps=256
    01:00.0 gpu link=16x8/16x16 mps=256
  00:02.0 root mps=256
    02:00.0 nic=mlx5_0 link=16x16 mps=256`,
			now: gen4x8 * eff(256), best: gen4x8 * eff(256), limitedBy: "0000:01:00.0", mps: 256},
		{name: "a switch's uplink between cascaded switches", tree: `
pci0000:00
  00:01.0 root mps=256
    01:00.0 up link=32x16 mps=256
      02:00.0 down mps=256
        03:00.0 up link=16x8/32x16 mps=256
          04:00.0 down mps=256
            05:00.0 gpu link=32x16 mps=256
      02:01.0 down mps=256
        06:00.0 nic=mlx5_0 link=32x16 mps=256`,
			now: gen4x8 * eff(256), best: gen5x16 * eff(256), limitedBy: "0000:03:00.0", mps: 256},
		{name: "payload not readable", tree: `
pci0000:00
  00:06.0 gpu link=32x16
  00:07.0 nic=mlx5_0 link=32x16 mps=512`,
			now: gen5x16 * eff(256), best: gen5x16 * eff(256), limitedBy: "0000:00:06.0", mps: 256, assumedMPS: true},
		{name: "a virtual function has its physical one's link", tree: `
pci0000:00
  00:01.0 root mps=256
    01:00.0 gpu link=32x16 mps=256
  00:02.0 root mps=256
    02:00.0 eth=ens1 link=16x8/16x16 mps=256
    02:00.2 nic=mlx5_0 vf=02:00.0 mps=128`,
			now: gen4x8 * eff(256), best: gen4x16 * eff(256), limitedBy: "0000:02:00.2", mps: 256},
		{name: "the port shows a link that its device does not", tree: `
pci0000:00
  00:01.0 root link=16x8/16x16 mps=256
    01:00.0 gpu mps=256
  00:02.0 root mps=256
    02:00.0 nic=mlx5_0 link=16x16 mps=256`,
			now: gen4x8 * eff(256), best: gen4x16 * eff(256), limitedBy: "0000:01:00.0", mps: 256},
		{name: "a link that cannot be read", tree: `
pci0000:00
  00:06.0 gpu link=32x16
  00:07.0 nic=mlx5_0`,
			reason: "the link of 0000:00:07.0 cannot be read: no such file or directory", mps: 256, assumedMPS: true},
		{name: "a link that is down", tree: `
pci0000:00
  00:06.0 gpu link=32x16
  00:07.0 nic=mlx5_0 link=0x0/32x16`,
			reason: "the link of 0000:00:07.0 is down", limitedBy: "0000:00:07.0", mps: 256, assumedMPS: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, ok := topo.New(topotest.Machine(t, tt.tree)).Pair("GPU0", "mlx5_0")
			if !ok {
				t.Fatal("no pair")
			}
			near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(a, b) }
			if !near(p.CeilingBytesPerSec, tt.now) || !near(p.BestBytesPerSec, tt.best) {
				t.Errorf("ceiling %.6g now, %.6g at best, want %.6g and %.6g", p.CeilingBytesPerSec, p.BestBytesPerSec, tt.now, tt.best)
			}
			if p.LimitedBy != tt.limitedBy || p.CeilingReason != tt.reason {
				t.Errorf("limited by %q (%s), want %q (%s)", p.LimitedBy, p.CeilingReason, tt.limitedBy, tt.reason)
			}
			if p.MPSBytes != tt.mps || p.MPSAssumed != tt.assumedMPS {
				t.Errorf("payload %d, assumed %t, want %d, %t", p.MPSBytes, p.MPSAssumed, tt.mps, tt.assumedMPS)
			}
		})
	}
}

const twoSwitches = `
pci0000:00 numa=0
  00:01.0 root
    01:00.0 up link=32x16
      02:00.0 down
        03:00.0 gpu link=32x16
      02:01.0 down
        04:00.0 gpu link=32x16
      02:02.0 down
        05:00.0 nic=mlx5_10 link=32x16 gbps=400
      02:03.0 down
        06:00.0 nic=mlx5_2 link=16x8 gbps=400
  00:03.0 root
    07:00.0 nic=mlx5_3 link=16x16 gbps=100
    07:00.1 eth=eno1
pci0000:80 numa=1
  80:01.0 root
    81:00.0 gpu link=32x16
  80:02.0 root
    82:00.0 nic=mlx5_4 link=32x16 gbps=400
  80:03.0 root
    83:00.0 eth
    83:01.0 eth vf=83:00.0
`

func TestDevicesRolesAffinity(t *testing.T) {
	m := topotest.Machine(t, twoSwitches)
	m.RDMA.Devices = append(m.RDMA.Devices, rdma.Device{Name: "rxe0", Software: true,
		PCI: fact.Missing[pci.Address](fact.Absent, "parent", "a netdev without a device")})
	g := topo.New(m)
	var got []string
	for _, d := range g.Devices() {
		got = append(got, d.ID+" "+string(d.Role))
	}
	want := []string{"GPU0 ", "GPU1 ", "GPU2 ", "mlx5_2 compute", "mlx5_3 other", "mlx5_4 compute", "mlx5_10 compute", "rxe0 other",
		"0000:83:00.0 management", "eno1 management"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	// mlx5_2 is as near as mlx5_10, but its link carries less; mlx5_3 is for something else.
	if d := cmp.Diff(map[string][]string{"GPU0": {"mlx5_10"}, "GPU1": {"mlx5_10"}, "GPU2": {"mlx5_4"}}, g.Affinity()); d != "" {
		t.Errorf("affinity (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"GPU0", "GPU1"}, g.GPUsOf("mlx5_10")); d != "" {
		t.Errorf("GPUs of mlx5_10 (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"mlx5_10"}, g.Shared()); d != "" {
		t.Errorf("shared NICs (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"mlx5_2"}, g.Idle()); d != "" {
		t.Errorf("idle NICs (-want +got):\n%s", d)
	}
	if n := len(g.Pairs()); n != 3*5 {
		t.Errorf("%d pairs, want 15: three GPUs, five NICs with an RDMA device", n)
	}
	p, _ := g.Pair("GPU0", "rxe0")
	if p.Path != topo.ClassUnknown || p.Preferred || p.CeilingReason == "" {
		t.Errorf("a software device without a PCI function: %+v", p)
	}
}

func TestRoles(t *testing.T) {
	model := func(gbps float64) fact.Value[rdma.Model] { return fact.Of(rdma.Model{MaxGbps: gbps}, "table") }
	port := func(state string, gbps float64, netdev string) []rdma.Port {
		return []rdma.Port{{Number: 1, State: fact.Of(state, "state"),
			Rate: fact.Of(rdma.Rate{BitsPerSec: gbps * 1e9}, "rate"), NetDev: fact.Of(netdev, "ndevs/0")}}
	}
	for _, tt := range []struct {
		name    string
		devices []rdma.Device
		want    []topo.Role
	}{
		{"half the best rate is something else", []rdma.Device{{Name: "a", Model: model(400)}, {Name: "b", Model: model(200)}},
			[]topo.Role{topo.RoleCompute, topo.RoleOther}},
		{"a compute NIC with a slow link stays one", []rdma.Device{{Name: "a", Model: model(400), Ports: port("ACTIVE", 400, "")},
			{Name: "b", Model: model(400), Ports: port("ACTIVE", 100, "")}}, []topo.Role{topo.RoleCompute, topo.RoleCompute}},
		{"models not known: active rates", []rdma.Device{{Name: "a", Ports: port("ACTIVE", 200, "")}, {Name: "b", Ports: port("ACTIVE", 25, "")}},
			[]topo.Role{topo.RoleCompute, topo.RoleOther}},
		{"a port that is down says nothing of the rate", []rdma.Device{{Name: "a", Ports: port("ACTIVE", 200, "")}, {Name: "b", Ports: port("DOWN", 10, "")}},
			[]topo.Role{topo.RoleCompute, topo.RoleCompute}},
		{"bonded among others", []rdma.Device{{Name: "a", Model: model(400)}, {Name: "mlx5_bond_0", Model: model(400)}},
			[]topo.Role{topo.RoleCompute, topo.RoleOther}},
		{"bonded all", []rdma.Device{{Name: "mlx5_bond_0", Model: model(400)}, {Name: "mlx5_bond_1", Model: model(400)}},
			[]topo.Role{topo.RoleCompute, topo.RoleCompute}},
		{"software beside hardware", []rdma.Device{{Name: "a", Model: model(100)}, {Name: "rxe0", Software: true, Ports: port("ACTIVE", 400, "")}},
			[]topo.Role{topo.RoleCompute, topo.RoleOther}},
		{"software alone", []rdma.Device{{Name: "rxe0", Software: true, Ports: port("ACTIVE", 10, "")}}, []topo.Role{topo.RoleOther}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []topo.Role
			for _, d := range topo.New(&topo.Machine{RDMA: rdma.Facts{Devices: tt.devices}}).NICs() {
				got = append(got, d.Role)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("roles (-want +got):\n%s", d)
			}
		})
	}
}

// Two ports share a card's rate; a virtual function takes nothing from its card.
func TestRolesOfCards(t *testing.T) {
	for _, tt := range []struct {
		name, tree string
		want       []topo.Role
	}{
		{"dual-port card among single ones", `
pci0000:00
  00:01.0 root
    01:00.0 nic=mlx5_0 gbps=400
  00:02.0 root
    02:00.0 nic=mlx5_1 gbps=400
    02:00.1 nic=mlx5_2 gbps=400`, []topo.Role{topo.RoleCompute, topo.RoleOther, topo.RoleOther}},
		{"dual-port cards only", `
pci0000:00
  00:01.0 root
    01:00.0 nic=mlx5_0 gbps=400
    01:00.1 nic=mlx5_1 gbps=400
  00:02.0 root
    02:00.0 nic=mlx5_2 gbps=400
    02:00.1 nic=mlx5_3 gbps=400`, []topo.Role{topo.RoleCompute, topo.RoleCompute, topo.RoleCompute, topo.RoleCompute}},
		{"virtual functions", `
pci0000:00
  00:01.0 root
    01:00.0 nic=mlx5_0 gbps=400
    01:00.1 nic=mlx5_1 gbps=400 vf=01:00.0
    01:00.2 nic=mlx5_2 gbps=400 vf=01:00.0`, []topo.Role{topo.RoleCompute, topo.RoleCompute, topo.RoleCompute}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []topo.Role
			for _, d := range topo.New(topotest.Machine(t, tt.tree)).NICs() {
				got = append(got, d.Role)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("roles (-want +got):\n%s", d)
			}
		})
	}
}

// The CPU moves the data of Soft-RoCE, wherever the Ethernet card below it is.
func TestSoftwareIsNeverPreferred(t *testing.T) {
	g := topo.New(topotest.Machine(t, `
pci0000:00
  00:01.0 root
    01:00.0 up
      02:00.0 down
        03:00.0 gpu
      02:01.0 down
        04:00.0 nic=rxe0 soft`))
	p, ok := g.Pair("GPU0", "rxe0")
	if !ok || p.Path != topo.ClassPIX || p.Preferred || len(g.Affinity()["GPU0"]) != 0 {
		t.Errorf("pair %+v (%t), affinity %v", p, ok, g.Affinity())
	}
}

// The second function of a card whose RDMA device spans a bond is no NIC of its own.
func TestBondSecondLeg(t *testing.T) {
	m := topotest.Machine(t, `
pci0000:00
  00:01.0 root
    01:00.0 nic=mlx5_bond_0
    01:00.1 eth=ens1f1
  00:02.0 root
    02:00.0 eth=eno1`)
	m.RDMA.Devices[0].Ports = []rdma.Port{{Number: 1, NetDev: fact.Of("bond0", "ndevs/0")}}
	m.RDMA.NetDevs[0].Master = fact.Of("bond0", "master")
	m.RDMA.NetDevs[1].Master = fact.Of("bond0", "master")
	var got []string
	for _, d := range topo.New(m).NICs() {
		got = append(got, d.ID)
	}
	if d := cmp.Diff([]string{"mlx5_bond_0", "eno1"}, got); d != "" {
		t.Errorf("NICs (-want +got):\n%s", d)
	}
}

func TestHops(t *testing.T) {
	p, _ := topo.New(topotest.NUMANodes(topotest.Machine(t, `
pci0000:00 numa=0
  00:01.0 root acs=0x1d
    01:00.0 up link=32x16
      02:00.0 down acs=0
        03:00.0 gpu link=16x16/32x16
pci0000:80 numa=1
  80:01.0 root
    81:00.0 nic=mlx5_0 link=32x16`), 2)).Pair("GPU0", "mlx5_0")
	var got []string
	for _, h := range p.Hops {
		got = append(got, h.ID+" "+h.Kind)
	}
	want := []string{"0000:03:00.0 gpu", "0000:02:00.0 downstream port", "0000:01:00.0 upstream port", "0000:00:01.0 root port",
		"pci0000:00 host bridge", "node0 numa node", "node1 numa node", "pci0000:80 host bridge", "0000:80:01.0 root port", "0000:81:00.0 nic"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("hops (-want +got):\n%s", d)
	}
	if h := p.Hops[1]; h.Link != nil || h.ACSCtl == nil || *h.ACSCtl != 0 {
		t.Errorf("the downstream port has no link upward and ACS off: %+v", h)
	}
	if h := p.Hops[3]; h.ACSCtl == nil || *h.ACSCtl != 0x1d {
		t.Errorf("the root port's ACS: %+v", h)
	}
	if h := p.Hops[8]; h.ACSCtl != nil {
		t.Errorf("ACS of a port that shows none: %#x", *h.ACSCtl)
	}
	if h := p.Hops[0]; h.Link == nil || h.Link.SpeedGTPerSec != 16 || h.Link.MaxSpeedGTPerSec != 32 {
		t.Errorf("the GPU's link: %+v", h.Link)
	}
}

// The DMA of a NIC with Data Direct to GPU memory goes through that function.
func TestDataDirectHops(t *testing.T) {
	p, _ := topo.New(topotest.Machine(t, `
pci0000:80 numa=1
  80:01.0 root
    81:00.0 nic=mlx5_0 link=2.5x1
pci0000:00 numa=0
  00:01.0 root mps=512
    01:00.0 up link=64x16 mps=512
      02:00.0 down mps=512
        03:00.0 gpu link=64x16 mps=512
      02:01.0 down mps=512
        04:00.0 dd=mlx5_0 link=32x16 mps=512`)).Pair("GPU0", "mlx5_0")
	last := p.Hops[len(p.Hops)-1]
	if last.ID != "0000:04:00.0" || last.Name != "mlx5_0 (Data Direct)" || p.LimitedBy != "0000:04:00.0" || !p.Preferred {
		t.Errorf("last hop %+v, limited by %s, preferred %t", last, p.LimitedBy, p.Preferred)
	}
}

func TestEveryPairHasAClass(t *testing.T) {
	g := topo.New(topotest.NUMANodes(topotest.Machine(t, twoSwitches), 2))
	for _, a := range g.Devices() {
		for _, b := range g.Devices() {
			x, y := g.Class(a.ID, b.ID), g.Class(b.ID, a.ID)
			if x != y || x == "" {
				t.Errorf("%s to %s is %q, back %q", a.ID, b.ID, x, y)
			}
			if (x == topo.ClassSelf) != (a.ID == b.ID) {
				t.Errorf("%s to %s is %s", a.ID, b.ID, x)
			}
			if x == topo.ClassUnknown {
				t.Errorf("%s to %s is unknown on a machine that shows everything", a.ID, b.ID)
			}
		}
	}
	for _, p := range g.Pairs() {
		if p.Preferred && !slices.Contains(g.Affinity()[p.GPU], p.NIC) {
			t.Errorf("%s %s is preferred, yet not among the best", p.GPU, p.NIC)
		}
	}
}
