package rdma

import (
	"fmt"
	"strings"

	"github.com/gdrcheck/gdrcheck/internal/fact"
	"github.com/gdrcheck/gdrcheck/pci"
)

// Registration is whether memory of one GPU can be registered with one RDMA
// device. It was tried without traffic, unless Probe says why not.
type Registration struct {
	GPU    pci.Address                   `json:"gpu"`
	Device string                        `json:"device"` // mlx5_0
	Probe  fact.Value[RegistrationProbe] `json:"probe,omitzero"`
}

// RegistrationProbe answers AskRegistration: what each way gave, in the order
// in which they were tried, or what failed before any could be.
type RegistrationProbe struct {
	Bytes int        `json:"bytes"`
	Ways  []WayProbe `json:"ways,omitempty"`
	// Failed is the call that left nothing to register: CUDA did not start, the
	// device could not be opened.
	Failed *CallError `json:"failed,omitempty"`
}

// WayProbe is one way to register one kind of memory. Names are perftest's.
type WayProbe struct {
	Memory string `json:"memory"` // cuda, cuda-vmm, rocm
	Way    string `json:"way"`    // dmabuf, data-direct, peermem
	// Error is nil where it works.
	Error      *CallError `json:"error,omitempty"`
	ExportNs   int64      `json:"export_ns,omitempty"`   // the making of the dma-buf
	RegisterNs int64      `json:"register_ns,omitempty"` // the registration itself
}

// CallError is a call that failed: by an errno, or by an error of a GPU's library.
type CallError struct {
	Call    string `json:"call"`
	Errno   int    `json:"errno,omitempty"`
	Library string `json:"library,omitempty"` // CUDA, HIP
	Code    int    `json:"code,omitempty"`    // the library's own
	Name    string `json:"name,omitempty"`    // of Code
	Text    string `json:"text,omitempty"`    // where neither tells: why a library cannot be used
}

// RegistrationAsk is what AskRegistration is asked about one pair.
type RegistrationAsk struct {
	GPU    pci.Address
	Device string
	Kinds  []string // of memory
	Ways   []string
}

// String is the argument, and the subject of its answer.
func (a RegistrationAsk) String() string {
	return strings.Join([]string{a.GPU.String(), a.Device, strings.Join(a.Kinds, ","), strings.Join(a.Ways, ",")}, " ")
}

// ParseRegistrationAsk reads what String wrote.
func ParseRegistrationAsk(text string) (RegistrationAsk, error) {
	const parts = 4
	f := strings.Split(text, " ")
	if len(f) != parts {
		return RegistrationAsk{}, fmt.Errorf("%q: want GPU, device, kinds and ways", text)
	}
	addr, err := pci.ParseAddress(f[0])
	return RegistrationAsk{GPU: addr, Device: f[1], Kinds: strings.Split(f[2], ","), Ways: strings.Split(f[3], ",")}, err
}
