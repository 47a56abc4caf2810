package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gdrcheck/gdrcheck/internal/collect"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/worker"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/perftest"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
	"github.com/gdrcheck/gdrcheck/topo"
)

// perfBackend is what moves data and tells of devices. Tests put a double here.
type perfBackend struct {
	newEngine func() perftest.Engine
	// collect reads the machine within a time: devices are looked for in it, and
	// results judged against it. machine keeps it for a moment.
	collect func(ctx context.Context, longest time.Duration) (*topo.Machine, error)
	read    func(ctx context.Context, device string, port int, netdevs []string) []rdma.Counter
	// subnets are the networks of each network interface.
	subnets   func(ctx context.Context) map[string][]netip.Prefix
	askNVML   func(ctx context.Context, args ...string) ([]fact.Record, error)
	simulated bool
	// patience is --idle: who waits longer for a test does so for what is read
	// before it, on a node that is that slow.
	patience time.Duration

	mu   sync.Mutex
	last *topo.Machine
	at   time.Time
}

// perf is this program's backend.
var perf = &perfBackend{
	newEngine: func() perftest.Engine { return &worker.Perf{} },
	askNVML: func(ctx context.Context, args ...string) ([]fact.Record, error) {
		return (&worker.Client{}).Ask(ctx, fact.AskNVML, args...)
	},
	collect: func(ctx context.Context, longest time.Duration) (*topo.Machine, error) {
		o := sourceOptions{Timeout: longest}
		m, _, err := o.machine(ctx, collect.Topology())
		return m, err
	},
	read: func(ctx context.Context, device string, port int, netdevs []string) []rdma.Counter {
		src, err := (&sourceOptions{}).open()
		if err != nil {
			return nil
		}
		return qos.ReadCounters(ctx, src, device, port, netdevs)
	},
	subnets: func(context.Context) map[string][]netip.Prefix {
		src, err := (&sourceOptions{}).open()
		if err != nil {
			return nil
		}
		return rdma.Subnets(src)
	},
}

// machine is what collect read, not long ago.
func (b *perfBackend) machine(ctx context.Context) (*topo.Machine, error) {
	const fresh = 10 * time.Second // a test asks several times
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil && time.Since(b.at) < fresh {
		return b.last, nil
	}
	return b.refresh(ctx)
}

// refresh reads the machine anew. b.mu is held.
func (b *perfBackend) refresh(ctx context.Context) (*topo.Machine, error) {
	m, err := b.collect(ctx, max(b.patience, defaultTimeout))
	if err != nil {
		return nil, err
	}
	if ctx.Err() == nil && len(m.Problems) == 0 { // what was cut short is not to be kept
		b.last, b.at = m, time.Now()
	}
	return m, nil
}

func (b *perfBackend) end(t perftest.Timing) perftest.End {
	return perftest.End{
		NewEngine: b.newEngine, Counters: b.counters, Limits: b.limits, Load: b.load, Rails: b.rails,
		Version: readBuildInfo().Version, Simulated: b.simulated, Timing: t,
	}
}

// limits says what a port and its path to the host's memory carry.
func (b *perfBackend) limits(ctx context.Context, l perftest.Local) perftest.Limits {
	m, err := b.machine(ctx)
	if err != nil {
		return perftest.Limits{PCIeReason: err.Error()}
	}
	return limitsOf(topo.New(m), l)
}

func limitsOf(g *topo.Graph, l perftest.Local) perftest.Limits {
	d, ok := g.Device(l.Device)
	if !ok || d.RDMA == nil {
		return perftest.Limits{PCIeReason: "no device " + l.Device}
	}
	path, _ := g.HostPath(d.ID)
	if l.GPU != nil {
		path = gpuPath(g, l)
	}
	out := perftest.Limits{
		PCIeBytesPerSec: path.CeilingBytesPerSec, PCIeReason: path.CeilingReason, LimitedBy: path.LimitedBy,
		Software: d.RDMA.Software,
	}
	for _, p := range d.RDMA.Ports {
		if p.Number == l.Port {
			if rate, ok := p.Rate.Get(); ok {
				out.PortBytesPerSec, out.PortSource = rate.BitsPerSec/8, perftest.PortSourceSysfs
			}
		}
	}
	return out
}

// gpuPath is the path from a NIC to a GPU. Where the GPU's own link sets what it
// carries, that may be an idle GPU's: it is taken at its best.
func gpuPath(g *topo.Graph, l perftest.Local) topo.Pair {
	for _, d := range g.GPUs() {
		if d.GPU.Addr != l.GPU.Addr {
			continue
		}
		p, ok := g.Pair(d.ID, l.Device)
		if !ok {
			break
		}
		if p.LimitedBy == l.GPU.Addr.String() {
			p.CeilingBytesPerSec = p.BestBytesPerSec
		}
		return p
	}
	return topo.Pair{CeilingReason: "no path known from " + l.Device + " to GPU " + l.GPU.Addr.String()}
}

// load reads a GPU as it is now; nil: it is no NVIDIA GPU.
func (b *perfBackend) load(ctx context.Context, l perftest.Local) *perftest.GPULoad {
	if b.askNVML == nil || l.Memory == perftest.MemoryROCm {
		return nil
	}
	out := &perftest.GPULoad{Addr: l.GPU.Addr, PerformanceState: -1}
	recs, err := b.askNVML(ctx, gpu.Load)
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	for _, r := range recs {
		d, ok := fact.Decode[gpu.NVMLDevice](r).Get()
		if !ok || d.Addr != l.GPU.Addr || r.Subject == gpu.SubjectSystem {
			continue
		}
		out.Link, out.Clock = d.Link.Or(pci.Link{}), d.Clocks.Or(gpu.Clocks{})
		out.PerformanceState = d.PerformanceState.Or(-1)
		return out
	}
	out.Reason = "NVML does not tell of this GPU"
	return out
}

// counters reads those of a port, of its NIC and of its network interfaces.
func (b *perfBackend) counters(ctx context.Context, l perftest.Local) []rdma.Counter {
	b.mu.Lock()
	m := b.last // of however long ago: a port keeps its interfaces
	b.mu.Unlock()
	var netdevs []string
	if m != nil {
		for i := range m.RDMA.Devices {
			d := &m.RDMA.Devices[i]
			for j := range d.Ports {
				if d.Name == l.Device && d.Ports[j].Number == l.Port {
					netdevs = qos.NetDevs(&m.RDMA, &d.Ports[j])
				}
			}
		}
	}
	return b.read(ctx, l.Device, l.Port, netdevs)
}

// device finds what a name means: "mlx5_0", "mlx5_0/2", or where it is empty
// the first device that can be measured.
func (b *perfBackend) device(ctx context.Context, name string) (perftest.Local, error) {
	b.mu.Lock()
	m, err := b.refresh(ctx) // a port may have come up just now
	b.mu.Unlock()
	if err != nil {
		return perftest.Local{}, err
	}
	return chooseDevice(m, name)
}

// Reasons for which no device was found that are not the caller's mistake.
var (
	errNotActive    = errors.New("no port is active")
	errNotCollected = errors.New("cannot tell which devices there are")
)

// chooseDevice returns a named device's first port beside errNotActive.
func chooseDevice(m *topo.Machine, name string) (perftest.Local, error) {
	device, portText, hasPort := strings.Cut(name, "/")
	port := 0
	if hasPort {
		var err error
		if port, err = strconv.Atoi(portText); err != nil || port < 1 {
			return perftest.Local{}, fmt.Errorf("%q: want a device, or a device and its port as in mlx5_0/1", name)
		}
	}
	var names []string
	for _, d := range byUse(m) {
		names = append(names, d.Name)
		if device != "" && d.Name != device {
			continue
		}
		for _, p := range d.Ports {
			if port != 0 && p.Number != port || port == 0 && p.State.Or("") != portActive {
				continue
			}
			l := perftest.NewLocal(d.Name)
			l.Port = p.Number
			return l, nil
		}
		if device != "" {
			if port != 0 {
				return perftest.Local{}, fmt.Errorf("%s has no port %d", device, port)
			}
			l := perftest.NewLocal(device)
			if len(d.Ports) > 0 {
				l.Port = d.Ports[0].Number
			}
			return l, fmt.Errorf("%s: %w", device, errNotActive)
		}
	}
	switch {
	case len(names) == 0 && len(m.Problems) > 0:
		p := m.Problems[0]
		return perftest.Local{}, fmt.Errorf("%w: %s could not be collected: %s", errNotCollected, p.Part, p.Reason)
	case len(names) == 0 && device != "":
		return perftest.Local{}, fmt.Errorf("there is no device %s here, nor any other RDMA device", device)
	case len(names) == 0:
		return perftest.Local{}, errors.New("there is no RDMA device here")
	case device != "":
		return perftest.Local{}, fmt.Errorf("there is no device %s here; there are: %s", device, strings.Join(names, ", "))
	}
	return perftest.Local{}, fmt.Errorf("no RDMA device here has an active port; there are: %s", strings.Join(names, ", "))
}

// byUse lists the RDMA devices: NICs for compute first, software last.
func byUse(m *topo.Machine) []*rdma.Device {
	var list []*rdma.Device
	rank := map[*rdma.Device]int{}
	const compute, other, software = 0, 1, 2
	for _, d := range topo.New(m).NICs() {
		if d.RDMA == nil {
			continue
		}
		list = append(list, d.RDMA)
		switch {
		case d.RDMA.Software:
			rank[d.RDMA] = software
		case d.Role != topo.RoleCompute:
			rank[d.RDMA] = other
		default:
			rank[d.RDMA] = compute
		}
	}
	slices.SortStableFunc(list, func(a, b *rdma.Device) int { return rank[a] - rank[b] })
	return list
}

// portActive is the state of a port that carries traffic, as sysfs has it.
const portActive = "ACTIVE"

// connectWait is how long a client waits for a server that is not there yet.
const connectWait = 10 * time.Second
