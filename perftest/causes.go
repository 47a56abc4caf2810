package perftest

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/gdrcheck/gdrcheck/internal/gpu"
)

// cause is what an error likely means, and what to look at.
type cause struct{ cause, check string }

// completionCauses are those of enum ibv_wc_status (libibverbs), in its order;
// what each means is in the InfiniBand Architecture Specification, volume 1,
// section 11.6.2.
var completionCauses = []struct {
	name string
	cause
}{
	{"IBV_WC_SUCCESS", cause{"no error", ""}},
	{"IBV_WC_LOC_LEN_ERR", cause{"a message was longer than the buffer posted for it, or than the path's MTU on UD", "take the same sizes on both ends"}},
	{"IBV_WC_LOC_QP_OP_ERR", cause{"the NIC refused the work request as malformed", "report it with the NIC's model and firmware"}},
	{"IBV_WC_LOC_EEC_OP_ERR", cause{"an internal error of the end-to-end context", ""}},
	{"IBV_WC_LOC_PROT_ERR", cause{"the NIC could not use the local buffer: its registration does not cover the address, or is gone", "look for IOMMU and peer memory messages in the kernel log"}},
	{"IBV_WC_WR_FLUSH_ERR", cause{"the queue pair had already failed and gave the request back", "the first error, here or on the other end, is the cause"}},
	{"IBV_WC_MW_BIND_ERR", cause{"a memory window could not be bound", ""}},
	{"IBV_WC_BAD_RESP_ERR", cause{"the other end's answer made no sense", "compare firmware versions"}},
	{"IBV_WC_LOC_ACCESS_ERR", cause{"the local buffer is registered without the right to be written", ""}},
	{"IBV_WC_REM_INV_REQ_ERR", cause{"the other NIC refused the request: unsupported operation, or no receive buffer long enough", "compare sizes and operations on both ends"}},
	{"IBV_WC_REM_ACCESS_ERR", cause{"the other NIC refused access: wrong key, address out of range, or a right that its registration lacks", "with GPU memory: see whether its registration is still there (peer memory, dma-buf)"}},
	{"IBV_WC_REM_OP_ERR", cause{"the other NIC could not complete the request, as when its own PCIe read or write failed", "look at the other node's kernel log, IOMMU and PCIe errors; PCIe peer reads fail on some CPUs where writes work"}},
	{"IBV_WC_RETRY_EXC_ERR", cause{"no acknowledgement after all retries: packets do not reach the other end, or its queue pair is gone", "ping between the very addresses of both GIDs; link state, VLAN, MTU and RoCE v1/v2 of both ports; ACS and IOMMU when only GPU memory fails"}},
	{"IBV_WC_RNR_RETRY_EXC_ERR", cause{"the other end had no receive posted for too long", "raise the receive depth or --rnr-retry (7: for ever)"}},
	{"IBV_WC_LOC_RDD_VIOL_ERR", cause{"a reliable datagram domain was violated", ""}},
	{"IBV_WC_REM_INV_RD_REQ_ERR", cause{"the other end refused a reliable datagram", ""}},
	{"IBV_WC_REM_ABORT_ERR", cause{"the other end aborted the operation", ""}},
	{"IBV_WC_INV_EECN_ERR", cause{"an invalid end-to-end context number", ""}},
	{"IBV_WC_INV_EEC_STATE_ERR", cause{"an invalid state of the end-to-end context", ""}},
	{"IBV_WC_FATAL_ERR", cause{"the NIC failed", "look at the kernel log for its health and reset messages"}},
	{"IBV_WC_RESP_TIMEOUT_ERR", cause{"the answer took too long", ""}},
	{"IBV_WC_GENERAL_ERR", cause{"an error of the transport that has no name of its own", "look at the kernel log"}},
	{"IBV_WC_TM_ERR", cause{"tag matching failed", ""}},
	{"IBV_WC_TM_RNDV_INCOMPLETE", cause{"a tag matching rendezvous was left incomplete", ""}},
}

// CompletionFailure decodes a failed work completion. status is enum
// ibv_wc_status; the vendor error is the NIC's own and printed as it came.
func CompletionFailure(subject string, status int, vendorErr uint32) *Failure {
	f := &Failure{
		Call: "work completion", Subject: subject, VendorErr: vendorErr,
		Status: fmt.Sprintf("status %d", status), Cause: "a status that this program does not know",
	}
	if status >= 0 && status < len(completionCauses) {
		c := completionCauses[status]
		f.Status, f.Cause, f.Check = c.name, c.cause.cause, c.check
	}
	if vendorErr != 0 {
		f.Status += fmt.Sprintf(" (vendor error %#x)", vendorErr)
	}
	return f
}

// callWaiting is what an end was at that gave up after the plan's idle limit.
const callWaiting = "waiting for a completion"

// enotsupp is the kernel's own error, which it should not let out and does.
const enotsupp syscall.Errno = 524

// callCauses explain the errno of a call; the first whose call is a prefix and
// whose errno is the same, or 0 for any, holds.
var callCauses = []struct {
	call  string
	errno syscall.Errno
	cause
}{
	{"ibv_get_device_list", syscall.ENODEV, cause{"libibverbs lists no such device", "see ibv_devices; a device that /sys/class/infiniband has and this list lacks wants its provider library (package ibverbs-providers or the vendor's)"}},
	{"ibv_get_device_list", syscall.ENOSYS, cause{"the kernel has no user verbs", "modprobe ib_uverbs"}},
	{"ibv_get_device_list", syscall.EPERM, cause{"access to the device list was refused", "look at the rights of /dev/infiniband"}},
	{"ibv_open_device", syscall.EACCES, cause{"this user may not open the device", "the node /dev/infiniband/uverbsN should have mode 0666; a container must be given it"}},
	{"ibv_open_device", syscall.EPERM, cause{"this user, or this container's device rules, may not open the device", "give the container /dev/infiniband"}},
	{"ibv_open_device", syscall.ENOENT, cause{"the device node is missing", "see whether /dev/infiniband/uverbsN exists here; a container must be given it"}},
	{"ibv_open_device", syscall.ENOSYS, cause{"the provider library and the kernel driver speak different ABI versions", "take both from the same release"}},
	{"ibv_query_port", syscall.EINVAL, cause{"the device has no such port", "ports count from 1"}},
	{"ibv_reg_mr", syscall.ENOMEM, cause{"the memory could not be pinned: over the limit of locked memory (RLIMIT_MEMLOCK, ulimit -l), or the NIC's translation table is full", "raise memlock to unlimited, or measure with a smaller --footprint"}},
	{"ibv_reg_mr", syscall.EFAULT, cause{"the kernel could not pin the address: device memory without a peer memory module, or an address that is not mapped", "load nvidia-peermem, or use dma-buf"}},
	{"ibv_reg_mr", syscall.EINVAL, cause{"the driver refused the registration's access flags or its length", "try without relaxed ordering"}},
	{"ibv_reg_dmabuf_mr", syscall.ENOSYS, cause{"this libibverbs has no ibv_reg_dmabuf_mr", "rdma-core 34 or newer has it"}},
	{"mlx5dv_reg_dmabuf_mr", syscall.ENOSYS, cause{"this libmlx5 has no mlx5dv_reg_dmabuf_mr, which Data Direct needs", "rdma-core 54 or newer has it, and DOCA-OFED"}},
	{"mlx5dv_reg_dmabuf_mr", syscall.EOPNOTSUPP, cause{"the NIC or its driver has no Data Direct function", "take --mem cuda,dmabuf"}},
	{"ibv_reg_dmabuf_mr", enotsupp, cause{"the GPU's driver refused this NIC: on this CPU it wants both below one PCIe switch, or for Data Direct in one IOMMU group", "dmesg says which: grep -i dma-buf; else nvidia-peermem"}},
	{"ibv_reg_dmabuf_mr", syscall.ENOMEM, cause{"no room to map the dma-buf: the GPU's BAR1 is full or too small, or the NIC's translation table is", "nvidia-smi -q -d MEMORY shows BAR1; take a smaller --footprint"}},
	{"ibv_reg_dmabuf_mr", syscall.EFAULT, cause{"the NIC's driver could not map the dma-buf", "update it, or take a smaller --footprint"}},
	{"ibv_reg_dmabuf_mr", syscall.EPERM, cause{"the kernel refused the mapping", "look at the kernel log; confidential computing and lockdown forbid it"}},
	{"ibv_reg_dmabuf_mr", syscall.EBADF, cause{"the GPU's driver gave no dma-buf", "look at the kernel log"}},
	{"export of a dma-buf", syscall.EOPNOTSUPP, cause{"this kind of memory has no dma-buf", ""}},
	{"cuMemGetHandleForAddressRange", syscall.ENOSYS, cause{"this libcuda exports no dma-bufs", "CUDA 11.7 (driver 515) or newer does"}},
	{"hsa_amd_portable_export_dmabuf", syscall.ENOSYS, cause{"this HSA runtime exports no dma-bufs", "ROCm 5.6 or newer does"}},
	{"cuMemCreate", syscall.ENOSYS, cause{"this libcuda has no virtual memory functions", "CUDA 10.2 or newer has them"}},
	{"ibv_reg_dmabuf_mr", syscall.EOPNOTSUPP, cause{"driver or provider have no dma-buf registration", "mlx5 has it from kernel 5.12 on; else use nvidia-peermem"}},
	{"ibv_reg_dmabuf_mr", syscall.EPROTONOSUPPORT, cause{"the kernel's RDMA core has no dma-buf registration", "it came with 5.12"}},
	{"ibv_reg_dmabuf_mr", syscall.EINVAL, cause{"the NIC cannot map the dma-buf, or offset and address do not share their offset within a page", ""}},
	{"ibv_create_cq", syscall.EINVAL, cause{"the completion queue is longer than the device allows (max_cqe of ibv_devinfo -v)", "fewer QPs or a smaller depth"}},
	{"ibv_create_qp", syscall.EINVAL, cause{"the queue pair asks for more than the device has (max_qp_wr, max_sge of ibv_devinfo -v), or for a type it lacks", "a smaller depth"}},
	{"ibv_create_qp", syscall.ENOMEM, cause{"no resources for another queue pair: the device's, or locked memory (ulimit -l)", "fewer QPs, a smaller depth, or more memlock"}},
	{"ibv_create_qp", syscall.EOPNOTSUPP, cause{"the device has no queue pairs of this type (EFA has SRD and UD, iWARP wants its connection manager)", ""}},
	{"ibv_create_qp", syscall.ENOSYS, cause{"the device has no queue pairs of this type", ""}},
	{"ibv_modify_qp to INIT", syscall.EINVAL, cause{"the partition key index is not in the port's table", "see /sys/class/infiniband/DEVICE/ports/N/pkeys"}},
	{"ibv_modify_qp to RTR", syscall.EINVAL, cause{"the device refused the path: an empty GID index, a GID of another type or family than the peer's, or an MTU above the port's", "compare the GIDs of both ends; try another --gid-index"}},
	{"ibv_modify_qp to RTR", syscall.ETIMEDOUT, cause{"the peer's address could not be resolved", "ping the peer's GID address from this port's network interface"}},
	{"ibv_modify_qp to RTR", syscall.ENETUNREACH, cause{"there is no route to the peer's GID address from this port's network interface", "ip route get ADDRESS"}},
	{"ibv_modify_qp to RTR", syscall.EHOSTUNREACH, cause{"the peer's address does not answer (ARP, neighbour discovery)", "ping the peer's GID address"}},
	{"ibv_modify_qp to RTR", syscall.ENODEV, cause{"the port's GID has lost its network interface", "is the interface up?"}},
	{"ibv_modify_qp to RTS", syscall.EINVAL, cause{"the device refused timeout, retries or the number of reads in flight", ""}},
	{"ibv_create_ah", syscall.EINVAL, cause{"the device refused the path: an empty GID index, or a GID of another type or family than the peer's", "try another --gid-index"}},
	{"ibv_create_ah", 0, cause{"the path to the peer could not be set up", "ping the peer's GID address from this port's network interface"}},
	{"ibv_post_send", syscall.EINVAL, cause{"the device refused the work request: a message longer than it allows, or too much inline data", ""}},
	{"ibv_post_send", syscall.ENOMEM, cause{"the send queue is full, which the loop should not let happen", "report it"}},
	{callWaiting, 0, cause{"nothing arrived and nothing completed within the idle limit: the other end stopped, or packets are lost", "look at the other end's error"}},
	{"the peer's memory", 0, cause{"the other end offers less memory than the plan needs", "run the same version on both ends"}},
	{"ibv_query_gid", 0, cause{"the GID table could not be read", ""}},
	{"mmap", syscall.ENOMEM, cause{"no memory for the buffers", "a smaller --footprint"}},
}

// CallFailure explains the errno of a call on subject.
func CallFailure(call, subject string, errno syscall.Errno) *Failure {
	f := &Failure{Call: call, Subject: subject, Errno: int(errno), Cause: errno.Error()}
	for _, c := range callCauses {
		if strings.HasPrefix(call, c.call) && (c.errno == errno || c.errno == 0) {
			f.Cause, f.Check = fmt.Sprintf("%s (errno %d, %s)", c.cause.cause, int(errno), errno.Error()), c.check
			return f
		}
	}
	if errno != 0 {
		f.Cause = fmt.Sprintf("errno %d, %s", int(errno), errno.Error())
	}
	return f
}

// LibraryFailure explains the error of a GPU's library; name is what it calls
// the error, if it does.
func LibraryFailure(library, call string, code int, name string) *Failure {
	f := &Failure{Call: call, Code: code, Status: fmt.Sprintf("%s error %d", library, code)}
	if name = PrintableText(name); name != "" {
		f.Status = fmt.Sprintf("%s (%d)", name, code)
	}
	f.Cause = "an error that this program does not know"
	if e, ok := gpu.Explain(library, call, code); ok {
		f.Cause, f.Check = e.Cause, e.Fix
	}
	return f
}
