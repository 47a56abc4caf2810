package lab

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/report"
	"github.com/gdrcheck/gdrcheck/topo"
)

// TestNode compares what gdrcheck says of the virtual node with what lspci,
// lstopo, ibv_devinfo, rdma and ip say there.
func TestNode(t *testing.T) {
	for _, iommu := range []bool{false, true} {
		name := map[bool]string{false: "iommu off", true: "iommu on"}[iommu]
		t.Run(name, func(t *testing.T) {
			dir := boot(t, Guest{Script: nodeScript, Machine: Node(iommu), KernelArgs: []string{"intel_iommu=on"}})
			root := decode[report.Check](t, dir, "check-root.json").Machine
			user := decode[report.Check](t, dir, "check-user.json").Machine
			lspci := parseLspci(t, read(t, dir, "lspci-root"))

			t.Run("set-up", func(t *testing.T) { checkSetUp(t, lspci, iommu) })
			t.Run("pci", func(t *testing.T) { comparePCI(t, root, lspci) })
			parents := parseLspciPaths(t, read(t, dir, "lspci-paths"))
			t.Run("tree", func(t *testing.T) { compareTree(t, root, parents, parseHwloc(t, read(t, dir, "lstopo.xml"))) })
			t.Run("iommu types", func(t *testing.T) { compareGroupTypes(t, root, read(t, dir, "iommu-types")) })
			t.Run("user", func(t *testing.T) { compareUser(t, root, user, parseLspci(t, read(t, dir, "lspci-user"))) })
			t.Run("rdma", func(t *testing.T) { compareRDMA(t, dir, root) })
			t.Run("netdevs", func(t *testing.T) { compareNetDevs(t, root, decode[[]ipLink](t, dir, "ip-link.json")) })
			t.Run("topology", func(t *testing.T) { checkTopology(t, dir, parents) })
			t.Run("replay", func(t *testing.T) { checkReplay(t, dir) })
			t.Run("endings", func(t *testing.T) { checkEndings(t, dir) })
		})
	}
}

// checkSetUp makes sure that the node is what the comparisons are for.
func checkSetUp(t *testing.T, lspci map[pci.Address]*lspciFunction, iommu bool) {
	for addr, want := range map[string]uint16{"0000:20:00.0": 0x1d, "0000:80:00.0": 0, "0000:80:01.0": 0x05} {
		f := lspci[address(t, addr)]
		if f == nil || f.acsCtl == nil || *f.acsCtl != want {
			t.Errorf("%s: ACS control is not the %#x that was set: %+v", addr, want, f)
		}
	}
	grouped := 0
	for _, f := range lspci {
		if f.group != nil {
			grouped++
		}
	}
	if iommu != (grouped > 0) {
		t.Errorf("IOMMU %v, but %d functions have a group", iommu, grouped)
	}
}

// same checks a fact against another tool's answer; a nil answer means that
// there is no such thing.
func same[T comparable](t *testing.T, what string, got fact.Value[T], want *T) {
	t.Helper()
	switch {
	case want == nil && got.State != fact.Absent:
		t.Errorf("%s: got %v %v %s, want absent", what, got.State, got.V, got.Reason)
	case want != nil && (got.State != fact.Known || got.V != *want):
		t.Errorf("%s: got %v %v %s, want %v", what, got.State, got.V, got.Reason, *want)
	}
}

func comparePCI(t *testing.T, m *topo.Machine, lspci map[pci.Address]*lspciFunction) {
	if len(m.PCI) != len(lspci) {
		t.Errorf("%d functions, lspci has %d", len(m.PCI), len(lspci))
	}
	onPath := onPaths(t, m)
	for i := range m.PCI {
		f := &m.PCI[i]
		want := lspci[f.Address]
		if want == nil {
			t.Errorf("lspci has no %s", f.Address)
			continue
		}
		at := f.Address.String() + " "
		if got := fmt.Sprintf("%04x %s %s", f.Class.V.Sub(), f.Vendor.V, f.Device.V); got != want.class+" "+want.vendor+" "+want.device {
			t.Errorf("%sclass and ids %s, want %s %s %s", at, got, want.class, want.vendor, want.device)
		}
		same(t, at+"driver", f.Driver, nonEmpty(want.driver))
		same(t, at+"NUMA node", f.NUMANode, want.numa)
		same(t, at+"IOMMU group", f.IOMMUGroup, want.group)
		same(t, at+"link in sysfs", f.Link, want.link())
		compareRegions(t, at, f, want.regions)
		// Configuration space is read only where it matters.
		if onPath[f.Address] || f.Config.Length.State != fact.NotCollected {
			compareConfig(t, at, &f.Config, want)
		}
	}
}

// onPaths are the functions between the host bridges and the NICs, and the
// NICs themselves.
func onPaths(t *testing.T, m *topo.Machine) map[pci.Address]bool {
	t.Helper()
	parents := map[pci.Address]*pci.Address{}
	for _, f := range m.PCI {
		parents[f.Address] = f.Parent
	}
	out := map[pci.Address]bool{}
	for _, nic := range nicOf {
		addr := address(t, nic)
		for at := &addr; at != nil; at = parents[*at] {
			out[*at] = true
		}
	}
	return out
}

func compareConfig(t *testing.T, at string, c *pci.Config, want *lspciFunction) {
	t.Helper()
	same(t, at+"link in config space", c.Link, want.link())
	var acs *pci.ACS
	if want.acsCap != nil {
		acs = &pci.ACS{Cap: *want.acsCap, Ctl: *want.acsCtl}
	}
	same(t, at+"ACS", c.ACS, acs)
	same(t, at+"MPS", c.MPSBytes, want.mps)
	same(t, at+"MPS supported", c.MPSSupportedBytes, want.mpsSup)
	same(t, at+"MRRS", c.MRRSBytes, want.mrrs)
	same(t, at+"relaxed ordering", c.RelaxedOrdering, want.relaxed)
}

func (f *lspciFunction) link() *pci.Link {
	if f.linkCap == nil || f.linkSta == nil {
		return nil
	}
	return &pci.Link{
		SpeedGTPerSec: f.linkSta.speed, Width: f.linkSta.width,
		MaxSpeedGTPerSec: f.linkCap.speed, MaxWidth: f.linkCap.width,
	}
}

func compareRegions(t *testing.T, at string, f *pci.Function, want map[int]uint64) {
	t.Helper()
	got := map[int]uint64{}
	for _, b := range f.BARs.V {
		if b.Index <= 5 && b.SizeBytes > 0 {
			got[b.Index] = b.SizeBytes
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%sBARs (-lspci +gdrcheck):\n%s", at, diff)
	}
}

func compareTree(t *testing.T, m *topo.Machine, parents map[pci.Address]pci.Address, hwloc map[pci.Address]hwlocFunction) {
	for _, f := range m.PCI {
		var got pci.Address
		if f.Parent != nil {
			got = *f.Parent
		}
		want, ok := parents[f.Address]
		if !ok || got != want {
			t.Errorf("%s: parent %v, lspci has %v (%v)", f.Address, got, want, ok)
		}
		top := f.Address
		for parents[top] != (pci.Address{}) {
			top = parents[top]
		}
		if bus := "pci" + top.String()[:7]; f.HostBridge != bus {
			t.Errorf("%s: host bridge %q, want %q", f.Address, f.HostBridge, bus)
		}
		h, ok := hwloc[f.Address]
		if !ok || got != h.parent {
			t.Errorf("%s: parent %v, hwloc has %v (%v)", f.Address, got, h.parent, ok)
		}
		var node *int // hwloc attaches to the whole machine what has no node
		if bits.OnesCount64(h.nodes) == 1 {
			n := bits.TrailingZeros64(h.nodes)
			node = &n
		}
		same(t, f.Address.String()+" NUMA node by hwloc", f.NUMANode, node)
	}
}

// compareGroupTypes reads lines of "group type".
func compareGroupTypes(t *testing.T, m *topo.Machine, text string) {
	types := map[int]string{}
	for sc := lines(text); sc.Scan(); {
		group, kind, _ := strings.Cut(sc.Text(), " ")
		types[number(t, group)] = kind
	}
	for _, f := range m.PCI {
		if group, ok := f.IOMMUGroup.Get(); ok {
			same(t, f.Address.String()+" IOMMU group type", f.IOMMUGroupType, nonEmpty(types[group]))
		} else if f.IOMMUGroupType.State != fact.Absent {
			t.Errorf("%s: IOMMU group type %v without a group", f.Address, f.IOMMUGroupType.State)
		}
	}
}

// compareUser checks that an ordinary user sees the same, save what the kernel
// keeps from him: that is denied, not absent.
func compareUser(t *testing.T, root, user *topo.Machine, lspci map[pci.Address]*lspciFunction) {
	if len(root.PCI) != len(user.PCI) {
		t.Fatalf("root sees %d functions, the user %d", len(root.PCI), len(user.PCI))
	}
	denied := 0
	for i, f := range user.PCI {
		r := root.PCI[i]
		unread := r.Config.Length.State == fact.NotCollected
		if want := lspci[f.Address]; want != nil && want.accessDenied && !unread {
			denied++
			for name, state := range map[string]fact.State{
				"ACS": f.Config.ACS.State, "MPS": f.Config.MPSBytes.State, "MRRS": f.Config.MRRSBytes.State,
				"ATS": f.Config.ATS.State, "link": f.Config.Link.State, "port type": f.Config.PortType.State,
				"relaxed ordering": f.Config.RelaxedOrdering.State, "Resizable BAR": f.Config.ReBAR.State,
			} {
				if state != fact.Denied {
					t.Errorf("%s: %s in config space is %v to an ordinary user, want denied", f.Address, name, state)
				}
			}
		}
		f.Config, r.Config = pci.Config{}, pci.Config{}
		if diff := cmp.Diff(r, f); diff != "" {
			t.Errorf("%s (-root +user):\n%s", f.Address, diff)
		}
	}
	if denied == 0 {
		t.Error("lspci shows all to the user: nothing was tested")
	}
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
