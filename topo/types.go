package topo

import (
	"encoding/json"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
)

// Kind is what a Device is.
type Kind string

// Kinds of device.
const (
	KindGPU Kind = "gpu"
	KindNIC Kind = "nic"
)

// Role tells NICs that carry compute traffic from the others.
type Role string

// Roles of a NIC.
const (
	RoleCompute    Role = "compute"    // RDMA capable, at the node's best rate class
	RoleOther      Role = "other"      // RDMA capable but far slower than the node's best, or bonded for storage
	RoleManagement Role = "management" // no RDMA device
)

// Device is a GPU or a NIC as topology names it. NICs are named by RDMA device
// (mlx5_0); without one by netdev, then by address. GPUs are GPU0, GPU1 and so on.
type Device struct {
	ID   string       `json:"id"`
	Kind Kind         `json:"kind"`
	Addr *pci.Address `json:"addr"` // nil: no PCI function known (software RDMA on a virtual netdev)
	NUMA *int         `json:"numa"` // nil: the kernel says -1, or could not be read
	Name string       `json:"name"`
	Role Role         `json:"role,omitempty"` // NICs only

	GPU  *gpu.GPU     `json:"-"`
	RDMA *rdma.Device `json:"-"`
}

// Class is a path's class as nvidia-smi topo -m defines it.
type Class string

// Path classes, best first. NV# stands in a matrix as NV18 and so on.
const (
	ClassSelf Class = "X"
	ClassPIX  Class = "PIX"  // at most a single PCIe bridge (or switch)
	ClassPXB  Class = "PXB"  // several PCIe bridges, no host bridge
	ClassPHB  Class = "PHB"  // one PCIe host bridge
	ClassNODE Class = "NODE" // several host bridges of one NUMA node
	ClassSYS  Class = "SYS"  // the interconnect between NUMA nodes
	// ClassUnknown: no common bridge, and a side has no NUMA node (on a machine
	// with more than one).
	ClassUnknown Class = "unknown"
)

// Pair is the path between one GPU and one NIC.
type Pair struct {
	GPU  string `json:"gpu"`
	NIC  string `json:"nic"`
	Path Class  `json:"path"`
	// NCCL is the class that NCCL gives the path (PIX, PXB, PHB, SYS, P2C, …);
	// NODE is PHB there. "unknown" where it cannot be told.
	NCCL string `json:"nccl"`
	// CeilingBytesPerSec is the least that a link of the path carries now, one
	// direction, payload; BestBytesPerSec the same at every link's maximum. 0:
	// no link could be read. LimitedBy names the hop that sets the ceiling.
	CeilingBytesPerSec float64 `json:"ceiling_bytes_per_sec"` // null for 0
	BestBytesPerSec    float64 `json:"best_bytes_per_sec"`    // null for 0
	LimitedBy          string  `json:"limited_by"`
	// CeilingReason says why there is no ceiling; empty where there is one.
	CeilingReason string `json:"ceiling_reason,omitempty"`
	// MPSBytes is the smallest Max_Payload_Size on the path, which the ceilings
	// rest on. MPSAssumed: a function's could not be read and was taken as 256.
	MPSBytes   int  `json:"mps_bytes,omitempty"`
	MPSAssumed bool `json:"mps_assumed,omitempty"`
	// Preferred marks the pairs that GPUDirect RDMA should use: the NIC is among the GPU's best.
	Preferred bool  `json:"preferred"`
	Hops      []Hop `json:"hops"`
}

// MarshalJSON implements json.Marshaler: a ceiling that is not known is null, so
// that no reader takes it for a path that carries nothing.
func (p Pair) MarshalJSON() ([]byte, error) {
	type plain Pair
	known := func(n float64) *float64 {
		if n == 0 {
			return nil
		}
		return &n
	}
	return json.Marshal(struct {
		plain
		CeilingBytesPerSec *float64 `json:"ceiling_bytes_per_sec"`
		BestBytesPerSec    *float64 `json:"best_bytes_per_sec"`
	}{plain(p), known(p.CeilingBytesPerSec), known(p.BestBytesPerSec)})
}

// Hop is one station on a path, in order from the GPU to the NIC.
type Hop struct {
	// ID is an address ("0000:3a:00.0"), a host bridge ("pci0000:20") or a NUMA node ("node1").
	ID   string       `json:"id"`
	Kind string       `json:"kind"` // gpu, nic, downstream port, upstream port, root port, bridge, host bridge, numa node
	Addr *pci.Address `json:"addr,omitempty"`
	// Link is the one from this function upward (to its parent), if it has one.
	Link *pci.Link `json:"link,omitempty"`
	// ACSCtl is the ACS control register of a bridge; nil where it could not be read or has none.
	ACSCtl *uint16 `json:"acs_ctl,omitempty"`
	Name   string  `json:"name,omitempty"`
}
