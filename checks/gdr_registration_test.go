package checks

import (
	"strings"
	"testing"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/topo"
)

// probed gives the node's pair an answer.
func probed(p rdma.RegistrationProbe) func(*topo.Machine) {
	return func(m *topo.Machine) {
		m.Registrations = []rdma.Registration{{GPU: at(gpuAddr), Device: "mlx5_0", Probe: fact.Of(p, fact.AskRegistration)}}
	}
}

// ways is a probe by "cuda dmabuf 95", "cuda-vmm peermem" and so on: what has no
// errno works. A number above 10000 is CUDA's, and 10000.
func ways(list ...string) rdma.RegistrationProbe {
	const library = 10000
	p := rdma.RegistrationProbe{Bytes: 2 << 20}
	for _, text := range list {
		f := strings.Fields(text)
		w := rdma.WayProbe{Memory: f[0], Way: f[1], ExportNs: 20000, RegisterNs: 30000}
		if len(f) > 2 {
			n := 0
			for _, c := range f[2] {
				n = n*10 + int(c-'0')
			}
			call := map[string]string{"peermem": "ibv_reg_mr", "dmabuf": "ibv_reg_dmabuf_mr", "data-direct": "mlx5dv_reg_dmabuf_mr"}[f[1]]
			w.Error = &rdma.CallError{Call: call, Errno: n}
			if n > library {
				w.Error = &rdma.CallError{Call: "cuMemGetHandleForAddressRange", Library: "CUDA", Code: n - library, Name: "CUDA_ERROR"}
			}
		}
		p.Ways = append(p.Ways, w)
	}
	return p
}

func setUp(e rdma.CallError) rdma.RegistrationProbe { return rdma.RegistrationProbe{Failed: &e} }

func cudaFailed(call string, code int) rdma.RegistrationProbe {
	return setUp(rdma.CallError{Call: call, Library: "CUDA", Code: code, Name: "CUDA_ERROR"})
}

func notProbed(state fact.State, why string) func(*topo.Machine) {
	return func(m *topo.Machine) {
		probed(rdma.RegistrationProbe{})(m)
		m.Registrations[0].Probe = fact.Missing[rdma.RegistrationProbe](state, fact.AskRegistration, why)
	}
}

func TestGDRRegistration(t *testing.T) {
	const pair = "GPU0 mlx5_0"
	good := []string{"cuda dmabuf", "cuda peermem", "cuda-vmm dmabuf", "cuda-vmm peermem"}
	dataDirect := func(m *topo.Machine) { nic(m).DataDirect = known(pci.Address{Bus: 0x99}) }
	software := func(m *topo.Machine) { nic(m).Software = true }
	runCases(t, "gdr-registration", []verdictCase{
		{"no NIC", func(m *topo.Machine) { m.RDMA.Devices = nil }, nodeID, NotApplicable, "no GPU with a NIC", ""},
		{"not asked for", nil, nodeID, NotApplicable, "check --probe", ""},
		{"both ways", probed(ways(good...)), pair, Pass, "registers by DMA-BUF and peermem", ""},
		{"no peermem", probed(ways("cuda dmabuf", "cuda peermem 14", "cuda-vmm dmabuf", "cuda-vmm peermem 14")), pair, Pass, "registers by DMA-BUF; not by peermem: the kernel could not pin", ""},
		{"no DMA-BUF", probed(ways("cuda dmabuf 95", "cuda peermem", "cuda-vmm peermem")), pair, Pass, "registers by peermem; not by DMA-BUF: driver or provider have no dma-buf", ""},
		{"none: M1", probed(ways("cuda dmabuf 95", "cuda peermem 14")), pair, Fail, "cannot be registered: not by DMA-BUF: driver or provider have no", "For peermem: load nvidia-peermem"},
		{"none: an old kernel", probed(ways("cuda dmabuf 93", "cuda peermem 14")), pair, Fail, "RDMA core has no dma-buf", "it came with 5.12"},
		{"none: D4", probed(ways("cuda dmabuf 524", "cuda peermem 14")), pair, Fail, "below one PCIe switch", "nvidia-peermem"},
		{"none: BAR1", probed(ways("cuda dmabuf 12", "cuda peermem 12")), pair, Fail, "BAR1", "nvidia-smi -q -d MEMORY"},
		{"none: EPERM", probed(ways("cuda dmabuf 1", "cuda peermem 1")), pair, Fail, "refused the mapping", "kernel log"},
		{"none: the proprietary driver", probed(ways("cuda dmabuf 10801", "cuda peermem 14")), pair, Fail, "exports no dma-buf", "open GPU kernel modules"},
		{"Data Direct", all2(dataDirect, probed(ways("cuda data-direct", "cuda dmabuf", "cuda peermem 14"))), pair, Pass, "registers by Data Direct and DMA-BUF", ""},
		{"no Data Direct: D5", all2(dataDirect, probed(ways("cuda data-direct 524", "cuda dmabuf", "cuda peermem 14"))), pair, Warn, "not for Data Direct", ""},
		{"D10", probed(ways("cuda dmabuf", "cuda peermem", "cuda-vmm dmabuf 10001", "cuda-vmm peermem 22")), pair, Warn, "memory of cuMemCreate by no way", "expandable_segments:False"},
		{"an AMD GPU", all2(func(m *topo.Machine) { m.GPU.GPUs[0].Vendor = gpu.VendorAMD }, probed(ways("rocm dmabuf", "rocm peermem 14"))), pair, Pass, "registers by DMA-BUF", ""},
		{"Soft-RoCE", all2(software, probed(ways("cuda dmabuf 95", "cuda peermem 14"))), pair, Info, "software RDMA", ""},
		{"in use", notProbed(fact.NotCollected, "the GPU is in use by 3 processes"), pair, Unknown, "in use by 3 processes", "--force"},
		{"hung", notProbed(fact.Failed, "cuInit: no answer within 15s"), pair, Unknown, "no answer within 15s", "dmesg"},
		{"803", probed(cudaFailed("cuInit", 803)), pair, Fail, "of different versions", "reboot"},
		{"802", probed(cudaFailed("cuInit", 802)), pair, Fail, "fabric manager", "nvidia-fabricmanager"},
		{"no device", probed(cudaFailed("cuInit", 100)), pair, Fail, "sees no GPU", "/dev/nvidia*"},
		{"MIG or hidden", probed(cudaFailed("cuDeviceGetByPCIBusId", 101)), pair, Fail, "MIG on without an instance", ""},
		{"lost", probed(cudaFailed("cuMemAlloc_v2", 719)), pair, Fail, "lost", "dmesg"},
		{"out of memory", probed(cudaFailed("cuMemAlloc_v2", 2)), pair, Unknown, "not enough free memory", "nvidia-smi"},
		{"exclusive", probed(cudaFailed("cuDevicePrimaryCtxRetain", 46)), pair, Unknown, "another process has it", "-c DEFAULT"},
		{"no libcuda", probed(setUp(rdma.CallError{Call: "dlopen", Library: "CUDA", Text: "the library is not installed"})), pair, Unknown, "not installed", "libnvidia-compute"},
		{"no libibverbs", probed(setUp(rdma.CallError{Call: "dlopen libibverbs.so.1", Text: "no such file"})), pair, Unknown, "no such file", "libibverbs1"},
		{"no permission", probed(setUp(rdma.CallError{Call: "ibv_open_device", Errno: 13})), pair, Unknown, "may not open mlx5_0", "sudo"},
		{"no provider", probed(setUp(rdma.CallError{Call: "ibv_get_device_list", Errno: 19})), pair, Fail, "lists no such device", "provider library"},
	})
}

// A registration that worked counts more than what settings let expect.
func TestRegistrationOutranks(t *testing.T) {
	static := all2(noPeermem, attr124(0), probe(95))
	runCases(t, "gdr-way", []verdictCase{
		{"settings say no", static, "GPU0 mlx5_0", Fail, "no way", ""},
		{"and it works", all2(static, probed(ways("cuda dmabuf 95", "cuda peermem"))), "GPU0 mlx5_0", Pass, "peermem, as registering showed", ""},
		{"and it does not", all2(static, probed(ways("cuda dmabuf 95", "cuda peermem 14"))), "GPU0 mlx5_0", Fail, "no way", ""},
		{"it was not to be tried", all2(static, notProbed(fact.NotCollected, "in use"), func(m *topo.Machine) { denied(&m.Host.Modules) }), "GPU0 mlx5_0", Unknown, "", ""},
	})
	refusal := func(m *topo.Machine) {
		m.Host.KernelLog.V.Events = []host.LogEvent{{Kind: host.LogDMABufTopology, Text: "topology not supported"}}
	}
	check, _ := Lookup("dmabuf-refused")
	for want, change := range map[Verdict]func(*topo.Machine){
		Info: all2(refusal, probed(ways("cuda dmabuf"))), Warn: all2(refusal, probed(ways("cuda dmabuf 524", "cuda peermem"))),
	} {
		m := goodNode()
		change(m)
		if f := findingOf(t, m, check, nodeID); f.Verdict != want {
			t.Errorf("%s %q, want %s", f.Verdict, f.Message, want)
		}
	}
}

// Each pair is judged by its own registration, at its own weight.
func TestRegistrationOfPairs(t *testing.T) {
	two := func(first, second rdma.RegistrationProbe) func(*topo.Machine) {
		return all2(secondNIC(func(*rdma.Device) {}), func(m *topo.Machine) {
			m.Registrations = []rdma.Registration{
				{GPU: at(gpuAddr), Device: "mlx5_1", Probe: fact.Of(second, fact.AskRegistration)},
				{GPU: at("0000:99:00.0"), Device: "mlx5_0", Probe: fact.Of(second, fact.AskRegistration)},
				{GPU: at(gpuAddr), Device: "mlx5_0", Probe: fact.Of(first, fact.AskRegistration)},
			}
		})
	}
	runCases(t, "gdr-registration", []verdictCase{
		{"the other NIC's failed", two(ways("cuda dmabuf"), ways("cuda dmabuf 95")), "GPU0 mlx5_0", Pass, "", ""},
		{"its own failed", two(ways("cuda dmabuf"), ways("cuda dmabuf 95")), "GPU0 mlx5_1", Fail, "", ""},
	})
	idle := func(p rdma.RegistrationProbe) func(*topo.Machine) {
		return all2(idleNIC(func(*rdma.Device) {}), func(m *topo.Machine) {
			m.Registrations = []rdma.Registration{{GPU: at(gpuAddr), Device: "mlx5_1", Probe: fact.Of(p, fact.AskRegistration)}}
		})
	}
	for _, tc := range []struct {
		name, subject string
		change        func(*topo.Machine)
		verdict       Verdict
		severity      Severity
	}{
		{"a pair that should work", "GPU0 mlx5_0", probed(ways("cuda dmabuf 95")), Fail, SeverityError},
		{"a pair that nobody would choose", "GPU0 mlx5_1", idle(ways("cuda dmabuf 95")), Fail, SeverityWarning},
		{"in use", "GPU0 mlx5_0", notProbed(fact.NotCollected, "in use"), Unknown, SeverityWarning},
		{"it hung", "GPU0 mlx5_0", notProbed(fact.Failed, "no answer"), Unknown, SeverityError},
		{"no libcuda", "GPU0 mlx5_0", probed(setUp(rdma.CallError{Call: "dlopen", Library: "CUDA", Text: "not installed"})), Unknown, SeverityWarning},
		{"no libibverbs", "GPU0 mlx5_0", probed(setUp(rdma.CallError{Call: "dlopen libibverbs.so.1", Text: "no such file"})), Unknown, SeverityWarning},
		{"no permission", "GPU0 mlx5_0", probed(setUp(rdma.CallError{Call: "ibv_open_device", Errno: 13})), Unknown, SeverityError},
	} {
		m := goodNode()
		tc.change(m)
		if f := findingOf(t, m, gdrRegistration, tc.subject); f.Verdict != tc.verdict || f.Severity != tc.severity {
			t.Errorf("%s: %s of severity %s: %s", tc.name, f.Verdict, f.Severity, f.Message)
		}
	}
}

// What NVIDIA's driver wants is of no use to an AMD GPU.
func TestRegistrationFixByVendor(t *testing.T) {
	for vendor, kind := range map[gpu.Vendor]string{gpu.VendorNVIDIA: "cuda", gpu.VendorAMD: "rocm"} {
		m := goodNode()
		all2(proprietary, probed(ways(kind+" dmabuf 95", kind+" peermem 14")))(m)
		m.GPU.GPUs[0].Vendor = vendor
		f := findingOf(t, m, gdrRegistration, "GPU0 mlx5_0")
		if says := strings.Contains(strings.Join(f.Fix, "\n"), "open GPU kernel modules"); f.Verdict != Fail || says != (vendor == gpu.VendorNVIDIA) {
			t.Errorf("%s: %s %q", vendor, f.Verdict, f.Fix)
		}
	}
}

// A refusal in the log is of the past where every pair that could be tried
// registers; one that was not tried, of another machine or done by the CPU says
// nothing either way.
func TestRefusalOutranked(t *testing.T) {
	refused := func(more ...rdma.Registration) func(*topo.Machine) {
		return func(m *topo.Machine) {
			noPeermem(m)
			m.Host.KernelLog.V.Events = []host.LogEvent{{Kind: host.LogDMABufTopology, Text: "topology not supported"}}
			probed(ways("cuda dmabuf"))(m)
			m.Registrations = append(m.Registrations, more...)
		}
	}
	of := func(device string, probe fact.Value[rdma.RegistrationProbe]) rdma.Registration {
		return rdma.Registration{GPU: at(gpuAddr), Device: device, Probe: probe}
	}
	busy := fact.Missing[rdma.RegistrationProbe](fact.NotCollected, fact.AskRegistration, "in use")
	no := fact.Of(ways("cuda dmabuf 95"), fact.AskRegistration)
	soft := all2(secondNIC(func(d *rdma.Device) { d.Software = true }), refused(of("mlx5_1", no)))
	runCases(t, "dmabuf-refused", []verdictCase{
		{"every pair registers", refused(), "node", Info, "every pair that was tried", ""},
		{"a pair was in use", refused(of("mlx5_0", busy)), "node", Info, "every pair that was tried", ""},
		{"a device that is not here", refused(of("mlx5_9", no)), "node", Info, "every pair that was tried", ""},
		{"the CPU's", soft, "node", Info, "every pair that was tried", ""},
		{"a pair does not", refused(of("mlx5_0", no)), "node", Fail, "share no PCIe switch", ""},
	})
}
