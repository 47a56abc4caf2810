package fact

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
)

// ErrNotCollected is the answer of a Source that has no way to answer: a
// question put to a directory tree that only a live machine can answer, or one
// that a recording does not hold.
var ErrNotCollected = errors.New("not collected")

// Source is where facts are read: the live machine, a directory tree or a
// recording. Names are absolute paths of the machine itself ("/sys/bus/pci/devices"),
// whatever the root. Errors wrap the errno that the kernel gave.
type Source interface {
	// ReadFile reads a file that the kernel answers at once. Files that a
	// driver or firmware serves, and so may hang, go through Ask(AskFiles).
	ReadFile(name string) ([]byte, error)
	// ReadDir lists a directory sorted by name.
	ReadDir(name string) ([]Entry, error)
	// Readlink returns the link's text, unresolved.
	Readlink(name string) (string, error)
	// Stat follows symbolic links.
	Stat(name string) (Info, error)
	// Ask puts a question to what is not a plain file: a library, netlink, the
	// kernel log. One record a subject; a subject that hung or crashed the
	// worker has a Failed record and does not cost the others. The error is
	// for the question as a whole (ErrNotCollected, worker did not start).
	Ask(ctx context.Context, name string, args ...string) ([]Record, error)
}

// The questions that Ask knows. The type that a Record's Data decodes into
// stands beside each.
const (
	AskFiles   = "files"   // args: paths; Data: []byte, the content (config space, VPD, counters, debugfs)
	AskNVML    = "nvml"    // args: none, gpu.Brief or gpu.Load; Data: gpu.NVMLSystem for subject "system", gpu.NVMLDevice for each "gpuN"
	AskCUDA    = "cuda"    // args: none; Data: gpu.CUDASystem for subject "system", gpu.CUDADevice for each "gpuN"
	AskRDMAMap = "rdmamap" // args: RDMA device names; Data: rdma.MapEntry for each
	// args: rdma.RegistrationAsk's text for each pair; Data: rdma.RegistrationProbe for each
	AskRegistration = "registration"
	AskGDRCopy      = "gdrcopy"  // args: PCI addresses of GPUs; Data: gpu.GDRCopyProbe for each
	AskVerbs        = "verbs"    // args: RDMA device names; Data: rdma.VerbsProbe for each
	AskGHW          = "ghw"      // args: none; Data: host.Names for subject "system"
	AskLimits       = "limits"   // args: none; Data: host.Limits for subject "self"
	AskSymbols      = "symbols"  // args: names of kernel functions; Data: bool for each, whether the kernel has it
	AskKernelLog    = "kmsg"     // args: none; Data: host.KernelLog for subject "system"
	AskEnviron      = "environ"  // args: none; Data: qos.Environ for subject "self"
	AskLLDP         = "lldp"     // args: network interfaces; Data: qos.Neighbour for each
	AskSMP          = "smp"      // args: InfiniBand ports (mlx5_0/1); Data: qos.Neighbour for each
	AskMST          = "mst"      // args: PCI addresses; Data: []qos.NVSetting for each
	AskDCB          = "dcb"      // args: network interfaces; Data: qos.DCB for each
	AskEthtool      = "ethtool"  // args: network interfaces; Data: qos.Ethtool for each
	AskStats        = "stats"    // args: network interfaces; Data: []qos.Stat for each
	AskModules      = "modules"  // args: network interfaces; Data: qos.Module for each
	AskDevlink      = "devlink"  // args: PCI addresses; Data: qos.Devlink for each
	AskMeasured     = "measured" // only of recordings; args: none; Data: perftest.RailPair or perftest.Result, as the subject begins
)

// PerSubject are the questions whose subjects are their arguments.
var PerSubject = []string{AskFiles, AskRDMAMap, AskRegistration, AskGDRCopy, AskVerbs, AskSymbols, AskDCB, AskEthtool, AskStats, AskModules, AskDevlink, AskLLDP, AskSMP, AskMST}

// Entry is one name in a directory.
type Entry struct {
	Name string      `json:"name"`
	Type fs.FileMode `json:"type"` // type bits only: fs.ModeDir, fs.ModeSymlink, …
}

// Info is what Stat tells of a file.
type Info struct {
	Mode fs.FileMode `json:"mode"`
	UID  uint32      `json:"uid"`
	GID  uint32      `json:"gid"`
	Rdev uint64      `json:"rdev,omitempty"` // major and minor of a device node, as stat(2) gives them
	Size int64       `json:"size"`
}

// Record is what one Ask says of one subject. A Failed record may hold in Data
// what was known before the failure, an address for instance.
type Record struct {
	Subject string          `json:"subject"`
	State   State           `json:"state"`
	Source  string          `json:"source,omitempty"`
	Errno   int             `json:"errno,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// base64Text decodes a JSON string of base64, as json.Marshal writes a byte
// slice, at a fraction of what encoding/json takes; false if it is anything else.
func base64Text(data json.RawMessage, out *[]byte) bool {
	n := len(data)
	if n < 2 || data[0] != '"' || data[n-1] != '"' {
		return false
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(n-2))
	n, err := base64.StdEncoding.Strict().Decode(b, data[1:n-1])
	if err != nil {
		return false
	}
	*out = b[:n]
	return true
}

// Decode turns a record into a value.
func Decode[T any](r Record) Value[T] {
	v := Value[T]{State: r.State, Source: r.Source, Errno: errno(r.Errno), Reason: r.Reason}
	if r.State != Known {
		return v
	}
	if b, ok := any(&v.V).(*[]byte); ok && base64Text(r.Data, b) {
		return v
	}
	if err := json.Unmarshal(r.Data, &v.V); err != nil {
		return Missing[T](Failed, r.Source, "unreadable answer: "+err.Error())
	}
	return v
}
