package host

import (
	"context"
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// secureBoot reads the UEFI variable SecureBoot: four bytes of attributes, then
// one of value. Firmware serves it, so it goes through Ask.
func secureBoot(ctx context.Context, src fact.Source) fact.Value[bool] {
	const dir = "/sys/firmware/efi"
	const name = dir + "/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	if _, err := src.Stat(dir); err != nil {
		v := within(src, "/sys/firmware", fact.FromError[bool](err, dir))
		if v.State == fact.Absent {
			v.Reason = "the kernel was not started by EFI"
		}
		return v
	}
	recs, err := src.Ask(ctx, fact.AskFiles, name)
	if err != nil || len(recs) != 1 {
		if err == nil {
			err = fmt.Errorf("%d answers", len(recs))
		}
		return fact.FromError[bool](err, name)
	}
	v := fact.Decode[[]byte](recs[0])
	v.Source = name
	return fact.Map(v, ParseSecureBoot)
}

// ParseSecureBoot decodes the variable as efivarfs serves it.
func ParseSecureBoot(b []byte) (bool, error) {
	if len(b) != 5 || b[4] > 1 {
		return false, fmt.Errorf("bad SecureBoot variable % x: want 5 bytes, the last 0 or 1", b)
	}
	return b[4] == 1, nil
}

func iommu(src fact.Source) IOMMU {
	return IOMMU{
		Units: within(src, "/sys/class", names(src, "/sys/class/iommu")),
		Groups: fact.Map(within(src, "/sys/kernel", names(src, "/sys/kernel/iommu_groups")), func(g []string) (int, error) {
			return len(g), nil
		}),
	}
}

func dmi(src fact.Source) DMI {
	field := func(name string) fact.Value[string] {
		v := text(src, "/sys/class/dmi/id/"+name)
		v.V = strings.TrimSpace(v.V)
		return v
	}
	return DMI{
		SysVendor: field("sys_vendor"), ProductName: field("product_name"),
		BoardVendor: field("board_vendor"), BoardName: field("board_name"),
		BIOSVersion: field("bios_version"), BIOSDate: field("bios_date"),
		ChassisTag: field("chassis_asset_tag"),
	}
}

// memoryPeerDirs are the three places where a peer memory driver shows its
// clients (nv_mem, amdkfd), by kernel and vendor release.
var memoryPeerDirs = []string{"/sys/kernel/mm/memory_peers", "/sys/kernel/memory_peers", "/sys/memory_peers"}

// memoryPeers returns the clients' names; the source is the place.
func memoryPeers(src fact.Source) fact.Value[[]string] {
	all := make([]fact.Value[[]string], len(memoryPeerDirs))
	for i, dir := range memoryPeerDirs {
		all[i] = names(src, dir)
	}
	return within(src, "/sys/kernel", first(all...))
}

// within says that an Absent thing below a folder that every kernel has was
// not seen if the folder itself is not there: the tree is a part of a machine.
func within[T any](src fact.Source, folder string, v fact.Value[T]) fact.Value[T] {
	if v.State == fact.Absent {
		if _, err := src.Stat(folder); fact.StateOf(err) == fact.Absent {
			return fact.Unseen(v)
		}
	}
	return v
}

// hypervisor tells the kind of virtual machine this is. On x86 the CPU says
// whether there is one; DMI, the clock sources, Xen's sysfs and the device tree
// say which. Absent: bare metal.
func hypervisor(src fact.Source, info fact.Value[string], d DMI) fact.Value[string] {
	cpuinfo := info.Source
	if v := text(src, "/sys/hypervisor/type"); v.State == fact.Known {
		return v
	}
	if v := text(src, "/proc/device-tree/hypervisor/compatible"); v.State == fact.Known {
		return fact.Map(v, func(s string) (string, error) {
			if strings.Contains(s, "kvm") {
				return "kvm", nil
			}
			return strings.TrimPrefix(s, "linux,"), nil
		})
	}
	if info.State != fact.Known {
		return fact.Unseen(info) // Absent would mean bare metal
	}
	vendor := dmiHypervisor(d)
	switch machineOf(info.V) {
	case machineX86:
		if !hasFlag(info.V, "hypervisor") {
			return fact.Missing[string](fact.Absent, cpuinfo, "no hypervisor flag")
		}
		if vendor.State != fact.Known {
			vendor = clockHypervisor(src)
		}
		if vendor.State != fact.Known {
			return fact.Of("unknown", cpuinfo)
		}
		return vendor
	case machinePOWER:
		if strings.Contains(field(info.V, "platform"), "pSeries") {
			return fact.Of("powervm", cpuinfo)
		}
		return fact.Missing[string](fact.Absent, cpuinfo, "platform "+field(info.V, "platform"))
	case machineARM, machineOther:
	}
	if vendor.State == fact.Absent && d.SysVendor.State != fact.Known {
		return fact.Missing[string](fact.Unsupported, cpuinfo, "neither DMI nor a device tree tells")
	}
	return vendor
}

// dmiHypervisor knows hypervisors by what they write into DMI.
func dmiHypervisor(d DMI) fact.Value[string] {
	vendor, product := d.SysVendor.V, d.ProductName.V
	if d.SysVendor.State != fact.Known {
		return fact.As(d.SysVendor, "")
	}
	const source = "/sys/class/dmi/id/sys_vendor"
	for _, h := range []struct {
		vendor, product, name string
	}{
		{"QEMU", "", "kvm"},
		{"Red Hat", "KVM", "kvm"},
		{"Amazon EC2", "", "amazon"},
		{"Microsoft Corporation", "Virtual Machine", "microsoft"},
		{"Google", "Google Compute Engine", "google"},
		{"VMware", "", "vmware"},
		{"Xen", "", "xen"},
		{"innotek GmbH", "", "virtualbox"},
		{"Alibaba Cloud", "ECS", "alibaba"},
		{"OpenStack Foundation", "", "kvm"},
		{"Nutanix", "AHV", "nutanix"},
		{"Parallels", "", "parallels"},
		{"Apple", "Apple Virtualization", "apple"},
		{"", "KVM Virtual Machine", "kvm"},
	} {
		if strings.HasPrefix(vendor, h.vendor) && strings.Contains(product, h.product) {
			if strings.HasSuffix(product, ".metal") {
				return fact.Missing[string](fact.Absent, source, "a metal instance, "+product)
			}
			return fact.Of(h.name, source)
		}
	}
	return fact.Missing[string](fact.Absent, source, vendor+" is no hypervisor")
}

// clockHypervisor knows a hypervisor by the clock that it gives its guests.
func clockHypervisor(src fact.Source) fact.Value[string] {
	v := text(src, "/sys/devices/system/clocksource/clocksource0/available_clocksource")
	return fact.Map(v, func(s string) (string, error) {
		for _, c := range []struct{ clock, name string }{
			{"kvm-clock", "kvm"}, {"hyperv", "microsoft"}, {"xen", "xen"}, {"vmware", "vmware"},
		} {
			if strings.Contains(s, c.clock) {
				return c.name, nil
			}
		}
		return "", fmt.Errorf("clock sources %q name no hypervisor", s)
	})
}

// container tells what runs this file system as a container; Absent: none seen.
func container(src fact.Source) fact.Value[string] {
	for _, c := range []struct{ file, name string }{
		{"/run/.containerenv", "podman"}, {"/.dockerenv", "docker"},
	} {
		if _, err := src.Stat(c.file); err == nil {
			return fact.Of(c.name, c.file)
		}
	}
	if v := text(src, "/run/systemd/container"); v.State == fact.Known && v.V != "" {
		return v
	}
	tried := []fact.Value[string]{
		fact.Parsed(src, "", "/proc/self/cgroup", CgroupContainer),
		fact.Parsed(src, "", "/proc/self/mountinfo", MountContainer),
	}
	for i := range tried {
		if tried[i].State == fact.Known && tried[i].V != "" {
			return tried[i]
		}
	}
	for _, v := range tried {
		if v.State != fact.Known {
			return fact.Unseen(v) // cannot say that there is none
		}
	}
	return fact.Missing[string](fact.Absent, "/proc/self/mountinfo", "no sign of a container")
}

// CgroupContainer knows a container by its cgroup paths ("0::/kubepods.slice/…");
// empty: none seen, which within a cgroup namespace says nothing.
func CgroupContainer(s string) (string, error) {
	for _, c := range []struct{ part, name string }{
		{"/kubepods", "kubernetes"}, {"cri-containerd", "containerd"}, {"/docker", "docker"},
		{"/libpod", "podman"}, {"/lxc", "lxc"}, {"/machine.slice/machine-", "systemd-nspawn"},
	} {
		if strings.Contains(s, c.part) {
			return c.name, nil
		}
	}
	return "", nil
}

// MountContainer knows a container by its root: an overlay whose layers lie in
// an engine's store (proc_pid_mountinfo(5)). Empty: the root is not such a one.
func MountContainer(s string) (string, error) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) < 7 || f[4] != "/" {
			continue
		}
		for _, c := range []struct{ part, name string }{
			{"/containerd/", "containerd"}, {"/docker/", "docker"}, {"/containers/storage/", "podman"},
		} {
			if strings.Contains(line, c.part) {
				return c.name, nil
			}
		}
		if strings.Contains(line, " - overlay ") {
			return "unknown", nil
		}
	}
	return "", nil
}
