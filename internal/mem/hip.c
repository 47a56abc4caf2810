/* Memory of an AMD GPU, by HIP; its dma-bufs come from the HSA runtime below. The
 * declarations are those of AMD's headers as far as needed, written down again
 * with plain C types. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "mem.h"

enum {
	SUCCESS = 0,
	ERROR_NOT_READY = 600,
	HSA_ERRORS = 0x1000, /* hsa_status_t begins there, beyond hipError_t */

	TO_DEVICE = 1,
	TO_HOST = 2,
	STREAM_NON_BLOCKING = 1,
	EVENT_NO_TIMING = 2,
};

static struct {
	int (*init)(unsigned int);
	int (*by_bus_id)(int *, const char *);
	int (*set_device)(int);
	int (*alloc)(void **, size_t);
	int (*release)(void *);
	int (*copy)(void *, const void *, size_t, int);
	int (*copy_async)(void *, const void *, size_t, int, void *);
	int (*pin)(void *, size_t, unsigned int);
	int (*unpin)(void *);
	int (*stream_open)(void **, unsigned int);
	int (*stream_close)(void *);
	int (*stream_wait)(void *);
	int (*event_open)(void **, unsigned int);
	int (*event_close)(void *);
	int (*event_record)(void *, void *);
	int (*event_query)(void *);
	const char *(*error_name)(int);
	int (*export)(const void *, size_t, int *, uint64_t *);
	int (*status_text)(int, const char **);
} hip;

static const struct gdr_symbol symbols[] = {
	{ "hipInit", (void **)&hip.init, 0 },
	{ "hipDeviceGetByPCIBusId", (void **)&hip.by_bus_id, 0 },
	{ "hipSetDevice", (void **)&hip.set_device, 0 },
	{ "hipMalloc", (void **)&hip.alloc, 0 },
	{ "hipFree", (void **)&hip.release, 0 },
	{ "hipMemcpy", (void **)&hip.copy, 0 },
	{ "hipMemcpyAsync", (void **)&hip.copy_async, 0 },
	{ "hipHostRegister", (void **)&hip.pin, 0 },
	{ "hipHostUnregister", (void **)&hip.unpin, 0 },
	{ "hipStreamCreateWithFlags", (void **)&hip.stream_open, 0 },
	{ "hipStreamDestroy", (void **)&hip.stream_close, 0 },
	{ "hipStreamSynchronize", (void **)&hip.stream_wait, 0 },
	{ "hipEventCreateWithFlags", (void **)&hip.event_open, 0 },
	{ "hipEventDestroy", (void **)&hip.event_close, 0 },
	{ "hipEventRecord", (void **)&hip.event_record, 0 },
	{ "hipEventQuery", (void **)&hip.event_query, 0 },
	{ "hipGetErrorName", (void **)&hip.error_name, 1 },
};

static const struct gdr_symbol hsa_symbols[] = {
	{ "hsa_amd_portable_export_dmabuf", (void **)&hip.export, 1 }, /* ROCm 5.6 */
	{ "hsa_status_string", (void **)&hip.status_text, 1 },
};

#define TRY(name, ...)                                 \
	do {                                           \
		int rc_ = GDR_CALL(name, __VA_ARGS__); \
		if (rc_ != SUCCESS) {                  \
			*call = (name);                \
			return -rc_;                   \
		}                                      \
	} while (0)

static char *load(const char *path)
{
	static const char *const names[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so" };
	char *reason = NULL;
	size_t i;

	if (path) {
		reason = gdr_library_load(path, symbols, sizeof(symbols) / sizeof(*symbols));
	} else {
		for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
			free(reason);
			reason = gdr_library_load(names[i], symbols, sizeof(symbols) / sizeof(*symbols));
			if (!reason)
				break;
		}
	}
	if (!reason) /* without it there is no dma-buf, and the rest works */
		free(gdr_library_load(path ? path : "libhsa-runtime64.so.1", hsa_symbols, sizeof(hsa_symbols) / sizeof(*hsa_symbols)));
	return reason;
}

int gdr_hip_open(const char *path, const char *bus_id, int *device, const char **call, char **reason)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static int loaded;

	*reason = NULL;
	pthread_mutex_lock(&once);
	if (!loaded)
		*reason = load(path);
	loaded = !*reason;
	pthread_mutex_unlock(&once);
	if (*reason) {
		*call = "dlopen";
		return ENOENT;
	}
	TRY("hipInit", hip.init(0));
	TRY("hipDeviceGetByPCIBusId", hip.by_bus_id(device, bus_id));
	return 0;
}

static const char *name_of(int code)
{
	const char *text = NULL;

	if (code < HSA_ERRORS)
		return hip.error_name ? hip.error_name(code) : NULL;
	return hip.status_text && hip.status_text(code, &text) == SUCCESS ? text : NULL;
}

/* Every thread that calls has to say which device it means. */
static int enter(const struct gdr_mem *m) { return GDR_CALL("hipSetDevice", hip.set_device(m->device)); }

static void hip_release(struct gdr_mem *m)
{
	if (m->own && enter(m) == SUCCESS)
		(void)GDR_CALL("hipFree", hip.release(m->own));
	m->own = NULL;
	m->addr = NULL;
}

static int hip_alloc(struct gdr_mem *m, size_t bytes, int device, const char **call)
{
	size_t page = GDR_DEVICE_PAGE;

	bytes = (bytes + page - 1) / page * page;
	m->device = device;
	TRY("hipSetDevice", enter(m));
	TRY("hipMalloc", hip.alloc(&m->own, bytes + page));
	m->addr = (void *)(((uintptr_t)m->own + page - 1) / page * page);
	m->bytes = bytes;
	return 0;
}

static int copy(struct gdr_mem *m, void *to, const void *from, size_t bytes, int kind)
{
	int rc = enter(m);

	if (rc == SUCCESS)
		rc = GDR_CALL("hipMemcpy", hip.copy(to, from, bytes, kind));
	if (rc == SUCCESS && kind == TO_DEVICE)
		rc = GDR_CALL("hipStreamSynchronize", hip.stream_wait(NULL));
	return -rc;
}

static int hip_in(struct gdr_mem *m, size_t to, const void *from, size_t bytes) { return copy(m, (char *)m->addr + to, from, bytes, TO_DEVICE); }
static int hip_out(struct gdr_mem *m, void *to, size_t from, size_t bytes) { return copy(m, to, (const char *)m->addr + from, bytes, TO_HOST); }

static int hip_export(struct gdr_mem *m, int pcie, int *fd, uint64_t *offset, const char **call)
{
	(void)pcie; /* there is no other way */
	*call = "hsa_amd_portable_export_dmabuf";
	if (!hip.export)
		return ENOSYS;
	TRY("hipSetDevice", enter(m));
	*fd = -1;
	*offset = 0;
	TRY("hsa_amd_portable_export_dmabuf", hip.export(m->addr, m->bytes, fd, offset));
	return *fd < 0 ? EBADF : 0;
}

static int hip_pin(struct gdr_mem *m, void *addr, size_t bytes, const char **call)
{
	TRY("hipSetDevice", enter(m));
	TRY("hipHostRegister", hip.pin(addr, bytes, 0));
	return 0;
}

static void hip_unpin(struct gdr_mem *m, void *addr)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("hipHostUnregister", hip.unpin(addr));
}

static int hip_queue_open(struct gdr_mem *m, void **queue, const char **call)
{
	TRY("hipSetDevice", enter(m));
	TRY("hipStreamCreateWithFlags", hip.stream_open(queue, STREAM_NON_BLOCKING));
	return 0;
}

static void hip_queue_close(struct gdr_mem *m, void *queue)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("hipStreamDestroy", hip.stream_close(queue));
}

static int hip_event_open(struct gdr_mem *m, void **event, const char **call)
{
	TRY("hipSetDevice", enter(m));
	TRY("hipEventCreateWithFlags", hip.event_open(event, EVENT_NO_TIMING));
	return 0;
}

static void hip_event_close(struct gdr_mem *m, void *event)
{
	if (enter(m) == SUCCESS)
		(void)GDR_CALL("hipEventDestroy", hip.event_close(event));
}

static int hip_copy_start(struct gdr_mem *m, void *queue, void *host, size_t off, size_t bytes, int out, void *event, const char **call)
{
	char *at = (char *)m->addr + off;

	TRY("hipSetDevice", enter(m));
	TRY("hipMemcpyAsync", hip.copy_async(out ? host : (void *)at, out ? (void *)at : host, bytes, out ? TO_HOST : TO_DEVICE, queue));
	if (event)
		TRY("hipEventRecord", hip.event_record(event, queue));
	return 0;
}

static int hip_event_done(struct gdr_mem *m, void *event)
{
	int rc = enter(m);

	if (rc == SUCCESS)
		rc = hip.event_query(event);
	return rc == ERROR_NOT_READY ? EAGAIN : -rc;
}

const struct gdr_mem_ops gdr_mem_rocm = {
	.kind = "rocm",
	.library = "HIP",
	.error_name = name_of,
	.alloc = hip_alloc,
	.release = hip_release,
	.copy_in = hip_in,
	.copy_out = hip_out,
	.export_dmabuf = hip_export,
	.pin = hip_pin,
	.unpin = hip_unpin,
	.queue_open = hip_queue_open,
	.queue_close = hip_queue_close,
	.event_open = hip_event_open,
	.event_close = hip_event_close,
	.copy_start = hip_copy_start,
	.event_done = hip_event_done,
};
