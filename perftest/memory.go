package perftest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/topo"
)

// Kinds of memory that data can be in.
const (
	MemoryHost    = "host"     // the node's own
	MemoryCUDA    = "cuda"     // an NVIDIA GPU's, as cudaMalloc gives it
	MemoryCUDAVMM = "cuda-vmm" // the same of the virtual memory functions, as PyTorch's growing segments
	MemoryROCm    = "rocm"     // an AMD GPU's, as hipMalloc gives it
	// MemoryAuto asks for a GPU's where there is one, else for the node's own.
	MemoryAuto = "auto"
)

var memoryKinds = []string{MemoryHost, MemoryCUDA, MemoryCUDAVMM, MemoryROCm, MemoryAuto}

// Way is how a NIC is let at memory.
type Way string

// Ways. Auto tries those that the NIC may have, the fastest first.
const (
	WayAuto       Way = "auto"
	WayAddress    Way = "address"     // ibv_reg_mr on the CPU's own memory
	WayDMABuf     Way = "dmabuf"      // ibv_reg_dmabuf_mr on a dma-buf of the GPU's driver
	WayDMABufPCIe Way = "dmabuf-pcie" // the same, the dma-buf mapped for PCIe
	WayDataDirect Way = "data-direct" // the same, through mlx5's Data Direct function
	WayPeermem    Way = "peermem"     // ibv_reg_mr on the GPU's address: nvidia-peermem knows it
)

// ways are those that can be asked for.
var ways = []Way{WayAuto, WayDMABuf, WayDMABufPCIe, WayDataDirect, WayPeermem}

// MemoryAsk asks for the memory of an end. The zero value leaves it open.
type MemoryAsk struct {
	Memory string `json:"memory,omitempty"` // a kind, or a kind and a way: "cuda,dmabuf"
	GPU    string `json:"gpu,omitempty"`    // number, UUID or PCI address; empty: the one nearest to the NIC
}

// Parse gives the kind, which may be MemoryAuto, and the way. A GPU that was
// named asks for its memory; else what was left open is the node's own.
func (a MemoryAsk) Parse() (kind string, way Way, err error) {
	kind, text, hasWay := strings.Cut(a.Memory, ",")
	way = Way(text)
	switch {
	case kind == "" && a.GPU != "":
		kind = MemoryAuto
	case kind == "":
		kind = MemoryHost
	}
	switch {
	case !slices.Contains(memoryKinds, kind):
		return "", "", fmt.Errorf("no memory of kind %q: want %s", kind, strings.Join(memoryKinds, ", "))
	case hasWay && !slices.Contains(ways, way):
		return "", "", fmt.Errorf("no way %q to register memory: want %s", way, joinWays())
	case kind == MemoryHost && hasWay:
		return "", "", errors.New("host memory is registered by its address: it takes no way")
	case kind == MemoryHost && a.GPU != "":
		return "", "", errors.New("host memory is no GPU's")
	case kind == MemoryROCm && (way == WayDMABufPCIe || way == WayDataDirect):
		return "", "", fmt.Errorf("%s is NVIDIA's way", way)
	case !hasWay:
		way = WayAuto
	}
	return kind, way, nil
}

func joinWays() string {
	names := make([]string, len(ways))
	for i, w := range ways {
		names[i] = string(w)
	}
	return strings.Join(names, ", ")
}

// PollNote says why a plan was changed by ForGPU.
const PollNote = "write_imm stands for write: the latency of a plain write is seen by polling the memory, and the CPU cannot poll a GPU's"

// ForGPU is the plan for memory that the CPU cannot poll: a write's latency is
// that of the same write and the completion that its immediate data brings.
func (p Plan) ForGPU() (plan Plan, changed bool) {
	if !p.Polls() {
		return p, false
	}
	p.Operation = WriteImm
	return p, true
}

// GPU is whose memory an end's data is in.
type GPU struct {
	Index int         `json:"index"`
	Addr  pci.Address `json:"addr"`
	UUID  string      `json:"uuid,omitempty"`
	Name  string      `json:"name,omitempty"`
	// Path is the class of its path to the NIC.
	Path topo.Class `json:"path,omitempty"`
}

// String is the GPU as the drivers' tools number it, and its PCI address.
func (g *GPU) String() string { return fmt.Sprintf("GPU%d (%s)", g.Index, g.Addr) }

// Subject is what a call is on: a GPU, of calls into its vendor's library, or the
// RDMA device.
func (l *Local) Subject(call string) string {
	ofGPU := func(prefix string) bool { return strings.HasPrefix(call, prefix) }
	if l.GPU != nil && slices.ContainsFunc([]string{"cu", "hip", "hsa_", "dlopen libcuda", "dlopen libamdhip64", "dlopen libhsa"}, ofGPU) {
		return l.GPU.String()
	}
	return l.Device
}

// Buffer is the memory that an end's data is in.
type Buffer struct {
	Kind string `json:"kind,omitempty"`
	GPU  *GPU   `json:"gpu,omitempty"`
	Way  Way    `json:"way,omitempty"` // that was taken
	// Failed are the ways that were tried before, and why they failed.
	Failed []Attempt `json:"failed,omitempty"`
	// ExportNs is what the making of the dma-buf took, RegisterNs the registration.
	ExportNs   float64 `json:"export_ns,omitempty"`
	RegisterNs float64 `json:"register_ns,omitempty"`
	// Double is a test double, by path, that stood for the GPU's library.
	Double string `json:"test_double,omitempty"`
}

// Attempt is a way to register memory that failed.
type Attempt struct {
	Way     Way      `json:"way"`
	Failure *Failure `json:"failure"`
}

// Ways to flush.
const (
	FlushRead = "rdma_read" // reads of one byte by the same NIC, over a queue pair connected to itself
	FlushCall = "call"      // the GPU library's own: cuFlushGPUDirectRDMAWrites
)

// Flush is what makes data that has arrived visible to the GPU. It is measured
// apart, after a latency's samples and with nothing under way, and in none of them.
type Flush struct {
	Side    Side         `json:"side"`
	Method  string       `json:"method"`
	Latency *LatencyDist `json:"latency,omitempty"`
	Failure *Failure     `json:"failure,omitempty"` // why there is none
	// Ordered says who sees writes in order without a flush: "owner" (the GPU
	// whose memory it is), "all", "none"; empty: the GPU does not tell.
	Ordered string `json:"ordered,omitempty"`
}

// OrderOf names a value of CUDA's attribute 118, and of its like.
func OrderOf(value int) string {
	return map[int]string{0: "none", 100: "owner", 200: "all"}[value]
}

// SharedGPUNote says what a latency through host memory is where both ends' memory
// is one GPU's.
const SharedGPUNote = "both ends use one GPU, whose engines take turns between their two processes: small copies wait for that, some 0.1 ms, which they would not on two GPUs"

// GPULatencyNote says what a latency of a GPU's memory is.
const GPULatencyNote = "a sample ends when a CPU sees a completion: by then the NICs have read the source and written the destination, the GPU's memory among them. " +
	"That the GPU itself sees the data is not in it: see the flush, which is measured apart"

func (f *Flush) check() error {
	if f.Side != Initiator && f.Side != Responder {
		return fmt.Errorf("no side %q", f.Side)
	}
	if f.Failure != nil {
		if err := f.Failure.check(); err != nil {
			return err
		}
	}
	if err := f.Latency.check(); err != nil {
		return err
	}
	return short(f.Method, f.Ordered)
}

// OnGPU says whether the CPU cannot reach the memory itself.
func OnGPU(kind string) bool { return kind != MemoryHost && kind != "" }

// Ways are the ways to register this end's memory, in the order to try them.
func (l *Local) Ways() []Way {
	switch {
	case !OnGPU(l.Memory):
		return []Way{WayAddress}
	case l.Way != WayAuto && l.Way != "":
		return []Way{l.Way}
	case l.DataDirect:
		return []Way{WayDataDirect, WayDMABuf, WayPeermem}
	}
	return []Way{WayDMABuf, WayPeermem}
}

// RegistrationFailure says why none of the ways to register memory worked.
func RegistrationFailure(device string, tried []Attempt) *Failure {
	last := *tried[len(tried)-1].Failure
	if len(tried) == 1 {
		return &last
	}
	f := &Failure{Call: "registration of GPU memory", Subject: device, Errno: last.Errno, Code: last.Code}
	var causes, fixes []string
	for _, t := range tried {
		causes = append(causes, fmt.Sprintf("by %s: %s: %s", t.Way, t.Failure.Call, t.Failure.reason()))
		if check := t.Failure.Check; check != "" && !slices.Contains(fixes, check) {
			fixes = append(fixes, check)
		}
	}
	f.Cause, f.Check = "no way works; "+strings.Join(causes, "; "), strings.Join(fixes, "; or ")
	return f
}

// reason is the failure without its call and subject.
func (f *Failure) reason() string {
	if f.Status != "" {
		return f.Status + ": " + f.Cause
	}
	return f.Cause
}

func (b *Buffer) check() error {
	texts := []string{b.Kind, string(b.Way), b.Double}
	if b.GPU != nil {
		texts = append(texts, b.GPU.UUID, b.GPU.Name, string(b.GPU.Path))
	}
	if len(b.Failed) > maxTexts || b.ExportNs < 0 || b.RegisterNs < 0 {
		return errors.New("memory that makes no sense")
	}
	for _, a := range b.Failed {
		if a.Failure == nil {
			return errors.New("a way that failed without a failure")
		}
		texts = append(texts, string(a.Way))
		if err := a.Failure.check(); err != nil {
			return err
		}
	}
	return short(texts...)
}

func (f *Failure) check() error { return short(f.Call, f.Subject, f.Status, f.Cause, f.Check) }
