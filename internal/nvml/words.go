package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
	"github.com/gdrcheck/gdrcheck/pci"
)

// address reads the bus id, which is text, "00000000:3B:00.0". A library may
// fill the buffer without ending it.
func address(p nvml.PciInfo) (pci.Address, error) {
	var b []byte
	for _, c := range p.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return pci.ParseAddress(text(string(b)))
}

func bar1(m nvml.BAR1Memory) (gpu.Memory, error) { return size(m.Bar1Total, m.Bar1Used) }

func memory(m nvml.Memory) (gpu.Memory, error) { return size(m.Total, m.Used) }

func size(total, used uint64) (gpu.Memory, error) {
	if total == 0 || used > total {
		return gpu.Memory{}, fmt.Errorf("absurd memory: %d bytes used of %d", used, total)
	}
	return gpu.Memory{TotalBytes: total, UsedBytes: used}, nil
}

func enabled(s nvml.EnableState) (bool, error) { return s == nvml.FEATURE_ENABLED, nil }

func architecture(a nvml.DeviceArchitecture) (string, error) {
	return named(a, map[nvml.DeviceArchitecture]string{
		nvml.DEVICE_ARCH_KEPLER: "Kepler", nvml.DEVICE_ARCH_MAXWELL: "Maxwell", nvml.DEVICE_ARCH_PASCAL: "Pascal",
		nvml.DEVICE_ARCH_VOLTA: "Volta", nvml.DEVICE_ARCH_TURING: "Turing", nvml.DEVICE_ARCH_AMPERE: "Ampere",
		nvml.DEVICE_ARCH_ADA: "Ada", nvml.DEVICE_ARCH_HOPPER: "Hopper", nvml.DEVICE_ARCH_BLACKWELL: "Blackwell",
		nvml.DEVICE_ARCH_RUBIN: "Rubin",
	})
}

func fabric(f nvml.GpuFabricInfo) (gpu.Fabric, error) {
	state, err := named(f.State, map[uint8]string{
		nvml.GPU_FABRIC_STATE_NOT_SUPPORTED: "not_supported", nvml.GPU_FABRIC_STATE_NOT_STARTED: "not_started",
		nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in_progress", nvml.GPU_FABRIC_STATE_COMPLETED: "completed",
	})
	if err != nil {
		return gpu.Fabric{}, err
	}
	out := gpu.Fabric{State: state, Status: f.Status, CliqueID: f.CliqueId}
	if u := f.ClusterUuid; u != [16]uint8{} {
		out.ClusterUUID = fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
	}
	return out, nil
}

func addressing(m nvml.DeviceAddressingMode) (string, error) {
	return named(nvml.DeviceAddressingModeType(m.Value), map[nvml.DeviceAddressingModeType]string{
		nvml.DEVICE_ADDRESSING_MODE_NONE: "NONE", nvml.DEVICE_ADDRESSING_MODE_HMM: "HMM", nvml.DEVICE_ADDRESSING_MODE_ATS: "ATS",
	})
}

func virtualization(m nvml.GpuVirtualizationMode) (string, error) {
	return named(m, map[nvml.GpuVirtualizationMode]string{
		nvml.GPU_VIRTUALIZATION_MODE_NONE: "none", nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH: "passthrough",
		nvml.GPU_VIRTUALIZATION_MODE_VGPU: "vgpu", nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU: "host_vgpu",
		nvml.GPU_VIRTUALIZATION_MODE_HOST_VSGA: "host_vsga",
	})
}

func remoteType(t nvml.IntNvLinkDeviceType) (string, error) {
	return named(t, map[nvml.IntNvLinkDeviceType]string{
		nvml.NVLINK_DEVICE_TYPE_GPU: "gpu", nvml.NVLINK_DEVICE_TYPE_SWITCH: "switch",
		nvml.NVLINK_DEVICE_TYPE_IBMNPU: "ibmnpu", nvml.NVLINK_DEVICE_TYPE_UNKNOWN: "unknown",
	})
}

func topologyLevel(l nvml.GpuTopologyLevel) (string, error) {
	return named(l, map[nvml.GpuTopologyLevel]string{
		nvml.TOPOLOGY_INTERNAL: "INTERNAL", nvml.TOPOLOGY_SINGLE: "PIX", nvml.TOPOLOGY_MULTIPLE: "PXB",
		nvml.TOPOLOGY_HOSTBRIDGE: "PHB", nvml.TOPOLOGY_NODE: "NODE", nvml.TOPOLOGY_SYSTEM: "SYS",
	})
}

// performance passes states 0 to 15; NVML has 32 for "unknown".
func performance(p nvml.Pstates) (int, error) {
	if p < 0 || p > 15 {
		return 0, fmt.Errorf("no performance state: %d", p)
	}
	return int(p), nil
}

func numaNode(n int) (int, error) {
	if n < 0 || n >= maxNodes {
		return 0, fmt.Errorf("absurd NUMA node %d", n)
	}
	return n, nil
}

func named[K comparable](k K, names map[K]string) (string, error) {
	if n, ok := names[k]; ok {
		return n, nil
	}
	return "", fmt.Errorf("NVML answered %v, which gdrcheck does not know", k)
}
