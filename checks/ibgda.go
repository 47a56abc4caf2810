package checks

import (
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

var ibgda = Check{
	ID: "ibgda", Title: "GPUs can drive the NIC by themselves (IBGDA)", Area: AreaDriver, Severity: SeverityInfo,
	Why: "NVSHMEM's IBGDA, DOCA GPUNetIO and NCCL's GIN let the GPU ring the NIC's doorbell. That is for mlx5 alone, and a process that is not root needs PeerMappingOverride=1; otherwise NVSHMEM falls back to its CPU-assisted handler. Nothing else needs either.",
	Fix: []string{"For processes that are not root, and it weakens security: echo 'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\"' | sudo tee /etc/modprobe.d/nvidia-ibgda.conf", "Then reboot: sudo update-initramfs -u (RHEL: sudo dracut -f)"},
	Refs: []string{
		"https://docs.nvidia.com/nvshmem/api/gen/env.html",
		"https://github.com/deepseek-ai/DeepEP/blob/main/third-party/README.md",
		"https://github.com/deepseek-ai/DeepEP/issues/202",
		"https://github.com/sgl-project/sglang/issues/12533",
	},
	Subjects: eachNVIDIANode,
	Eval: func(c *Case) {
		var mlx5, other []string
		for _, s := range EachRDMA(c.Node) {
			driver, ok := s.NIC.Driver.Get()
			switch {
			case s.NIC.Software || !c.matters(s.NIC):
			case strings.HasPrefix(driver, "mlx5"):
				mlx5 = append(mlx5, s.ID)
			case ok:
				other = append(other, s.ID+" ("+driver+")")
			default:
				Need(c, "driver of "+s.ID, s.NIC.Driver, s.NIC.Dir)
			}
		}
		if len(mlx5)+len(other) == 0 {
			c.NotApplicable("no RDMA NIC for GPUs")
			return
		}
		if len(mlx5) == 0 {
			c.Row("NICs", orElse(strings.Join(other, ", "), "none"), "/sys/class/infiniband")
			c.Info("not possible: it drives mlx5 NICs alone")
			return
		}
		c.Row("mlx5 NICs", strings.Join(mlx5, ", "), "/sys/class/infiniband")
		const capSysAdmin = 1 << 21 // include/uapi/linux/capability.h
		if lim, known := c.Machine.Host.Limits.Get(); known && c.Platform.Container != "" && lim.CapEff&capSysAdmin == 0 {
			c.Row("CAP_SYS_ADMIN", "no", "limits:self")
			c.Info("not in this container: mapping the NIC's registers (UAR) for the GPU needs CAP_SYS_ADMIN (docker run --privileged); it would end with a NULL devx_uar")
			return
		}
		params, state := See(c, "driver options", c.Machine.GPU.NVIDIA.Params)
		switch {
		case state != fact.Known:
			Need(c, "driver options", c.Machine.GPU.NVIDIA.Params)
			c.NotApplicable("the NVIDIA driver is not loaded")
		case peerMappingOverride(params["RegistryDwords"]) && params["EnableStreamMemOPs"] == "0":
			c.Row("EnableStreamMemOPs", "0", paramsFile)
			c.Info("every user may map mlx5's registers (PeerMappingOverride=1); for GPUDirect Async, stream memory operations are off (NVreg_EnableStreamMemOPs=1 switches them on)")
		case peerMappingOverride(params["RegistryDwords"]):
			c.Pass("mlx5, and every user may map its registers (PeerMappingOverride=1)")
		case c.Machine.Host.Root.State == fact.Known && !c.Machine.Host.Root.V:
			c.Row("RegistryDwords", orElse(strings.Trim(params["RegistryDwords"], `"`), `""`), paramsFile)
			c.Want("PeerMappingOverride=1, for users that are not root")
			c.Info("not for this user: PeerMappingOverride is 0, the safe default, so that only root may map the NIC's registers; NVSHMEM uses its CPU-assisted handler")
		default:
			c.Row("RegistryDwords", orElse(strings.Trim(params["RegistryDwords"], `"`), `""`), paramsFile)
			c.Info("for root; other users' processes use the CPU-assisted handler (PeerMappingOverride is 0, which is the safe default)")
		}
	},
}

// peerMappingOverride says whether the registry text switches it on.
func peerMappingOverride(dwords string) bool {
	for setting := range strings.SplitSeq(strings.Trim(dwords, `"`), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(setting), "=")
		if name == "PeerMappingOverride" && sameOption(strings.TrimSpace(value), "1") {
			return true
		}
	}
	return false
}
