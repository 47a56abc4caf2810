package render

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
)

// places maps each function's address to its real directory.
func (t Tree) places() (map[string]string, error) {
	byAddr := map[string]*Function{}
	for i := range t.Functions {
		f := &t.Functions[i]
		if _, err := pci.ParseAddress(f.Addr); err != nil {
			return nil, err
		}
		if byAddr[f.Addr] != nil {
			return nil, fmt.Errorf("%s is there twice", f.Addr)
		}
		byAddr[f.Addr] = f
	}
	out := map[string]string{}
	for _, f := range t.Functions {
		place, err := placeOf(&f, byAddr, 0)
		if err != nil {
			return nil, err
		}
		out[f.Addr] = place
	}
	return out, nil
}

func placeOf(f *Function, byAddr map[string]*Function, depth int) (string, error) {
	addr, _ := pci.ParseAddress(f.Addr)
	root := f.RootBus
	if root == "" {
		root = fmt.Sprintf("pci%04x:%02x", addr.Domain, addr.Bus)
	}
	if f.Parent == "" {
		return "/sys/devices/" + root + "/" + f.Addr, nil
	}
	parent := byAddr[f.Parent]
	if parent == nil || depth > 64 {
		return "", fmt.Errorf("%s: its parent %s is not there, or above itself", f.Addr, f.Parent)
	}
	above, err := placeOf(parent, byAddr, depth+1)
	if err != nil {
		return "", err
	}
	// A domain of its own below a function: a root bus behind a VMD.
	if p, _ := pci.ParseAddress(parent.Addr); p.Domain != addr.Domain {
		above += "/" + root
	}
	return above + "/" + f.Addr, nil
}

func (t Tree) writePCI(w *writer, places map[string]string) {
	w.dir("/sys/bus/pci/devices")
	buses := t.buses()
	multi := map[string]bool{} // slots with more than one function
	for _, f := range t.Functions {
		if !strings.HasSuffix(f.Addr, ".0") {
			multi[f.Addr[:len(f.Addr)-1]] = true
		}
	}
	vfs := map[string]int{}
	for i := range t.Functions {
		f := &t.Functions[i]
		dir := places[f.Addr]
		w.link("/sys/bus/pci/devices/"+f.Addr, dir)
		t.writeFunction(w, f, dir)
		if n := f.configBytes(); n > 0 {
			space := f.config(buses[f.Addr], multi[f.Addr[:len(f.Addr)-1]])
			w.bytes(dir+"/config", space[:n])
		}
		if f.Driver != "" {
			driver := "/sys/bus/pci/drivers/" + f.Driver
			w.dir(driver)
			w.link(dir+"/driver", driver)
			w.link(driver+"/"+f.Addr, dir)
		}
		if f.PhysFn != "" {
			w.link(dir+"/physfn", places[f.PhysFn])
			w.link(fmt.Sprintf("%s/virtfn%d", places[f.PhysFn], vfs[f.PhysFn]), dir)
			vfs[f.PhysFn]++
		}
	}
}

func (t Tree) writeFunction(w *writer, f *Function, dir string) {
	hex := func(name string, digits int, v uint64) { w.file(dir+"/"+name, fmt.Sprintf("0x%0*x", digits, v)) }
	hex("vendor", 4, uint64(f.Vendor))
	hex("device", 4, uint64(f.Device))
	hex("subsystem_vendor", 4, uint64(f.SubVendor))
	hex("subsystem_device", 4, uint64(f.SubDevice))
	hex("class", 6, uint64(f.Class))
	hex("revision", 2, uint64(f.Revision))
	w.file(dir+"/irq", "0")
	w.file(dir+"/numa_node", strconv.Itoa(f.Node))
	w.file(dir+"/local_cpulist", t.cpusOf(f.Node))
	w.file(dir+"/enable", map[bool]string{true: "0", false: "1"}[f.Disabled])
	w.file(dir+"/resource", f.resource())
	uevent := fmt.Sprintf("PCI_CLASS=%04X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n",
		uint32(f.Class), uint16(f.Vendor), uint16(f.Device), uint16(f.SubVendor), uint16(f.SubDevice), f.Addr)
	if f.Driver != "" {
		uevent = "DRIVER=" + f.Driver + "\n" + uevent
	}
	w.file(dir+"/uevent", uevent)
	w.file(dir+"/modalias", fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", uint16(f.Vendor), uint16(f.Device),
		uint16(f.SubVendor), uint16(f.SubDevice), f.Class.Base(), uint8(f.Class>>8), uint8(f.Class)))
	if e := f.Express; e != nil {
		writeLink(w, dir, e.Link, f.PhysFn != "")
		counts := pci.AERCounts{}
		if f.AER != nil {
			counts = *f.AER
		}
		writeAER(w, dir+"/aer_dev_correctable", counts.Correctable, "RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "TOTAL_ERR_COR")
		writeAER(w, dir+"/aer_dev_nonfatal", counts.NonFatal, "DLP", "CmpltTO", "UnsupReq", "ACSViol", "TOTAL_ERR_NONFATAL")
		writeAER(w, dir+"/aer_dev_fatal", counts.Fatal, "DLP", "CmpltTO", "UnsupReq", "ACSViol", "TOTAL_ERR_FATAL")
	}
}

// writeLink writes what the kernel's pci-sysfs.c shows of a link; a VF's own
// link status reads as nothing.
func writeLink(w *writer, dir string, l pci.Link, vf bool) {
	if vf {
		l.SpeedGTPerSec, l.Width = 0, 0
	}
	w.file(dir+"/current_link_speed", speedText(l.SpeedGTPerSec))
	w.file(dir+"/current_link_width", strconv.Itoa(l.Width))
	w.file(dir+"/max_link_speed", speedText(l.MaxSpeedGTPerSec))
	maxWidth := l.MaxWidth
	if maxWidth == 0 {
		maxWidth = 255
	}
	w.file(dir+"/max_link_width", strconv.Itoa(maxWidth))
}

func speedText(gt float64) string {
	if gt == 0 {
		return "Unknown"
	}
	return fmt.Sprintf("%.1f GT/s PCIe", gt)
}

// writeAER writes the named counters, those counted besides, and their total,
// whose name comes last.
func writeAER(w *writer, name string, counts map[string]uint64, names ...string) {
	total := names[len(names)-1]
	names = names[:len(names)-1]
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	var text strings.Builder
	var sum uint64
	for _, n := range names {
		sum += counts[n]
		fmt.Fprintf(&text, "%s %d\n", n, counts[n])
	}
	fmt.Fprintf(&text, "%s %d\n", total, sum)
	w.file(name, text.String())
}

// resource writes 13 lines: six BARs, the ROM, and a bridge's windows.
func (f *Function) resource() string {
	lines := make([]string, 13)
	for i := range lines {
		lines[i] = fmt.Sprintf("0x%016x 0x%016x 0x%016x", 0, 0, 0)
	}
	for _, b := range f.BARs {
		if b.Index < len(lines) {
			lines[b.Index] = fmt.Sprintf("0x%016x 0x%016x 0x%016x", b.Start, b.Start+b.SizeBytes-1, b.Flags)
		}
	}
	return strings.Join(lines, "\n")
}

// busRange is a bridge's secondary and subordinate bus.
type busRange struct{ primary, secondary, subordinate uint8 }

// buses derives the bus numbers of bridges from what is below them.
func (t Tree) buses() map[string]busRange {
	parent := map[string]string{}
	out := map[string]busRange{}
	for _, f := range t.Functions {
		parent[f.Addr] = f.Parent
		a, _ := pci.ParseAddress(f.Addr)
		out[f.Addr] = busRange{primary: a.Bus, secondary: f.Secondary, subordinate: max(f.Subordinate, f.Secondary)}
	}
	for _, f := range t.Functions {
		a, _ := pci.ParseAddress(f.Addr)
		for p, depth := f.Parent, 0; p != "" && depth < 64; p, depth = parent[p], depth+1 {
			r := out[p]
			if depth == 0 {
				r.secondary = a.Bus
			}
			r.subordinate = max(r.subordinate, a.Bus, out[f.Addr].subordinate)
			out[p] = r
		}
	}
	return out
}
