// Package render is test support: it builds the sysfs and procfs of a machine
// in a directory from a description, with the real directories, relative links
// and configuration space that a kernel would show. No product code imports it.
package render

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// Tree describes a machine. Its zero value is one without devices.
type Tree struct {
	Functions []Function
	NUMA      []NUMANode
	IOMMUs    []string // /sys/class/iommu: "dmar0"; functions name their groups
	RDMA      []RDMA
	NetDevs   []NetDev
	Modules   []Module

	Kernel      string // /proc/sys/kernel/osrelease; "" means 6.12.0
	CommandLine string // /proc/cmdline
	CPUVendor   string // /proc/cpuinfo's vendor_id, family and model
	CPUFamily   int
	CPUModel    string

	// Files are further files by absolute path ("/proc/driver/nvidia/version"),
	// written last, so that they may replace what the rest made; Links are
	// further symbolic links with their text.
	Files map[string]string
	Links map[string]string
}

// Function is one PCI function. Addresses are text, "0000:3b:00.0".
type Function struct {
	Addr   string
	Parent string // the bridge above; "" below a host bridge
	// RootBus is the host bridge's directory, "pci0000:20"; "" derives it.
	RootBus string

	Vendor, Device, SubVendor, SubDevice pci.ID
	Class                                pci.Class
	Revision                             uint8

	Driver     string
	Node       int // NUMA node; -1: none
	IOMMUGroup *int
	IOMMUType  string // "" means DMA-FQ
	PhysFn     string // set on a VF; the PF's virtfnN links follow
	BARs       []pci.BAR
	Disabled   bool

	Express *Express // nil: conventional PCI
	ACS     *pci.ACS
	ATS     *bool // nil: no capability; else its Enable bit
	ReBAR   []pci.ReBAR
	AER     *pci.AERCounts // nil: zero counters on PCI Express

	// ConfigBytes is how much of configuration space is served: 0 means 4096
	// for PCI Express and 256 otherwise; 64 is what an ordinary user gets; -1
	// no file.
	ConfigBytes int
	// Secondary and Subordinate bus numbers of a bridge; 0 derives them.
	Secondary, Subordinate uint8
}

// Express is a PCI Express capability. Sizes of 0 mean 256, 512 and 512 bytes.
type Express struct {
	Port                              pci.PortType
	Link                              pci.Link // MaxWidth 0: no link
	MPSBytes, MPSSupportedBytes, MRRS int
	RelaxedOrdering, ExtendedTag      bool
}

// NUMANode is a memory node.
type NUMANode struct {
	ID        int
	CPUs      string // "0-31,64-95"
	Distances []int
}

// Module is a loaded kernel module.
type Module struct {
	Name, Version, SrcVersion, Taint string
	RefCount                         int
	Holders                          []string
	Parameters                       map[string]string
}

// Write builds the machine below dir, which must exist.
func (t Tree) Write(dir string) error {
	w := &writer{root: dir, dirs: map[string]bool{}}
	places, err := t.places()
	if err != nil {
		return err
	}
	t.writeNUMA(w)
	t.writePCI(w, places)
	t.writeIOMMU(w, places)
	t.writeNetDevs(w, places)
	t.writeRDMA(w, places)
	t.writeModules(w)
	t.writeProc(w)
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		w.file(name, t.Files[name])
	}
	for _, name := range slices.Sorted(maps.Keys(t.Links)) {
		w.rawLink(name, t.Links[name])
	}
	return w.err
}

// writer makes files below root and keeps the first error.
type writer struct {
	root string
	dirs map[string]bool
	err  error
}

func (w *writer) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) dir(name string) {
	if !w.dirs[name] {
		w.dirs[name] = true
		w.keep(os.MkdirAll(w.root+name, 0o755))
	}
}

// file writes text, with the newline that sysfs ends its values with. What holds a
// NUL is no text and stays as it is.
func (w *writer) file(name, text string) {
	if text != "" && !strings.HasSuffix(text, "\n") && !strings.Contains(text, "\x00") {
		text += "\n"
	}
	w.bytes(name, []byte(text))
}

func (w *writer) bytes(name string, b []byte) {
	w.dir(path.Dir(name))
	w.keep(os.WriteFile(w.root+name, b, 0o644))
}

// link points name at target, both absolute in the machine, relatively and as
// the kernel does: always by the target's own name ("../../../0000:14:00.0",
// never "../..").
func (w *writer) link(name, target string) {
	rel, err := filepath.Rel(path.Dir(name), path.Dir(target))
	w.keep(err)
	w.rawLink(name, path.Join(rel, path.Base(target)))
}

func (w *writer) rawLink(name, text string) {
	w.dir(path.Dir(name))
	w.keep(os.Symlink(text, w.root+name))
}

func (t Tree) writeNUMA(w *writer) {
	var ids []int
	for _, n := range t.NUMA {
		base := fmt.Sprintf("/sys/devices/system/node/node%d", n.ID)
		w.file(base+"/cpulist", n.CPUs)
		w.file(base+"/distance", strings.Trim(fmt.Sprint(n.Distances), "[]"))
		ids = append(ids, n.ID)
	}
	if len(ids) > 0 {
		list := formatList(ids)
		w.file("/sys/devices/system/node/online", list)
		w.file("/sys/devices/system/node/possible", list)
	}
	w.file("/sys/devices/system/cpu/online", t.allCPUs())
}

// cpusOf is what local_cpulist says for a node.
func (t Tree) cpusOf(node int) string {
	for _, n := range t.NUMA {
		if n.ID == node {
			return n.CPUs
		}
	}
	return t.allCPUs()
}

func (t Tree) allCPUs() string {
	var all []int
	for _, n := range t.NUMA {
		all = append(all, parseList(n.CPUs)...)
	}
	if len(all) == 0 {
		return "0"
	}
	return formatList(all)
}

func (t Tree) writeIOMMU(w *writer, places map[string]string) {
	for _, u := range t.IOMMUs {
		w.dir("/sys/devices/virtual/iommu/" + u)
		w.link("/sys/class/iommu/"+u, "/sys/devices/virtual/iommu/"+u)
	}
	done := map[int]bool{}
	for _, f := range t.Functions {
		if f.IOMMUGroup == nil {
			continue
		}
		group := fmt.Sprintf("/sys/kernel/iommu_groups/%d", *f.IOMMUGroup)
		if kind := f.IOMMUType; !done[*f.IOMMUGroup] {
			if kind == "" {
				kind = "DMA-FQ"
			}
			done[*f.IOMMUGroup] = true
			w.file(group+"/type", kind)
		}
		w.link(places[f.Addr]+"/iommu_group", group)
		w.link(group+"/devices/"+f.Addr, places[f.Addr])
	}
}

func (t Tree) writeModules(w *writer) {
	var proc strings.Builder
	for _, m := range t.Modules {
		base := "/sys/module/" + m.Name
		w.file(base+"/refcnt", strconv.Itoa(m.RefCount))
		w.file(base+"/initstate", "live")
		w.file(base+"/taint", m.Taint+"\n")
		if m.Version != "" {
			w.file(base+"/version", m.Version)
		}
		if m.SrcVersion != "" {
			w.file(base+"/srcversion", m.SrcVersion)
		}
		w.dir(base + "/holders")
		for _, h := range m.Holders {
			w.link(base+"/holders/"+h, "/sys/module/"+h)
		}
		for name, v := range m.Parameters {
			w.file(base+"/parameters/"+name, v)
		}
		users := "-"
		if len(m.Holders) > 0 {
			users = strings.Join(m.Holders, ",") + ","
		}
		fmt.Fprintf(&proc, "%s 65536 %d %s Live 0x0000000000000000", m.Name, m.RefCount, users)
		if m.Taint != "" {
			fmt.Fprintf(&proc, " (%s)", m.Taint)
		}
		proc.WriteByte('\n')
	}
	w.file("/proc/modules", proc.String())
}

func (t Tree) writeProc(w *writer) {
	kernel := t.Kernel
	if kernel == "" {
		kernel = "6.12.0"
	}
	w.file("/proc/sys/kernel/osrelease", kernel)
	w.file("/proc/cmdline", t.CommandLine+"\n")
	var cpus strings.Builder
	flags := ""
	if t.CPUVendor != "" { // by its flags is x86 told from others
		flags = "flags\t\t: fpu tsc msr pae cx8 apic sse sse2 lm\n"
	}
	for _, n := range parseList(t.allCPUs()) {
		fmt.Fprintf(&cpus, "processor\t: %d\nvendor_id\t: %s\ncpu family\t: %d\nmodel\t\t: 1\nmodel name\t: %s\n%s\n",
			n, t.CPUVendor, t.CPUFamily, t.CPUModel, flags)
	}
	w.file("/proc/cpuinfo", cpus.String())
}

// parseList reads a kernel list, "0-3,8"; what it cannot read it skips.
func parseList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if ranged {
			b, _ = strconv.Atoi(hi)
		}
		for n := a; err == nil && n <= b && len(out) < 1<<16; n++ {
			out = append(out, n)
		}
	}
	return out
}

// formatList writes numbers as the kernel does.
func formatList(list []int) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(list[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
