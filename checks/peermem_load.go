package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/host"
)

var peermemLoad = Check{
	ID: "peermem-load", Title: "nvidia-peermem is loaded, or nothing keeps it from loading", Area: AreaDriver, Severity: SeverityError, Rung: RungWay,
	DependsOn: []string{"gpu-present", "rdma-device-present"},
	Why:       "nvidia-peermem registers with an interface that only a vendor's RDMA core (MLNX_OFED, DOCA-OFED) has, and it must have been built against that very core. Otherwise modprobe answers \"Invalid argument\", \"Unknown symbol\" or \"disagrees about version of symbol\".",
	Fix:       []string{"See what the kernel says: sudo modprobe nvidia-peermem; sudo dmesg -T | tail", "Build the GPU driver's kernel modules anew after DOCA-OFED: sudo dkms build nvidia/VERSION --force && sudo dkms install nvidia/VERSION --force", "Or use DMA-BUF"},
	Refs: []string{
		"https://docs.nvidia.com/cuda/gpudirect-rdma/#using-nvidia-peermem",
		"https://github.com/NVIDIA/gpu-operator/issues/2868",
		"https://github.com/NVIDIA/gpu-operator/issues/2619",
		"https://github.com/siderolabs/talos/issues/12021",
		"https://github.com/Mellanox/nv_peer_memory/issues/79",
	},
	UnknownIs: SeverityWarning, // gdr-way decides
	Subjects:  eachNVIDIANode,
	Eval:      evalPeermemLoad,
}

// obstacle is what keeps a module from loading.
type obstacle struct {
	text string
	fix  []string
	// usual: so it is on every node with the kernel's own RDMA core.
	usual bool
}

func evalPeermemLoad(c *Case) {
	mod, state := See(c, "nvidia_peermem", c.module("nvidia_peermem"))
	switch {
	case state == fact.Known:
		c.Pass("%s", show(mod))
		return
	case state != fact.Absent:
		Need(c, "loaded modules", c.module("nvidia_peermem"))
	case c.module("nv_peer_mem").State == fact.Known:
		c.NotApplicable("nv_peer_mem is loaded in its place")
		return
	case !slices.ContainsFunc(EachPair(c.Node), func(s Subject) bool { return servedByPeermem(s) }):
		c.none("no NIC here is served by it")
		return
	}
	o := peermemObstacle(c)
	if o == nil {
		mustSee(c, "the kernel has ib_register_peer_memory_client", c.Machine.Host.Symbols["ib_register_peer_memory_client"])
		mustSee(c, "driver version", c.Machine.GPU.NVIDIA.Version)
		mustSee(c, "its version", c.moduleFileOf("nvidia_peermem").Version)
		c.Pass("not loaded; nothing keeps it from loading")
		return
	}
	c.Fix(o.fix...)
	switch dmabuf := c.dmabufAll(); {
	case dmabuf == no:
		c.Fail("nvidia-peermem cannot be loaded: %s; and DMA-BUF is no way here either", o.text)
		c.Fix("Or use DMA-BUF: open GPU kernel modules 515 or newer (package nvidia-open), kernel 5.12 or newer, rdma-core 34 or newer")
	case dmabuf == yes && o.usual:
		c.Info("nvidia-peermem cannot be loaded: %s; DMA-BUF does its work", o.text)
	case dmabuf == yes:
		c.Warn("nvidia-peermem would fail to load: %s; DMA-BUF works", o.text)
	default:
		c.Warn("nvidia-peermem cannot be loaded: %s; whether DMA-BUF works in its place is not sure", o.text)
	}
}

func servedByPeermem(s Subject) bool {
	m, ok := s.NIC.Model.Get()
	return !s.NIC.Software && (!ok || m.GPUDirect != "dmabuf" && m.GPUDirect != "none")
}

// peermemObstacle finds the first thing that would stop modprobe, in the order
// in which the kernel looks. It ends the check where that cannot be told.
func peermemObstacle(c *Case) *obstacle {
	release, _ := Need(c, "kernel", c.Machine.Host.KernelRelease)
	file := c.moduleFileOf("nvidia_peermem")
	path, there := Need(c, "nvidia-peermem's file", file.Path)
	if !there {
		return &obstacle{text: "there is no such module for kernel " + release, usual: true, fix: []string{
			"Reinstall the GPU driver's kernel modules for this kernel: sudo dkms autoinstall -k " + release + " (Debian, Ubuntu), or run the driver's installer anew",
			"GPU Operator: the driver pod took its userspace-only way: set FORCE_REINSTALL=true in its environment",
		}}
	}
	rebuild := []string{
		"Build it anew against this kernel and its RDMA core: sudo dkms build nvidia/" + c.driverVersion() + " -k " + release + " --force && sudo dkms install nvidia/" + c.driverVersion() + " -k " + release + " --force",
		"Then: sudo depmod -a " + release + " && sudo modprobe nvidia-peermem (GPU Operator: restart the driver pod)",
	}
	if magic, ok := Need(c, "its vermagic", file.VerMagic); ok && firstWord(magic) != release {
		c.Want("%s …", release)
		return &obstacle{text: fmt.Sprintf("%s was built for kernel %s, this is %s", path, firstWord(magic), release), fix: rebuild}
	}
	if v, ok := file.Version.Get(); ok && c.Machine.GPU.NVIDIA.Version.State == fact.Known && v != c.driverVersion() {
		c.Row("its version", v, path)
		c.Want("%s, the driver's that is loaded", c.driverVersion())
		return &obstacle{text: fmt.Sprintf("its file is of driver %s, while %s is loaded", v, c.driverVersion()), fix: []string{
			"The driver was changed since it was loaded: reboot, or unload and load all nvidia modules",
		}}
	}
	peer, ok := file.PeerMemory.Get()
	symbol := c.Machine.Host.Symbols["ib_register_peer_memory_client"]
	if !ok {
		return obstacleBySymbol(c, file, symbol)
	}
	c.Row("it uses ib_register_peer_memory_client", importText(peer), path)
	c.Want("yes")
	if !peer.Imports {
		return &obstacle{text: "it was built without peer memory, and answers \"Invalid argument\"", usual: true, fix: append([]string{
			"Install DOCA-OFED (package doca-ofed) if it is not there; the kernel's own RDMA core has no peer memory interface",
		}, rebuild...)}
	}
	return obstacleByExport(c, peer, symbol, rebuild)
}

// obstacleByExport holds what the module imports against what the RDMA core
// exports, in its files and in the kernel that runs.
func obstacleByExport(c *Case, peer host.PeerMemory, symbol fact.Value[bool], rebuild []string) *obstacle {
	missing := &obstacle{text: "the RDMA core exports no ib_register_peer_memory_client (\"Unknown symbol\")", fix: []string{
		"Make the vendor's RDMA core the one that loads: reinstall DOCA-OFED for this kernel (sudo dkms status shows mlnx-ofed-kernel), then sudo /etc/init.d/openibd restart or reboot",
		"Then: sudo modprobe nvidia-peermem",
	}}
	seen := false
	for _, name := range []string{"ib_core", "ib_uverbs"} {
		f := c.moduleFileOf(name)
		core, ok := f.PeerMemory.Get()
		if !ok {
			continue
		}
		seen = true
		if !core.Exports {
			continue
		}
		c.Row("version of the symbol", fmt.Sprintf("built against %#08x, %s has %#08x", peer.CRC, name, core.CRC), f.Path.V)
		if peer.CRC != 0 && core.CRC != 0 && peer.CRC != core.CRC {
			c.Want("equal")
			return &obstacle{text: "the RDMA core was changed after it was built (\"disagrees about version of symbol ib_register_peer_memory_client\")", fix: rebuild}
		}
		if has, known := symbol.Get(); known && !has {
			missing.text = "the RDMA core that is loaded has no peer memory, though its file has (\"Unknown symbol\")"
			missing.fix = []string{"Load the installed one: sudo /etc/init.d/openibd restart, or reboot; then: sudo modprobe nvidia-peermem"}
			return missing
		}
		return nil
	}
	has, known := symbol.Get()
	switch {
	case known && has:
		return nil
	case seen || known:
		See(c, "the kernel has ib_register_peer_memory_client", symbol)
		return missing
	}
	Need(c, "the kernel has ib_register_peer_memory_client", symbol)
	return nil
}

// obstacleBySymbol answers where the module's file could not be opened.
func obstacleBySymbol(c *Case, file host.ModuleFile, symbol fact.Value[bool]) *obstacle {
	if has, known := symbol.Get(); known && !has {
		See(c, "the kernel has ib_register_peer_memory_client", symbol)
		c.Want("yes")
		return &obstacle{text: "this kernel's RDMA core has no peer memory interface", usual: true, fix: []string{
			"Install DOCA-OFED (package doca-ofed), then reinstall the GPU driver's kernel modules",
		}}
	}
	for _, e := range c.logOf("", host.LogSymbolVersion, host.LogSymbolUnknown, host.LogVersionMagic) {
		if e.Module == "nvidia_peermem" {
			c.Row("kernel log, "+sinceBoot(e), e.Text, c.Machine.Host.KernelLog.Source)
			c.Want("no complaint")
			return &obstacle{text: "when it was last tried the kernel said: " + e.Text, fix: []string{
				"Build it anew against this kernel and its RDMA core: reinstall the GPU driver's kernel modules after DOCA-OFED, then: sudo depmod -a && sudo modprobe nvidia-peermem",
			}}
		}
	}
	Need(c, "what nvidia-peermem's file needs", file.PeerMemory)
	c.Unknown("cannot tell what nvidia-peermem's file needs")
	panic(stop{})
}

func importText(p host.PeerMemory) string {
	if !p.Imports {
		return "no"
	}
	return "yes"
}

func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	return w
}

func (n *Node) driverVersion() string { return n.Machine.GPU.NVIDIA.Version.Or("VERSION") }

// moduleFileOf is what is known of a module's file.
func (n *Node) moduleFileOf(name string) host.ModuleFile {
	for _, f := range n.Machine.Host.ModuleFiles {
		if f.Name == name {
			return f
		}
	}
	return host.ModuleFile{Name: name}
}

// dmabufAll says whether DMA-BUF works for every pair that matters (yes), for
// none (no), or neither is sure.
func (c *Case) dmabufAll() answerState {
	states := map[answerState]int{}
	pairs := EachPair(c.Node)
	for _, s := range pairs {
		scratch := &Case{Node: c.Node, Subject: s, check: c.check} // its evidence is gdr-way's
		states[both(gpuExportsDMABuf(scratch), nicImportsDMABuf(scratch)).state]++
	}
	switch {
	case len(pairs) == 0:
		return dontKnow
	case states[yes] == len(pairs):
		return yes
	case states[no] == len(pairs):
		return no
	}
	return dontKnow
}
