// Package topo holds the Machine and the graph over it: GPUs, NICs, switches,
// host bridges and NUMA nodes, the class of each path and what it can carry.
// It reads nothing and has no cgo.
package topo

import (
	"time"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/internal/host"
	"github.com/gdrcheck/gdrcheck/pci"
	"github.com/gdrcheck/gdrcheck/rdma"
	"github.com/gdrcheck/gdrcheck/rdma/qos"
)

// Machine is everything that was collected of one node: plain data that JSON
// carries both ways without loss. Slices are sorted; see each type for the order.
type Machine struct {
	CollectedAt time.Time `json:"collected_at"`
	// Origin says what was read: "live", "tree", "recording" or "example".
	Origin string `json:"origin"`
	// Simulated is true where a test double stood for a real component.
	Simulated bool           `json:"simulated,omitempty"`
	PCI       []pci.Function `json:"pci,omitempty"` // by address
	RDMA      rdma.Facts     `json:"rdma,omitzero"`
	QoS       qos.Facts      `json:"qos,omitzero"`
	GPU       gpu.Facts      `json:"gpu,omitzero"`
	Host      host.Facts     `json:"host,omitzero"`
	// Registrations are what registering memory of each GPU with each RDMA device
	// gave, in the order of both; empty: nobody asked.
	Registrations []rdma.Registration `json:"registrations,omitempty"`
	// Problems are whole parts that could not be collected, with the reason.
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is a part of the collection that failed or ran out of time.
type Problem struct {
	Part   string `json:"part"` // "pci", "rdma", "gpu", "host", "nvml", …
	Reason string `json:"reason"`
}
