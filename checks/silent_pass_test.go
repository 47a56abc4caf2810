package checks

import (
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Ways in which other tools report a node as ready that is not, or that they did
// not look at. Of each: the check that must not pass, and the node's verdict.
func TestSilentPasses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*topo.Machine)
		check   string
		subject string
		want    Verdict
		node    Verdict
	}{
		// CUDA's attributes 116 and 124 are 1 for the GPU alone.
		{"the GPU's attribute is taken for the pair's", func(m *topo.Machine) {
			noPeermem(m)
			nic(m).Verbs.V.DMABufErrno.V = 95
		}, "gdr-way", pair, Fail, Fail},
		{"the PCI tree could not be read (no lspci)", func(m *topo.Machine) {
			m.PCI, m.Problems = nil, []topo.Problem{{Part: "pci", Reason: "permission denied"}}
			m.GPU.GPUs, m.RDMA.Devices = nil, nil
		}, "gpu-present", nodeID, Unknown, Unknown},
		{"64 bytes of configuration space show no ACS", func(m *topo.Machine) {
			for i := range m.PCI {
				denied(&m.PCI[i].Config.ACS)
			}
		}, "acs-redirect", pair, Unknown, Unknown},
		{"no NVML: no memory errors seen", func(m *topo.Machine) {
			m.GPU.GPUs[0].NVML = fact.Missing[gpu.NVMLDevice](fact.Failed, "nvml:nvmlInit_v2", "driver/library version mismatch")
			m.GPU.NVIDIA.NVML = fact.Missing[gpu.NVMLSystem](fact.Failed, "nvml:nvmlInit_v2", "driver/library version mismatch")
		}, "gpu-memory", "GPU0", Unknown, Warn},
		{"no NVML: no fabric state seen", func(m *topo.Machine) {
			m.PCI = append(m.PCI, function("0000:09:00.0", rootPort, 0x068000, pci.PortEndpoint))
			fn(m, "0000:09:00.0").Vendor = known(pci.ID(0x10de))
			m.GPU.GPUs[0].NVML = fact.Missing[gpu.NVMLDevice](fact.Failed, "nvml:nvmlInit_v2", "timeout")
		}, "gpu-fabric", "GPU0", Unknown, Unknown},
		{"ib_uverbs exports a symbol, and no client is there", func(m *topo.Machine) {
			noPeermem(m)
			m.Host.Symbols = map[string]fact.Value[bool]{"ib_register_peer_memory_client": known(true)}
			m.GPU.GPUs[0].CUDA.V.DMABuf.V = 0
		}, "gdr-way", pair, Fail, Fail},
		{"the kernel log may not be read", deniedLog, "gpu-errors", "GPU0", Unknown, Pass},
		{"the kernel log lost its beginning", partialLog, "gpu-errors", "GPU0", Info, Pass},
		{"no RDMA device, so no port is down", func(m *topo.Machine) {
			m.RDMA.Devices, m.RDMA.Listed = nil, known(0)
		}, "rdma-device-present", nodeID, Fail, Fail},
		{"a NIC that no table knows", func(m *topo.Machine) {
			nic(m).Model, nic(m).Driver = absent[rdma.Model](), known("newnic")
			nic(m).Verbs = fact.Missing[rdma.VerbsProbe](fact.NotCollected, "verbs", "not asked")
			noPeermem(m)
		}, "gdr-way", pair, Unknown, Unknown},
		{"the IOMMU's domain is not shown", func(m *topo.Machine) {
			fn(m, nicAddr).IOMMUGroup = known(4)
		}, "iommu", "mlx5_0", Unknown, Pass},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := goodNode()
			tc.change(m)
			o := mustRun(t, m, Options{})
			if f := one(t, o, tc.check, tc.subject); f.Verdict != tc.want {
				t.Errorf("%s %s: %s %s, want %s", f.Check, f.Subject, f.Verdict, f.Message, tc.want)
			}
			if o.Verdict != tc.node {
				t.Errorf("node: %s, want %s", o.Verdict, tc.node)
				for _, f := range o.Findings {
					if f.Verdict != Pass && f.Verdict != NotApplicable {
						t.Logf("%s %s: %s (%s) %s", f.Check, f.Subject, f.Verdict, f.Severity, f.Message)
					}
				}
			}
		})
	}
}

// Ports that could not be listed are not ports that are fine.
func TestPortsNotListed(t *testing.T) {
	for state, listed := range map[string]fact.Value[int]{
		"denied": fact.Missing[int](fact.Denied, "ports", "permission denied"),
		"failed": fact.Missing[int](fact.Failed, "ports", "input/output error"),
		"none":   fact.Of(0, "ports"),
		"unset":  {},
	} {
		m := goodNode()
		for i := range m.RDMA.Devices {
			m.RDMA.Devices[i].Ports, m.RDMA.Devices[i].PortsListed = nil, listed
		}
		o := mustRun(t, m, Options{})
		if o.Verdict == Pass || o.ExitCode == 0 {
			t.Errorf("%s: the node is %s, exit code %d", state, o.Verdict, o.ExitCode)
		}
		seen := false
		for _, f := range o.Findings {
			if f.Check != "rdma-port-state" {
				continue
			}
			if seen = true; f.Verdict != Unknown {
				t.Errorf("%s: %s is %s", state, f.Subject, f.Verdict)
			}
		}
		if !seen {
			t.Errorf("%s: the ports were not judged at all", state)
		}
		for _, l := range o.Ladders {
			for _, s := range l.Steps {
				if s.Rung == RungPort && s.Verdict == Pass {
					t.Errorf("%s: the port's rung passes for %s %s", state, l.GPU, l.NIC)
				}
			}
		}
	}
}

// A VF has its link through its PF: without that in sight, the link is not fine.
func TestLinkOfUnseenPF(t *testing.T) {
	m := goodNode()
	d := m.RDMA.Devices[0]
	for i := range m.PCI {
		if m.PCI[i].Address == d.PCI.V {
			m.PCI[i].PhysFn = fact.Of(pci.Address{Bus: 0xfe}, "physfn")
		}
	}
	o := mustRun(t, m, Options{Only: []string{"pcie-link-width", "pcie-link-speed"}})
	seen := 0
	for _, f := range o.Findings {
		if f.Subject != d.Name {
			continue
		}
		if seen++; f.Verdict != Unknown {
			t.Errorf("%s %s is %s: %s", f.Check, f.Subject, f.Verdict, f.Message)
		}
		checkFinding(t, f)
	}
	if seen != 2 || o.ExitCode == 0 {
		t.Errorf("%d findings of %s, exit code %d", seen, d.Name, o.ExitCode)
	}
}
