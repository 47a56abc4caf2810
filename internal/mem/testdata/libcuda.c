/*
 * A test double of libcuda.so.1. Its GPUs' memory is the host's, mapped a second
 * time where only this library finds it: at the address that it hands out the
 * CPU may not touch it, as it may not on a real GPU. The signatures are those
 * of NVIDIA's cuda.h, written down again with plain C types.
 *
 *   GDR_STUB_CUDA       faults: "cuMemAlloc_v2:2,cuCtxSetCurrent:hang"; a number
 *                       is what the call answers, or hang, or crash
 *   GDR_STUB_CUDA_GPUS  PCI addresses, in place of 0000:10:00.0 and 0000:30:00.0
 *   GDR_STUB_CUDA_LATE  N: what is on a stream happens only as its events are asked
 *                       for, one thing at every N-th question, so that a copy
 *                       reads its source long after it was started
 *   GDR_STUB_CUDA_OPEN  the CPU, and so Soft-RoCE, may use device addresses
 *   GDRCHECK_STUB_MODE  one of the bad days of cuInit and of attributes, below
 *
 * Built with -DOLD it lacks what old libraries lack.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long ptr;

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { MAX = 512 };

struct piece {
	ptr at;
	size_t bytes, alloc; /* alloc: the number of the allocation that it belongs to */
	char *shadow;
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece pieces[MAX];
static struct {
	int fd;
	size_t bytes;
} handles[MAX];
static size_t next;
static int retained[8];
static __thread void *current;

static int mode(const char *name)
{
	const char *m = getenv("GDRCHECK_STUB_MODE");
	return m && !strcmp(m, name);
}

static int fault(const char *call)
{
	const char *f = getenv("GDR_STUB_CUDA");
	size_t n = strlen(call);

	for (; f && *f; f = strchr(f, ',') ? strchr(f, ',') + 1 : NULL)
		if (!strncmp(f, call, n) && f[n] == ':') {
			while (!strncmp(f + n + 1, "hang", 4))
				pause();
			if (!strncmp(f + n + 1, "crash", 5))
				abort();
			return atoi(f + n + 1);
		}
	return OK;
}

/* Every call begins with a fault that is asked for; most want a context. */
#define BEGIN                              \
	do {                               \
		int f_ = fault(__func__);  \
		if (f_)                    \
			return f_;         \
	} while (0)
#define BEGIN_IN_CONTEXT                    \
	BEGIN;                              \
	do {                                \
		if (!current)               \
			return INVALID_CONTEXT; \
	} while (0)

static int gpus(char list[8][16])
{
	const char *env = getenv("GDR_STUB_CUDA_GPUS");
	char *copy = strdup(env ? env : "0000:10:00.0 0000:30:00.0"), *word, *rest;
	int n = 0;

	for (word = strtok_r(copy, " ", &rest); word && n < 8; word = strtok_r(NULL, " ", &rest))
		snprintf(list[n++], 16, "%.15s", word);
	free(copy);
	return n;
}

int cuInit(unsigned flags)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");

	(void)flags;
	BEGIN;
	if (mode("hang-init"))
		for (;;)
			pause();
	if (mode("crash-init"))
		*(volatile int *)0 = 1;
	if (mode("mismatch"))
		return 803;
	if (mode("fabric"))
		return 802;
	if (mode("odd"))
		return 31337;
	if (mode("no-device"))
		return NO_DEVICE;
	if (getenv("CUDA_VISIBLE_DEVICES") || !order || strcmp(order, "PCI_BUS_ID"))
		return 999;
	return OK;
}

int cuDriverGetVersion(int *v) { *v = 13000; return OK; }

int cuDeviceGetCount(int *n)
{
	char list[8][16];

	*n = mode("absurd-count") ? -5 : gpus(list);
	return OK;
}

int cuDeviceGet(int *d, int i) { *d = i; return OK; }

int cuDeviceGetPCIBusId(char *s, int n, int d)
{
	char list[8][16];

	if (mode("garbage"))
		memset(s, 'z', n);
	else if (d >= gpus(list))
		return INVALID_DEVICE;
	else
		snprintf(s, n, "%s", list[d]);
	return OK;
}

int cuDeviceGetByPCIBusId(int *d, const char *s)
{
	char list[8][16];
	int n = gpus(list);

	BEGIN;
	for (*d = 0; *d < n; ++*d)
		if (!strcasecmp(list[*d], s))
			return OK;
	return INVALID_DEVICE;
}

#ifndef OLD
int cuDeviceGetAttribute(int *v, int attr, int d)
{
	if (d == 1 && mode("crash-gpu1"))
		*(volatile int *)0 = 1;
	if (attr == 124)
		return mode("old-driver") ? INVALID_VALUE : (*v = 1, OK);
	*v = attr;
	return OK;
}
#endif

int cuGetErrorString(int code, const char **s)
{
	if (code == 31337)
		*s = "stub words";
	return code != 31337;
}

int cuGetErrorName(int code, const char **s)
{
	static const struct { int code; const char *name; } names[] = {
		{ 1, "CUDA_ERROR_INVALID_VALUE" }, { 2, "CUDA_ERROR_OUT_OF_MEMORY" }, { 46, "CUDA_ERROR_DEVICE_UNAVAILABLE" },
		{ 100, "CUDA_ERROR_NO_DEVICE" }, { 101, "CUDA_ERROR_INVALID_DEVICE" }, { 719, "CUDA_ERROR_LAUNCH_FAILED" },
		{ 201, "CUDA_ERROR_INVALID_CONTEXT" }, { 801, "CUDA_ERROR_NOT_SUPPORTED" },
		{ 802, "CUDA_ERROR_SYSTEM_NOT_READY" }, { 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" } };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].code == code) {
			*s = names[i].name;
			return OK;
		}
	return INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **c, int d)
{
	BEGIN;
	pthread_mutex_lock(&lock);
	retained[d]++;
	pthread_mutex_unlock(&lock);
	*c = &retained[d];
	return OK;
}

int cuDevicePrimaryCtxRelease_v2(int d)
{
	pthread_mutex_lock(&lock);
	if (!retained[d])
		abort();
	retained[d]--;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuCtxSetCurrent(void *c)
{
	BEGIN;
	current = c;
	return OK;
}

static int memory(size_t bytes)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Maps memory at an address, or anywhere for 0, and for this library once more. */
static int place(ptr *at, int fd, size_t bytes, size_t alloc)
{
	int open = getenv("GDR_STUB_CUDA_OPEN") ? PROT_READ | PROT_WRITE : PROT_NONE;
	void *p = mmap((void *)*at, bytes, open, MAP_SHARED | (*at ? MAP_FIXED : 0), fd, 0);
	char *shadow = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int i;

	if (p == MAP_FAILED || shadow == MAP_FAILED)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (i = 0; i < MAX && pieces[i].at; i++)
		;
	if (i == MAX)
		abort();
	*at = (ptr)p;
	pieces[i] = (struct piece){ .at = *at, .bytes = bytes, .alloc = alloc, .shadow = shadow, .fd = fd };
	pthread_mutex_unlock(&lock);
	return OK;
}

static struct piece *find(ptr at)
{
	int i;

	for (i = 0; i < MAX; i++)
		if (pieces[i].at && at >= pieces[i].at && at < pieces[i].at + pieces[i].bytes)
			return &pieces[i];
	return NULL;
}

static void drop(struct piece *p)
{
	munmap((void *)p->at, p->bytes);
	munmap(p->shadow, p->bytes);
	close(p->fd);
	p->at = 0;
}

int cuMemAlloc_v2(ptr *at, size_t bytes)
{
	enum { ODD = 512 }; /* real ones are not page aligned either */
	int fd, rc;

	BEGIN_IN_CONTEXT;
	fd = memory(bytes + ODD);
	if (fd < 0)
		return OUT_OF_MEMORY;
	*at = 0;
	rc = place(at, fd, bytes + ODD, __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED));
	*at += ODD;
	return rc;
}

int cuMemFree_v2(ptr at)
{
	struct piece *p;

	BEGIN_IN_CONTEXT;
	pthread_mutex_lock(&lock);
	p = find(at);
	if (p)
		drop(p);
	pthread_mutex_unlock(&lock);
	return p ? OK : INVALID_VALUE;
}

/* Copies between addresses of either kind, piece by piece. */
int cuMemcpy(ptr to, ptr from, size_t bytes)
{
	BEGIN_IN_CONTEXT;
	pthread_mutex_lock(&lock);
	while (bytes) {
		struct piece *a = find(to), *b = find(from);
		size_t n = bytes;

		if (a && a->at + a->bytes - to < n)
			n = a->at + a->bytes - to;
		if (b && b->at + b->bytes - from < n)
			n = b->at + b->bytes - from;
		memcpy(a ? a->shadow + (to - a->at) : (void *)to, b ? b->shadow + (from - b->at) : (void *)from, n);
		to += n;
		from += n;
		bytes -= n;
	}
	pthread_mutex_unlock(&lock);
	return OK;
}
int cuMemcpyHtoD_v2(ptr to, const void *from, size_t bytes) { BEGIN; return cuMemcpy(to, (ptr)from, bytes); }
int cuMemcpyDtoH_v2(void *to, ptr from, size_t bytes) { BEGIN; return cuMemcpy((ptr)to, from, bytes); }
int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) { (void)p, (void)bytes, (void)flags; BEGIN_IN_CONTEXT; return OK; }
int cuMemHostUnregister(void *p) { (void)p; return OK; }

struct op {
	ptr to, from;
	size_t bytes;
};
struct stream {
	struct op ops[1024];
	size_t put, through;
};
struct event {
	struct stream *stream;
	size_t at; /* through when so many of its stream's are */
	int asked;
};

static int late(void)
{
	const char *n = getenv("GDR_STUB_CUDA_LATE");

	return n ? atoi(n) : 0;
}

static int run_one(struct stream *s)
{
	struct op *o = &s->ops[s->through++ % 1024];

	return cuMemcpy(o->to, o->from, o->bytes);
}

static int put(struct stream *s, ptr to, ptr from, size_t bytes)
{
	if (s->put - s->through == 1024)
		abort();
	s->ops[s->put++ % 1024] = (struct op){ to, from, bytes };
	return late() ? OK : run_one(s);
}

int cuMemcpyHtoDAsync_v2(ptr to, const void *from, size_t bytes, void *s) { BEGIN_IN_CONTEXT; return put(s, to, (ptr)from, bytes); }
int cuMemcpyDtoHAsync_v2(void *to, ptr from, size_t bytes, void *s) { BEGIN_IN_CONTEXT; return put(s, (ptr)to, from, bytes); }
int cuStreamCreate(void **s, unsigned flags) { (void)flags; BEGIN_IN_CONTEXT; *s = calloc(1, sizeof(struct stream)); return OK; }
int cuStreamDestroy_v2(void *s) { free(s); return OK; }
int cuEventCreate(void **e, unsigned flags) { (void)flags; BEGIN_IN_CONTEXT; *e = calloc(1, sizeof(struct event)); return OK; }
int cuEventDestroy_v2(void *e) { free(e); return OK; }

int cuStreamSynchronize(void *s)
{
	struct stream *q = s;
	int rc = OK;

	BEGIN_IN_CONTEXT;
	while (!rc && q && q->through < q->put)
		rc = run_one(q);
	return rc;
}

int cuEventRecord(void *e, void *s)
{
	struct stream *q = s;

	BEGIN_IN_CONTEXT;
	*(struct event *)e = (struct event){ .stream = q, .at = q->put };
	return OK;
}

int cuEventQuery(void *e)
{
	enum { NOT_READY = 600 };
	struct event *v = e;

	BEGIN_IN_CONTEXT;
	if (!v->stream || v->stream->through >= v->at)
		return OK;
	if (++v->asked % late())
		return NOT_READY;
	return run_one(v->stream) ? INVALID_VALUE : v->stream->through >= v->at ? OK : NOT_READY;
}

int cuPointerSetAttribute(const void *v, int attr, ptr at)
{
	(void)v, (void)attr;
	return find(at) ? OK : INVALID_VALUE;
}

/* A double of the verbs asks what an address is. */
int cuPointerGetAttribute(void *v, int attr, ptr at)
{
	enum { MEMORY_TYPE = 2, DEVICE = 2 };

	if (attr != MEMORY_TYPE || !find(at))
		return INVALID_VALUE;
	*(unsigned *)v = DEVICE;
	return OK;
}

int cuFlushGPUDirectRDMAWrites(int target, int scope) { (void)target, (void)scope; BEGIN_IN_CONTEXT; return OK; }

#ifndef OLD
int cuMemGetHandleForAddressRange(void *out, ptr at, size_t bytes, int type, unsigned long long flags)
{
	enum { DMA_BUF_FD = 1, PAGE = 4096, NOT_SUPPORTED = 801 };
	struct piece *p, *end;

	BEGIN_IN_CONTEXT;
	p = find(at);
	end = find(at + bytes - 1);
	if (type != DMA_BUF_FD || flags > 1 || at % PAGE || bytes % PAGE || !p || !end || p->alloc != end->alloc)
		return INVALID_VALUE;
	if (flags && fault("pcie-mapping"))
		return fault("pcie-mapping");
	*(int *)out = memory(bytes); /* of the right size; a double of the verbs reads no more of it */
	return OK;
}

int cuMemGetAllocationGranularity(size_t *n, const void *prop, int which) { (void)prop, (void)which; *n = 2 << 20; return OK; }

int cuMemAddressReserve(ptr *at, size_t bytes, size_t align, ptr want, unsigned long long flags)
{
	void *p;

	(void)align, (void)want, (void)flags;
	BEGIN_IN_CONTEXT;
	p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*at = (ptr)p;
	return p == MAP_FAILED ? OUT_OF_MEMORY : OK;
}

int cuMemAddressFree(ptr at, size_t bytes)
{
	if (find(at))
		abort(); /* something is still mapped there */
	munmap((void *)at, bytes);
	return OK;
}

int cuMemCreate(unsigned long long *h, size_t bytes, const void *prop, unsigned long long flags)
{
	const unsigned char *flag = (const unsigned char *)prop + 24; /* allocFlags */

	(void)flags;
	BEGIN_IN_CONTEXT;
	if (!flag[1]) /* gpuDirectRDMACapable: attribute 110 says that it can be had */
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	for (*h = 1; *h < MAX - 1 && handles[*h].bytes; ++*h)
		;
	handles[*h].fd = memory(bytes);
	handles[*h].bytes = bytes;
	pthread_mutex_unlock(&lock);
	return handles[*h].fd < 0 ? OUT_OF_MEMORY : OK;
}

int cuMemRelease(unsigned long long h)
{
	pthread_mutex_lock(&lock);
	close(handles[h].fd);
	handles[h].bytes = 0;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuMemMap(ptr at, size_t bytes, size_t off, unsigned long long h, unsigned long long flags)
{
	(void)flags;
	BEGIN_IN_CONTEXT;
	if (off || bytes != handles[h].bytes)
		return INVALID_VALUE;
	return place(&at, dup(handles[h].fd), bytes, 0);
}

int cuMemUnmap(ptr at, size_t bytes)
{
	ptr end = at + bytes;

	pthread_mutex_lock(&lock);
	while (at < end) {
		struct piece *p = find(at);

		if (!p)
			abort();
		at += p->bytes;
		drop(p);
	}
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuMemSetAccess(ptr at, size_t bytes, const void *desc, size_t n) { (void)at, (void)bytes, (void)desc, (void)n; BEGIN_IN_CONTEXT; return OK; }
#endif
