/* Memory of an NVIDIA GPU, by the CUDA driver API. The declarations are those
 * of NVIDIA's cuda.h as far as needed, written down again with plain C types;
 * an entry's version is part of its name. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "mem.h"

typedef unsigned long long device_ptr; /* CUdeviceptr */

struct location { /* CUmemLocation */
	int type, id;
};
struct allocation { /* CUmemAllocationProp */
	int type, handle_types;
	struct location location;
	void *win32;
	struct {
		unsigned char compression, gpu_direct_rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};
struct access { /* CUmemAccessDesc */
	struct location location;
	int flags;
};

enum {
	SUCCESS = 0,
	ERROR_NOT_READY = 600,
	ERROR_NOT_SUPPORTED = 801,

	ATTR_RDMA_WITH_VMM = 110,
	ATTR_FLUSH_OPTIONS = 117, /* bit 0: cuFlushGPUDirectRDMAWrites */
	ATTR_WRITES_ORDERING = 118,

	POINTER_SYNC_MEMOPS = 6,
	ALLOCATION_PINNED = 1,
	LOCATION_DEVICE = 1,
	GRANULARITY_MINIMUM = 0,
	ACCESS_READ_WRITE = 3,
	HANDLE_DMA_BUF_FD = 1,
	RANGE_PCIE = 1,
	FLUSH_CURRENT_CONTEXT = 0,
	FLUSH_TO_OWNER = 100,
	STREAM_NON_BLOCKING = 1,
	EVENT_NO_TIMING = 2,
};

static struct {
	int (*init)(unsigned int);
	int (*by_bus_id)(int *, const char *);
	int (*attribute)(int *, int, int);
	int (*retain)(void **, int);
	int (*release)(int);
	int (*set_current)(void *);
	int (*alloc)(device_ptr *, size_t);
	int (*release_mem)(device_ptr);
	int (*in)(device_ptr, const void *, size_t);
	int (*out)(void *, device_ptr, size_t);
	int (*pin)(void *, size_t, unsigned int);
	int (*unpin)(void *);
	int (*stream_open)(void **, unsigned int);
	int (*stream_close)(void *);
	int (*stream_wait)(void *);
	int (*in_async)(device_ptr, const void *, size_t, void *);
	int (*out_async)(void *, device_ptr, size_t, void *);
	int (*event_open)(void **, unsigned int);
	int (*event_close)(void *);
	int (*event_record)(void *, void *);
	int (*event_query)(void *);
	int (*error_name)(int, const char **);
	int (*pointer_set)(const void *, int, device_ptr);
	int (*export)(void *, device_ptr, size_t, int, unsigned long long);
	int (*flush)(int, int);
	int (*granularity)(size_t *, const struct allocation *, int);
	int (*reserve)(device_ptr *, size_t, size_t, device_ptr, unsigned long long);
	int (*unreserve)(device_ptr, size_t);
	int (*create)(unsigned long long *, size_t, const struct allocation *, unsigned long long);
	int (*destroy)(unsigned long long);
	int (*map)(device_ptr, size_t, size_t, unsigned long long, unsigned long long);
	int (*unmap)(device_ptr, size_t);
	int (*set_access)(device_ptr, size_t, const struct access *, size_t);
} cu;

static const struct gdr_symbol symbols[] = {
	{ "cuInit", (void **)&cu.init, 0 },
	{ "cuDeviceGetByPCIBusId", (void **)&cu.by_bus_id, 0 },
	{ "cuDeviceGetAttribute", (void **)&cu.attribute, 0 },
	{ "cuDevicePrimaryCtxRetain", (void **)&cu.retain, 0 },
	{ "cuDevicePrimaryCtxRelease_v2", (void **)&cu.release, 0 },
	{ "cuCtxSetCurrent", (void **)&cu.set_current, 0 },
	{ "cuMemAlloc_v2", (void **)&cu.alloc, 0 },
	{ "cuMemFree_v2", (void **)&cu.release_mem, 0 },
	{ "cuMemcpyHtoD_v2", (void **)&cu.in, 0 },
	{ "cuMemcpyDtoH_v2", (void **)&cu.out, 0 },
	{ "cuMemHostRegister_v2", (void **)&cu.pin, 0 },
	{ "cuMemHostUnregister", (void **)&cu.unpin, 0 },
	{ "cuStreamCreate", (void **)&cu.stream_open, 0 },
	{ "cuStreamDestroy_v2", (void **)&cu.stream_close, 0 },
	{ "cuStreamSynchronize", (void **)&cu.stream_wait, 0 },
	{ "cuMemcpyHtoDAsync_v2", (void **)&cu.in_async, 0 },
	{ "cuMemcpyDtoHAsync_v2", (void **)&cu.out_async, 0 },
	{ "cuEventCreate", (void **)&cu.event_open, 0 },
	{ "cuEventDestroy_v2", (void **)&cu.event_close, 0 },
	{ "cuEventRecord", (void **)&cu.event_record, 0 },
	{ "cuEventQuery", (void **)&cu.event_query, 0 },
	{ "cuGetErrorName", (void **)&cu.error_name, 1 },
	{ "cuPointerSetAttribute", (void **)&cu.pointer_set, 1 },
	{ "cuMemGetHandleForAddressRange", (void **)&cu.export, 1 }, /* 11.7 */
	{ "cuFlushGPUDirectRDMAWrites", (void **)&cu.flush, 1 },     /* 11.3 */
	{ "cuMemGetAllocationGranularity", (void **)&cu.granularity, 1 },
	{ "cuMemAddressReserve", (void **)&cu.reserve, 1 },
	{ "cuMemAddressFree", (void **)&cu.unreserve, 1 },
	{ "cuMemCreate", (void **)&cu.create, 1 },
	{ "cuMemRelease", (void **)&cu.destroy, 1 },
	{ "cuMemMap", (void **)&cu.map, 1 },
	{ "cuMemUnmap", (void **)&cu.unmap, 1 },
	{ "cuMemSetAccess", (void **)&cu.set_access, 1 },
};

/* An allocation's own. */
struct cuda {
	void *context;
	device_ptr base; /* of the allocation or the reservation; 0: none yet */
	size_t mapped;   /* bytes of the reservation that have memory */
	size_t reserved; /* 0: not of the virtual memory functions */
};

/* Makes one call and leaves with its error. */
#define TRY(name, ...)                                   \
	do {                                             \
		int rc_ = GDR_CALL(name, __VA_ARGS__);   \
		if (rc_ != SUCCESS) {                    \
			*call = (name);                  \
			return -rc_;                     \
		}                                        \
	} while (0)

int gdr_cuda_open(const char *path, const char *bus_id, int *device, const char **call, char **reason)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static int loaded;

	*reason = NULL;
	pthread_mutex_lock(&once);
	if (!loaded)
		*reason = gdr_library_load(path ? path : "libcuda.so.1", symbols, sizeof(symbols) / sizeof(*symbols));
	loaded = !*reason;
	pthread_mutex_unlock(&once);
	if (*reason) {
		*call = "dlopen";
		return ENOENT;
	}
	TRY("cuInit", cu.init(0));
	TRY("cuDeviceGetByPCIBusId", cu.by_bus_id(device, bus_id));
	return 0;
}

static const char *name_of(int code)
{
	const char *name = NULL;

	return cu.error_name && cu.error_name(code, &name) == SUCCESS ? name : NULL;
}

static int attribute(const struct gdr_mem *m, int number)
{
	int v;

	return GDR_CALL("cuDeviceGetAttribute", cu.attribute(&v, number, m->device)) == SUCCESS ? v : -1;
}

/* Every thread that calls has to say which context it means. */
static int enter(const struct gdr_mem *m) { return GDR_CALL("cuCtxSetCurrent", cu.set_current(((struct cuda *)m->own)->context)); }

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static void cuda_release(struct gdr_mem *m)
{
	struct cuda *own = m->own;

	if (!own)
		return;
	if (own->context && enter(m) == SUCCESS) {
		if (own->mapped)
			(void)GDR_CALL("cuMemUnmap", cu.unmap(own->base, own->mapped));
		if (own->reserved)
			(void)GDR_CALL("cuMemAddressFree", cu.unreserve(own->base, own->reserved));
		else if (own->base)
			(void)GDR_CALL("cuMemFree_v2", cu.release_mem(own->base));
	}
	if (own->context)
		(void)GDR_CALL("cuDevicePrimaryCtxRelease_v2", cu.release(m->device));
	free(own);
	m->own = NULL;
	m->addr = NULL;
}

static int take_context(struct gdr_mem *m, int device, const char **call)
{
	struct cuda *own = calloc(1, sizeof(*own));

	*call = "calloc";
	if (!own)
		return ENOMEM;
	m->own = own;
	m->device = device;
	TRY("cuDevicePrimaryCtxRetain", cu.retain(&own->context, device));
	TRY("cuCtxSetCurrent", cu.set_current(own->context));
	return 0;
}

static void settle(struct gdr_mem *m, device_ptr addr, size_t bytes)
{
	unsigned int on = 1;

	m->addr = (void *)(size_t)addr;
	m->bytes = bytes;
	/* Else a copy may return before it is through, and the NIC read what was
	 * there before. Virtual memory has no such attribute; copy_in waits anyway. */
	if (cu.pointer_set)
		(void)cu.pointer_set(&on, POINTER_SYNC_MEMOPS, addr);
}

static int plain(struct gdr_mem *m, size_t bytes, const char **call)
{
	struct cuda *own = m->own;

	/* An allocation of its own pages: a dma-buf wants the host's, and
	 * nvidia-peermem maps whole ones of 64 KiB. */
	bytes = round_up(bytes, GDR_DEVICE_PAGE);
	TRY("cuMemAlloc_v2", cu.alloc(&own->base, bytes + GDR_DEVICE_PAGE));
	settle(m, round_up(own->base, GDR_DEVICE_PAGE), bytes);
	return 0;
}

/* Memory in a reserved range, put together of pieces as PyTorch's growing
 * segments are. */
static int virtual(struct gdr_mem *m, size_t bytes, const char **call)
{
	enum { PIECE = 20 << 20 };
	struct cuda *own = m->own;
	struct allocation want = {
		.type = ALLOCATION_PINNED,
		.location = { LOCATION_DEVICE, m->device },
		.flags = { .gpu_direct_rdma = attribute(m, ATTR_RDMA_WITH_VMM) > 0 },
	};
	struct access access = { .location = want.location, .flags = ACCESS_READ_WRITE };
	size_t grain;

	*call = "cuMemCreate";
	if (!cu.granularity || !cu.reserve || !cu.unreserve || !cu.create || !cu.destroy || !cu.map || !cu.unmap || !cu.set_access)
		return ENOSYS;
	TRY("cuMemGetAllocationGranularity", cu.granularity(&grain, &want, GRANULARITY_MINIMUM));
	bytes = round_up(bytes, grain);
	TRY("cuMemAddressReserve", cu.reserve(&own->base, bytes, 0, 0, 0));
	own->reserved = bytes;
	while (own->mapped < bytes) {
		size_t n = bytes - own->mapped < PIECE ? bytes - own->mapped : round_up(PIECE, grain);
		unsigned long long handle;
		int rc;

		if (n > bytes - own->mapped)
			n = bytes - own->mapped;
		TRY("cuMemCreate", cu.create(&handle, n, &want, 0));
		rc = GDR_CALL("cuMemMap", cu.map(own->base + own->mapped, n, 0, handle, 0));
		(void)GDR_CALL("cuMemRelease", cu.destroy(handle)); /* the mapping holds it */
		*call = "cuMemMap";
		if (rc != SUCCESS)
			return -rc;
		own->mapped += n;
	}
	TRY("cuMemSetAccess", cu.set_access(own->base, bytes, &access, 1));
	settle(m, own->base, bytes);
	return 0;
}

static int cuda_alloc(struct gdr_mem *m, size_t bytes, int device, const char **call)
{
	int rc = take_context(m, device, call);

	if (!rc)
		rc = m->ops == &gdr_mem_cuda_vmm ? virtual(m, bytes, call) : plain(m, bytes, call);
	if (rc)
		cuda_release(m);
	return rc;
}

static int cuda_in(struct gdr_mem *m, size_t to, const void *from, size_t bytes)
{
	int rc = enter(m);

	if (rc == SUCCESS)
		rc = GDR_CALL("cuMemcpyHtoD_v2", cu.in((device_ptr)(size_t)m->addr + to, from, bytes));
	if (rc == SUCCESS)
		rc = GDR_CALL("cuStreamSynchronize", cu.stream_wait(NULL));
	return -rc;
}

static int cuda_out(struct gdr_mem *m, void *to, size_t from, size_t bytes)
{
	int rc = enter(m);

	if (rc == SUCCESS)
		rc = GDR_CALL("cuMemcpyDtoH_v2", cu.out(to, (device_ptr)(size_t)m->addr + from, bytes));
	return -rc;
}

static int cuda_export(struct gdr_mem *m, int pcie, int *fd, uint64_t *offset, const char **call)
{
	const char *name = pcie ? "cuMemGetHandleForAddressRange for PCIe" : "cuMemGetHandleForAddressRange";

	*call = name;
	if (!cu.export)
		return ENOSYS;
	TRY("cuCtxSetCurrent", enter(m));
	*fd = -1;
	*offset = 0;
	TRY(name, cu.export(fd, (device_ptr)(size_t)m->addr, m->bytes, HANDLE_DMA_BUF_FD, pcie ? RANGE_PCIE : 0));
	return *fd < 0 ? EBADF : 0;
}

static int cuda_flush(struct gdr_mem *m, const char **call)
{
	*call = "cuFlushGPUDirectRDMAWrites";
	if (!cu.flush)
		return ENOSYS;
	if (!(attribute(m, ATTR_FLUSH_OPTIONS) & 1))
		return -ERROR_NOT_SUPPORTED;
	TRY("cuCtxSetCurrent", enter(m));
	TRY("cuFlushGPUDirectRDMAWrites", cu.flush(FLUSH_CURRENT_CONTEXT, FLUSH_TO_OWNER));
	return 0;
}

static int cuda_order(const struct gdr_mem *m) { return attribute(m, ATTR_WRITES_ORDERING); }

static int cuda_pin(struct gdr_mem *m, void *addr, size_t bytes, const char **call)
{
	TRY("cuCtxSetCurrent", enter(m));
	TRY("cuMemHostRegister_v2", cu.pin(addr, bytes, 0));
	return 0;
}

static void cuda_unpin(struct gdr_mem *m, void *addr)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("cuMemHostUnregister", cu.unpin(addr));
}

static int cuda_queue_open(struct gdr_mem *m, void **queue, const char **call)
{
	TRY("cuCtxSetCurrent", enter(m));
	TRY("cuStreamCreate", cu.stream_open(queue, STREAM_NON_BLOCKING));
	return 0;
}

static void cuda_queue_close(struct gdr_mem *m, void *queue)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("cuStreamDestroy_v2", cu.stream_close(queue));
}

static int cuda_event_open(struct gdr_mem *m, void **event, const char **call)
{
	TRY("cuCtxSetCurrent", enter(m));
	TRY("cuEventCreate", cu.event_open(event, EVENT_NO_TIMING));
	return 0;
}

static void cuda_event_close(struct gdr_mem *m, void *event)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("cuEventDestroy_v2", cu.event_close(event));
}

static int cuda_copy_start(struct gdr_mem *m, void *queue, void *host, size_t off, size_t bytes, int out, void *event, const char **call)
{
	device_ptr at = (device_ptr)(size_t)m->addr + off;

	TRY("cuCtxSetCurrent", enter(m));
	if (out)
		TRY("cuMemcpyDtoHAsync_v2", cu.out_async(host, at, bytes, queue));
	else
		TRY("cuMemcpyHtoDAsync_v2", cu.in_async(at, host, bytes, queue));
	if (event)
		TRY("cuEventRecord", cu.event_record(event, queue));
	return 0;
}

static int cuda_event_done(struct gdr_mem *m, void *event)
{
	int rc = enter(m);

	if (rc == SUCCESS)
		rc = cu.event_query(event);
	return rc == ERROR_NOT_READY ? EAGAIN : -rc;
}

#define OPS(name)                               \
	.kind = (name),                         \
	.library = "CUDA",                      \
	.error_name = name_of,                  \
	.alloc = cuda_alloc,                    \
	.release = cuda_release,                \
	.copy_in = cuda_in,                     \
	.copy_out = cuda_out,                   \
	.export_dmabuf = cuda_export,           \
	.flush = cuda_flush,                    \
	.order = cuda_order,                    \
	.pin = cuda_pin,                        \
	.unpin = cuda_unpin,                    \
	.queue_open = cuda_queue_open,          \
	.queue_close = cuda_queue_close,        \
	.event_open = cuda_event_open,          \
	.event_close = cuda_event_close,        \
	.copy_start = cuda_copy_start,          \
	.event_done = cuda_event_done

const struct gdr_mem_ops gdr_mem_cuda = { OPS("cuda") };
const struct gdr_mem_ops gdr_mem_cuda_vmm = { OPS("cuda-vmm") };
