package gpu

import "strings"

// LibraryError is what an error of a GPU's library likely means, and what to do.
type LibraryError struct{ Cause, Fix string }

// InstallCUDA says how libcuda.so.1 comes to a machine.
const InstallCUDA = "Install libcuda.so.1 (Ubuntu: libnvidia-compute of the driver's version; Debian: libcuda1; RHEL: nvidia-driver-cuda-libs); in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility"

// Install says how the driver library of a kind of GPU comes to a machine.
func Install(library string) string {
	if library == "HIP" {
		return "Install ROCm's runtime: hip-runtime-amd of AMD's repository, or libamdhip64-5 (Debian, Ubuntu); in a container: give it /dev/kfd and /dev/dri"
	}
	return InstallCUDA
}

const seeKernelLog = "see nvidia-smi and the kernel log (dmesg | grep -i -e xid -e nvrm); after an Xid, reset the GPU or reboot"

// cudaErrors explain CUresult of the CUDA driver API (cuda.h), those of a call first.
var cudaErrors = []struct {
	call string // prefix; empty: any
	code int
	LibraryError
}{
	{"cuMemGetHandleForAddressRange", 1, LibraryError{"the driver exports no dma-buf of this range: not whole pages, or pieces of several allocations", "export each allocation by itself"}},
	{"cuMemGetHandleForAddressRange for PCIe", 801, LibraryError{"the driver maps no dma-buf for PCIe: before CUDA 12.8, and in guests, there is no such mapping", "take the plain dma-buf (--mem cuda,dmabuf)"}},
	{"cuMemGetHandleForAddressRange", 801, LibraryError{"the driver exports no dma-buf: not of this kind on this system, or not at all (proprietary kernel modules)", "use the open GPU kernel modules, driver 515 or newer, or nvidia-peermem"}},
	{"cuMemCreate", 801, LibraryError{"the GPU does not give such memory to other devices (attribute 110 is 0)", "allocate with cudaMalloc; PyTorch: expandable_segments:False"}},
	{"cuMemHostRegister", 2, LibraryError{"the memory could not be pinned", "raise the limit of locked memory (ulimit -l), or take less"}},
	{"", 2, LibraryError{"the GPU has not enough free memory", "see who holds it: nvidia-smi; or take less (--footprint)"}},
	{"", 3, LibraryError{"the driver could not be initialised", seeKernelLog}},
	{"", 34, LibraryError{"the library is a stub from the CUDA toolkit, not the driver's", "take the toolkit's stubs folder out of LD_LIBRARY_PATH"}},
	{"", 46, LibraryError{"the GPU is busy or unavailable: another process has it for itself (compute mode), or it was lost", "see nvidia-smi -q -d COMPUTE; back to shared: sudo nvidia-smi -c DEFAULT"}},
	{"", 100, LibraryError{"CUDA sees no GPU", "may this user open them: ls -l /dev/nvidia*; in a container: the NVIDIA container toolkit; with MIG on, are there instances: nvidia-smi -L"}},
	{"", 101, LibraryError{"CUDA does not see this GPU: hidden from this container, MIG on without an instance, or lost", "compare nvidia-smi -L with ls /dev/nvidia*"}},
	{"", 214, LibraryError{"the GPU's memory has an uncorrectable ECC error", seeKernelLog}},
	{"", 220, LibraryError{"an NVLink has an uncorrectable error", seeKernelLog}},
	{"", 304, LibraryError{"a call of the operating system failed: a missing device node, or a limit (locked memory, address space, files)", "ls -l /dev/nvidia*; ulimit -a; strace shows which call"}},
	{"", 700, LibraryError{"the GPU met an address that is not mapped, and its context is gone", seeKernelLog}},
	{"", 702, LibraryError{"the GPU took too long and was stopped", seeKernelLog}},
	{"", 714, LibraryError{"the GPU failed, and its context is gone", seeKernelLog}},
	{"", 719, LibraryError{"the GPU failed or was lost, and its context is gone", seeKernelLog}},
	{"", 721, LibraryError{"the GPU failed, and its context is gone", seeKernelLog}},
	{"", 800, LibraryError{"this user may not do that", "run as root, or give the container the capability"}},
	{"", 801, LibraryError{"not supported on this system", ""}},
	{"", 802, LibraryError{"the system is not ready: on NVSwitch systems the fabric manager has not finished", "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric"}},
	{"", 803, LibraryError{"libcuda.so.1 and the loaded kernel driver are of different versions", "load the driver anew (reboot), or in a container take the host's libraries"}},
	{"", 804, LibraryError{"forward compatibility was tried on a GPU that does not have it", "remove the cuda-compat library from the library path"}},
	{"", 805, LibraryError{"CUDA's multi-process service does not answer", "echo quit | nvidia-cuda-mps-control, or start it anew"}},
	{"", 807, LibraryError{"CUDA's multi-process service is not ready", "wait, or start it anew"}},
	{"", 808, LibraryError{"CUDA's multi-process service has as many clients as it takes", "end one"}},
	{"", 999, LibraryError{"an unknown error: often device nodes that are missing, a lost GPU, or a driver in a bad state", seeKernelLog}},
}

// hipErrors explain hipError_t and hsa_status_t (from 0x1000 on).
var hipErrors = map[int]LibraryError{
	2:      {"the GPU has not enough free memory", "see who holds it: rocm-smi --showpids; or take less (--footprint)"},
	3:      {"the driver could not be initialised", "may this user open /dev/kfd and /dev/dri: groups render and video"},
	100:    {"HIP sees no GPU", "may this user open /dev/kfd and /dev/dri: groups render and video; rocminfo"},
	101:    {"HIP does not see this GPU", "compare rocminfo with lspci; ROCR_VISIBLE_DEVICES hides GPUs"},
	709:    {"the GPU's context is gone", "see the kernel log: dmesg | grep amdgpu"},
	719:    {"the GPU failed or was lost", "see the kernel log: dmesg | grep amdgpu"},
	801:    {"not supported on this system", ""},
	0x1000: {"the driver exports no dma-buf: the kernel lacks the options for it", "a kernel with CONFIG_PCI_P2PDMA, CONFIG_DMABUF_MOVE_NOTIFY and CONFIG_HSA_AMD_P2P, or AMD's amdgpu-dkms"},
	0x1001: {"the driver exports no dma-buf of this range", "a GPU whose BAR shows all of its memory (large BAR) is needed"},
	0x1008: {"the driver has no resources for a dma-buf", "see the kernel log: dmesg | grep amdgpu"},
}

// Explain explains an error of a GPU's library, "CUDA" or "HIP", for the call that
// gave it.
func Explain(library, call string, code int) (LibraryError, bool) {
	if library == "HIP" {
		e, ok := hipErrors[code]
		return e, ok
	}
	return CUDAError(call, code)
}

// Busy says whether an error of CUDA means that others have the GPU, or all of
// its memory: it says nothing of the GPU itself.
func Busy(code int) bool {
	const outOfMemory, unavailable, mpsClients = 2, 46, 808
	return code == outOfMemory || code == unavailable || code == mpsClients
}

// CUDAError explains an error of the CUDA driver API, for the call that gave it.
func CUDAError(call string, code int) (LibraryError, bool) {
	for _, e := range cudaErrors {
		if e.code == code && strings.HasPrefix(call, e.call) {
			return e.LibraryError, true
		}
	}
	return LibraryError{}, false
}
