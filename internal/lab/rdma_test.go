package lab

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// nicOf says on which function each Soft-RoCE device was put (testdata/node.sh).
var nicOf = map[string]string{
	"rxe0": "0000:24:00.0", "rxe1": "0000:27:00.0", "rxe2": "0000:81:00.0", "rxe3": "0000:c1:00.0",
}

func compareRDMA(t *testing.T, dir string, m *topo.Machine) {
	devices := parseIBVDevinfo(t, read(t, dir, "ibv_devinfo"))
	links := decode[[]rdmaLink](t, dir, "rdma-link.json")
	if len(m.RDMA.Devices) != len(nicOf) || len(devices) != len(nicOf) || len(links) != len(nicOf) {
		t.Fatalf("%d devices, ibv_devinfo has %d, rdma %d, want %d", len(m.RDMA.Devices), len(devices), len(links), len(nicOf))
	}
	for _, link := range links {
		i := slices.IndexFunc(m.RDMA.Devices, func(d rdma.Device) bool { return d.Name == link.Name })
		if i < 0 {
			t.Errorf("no device %s", link.Name)
			continue
		}
		compareDevice(t, &m.RDMA.Devices[i], devices[link.Name], link)
	}
}

func compareDevice(t *testing.T, d *rdma.Device, ibv *ibvDevice, link rdmaLink) {
	t.Helper()
	nic := address(t, nicOf[d.Name])
	same(t, d.Name+" PCI function", d.PCI, &nic)
	same(t, d.Name+" node GUID", d.NodeGUID, &ibv.nodeGUID)
	if !d.Software {
		t.Errorf("%s is Soft-RoCE, but not marked as software", d.Name)
	}
	if len(d.Ports) != 1 {
		t.Fatalf("%s has %d ports", d.Name, len(d.Ports))
	}
	p := d.Ports[0]
	at := d.Name + "/1 "
	same(t, at+"state", p.State, &link.State)
	// rdma writes LINK_UP where sysfs has LinkUp.
	phys := fact.Map(p.PhysState, func(s string) (string, error) { return strings.ToUpper(s), nil })
	wantPhys := strings.ReplaceAll(link.PhysicalState, "_", "")
	same(t, at+"physical state", phys, &wantPhys)
	same(t, at+"netdev", p.NetDev, &link.NetDev)
	same(t, at+"link layer", p.LinkLayer, &ibv.linkLayer)
	same(t, at+"active MTU", p.ActiveMTU, &ibv.activeMTU)
	same(t, at+"maximum MTU", p.MaxMTU, &ibv.maxMTU)
	same(t, at+"GID table", p.GIDTable, &ibv.gidTable)

	gids := map[int]ibvGID{}
	for _, g := range p.GIDs {
		a, err := netip.ParseAddr(g.GID)
		if err != nil {
			t.Errorf("%sGID %d: %v", at, g.Index, err)
		}
		gids[g.Index] = ibvGID{a, g.Type.V}
		same(t, at+"GID's netdev", g.NetDev, &link.NetDev)
	}
	if diff := cmp.Diff(ibv.gids, gids, cmp.AllowUnexported(ibvGID{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("%sGIDs (-ibv_devinfo +gdrcheck):\n%s", at, diff)
	}

	// Soft-RoCE has no registration of dma-bufs, and says so.
	want := fact.Of(rdma.VerbsProbe{
		Firmware:    ibv.firmware,
		Ports:       []rdma.VerbsPort{{Number: 1, State: ibv.state, ActiveMTUBytes: ibv.activeMTU, MaxMTUBytes: ibv.maxMTU}},
		DMABufErrno: fact.Of(int(syscall.EOPNOTSUPP), "verbs:ibv_reg_dmabuf_mr"),
	}, "verbs")
	if diff := cmp.Diff(want, d.Verbs); diff != "" {
		t.Errorf("%s verbs (-ibv_devinfo +gdrcheck):\n%s", d.Name, diff)
	}
}

func compareNetDevs(t *testing.T, m *topo.Machine, links []ipLink) {
	byName := map[string]ipLink{}
	for _, l := range links {
		byName[l.Name] = l
	}
	functions := map[pci.Address]bool{}
	for _, n := range m.RDMA.NetDevs {
		l, ok := byName[n.Name]
		if !ok {
			t.Errorf("ip has no %s", n.Name)
			continue
		}
		functions[n.PCI.V] = true
		same(t, n.Name+" MTU", n.MTU, &l.MTU)
		same(t, n.Name+" address", n.Address, &l.Address)
		state := strings.ToLower(l.OperState)
		same(t, n.Name+" state", n.OperState, &state)
		if slices.Contains(l.Flags, "UP") { // the kernel tells no carrier of a netdev that is down
			up := slices.Contains(l.Flags, "LOWER_UP")
			same(t, n.Name+" carrier", n.Carrier, &up)
		}
	}
	for rdev, addr := range nicOf {
		if !functions[address(t, addr)] {
			t.Errorf("no netdev on %s, the NIC of %s", addr, rdev)
		}
	}
}
