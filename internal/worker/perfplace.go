package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/perftest"
)

// nearby is where an end's device is, for the choice of CPU and memory.
type nearby struct {
	what string // "NIC", or "GPU" of an end without a NIC
	node int    // -1: unknown, or the machine has one only
	cpus []int  // of the node
}

// nodeOf finds the NUMA node of an end's RDMA device, in sysfs at the given place;
// for Soft-RoCE, which has none, that of the interface below it; and for an end that
// takes part with a GPU alone, the GPU's.
func nodeOf(sys string, l *perftest.Local) nearby {
	n := nearby{what: "NIC", node: -1}
	dir := filepath.Join(sys, "class/infiniband", filepath.Base(l.Device))
	at := filepath.Join(dir, "device")
	switch parent := readWord(filepath.Join(dir, "parent")); {
	case l.Device == "" && l.GPU == nil:
		return n
	case l.Device == "":
		n.what, at = "GPU", filepath.Join(sys, "bus/pci/devices", l.GPU.Addr.String())
	case parent != "":
		at = filepath.Join(sys, "class/net", filepath.Base(parent), "device")
	}
	if v, err := strconv.Atoi(readWord(filepath.Join(at, "numa_node"))); err == nil && v >= 0 {
		n.node = v
		n.cpus = ParseCPUList(readWord(filepath.Join(sys, fmt.Sprintf("devices/system/node/node%d/cpulist", v))))
	}
	return n
}

func readWord(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "" // the same to the caller: not known
	}
	return strings.TrimSpace(string(b))
}

// ParseCPUList reads the kernel's list format, "0-3,8"; nil for anything else.
func ParseCPUList(s string) []int {
	const most = 1 << 16
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if ranged && err == nil {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= most {
			return nil
		}
		for c := a; c <= b; c++ {
			out = append(out, c)
		}
	}
	return out
}

// place chooses CPU and node where l leaves them open, puts the calling thread
// on the CPU, and says what could not be had.
func (n nearby) place(l *perftest.Local) (notes []string) {
	if l.NUMANode < 0 {
		l.NUMANode = n.node
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return []string{"not pinned: " + err.Error()}
	}
	if l.CPU < 0 {
		l.CPU = n.choose(allowed(&set), l.Place)
	}
	if l.CPU < 0 {
		return nil
	}
	var one unix.CPUSet
	one.Set(l.CPU)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		notes = append(notes, fmt.Sprintf("not pinned to CPU %d: %v", l.CPU, err))
		l.CPU = -1
		return notes
	}
	if n.node >= 0 && !slices.Contains(n.cpus, l.CPU) {
		notes = append(notes, fmt.Sprintf("CPU %d is not on the %s's NUMA node %d", l.CPU, n.what, n.node))
	}
	return notes
}

func allowed(set *unix.CPUSet) []int {
	var out []int
	for c := range 8 * len(set) * 8 {
		if set.IsSet(c) {
			out = append(out, c)
		}
	}
	return out
}

// choose takes the last CPUs of the device's node first, since the first ones mostly
// serve interrupts, and then the others; -1 where none is allowed.
func (n nearby) choose(allowed []int, place int) int {
	var near, far []int
	for _, c := range slices.Backward(allowed) {
		if slices.Contains(n.cpus, c) {
			near = append(near, c)
		} else {
			far = append(far, c)
		}
	}
	all := append(near, far...)
	if len(all) == 0 {
		return -1
	}
	return all[place%len(all)]
}
