package pci

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gdrcheck/gdrcheck/internal/fact"
)

// Devices is where the kernel lists every PCI function.
const Devices = "/sys/bus/pci/devices"

// ConfigScope says whose configuration space Collect reads. It is by far the
// dearest part: the kernel fetches it four bytes at a time from the device,
// about a millisecond a function, and ten times that in a guest.
type ConfigScope uint8

// Scopes of configuration space reads.
const (
	ConfigAll   ConfigScope = iota // every function
	ConfigPaths                    // GPUs, accelerators, NICs, and every bridge above them
	ConfigNone                     // none: Config stays NotCollected
)

// Options tune Collect. The zero value reads everything.
type Options struct {
	Config ConfigScope
	// NoNames leaves VendorName and DeviceName empty.
	NoNames bool
	// Workers is how many functions are read at once; 0 means 8. The Source
	// must allow that many calls at a time.
	Workers int
	// Late are functions, by Dir, that a collection did not reach of which this
	// is the recording, with what it said of them.
	Late map[string]string
}

// Collect reads every function below Devices, sorted by address. A function
// that cannot be read costs only itself: its values carry the reason. Functions
// not reached before ctx ends are Failed with ctx's cause, and a name that is
// no PCI address is left out. The error is for the list as a whole; it wraps
// what ReadDir gave (fs.ErrNotExist: the kernel has no PCI).
func Collect(ctx context.Context, src fact.Source, opt Options) ([]Function, error) {
	entries, err := src.ReadDir(Devices)
	if err != nil {
		return nil, fmt.Errorf("list PCI functions: %w", err)
	}
	var fns []Function
	for _, e := range entries {
		if a, err := ParseAddress(e.Name); err == nil {
			fns = append(fns, Function{Address: a, Dir: Devices + "/" + e.Name})
		}
	}
	for i := range fns { // links never hang: the tree is whole whatever comes
		if target, err := src.Readlink(fns[i].Dir); err == nil {
			fns[i].Parent, fns[i].HostBridge = parsePlace(target)
		}
	}
	slices.SortFunc(fns, func(a, b Function) int { return a.Address.Compare(b.Address) })

	readAll(ctx, src, fns, opt)
	if opt.Config != ConfigNone {
		readConfigs(ctx, src, fns, opt.Config)
	}
	if !opt.NoNames {
		addNames(fns)
	}
	return fns, nil
}

// readAll fills fns from sysfs. Each worker hands its copy over when it is
// whole, so that one stuck in the kernel leaves the others' answers alone.
func readAll(ctx context.Context, src fact.Source, fns []Function, opt Options) {
	workers := opt.Workers
	if workers <= 0 {
		workers = 8
	}
	type done struct {
		i  int
		fn Function
	}
	out := make(chan done, len(fns)) // room for all: a late worker never blocks
	todo := slices.Clone(fns)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, len(fns)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(todo) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				fn := fact.Guarded(src, func(src fact.Source) Function {
					fn := todo[i]
					if fn.Late = opt.Late[fn.Dir]; fn.Late != "" {
						src = fact.Unreachable{Err: errors.New(fn.Late)}
					}
					readFunction(src, &fn)
					return fn
				})
				out <- done{i, fn}
			}
		})
	}
	go func() { wg.Wait(); close(out) }()

	got := make([]bool, len(fns))
	defer func() {
		for i := range fns {
			if !got[i] {
				late := fact.Unreachable{Err: fmt.Errorf("not read in time: %w", context.Cause(ctx))}
				fns[i].Late = late.Err.Error()
				readFunction(late, &fns[i])
			}
		}
	}()
	for {
		select {
		case d, ok := <-out:
			if !ok {
				return
			}
			fns[d.i], got[d.i] = d.fn, true
		case <-ctx.Done():
			return
		}
	}
}

func readFunction(src fact.Source, fn *Function) {
	dir := fn.Dir
	readIDs(src, fn)
	fn.Revision = fact.Parsed(src, dir, "revision", parseRevision)
	fn.Driver = fact.LinkBase(src, dir, "driver")
	fn.NUMANode = readNUMANode(src, dir)
	if fn.IsEnd() {
		fn.LocalCPUs = fact.Text(src, dir, "local_cpulist")
	}
	fn.BARs = fact.Parsed(src, dir, "resource", ParseResource)
	fn.PhysFn = fact.Map(fact.LinkBase(src, dir, "physfn"), ParseAddress)
	fn.VirtFns = readVirtFns(src, dir)
	fn.IOMMUGroup = fact.Map(fact.LinkBase(src, dir, "iommu_group"), parseGroup)
	if fn.IOMMUGroup.State == fact.Known {
		fn.IOMMUGroupType = fact.Text(src, dir, "iommu_group/type")
	} else {
		fn.IOMMUGroupType = fact.As(fn.IOMMUGroup, "")
	}
	fn.Link = readLink(src, dir)
	fn.AER = readAER(src, dir)
	if pf, ok := fn.PhysFn.Get(); ok && fn.Link.State == fact.Known {
		fn.Link = fact.Missing[Link](fact.Unsupported, fn.Link.Source, reasonVF(pf))
	}
}

// readIDs takes the numbers from uevent, one file, and where there is none
// from the five that hold one each.
func readIDs(src fact.Source, fn *Function) {
	const source = "uevent"
	if u, ok := fact.Parsed(src, fn.Dir, source, ParseUevent).Get(); ok {
		fn.Vendor, fn.Device = fact.Of(u.Vendor, source), fact.Of(u.Device, source)
		fn.SubsystemVendor, fn.SubsystemDevice = fact.Of(u.SubsystemVendor, source), fact.Of(u.SubsystemDevice, source)
		fn.Class = fact.Of(u.Class, source)
		return
	}
	fn.Vendor = fact.Parsed(src, fn.Dir, "vendor", parseID)
	fn.Device = fact.Parsed(src, fn.Dir, "device", parseID)
	fn.SubsystemVendor = fact.Parsed(src, fn.Dir, "subsystem_vendor", parseID)
	fn.SubsystemDevice = fact.Parsed(src, fn.Dir, "subsystem_device", parseID)
	fn.Class = fact.Parsed(src, fn.Dir, "class", parseClass)
}

// parsePlace reads a function's place from its link below Devices, such as
// "../../../devices/pci0000:20/0000:20:00.0/0000:21:00.0". The bridge above is
// the nearest function in the path, which for a root bus behind an Intel VMD
// (…/0000:c9:00.5/pci10000:00/10000:00:01.0) is the VMD endpoint; the host
// bridge is the outermost root bus.
func parsePlace(target string) (parent *Address, hostBridge string) {
	parts := strings.Split(path.Dir(target), "/")
	for _, p := range parts {
		if isRootBus(p) {
			hostBridge = p
			break
		}
	}
	if a, err := ParseAddress(parts[len(parts)-1]); err == nil {
		return &a, hostBridge
	}
	// A root bus whose own parent is a function hangs below that function.
	if n := len(parts); n >= 2 && isRootBus(parts[n-1]) {
		if a, err := ParseAddress(parts[n-2]); err == nil {
			return &a, hostBridge
		}
	}
	return nil, hostBridge
}

func isRootBus(s string) bool {
	domain, bus, ok := strings.Cut(strings.TrimPrefix(s, "pci"), ":")
	if !ok || !strings.HasPrefix(s, "pci") {
		return false
	}
	_, err1 := parseHex(domain, 8, 32)
	_, err2 := parseHex(bus, 2, 8)
	return err1 == nil && err2 == nil
}

// readNUMANode takes the kernel's -1 (NUMA_NO_NODE) for Absent.
func readNUMANode(src fact.Source, dir string) fact.Value[int] {
	v := fact.Parsed(src, dir, "numa_node", parseInt)
	switch {
	case v.State == fact.Known && v.V == -1:
		return fact.Missing[int](fact.Absent, v.Source, "the kernel says -1: firmware told no node")
	case v.State == fact.Known && v.V < 0:
		return fact.Missing[int](fact.Failed, v.Source, fmt.Sprintf("bad node %d", v.V))
	}
	return v
}

// readVirtFns follows virtfn0, virtfn1, … which the kernel numbers without gaps.
func readVirtFns(src fact.Source, dir string) []Address {
	var out []Address
	for i := 0; ; i++ {
		a, ok := fact.Map(fact.LinkBase(src, dir, fmt.Sprintf("virtfn%d", i)), ParseAddress).Get()
		if !ok {
			return out
		}
		out = append(out, a)
	}
}

// readLink joins the four files of a link. Conventional PCI functions have none.
func readLink(src fact.Source, dir string) fact.Value[Link] {
	const source = "current_link_speed"
	speed := fact.Parsed(src, dir, source, ParseSpeed)
	if speed.State != fact.Known {
		return fact.As(speed, Link{})
	}
	width := fact.Parsed(src, dir, "current_link_width", parseInt)
	maxSpeed := fact.Parsed(src, dir, "max_link_speed", ParseSpeed)
	maxWidth := fact.Parsed(src, dir, "max_link_width", parseInt)
	for _, v := range []fact.Value[float64]{maxSpeed, fact.As(width, 0.0), fact.As(maxWidth, 0.0)} {
		if v.State != fact.Known {
			return fact.As(v, Link{})
		}
	}
	return makeLink(Link{speed.V, width.V, maxSpeed.V, maxWidth.V}, source)
}

func readAER(src fact.Source, dir string) fact.Value[AERCounts] {
	const source = "aer_dev_correctable"
	cor := fact.Parsed(src, dir, source, ParseAER)
	if cor.State != fact.Known {
		return fact.As(cor, AERCounts{})
	}
	nonFatal := fact.Parsed(src, dir, "aer_dev_nonfatal", ParseAER)
	fatal := fact.Parsed(src, dir, "aer_dev_fatal", ParseAER)
	for _, v := range []fact.Value[map[string]uint64]{nonFatal, fatal} {
		if v.State != fact.Known {
			return fact.As(v, AERCounts{})
		}
	}
	return fact.Of(AERCounts{Correctable: cor.V, NonFatal: nonFatal.V, Fatal: fatal.V}, source)
}

// readConfigs asks for the configuration space of the functions in scope, in
// one question, so that a worker can lose a hung one and go on.
func readConfigs(ctx context.Context, src fact.Source, fns []Function, scope ConfigScope) {
	at := map[string]int{}
	var paths []string
	wanted := inScope(fns, scope)
	for i := range fns {
		if wanted(fns[i].Address) {
			name := fns[i].Dir + "/config"
			at[name], paths = i, append(paths, name)
		}
	}
	if len(paths) == 0 {
		return
	}
	records, err := src.Ask(ctx, fact.AskFiles, paths...)
	for _, r := range records {
		if i, ok := at[r.Subject]; ok {
			delete(at, r.Subject)
			fns[i].Config = configOf(&fns[i], fact.Decode[[]byte](r))
		}
	}
	for _, i := range at {
		v := fact.Missing[[]byte](fact.NotCollected, "", "no answer for this function")
		if err != nil {
			v = fact.FromError[[]byte](err, "")
		}
		fns[i].Config = configOf(&fns[i], v)
	}
}

// inScope says which addresses ConfigPaths means.
func inScope(fns []Function, scope ConfigScope) func(Address) bool {
	if scope == ConfigAll {
		return func(Address) bool { return true }
	}
	byAddr := make(map[Address]*Function, len(fns))
	for i := range fns {
		byAddr[fns[i].Address] = &fns[i]
	}
	want := map[Address]bool{}
	for i := range fns {
		fn := &fns[i]
		if !fn.IsEnd() {
			continue
		}
		for hops := 0; fn != nil && !want[fn.Address] && hops < 64; hops++ {
			want[fn.Address] = true
			if fn.Parent == nil {
				break
			}
			fn = byAddr[*fn.Parent]
		}
	}
	return func(a Address) bool { return want[a] }
}

// IsEnd says whether the function is of a kind that GPUDirect paths end at: a
// display controller, an accelerator, a network controller, an mlx5 Data Direct
// function, whose class is none of these.
func (f *Function) IsEnd() bool {
	const mellanox, dataDirect = 0x15b3, 0x2100
	c, ok := f.Class.Get()
	return ok && (c.Base() == ClassDisplay || c.Base() == ClassNetwork || c.Sub() == ClassAccelerator ||
		c.Sub() == ClassSerialIB || f.Vendor.V == mellanox && f.Device.V == dataDirect)
}

func configOf(fn *Function, raw fact.Value[[]byte]) Config {
	raw.Source = "config"
	raw = fact.Unseen(raw) // every function has one
	if raw.State != fact.Known {
		return missingConfig(raw)
	}
	c := ParseConfig(raw.V)
	if pf, ok := fn.PhysFn.Get(); ok {
		c.reservedInVF(reasonVF(pf))
	}
	return c
}

func reasonVF(pf Address) string {
	return "reserved in a virtual function: its physical function " + pf.String() + " holds it"
}
