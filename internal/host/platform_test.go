package host

import (
	"maps"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/facttest"
)

func TestSecureBoot(t *testing.T) {
	const name = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	for content, want := range map[string]struct {
		state fact.State
		on    bool
	}{
		"\x06\x00\x00\x00\x01": {fact.Known, true},
		"\x06\x00\x00\x00\x00": {fact.Known, false},
		"\x01":                 {fact.Failed, false},
		"":                     {fact.Failed, false},
	} {
		v := secureBoot(t.Context(), facttest.Tree(t, map[string]string{name: content}))
		if v.State != want.state || v.V != want.on {
			t.Errorf("%q: %+v", content, v)
		}
	}
	src := facttest.Tree(t, map[string]string{name: "x"})
	src.Errors[name] = syscall.EACCES
	if v := secureBoot(t.Context(), src); v.State != fact.Denied {
		t.Errorf("%+v", v)
	}
	src = facttest.Tree(t, map[string]string{"/sys/firmware/acpi/": ""})
	if v := secureBoot(t.Context(), src); v.State != fact.Absent || src.Asked[fact.AskFiles] != 0 {
		t.Errorf("without EFI: %+v", v)
	}
	if v := secureBoot(t.Context(), facttest.Tree(t, map[string]string{"/sys/firmware/efi/": ""})); v.State != fact.Absent {
		t.Errorf("EFI without the variable: %+v", v)
	}
}

const (
	x86Guest = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel Xeon\nflags\t\t: fpu vme hypervisor lahf_lm\n"
	x86Metal = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel Xeon\nflags\t\t: fpu vme lahf_lm\n"
	armCPU   = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
	powerCPU = "processor\t: 0\ncpu\t\t: POWER10 (architected), altivec supported\n\nplatform\t: pSeries\n"
)

func TestHypervisor(t *testing.T) {
	const clocks = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
	const vendor, product = "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"
	for _, c := range []struct {
		name, cpuinfo string
		files         map[string]string
		state         fact.State
		want          string
	}{
		{"bare metal", x86Metal, map[string]string{vendor: "Supermicro\n"}, fact.Absent, ""},
		{"metal instance", x86Metal, map[string]string{vendor: "Amazon EC2\n", product: "p5.48xlarge\n"}, fact.Absent, ""},
		{"EC2", x86Guest, map[string]string{vendor: "Amazon EC2\n", product: "p5.48xlarge\n"}, fact.Known, "amazon"},
		{"Azure", x86Guest, map[string]string{vendor: "Microsoft Corporation\n", product: "Virtual Machine\n"}, fact.Known, "microsoft"},
		{"GCP", x86Guest, map[string]string{vendor: "Google\n", product: "Google Compute Engine\n"}, fact.Known, "google"},
		{"QEMU", x86Guest, map[string]string{vendor: "QEMU\n", product: "Standard PC (Q35 + ICH9, 2009)\n"}, fact.Known, "kvm"},
		{"no DMI, KVM's clock", x86Guest, map[string]string{clocks: "tsc kvm-clock\n"}, fact.Known, "kvm"},
		{"nothing but the flag", x86Guest, nil, fact.Known, "unknown"},
		{"Surface on metal", x86Metal, map[string]string{vendor: "Microsoft Corporation\n", product: "Surface\n"}, fact.Absent, ""},
		{"Grace on metal", armCPU, map[string]string{vendor: "NVIDIA\n", product: "GB200 NVL\n"}, fact.Absent, ""},
		{"Graviton", armCPU, map[string]string{vendor: "Amazon EC2\n", product: "g5g.4xlarge\n"}, fact.Known, "amazon"},
		{"Graviton metal", armCPU, map[string]string{vendor: "Amazon EC2\n", product: "g5g.metal\n"}, fact.Absent, ""},
		{"ARM, device tree", armCPU, map[string]string{"/proc/device-tree/hypervisor/compatible": "linux,kvm\x00"}, fact.Known, "kvm"},
		{"ARM without a word", armCPU, nil, fact.Unsupported, ""},
		{"LPAR", powerCPU, nil, fact.Known, "powervm"},
		{"Xen", x86Guest, map[string]string{"/sys/hypervisor/type": "xen\n"}, fact.Known, "xen"},
	} {
		files := map[string]string{"/proc/cpuinfo": c.cpuinfo}
		maps.Copy(files, c.files)
		src := facttest.Tree(t, files)
		if v := hypervisor(src, text(src, "/proc/cpuinfo"), dmi(src)); v.State != c.state || v.V != c.want {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	src := facttest.Tree(t, nil)
	if v := hypervisor(src, text(src, "/proc/cpuinfo"), dmi(src)); v.State != fact.NotCollected {
		t.Errorf("without cpuinfo nobody knows, yet %+v", v)
	}
}

func TestContainer(t *testing.T) {
	const cgroup, mounts = "/proc/self/cgroup", "/proc/self/mountinfo"
	const hostRoot = "25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		state fact.State
		want  string
	}{
		{"none", map[string]string{cgroup: "0::/user.slice/user-1000.slice\n", mounts: hostRoot}, fact.Absent, ""},
		{"docker", map[string]string{"/.dockerenv": ""}, fact.Known, "docker"},
		{"podman", map[string]string{"/run/.containerenv": "engine=\"podman\"\n"}, fact.Known, "podman"},
		{"systemd-nspawn", map[string]string{"/run/systemd/container": "systemd-nspawn\n"}, fact.Known, "systemd-nspawn"},
		{"kubernetes", map[string]string{cgroup: "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n", mounts: hostRoot}, fact.Known, "kubernetes"},
		{"cgroup namespace", map[string]string{
			cgroup: "0::/\n",
			mounts: "100 1 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs\n",
		}, fact.Known, "containerd"},
		{"an overlay of nobody's", map[string]string{cgroup: "0::/\n", mounts: "1 1 0:50 / / rw - overlay overlay rw,lowerdir=/x\n"}, fact.Known, "unknown"},
		{"half seen", map[string]string{cgroup: "0::/\n"}, fact.NotCollected, ""},
	} {
		if v := container(facttest.Tree(t, c.files)); v.State != c.state || v.V != c.want {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
	src := facttest.Tree(t, map[string]string{cgroup: "0::/\n", mounts: hostRoot})
	src.Errors[mounts] = syscall.EACCES
	if v := container(src); v.State != fact.Denied {
		t.Errorf("%+v", v)
	}
}

func TestMemoryPeers(t *testing.T) {
	for _, dir := range memoryPeerDirs {
		v := memoryPeers(facttest.Tree(t, map[string]string{dir + "/nv_mem/version": "580\n"}))
		if diff := cmp.Diff(fact.Of([]string{"nv_mem"}, dir), v); diff != "" {
			t.Error(diff)
		}
	}
	if v := memoryPeers(facttest.Tree(t, map[string]string{"/sys/kernel/mm/": ""})); v.State != fact.Absent {
		t.Errorf("%+v", v)
	}
}

func TestIOMMU(t *testing.T) {
	v := iommu(facttest.Tree(t, map[string]string{
		"/sys/class/iommu/dmar0": "", "/sys/class/iommu/dmar1": "", "/sys/kernel/iommu_groups/0/": "", "/sys/kernel/iommu_groups/17/": "",
	}))
	if len(v.Units.V) != 2 || v.Groups.V != 2 {
		t.Errorf("%+v", v)
	}
}

func TestDeviceNodes(t *testing.T) {
	src := facttest.Tree(t, map[string]string{
		"/dev/nvidia0": "", "/dev/nvidiactl": "", "/dev/gdrdrv": "", "/dev/null": "", "/dev/nvidia-fs0": "",
		"/dev/dri/renderD128": "", "/dev/dri/card0": "", "/dev/nvidia-caps/nvidia-cap1": "",
	})
	src.Errors["/dev/gdrdrv"] = syscall.EACCES
	nodes := deviceNodes(src, fact.Of(fact.Caller{CapEff: 2}, "test"))
	var got []string
	for _, n := range nodes {
		got = append(got, n.Path+" "+n.Access.State.String())
	}
	want := []string{
		"/dev/dri/renderD128 known", "/dev/gdrdrv denied", "/dev/kfd absent", "/dev/nvidia-caps/nvidia-cap1 known",
		"/dev/nvidia-fs0 known", "/dev/nvidia0 known", "/dev/nvidiactl known",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A tree that holds part of a machine says nothing of the rest: Absent, which
// checks take for an answer, is for what the machine itself denies.
func TestPartialTree(t *testing.T) {
	f := Collect(t.Context(), facttest.Tree(t, map[string]string{"/sys/bus/pci/devices/": ""}))
	for name, state := range map[string]fact.State{
		"hypervisor": f.Hypervisor.State, "container": f.Container.State, "modules": f.Modules.State, "root": f.Root.State,
		"IOMMU units": f.IOMMU.Units.State, "IOMMU groups": f.IOMMU.Groups.State, "peers": f.MemoryPeers.State, "Secure Boot": f.SecureBoot.State,
		"kernel": f.KernelRelease.State, "command line": f.CommandLine.State, "tainted": f.Tainted.State,
		"NUMA balancing": f.NUMABalancing.State, "huge pages": f.HugePages.State,
	} {
		if state != fact.NotCollected {
			t.Errorf("%s: %v", name, state)
		}
	}
	if len(f.Nodes) != 0 {
		t.Errorf("device nodes without /dev: %+v", f.Nodes)
	}
	// Here the kernel itself has neither.
	f = Collect(t.Context(), facttest.Tree(t, map[string]string{"/proc/sys/vm/": "", "/proc/sys/kernel/osrelease": "6.1.0"}))
	if f.HugePages.State != fact.Absent || f.NUMABalancing.State != fact.Absent {
		t.Errorf("huge pages %v, NUMA balancing %v", f.HugePages.State, f.NUMABalancing.State)
	}
}

func FuzzPlatformText(f *testing.F) {
	f.Add("0::/kubepods.slice/x\n", []byte("\x06\x00\x00\x00\x01"))
	f.Add("100 1 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/x\n", []byte{})
	f.Fuzz(func(t *testing.T, s string, b []byte) {
		_, _ = CgroupContainer(s)
		_, _ = MountContainer(s)
		if on, err := ParseSecureBoot(b); err != nil && on {
			t.Error("an error with a value")
		}
	})
}
