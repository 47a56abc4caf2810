package checks

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/render"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// recorded renders what lspci printed of a real machine to sysfs and collects
// it. GPUs are NVIDIA's display functions, NICs the ConnectX-7 among the rest.
func recorded(t *testing.T, fixture string) (m *topo.Machine, text string) {
	t.Helper()
	b, err := os.ReadFile(facttest.Fixture(t, fixture))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := render.FromLspci(string(b))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tree.Write(dir); err != nil {
		t.Fatal(err)
	}
	src, err := fact.NewOS(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	m = goodNode()
	m.GPU.GPUs, m.RDMA.Devices, m.RDMA.NetDevs = nil, nil, nil
	if m.PCI, err = pci.Collect(t.Context(), src, pci.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.PCI {
		switch {
		case f.Vendor.V == 0x10de && f.Class.V.Base() == pci.ClassDisplay:
			m.GPU.GPUs = append(m.GPU.GPUs, gpu.GPU{Index: len(m.GPU.GPUs), Vendor: gpu.VendorNVIDIA, Addr: f.Address})
		case f.Vendor.V == 0x15b3 && f.Device.V == 0x1021:
			n := len(m.RDMA.Devices)
			m.RDMA.Devices = append(m.RDMA.Devices, goodNIC(fmt.Sprintf("mlx5_%d", n), f.Address.String(), fmt.Sprintf("eth%d", n)))
		}
	}
	return m, string(b)
}

// Eight H100, each below a switch with its ConnectX-7. ACS is on at the ports of
// another switch (0000:82:00.0 to 03.0, with the NVSwitches) and, but for source
// validation, nowhere else: no path of a GPU is redirected, and a tool that
// looks at all bridges would say otherwise.
func TestRecordedXE9680(t *testing.T) {
	m, text := recorded(t, "lspci/gpud-xe9680-h100/lspci-vvv")
	if !strings.Contains(text, "ReqRedir+") || len(m.GPU.GPUs) != 8 || len(m.RDMA.Devices) != 8 {
		t.Fatalf("%d GPUs, %d NICs", len(m.GPU.GPUs), len(m.RDMA.Devices))
	}
	o := mustRun(t, m, Options{Only: []string{"pcie"}})
	pairs := 0
	for _, f := range o.Findings {
		if f.Verdict != Pass && f.Verdict != NotApplicable {
			t.Errorf("%s %s: %s %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
		if f.Check == "acs-redirect" {
			pairs++
		}
	}
	if pairs != 8 || o.Verdict != Pass {
		t.Errorf("%d pairs, verdict %s", pairs, o.Verdict)
	}
	// The same machine with redirection on at one GPU's port.
	gpu0 := fn(m, m.GPU.GPUs[0].Addr.String())
	fn(m, gpu0.Parent.String()).Config.ACS.V.Ctl = 0x1d
	o = mustRun(t, m, Options{Only: []string{"acs-redirect"}})
	failed := 0
	for _, f := range o.Findings {
		if f.Verdict == Fail && strings.HasPrefix(f.Subject, "GPU0 ") && strings.Contains(f.Message, gpu0.Parent.String()) {
			failed++
		}
	}
	if failed != 1 || o.Counts[Fail] != 1 || o.Counts[Pass] != 7 {
		t.Errorf("one port redirecting: %v", o.Counts)
	}
}

// Workstation GPUs on root ports of their own, idle: lspci says "downgraded" of
// each GPU's link and of no NIC's.
func TestRecordedWorkstations(t *testing.T) {
	downgraded := regexp.MustCompile(`(?s)\n([0-9a-f:]+\.[0-9]) VGA compatible controller: NVIDIA.*?LnkSta: Speed ([^\n]*)`)
	for _, fixture := range []string{
		"pairs/stelline-esc8000a-e12/asus-esc8000a-e12.md",
		"pairs/stelline-puget-wrx90/puget-threadripper-pro-wrx90.md",
	} {
		t.Run(fixture, func(t *testing.T) {
			m, text := recorded(t, fixture)
			want := map[string]Verdict{}
			for _, hit := range downgraded.FindAllStringSubmatch(text, -1) {
				want["0000:"+hit[1]] = Pass
				if strings.Contains(hit[2], "downgraded") {
					want["0000:"+hit[1]] = Warn
				}
			}
			if len(want) == 0 || len(want) != len(m.GPU.GPUs) {
				t.Fatalf("lspci has %d GPUs, the tree %d", len(want), len(m.GPU.GPUs))
			}
			o := mustRun(t, m, Options{})
			for i, g := range m.GPU.GPUs {
				f := one(t, o, "pcie-link-speed", fmt.Sprintf("GPU%d", i))
				if f.Verdict != want[g.Addr.String()] || f.Verdict == Warn && f.Unsure == "" {
					t.Errorf("%s: %s %s (unsure: %q), want %s", g.Addr, f.Verdict, f.Message, f.Unsure, want[g.Addr.String()])
				}
			}
			for _, f := range o.Findings {
				switch {
				case f.Check == "acs-redirect" && f.Verdict != NotApplicable:
					t.Errorf("%s: no switch is shared, yet: %s %s", f.Subject, f.Verdict, f.Message)
				case f.Check == "pcie-link-speed" && strings.HasPrefix(f.Subject, "mlx5") && f.Verdict != Pass:
					t.Errorf("%s: %s %s", f.Subject, f.Verdict, f.Message)
				case f.Check == "pcie-payload" && f.Verdict != NotApplicable:
					// The NICs send 512 bytes and the GPUs take 256, which matters below a
					// switch alone: these machines have run with GPUDirect RDMA as they are.
					t.Errorf("%s: %s %s", f.Subject, f.Verdict, f.Message)
				case f.Check == "pcie-read-request" && f.Verdict != Warn:
					// 512 bytes, as the BIOS leaves it: too little for 400 Gb/s ports.
					t.Errorf("%s: %s %s", f.Subject, f.Verdict, f.Message)
				case f.Check == "bar-assigned" && f.Verdict != Pass:
					t.Errorf("%s: %s %s", f.Subject, f.Verdict, f.Message)
				case f.Check == "pcie-link-width" && f.Verdict == Fail:
					t.Errorf("%s: %s", f.Subject, f.Message)
				}
			}
			if o.Verdict != Warn {
				t.Errorf("verdict %s", o.Verdict)
			}
		})
	}
}
