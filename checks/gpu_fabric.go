package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var gpuFabric = Check{
	ID: "gpu-fabric", Title: "the GPU has joined its NVSwitch fabric", Area: AreaGPU, Severity: SeverityError,
	Why: "On systems with NVSwitch, CUDA does not start (error 802, system not yet initialized) before the fabric manager has set up the switches.",
	Fix: []string{"Start the fabric manager of the driver's own version: sudo systemctl enable --now nvidia-fabricmanager"},
	Refs: []string{
		"https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
		"https://docs.nvidia.com/deploy/nvml-api/",
	},
	UnsupportedIsNotApplicable: true,
	Subjects:                   eachNVIDIAGPU,
	Eval:                       evalFabric,
}

func evalFabric(c *Case) {
	fabric := nvml(c.Subject.GPU, func(d *gpu.NVMLDevice) fact.Value[gpu.Fabric] { return d.Fabric })
	if notSeen(fabric.State) && !c.hasNVSwitch() {
		// Few systems have NVSwitches: not having seen the state puts the node
		// in doubt only where one is known to be there.
		c.Lower(SeverityWarning)
	}
	f, ok := Need(c, "fabric state", fact.As(fabric, fabric.V.State))
	c.Want("completed")
	switch {
	case !ok, f == "not_supported", f == "":
		c.NotApplicable("no NVSwitch fabric")
	case f != "completed":
		c.Fail("fabric state %s: CUDA does not start (error 802)", strings.ReplaceAll(f, "_", " "))
		fixFabric(c)
	case fabric.V.Status != 0:
		c.Row("fabric status", fmt.Sprint(fabric.V.Status), fabric.Source)
		c.Want("0")
		c.Fail("joining the fabric ended with NVML status %d", fabric.V.Status)
		fixFabric(c)
	default:
		c.Pass("completed")
	}
}

// hasNVSwitch says whether one is seen: on the PCI bus or at the other end of an
// NVLink.
func (c *Case) hasNVSwitch() bool {
	const nvidia, bridgeOther = 0x10de, 0x0680
	for i := range c.Machine.PCI {
		if f := &c.Machine.PCI[i]; f.Vendor.Or(0) == nvidia && f.Class.Or(0).Sub() == bridgeOther {
			return true
		}
	}
	links := nvml(c.Subject.GPU, func(d *gpu.NVMLDevice) fact.Value[[]gpu.NVLink] { return d.NVLinks })
	return slices.ContainsFunc(links.Or(nil), func(l gpu.NVLink) bool { return l.RemoteType == "switch" })
}

func fixFabric(c *Case) {
	version := c.Machine.GPU.NVIDIA.Version.Or("the driver's own")
	if c.Platform.Virt == Guest {
		c.Fix("In a guest with shared NVSwitches: start the fabric manager on the host (or its service VM) and activate the guest's partition")
	}
	c.Fix(fmt.Sprintf("Start the fabric manager, version %s: sudo systemctl enable --now nvidia-fabricmanager", version),
		"See what it says: journalctl -u nvidia-fabricmanager -b | tail -50",
		"If it was started anew while GPUs were in use: stop all jobs, sudo nvidia-smi -r, then start it again")
}

var imex = Check{
	ID: "imex", Title: "GPUs of a multi-node NVLink domain have one clique and an IMEX channel", Area: AreaGPU, Severity: SeverityWarning,
	DependsOn: []string{"gpu-fabric"},
	Why:       "On NVL72 systems, GPUs share memory across nodes only within one clique, and only for processes that have an IMEX channel; otherwise traffic that NVLink could carry goes over the NICs, or jobs fail.",
	Fix:       []string{"Create channel 0 at load: echo 'options nvidia NVreg_CreateImexChannel0=1' | sudo tee /etc/modprobe.d/nvidia-imex.conf", "Put it into the initial RAM disk, of Debian and Ubuntu: sudo update-initramfs -u", "Of RHEL: sudo dracut -f", "Then: sudo reboot", "Start the service: sudo systemctl enable --now nvidia-imex"},
	Refs: []string{
		"https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/",
		"https://docs.nvidia.com/multi-node-nvlink-systems/mnnvl-user-guide/",
	},
	Subjects: eachNVIDIANode,
	Eval:     evalIMEX,
}

const imexChannels = "/dev/nvidia-caps-imex-channels/"

func evalIMEX(c *Case) {
	domains := map[string][]string{}
	for _, s := range eachNVIDIAGPU(c.Node) {
		f, ok := mustSee(c, "fabric of "+s.ID, nvml(s.GPU, func(d *gpu.NVMLDevice) fact.Value[gpu.Fabric] { return d.Fabric }))
		if !ok || f.State != "completed" || strings.Trim(f.ClusterUUID, "0-") == "" {
			continue
		}
		key := fmt.Sprintf("%s clique %d", f.ClusterUUID, f.CliqueID)
		if domains[key] == nil {
			c.Row("NVLink domain of "+s.ID, key, "nvml:nvmlDeviceGetGpuFabricInfo")
		}
		domains[key] = append(domains[key], s.ID)
	}
	channels := slices.DeleteFunc(slices.Clone(c.Machine.Host.Nodes), func(n host.DeviceNode) bool { return !strings.HasPrefix(n.Path, imexChannels) })
	switch {
	case len(domains) == 0:
		c.NotApplicable("no multi-node NVLink domain")
	case len(domains) > 1:
		c.Want("one")
		c.Warn("the node's GPUs are in %d NVLink domains: they cannot share memory over NVLink", len(domains))
		c.Fix("See the state of each: nvidia-smi -q | grep -A4 Fabric",
			"Look for NVLink faults and the partitions of the fabric manager (NMX), then reset the GPUs: sudo nvidia-smi -r")
	case len(channels) == 0 && len(c.Machine.Host.Nodes) == 0:
		c.Unknown("cannot tell: /dev was not seen")
	case len(channels) == 0:
		c.Row("IMEX channels", "none", imexChannels)
		c.Want("at least one")
		c.Warn("no IMEX channel: processes cannot share GPU memory with other nodes over NVLink")
		c.Fix("Create channel 0 at load: echo 'options nvidia NVreg_CreateImexChannel0=1' | sudo tee /etc/modprobe.d/nvidia-imex.conf", "Put it into the initial RAM disk, of Debian and Ubuntu: sudo update-initramfs -u", "Of RHEL: sudo dracut -f", "Then: sudo reboot",
			"Start the service with the domain's nodes in /etc/nvidia-imex/nodes_config.cfg: sudo systemctl enable --now nvidia-imex")
	default:
		c.Row("IMEX channels", fmt.Sprint(len(channels)), imexChannels)
		c.Pass("one domain, %d channel%s", len(channels), plural(len(channels)))
	}
}
