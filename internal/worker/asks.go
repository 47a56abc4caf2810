package worker

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/Mellanox/rdmamap"
	"github.com/jaypipes/ghw"
	"golang.org/x/sys/unix"

	"github.com/gdrcheck/gdrcheck/internal/cuda"
	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/internal/nvml"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/verbs"
)

// Variables that put a test double, by path, in the place of a library. What
// answers then is recorded as subject gpu.SubjectDouble.
const (
	NVMLLibraryEnv  = "GDRCHECK_NVML_LIBRARY"
	CUDALibraryEnv  = "GDRCHECK_CUDA_LIBRARY"
	HIPLibraryEnv   = "GDRCHECK_HIP_LIBRARY"
	VerbsLibraryEnv = "GDRCHECK_VERBS_LIBRARY"

	GDRCopyLibraryEnv = "GDRCHECK_GDRCOPY_LIBRARY"
)

// asks are the questions a worker answers.
var asks = map[string]func(*session, []string){
	fact.AskFiles:        askFiles,
	fact.AskNVML:         askNVML,
	fact.AskCUDA:         askCUDA,
	fact.AskRDMAMap:      askRDMAMap,
	fact.AskVerbs:        askVerbs,
	fact.AskRegistration: askRegistration,
	fact.AskGDRCopy:      askGDRCopy,
	fact.AskGHW:          askGHW,
	fact.AskLimits:       askLimits,
	fact.AskSymbols:      askSymbols,
	fact.AskKernelLog:    askKernelLog,
	fact.AskEnviron:      askEnviron,
	fact.AskLLDP:         askLLDP,
	fact.AskSMP:          askSMP,
	fact.AskMST:          askMST,
	fact.AskDCB:          askDCB,
	fact.AskEthtool:      askEthtool,
	fact.AskStats:        askStats,
	fact.AskModules:      askModules,
	fact.AskDevlink:      askDevlink,
}

func askFiles(s *session, paths []string) {
	for _, p := range paths {
		s.subject(p, func() fact.Record {
			if strings.HasSuffix(p, "/config") && strings.Contains(p, pci.Devices) {
				b, err := readConfig(p)
				return fact.ContentRecord(p, b, err)
			}
			return fact.FileRecord(p)
		})
	}
}

func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return pci.ReadConfig(f)
}

// askNVML asks the system and then each GPU. args may hold gpu.Brief or gpu.Load.
func askNVML(s *session, args []string) {
	dieOfSignals()
	double := s.double(NVMLLibraryEnv)
	scope := strings.Join(args, "")
	var lib *nvml.Library
	ok := s.gate(gpu.SubjectSystem, func() fact.Record {
		var v fact.Value[gpu.NVMLSystem]
		lib, v = nvml.Open(double, s.at)
		return toRecord(v)
	})
	if !ok {
		return
	}
	s.gpus(lib.Count(), func(i int) fact.Record {
		return toRecord(lib.Device(i, scope, s.part))
	})
}

func askCUDA(s *session, _ []string) {
	dieOfSignals()
	double := s.double(CUDALibraryEnv)
	var lib *cuda.Library
	ok := s.gate(gpu.SubjectSystem, func() fact.Record {
		var v fact.Value[gpu.CUDASystem]
		lib, v = cuda.Open(double, s.at)
		return toRecord(v)
	})
	if !ok {
		return
	}
	s.gpus(lib.Count(), func(i int) fact.Record {
		return toRecord(lib.Device(i, s.part))
	})
}

// double returns the path of the test double that env names, and records it.
func (s *session) double(env string) string {
	path := os.Getenv(env)
	if path != "" && !s.skip[gpu.SubjectDouble] {
		s.record(gpu.SubjectDouble, toRecord(fact.Of(path, env)))
	}
	return path
}

func (s *session) gpus(n int, ask func(int) fact.Record) {
	names := make([]string, n)
	for i := range names {
		names[i] = gpu.Subject(i)
	}
	s.expect(names)
	for i, name := range names {
		s.subject(name, func() fact.Record { return ask(i) })
	}
}

// part sends what is known so far of the subject in progress.
func (s *session) part(data any) {
	b, err := json.Marshal(data)
	if err == nil {
		s.send(message{Part: b})
	}
}

func askVerbs(s *session, devices []string) {
	dieOfSignals()
	double := s.double(VerbsLibraryEnv)
	for _, d := range devices {
		s.subject(d, func() fact.Record {
			s.at("libibverbs")
			p, err := verbs.Probe(double, d)
			if err != nil {
				return toRecord(fact.FromError[rdma.VerbsProbe](err, "verbs"))
			}
			return toRecord(fact.Of(p, "verbs"))
		})
	}
}

// askRDMAMap asks Mellanox/rdmamap. It maps netdevs to devices, one netlink
// question each, so the map is made once, with the first device.
func askRDMAMap(s *session, devices []string) {
	var netdevs map[string][]string
	for _, d := range devices {
		s.subject(d, func() fact.Record {
			if netdevs == nil {
				var err error
				if netdevs, err = netdevsByDevice(s); err != nil {
					return failed(err)
				}
			}
			ports := rdmamap.GetPorts(d)
			slices.Sort(ports)
			chars := rdmamap.GetRdmaCharDevices(d)
			slices.Sort(chars)
			e := rdma.MapEntry{CharDevices: chars, Ports: ports, NetDevs: netdevs[d]}
			return toRecord(fact.Of(e, "rdmamap"))
		})
	}
}

func netdevsByDevice(s *session) (map[string][]string, error) {
	list, err := os.ReadDir("/sys/class/net")
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, e := range list {
		s.at("GetRdmaDeviceForNetdevice(" + e.Name() + ")")
		if dev := deviceOf(e.Name()); dev != "" {
			out[dev] = append(out[dev], e.Name())
		}
	}
	return out, nil
}

// deviceOf is "" where rdmamap knows none, or panics, as it does over a
// hardware address or a node GUID that is shorter than it expects.
func deviceOf(netdev string) (dev string) {
	defer func() {
		if recover() != nil {
			dev = ""
		}
	}()
	dev, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return ""
	}
	return dev
}

// askGHW asks ghw for names, for people to read.
func askGHW(s *session, _ []string) {
	s.subject(gpu.SubjectSystem, func() fact.Record {
		var n host.Names
		quiet := []any{ghw.WithDisableWarnings(), ghw.WithDisableTools()}
		s.at("ghw.Product")
		if p, err := ghw.Product(quiet...); err == nil && p.Name != "unknown" {
			n.Product = strings.TrimSpace(strings.TrimPrefix(p.Vendor, "unknown") + " " + p.Name)
		}
		s.at("ghw.CPU")
		if c, err := ghw.CPU(quiet...); err == nil && len(c.Processors) > 0 {
			n.Processor = fmt.Sprintf("%d× %s", len(c.Processors), c.Processors[0].Model)
		}
		// Not ghw.Memory: it reads a file per memory block, of which large
		// nodes have thousands, and the system log.
		var si unix.Sysinfo_t
		if err := unix.Sysinfo(&si); err == nil {
			const gib = 1 << 30
			n.Memory = fmt.Sprintf("%.0f GiB", float64(si.Totalram)*float64(si.Unit)/gib)
		}
		return toRecord(fact.Of(n, "ghw"))
	})
}

// askLimits answers for the worker itself, which inherits its parent's limits
// and capabilities.
func askLimits(s *session, _ []string) {
	s.subject("self", func() fact.Record {
		var rl unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &rl); err != nil {
			return failed(err)
		}
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return failed(err)
		}
		caps, err := capEff(string(status))
		if err != nil {
			return failed(err)
		}
		l := host.Limits{MemlockSoft: limit(rl.Cur), MemlockHard: limit(rl.Max), CapEff: caps}
		return toRecord(fact.Of(l, "getrlimit(RLIMIT_MEMLOCK), /proc/self/status"))
	})
}

func limit(n uint64) uint64 {
	if n == unix.RLIM_INFINITY {
		return math.MaxUint64
	}
	return n
}

// capEff finds the effective capabilities in /proc/PID/status (proc(5)).
func capEff(status string) (uint64, error) {
	for l := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(l, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no CapEff")
}

func askSymbols(s *session, names []string) {
	for _, name := range names {
		s.subject(name, func() fact.Record {
			src, err := fact.NewOS("/", nil)
			if err != nil {
				return toRecord(fact.FromError[bool](err, "/"))
			}
			return toRecord(host.FindSymbol(src, name))
		})
	}
}
