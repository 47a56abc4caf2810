/* The declarations are those of NVIDIA's gdrapi.h (libgdrapi.so.2) as far as
 * needed, written down again. */
#define _GNU_SOURCE
#include "gdrcopy.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { /* gdr_mh_t */
	unsigned long h;
} handle;

struct info { /* gdr_info_v2_t; older libraries write less of it */
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned int mapped : 1, wc_mapping : 1;
	int mapping_type;
};

static struct {
	void *(*open)(void);
	int (*close)(void *);
	int (*pin_buffer)(void *, unsigned long, size_t, uint64_t, uint32_t, handle *);
	int (*unpin_buffer)(void *, handle);
	int (*map)(void *, handle, void **, size_t);
	int (*unmap)(void *, handle, void *, size_t);
	int (*copy_to_mapping)(handle, void *, const void *, size_t);
	int (*copy_from_mapping)(handle, void *, const void *, size_t);
	void (*runtime_get_version)(int *, int *);
	int (*driver_get_version)(void *, int *, int *);
	int (*get_info_v2)(void *, handle, struct info *);
	int (*get_info)(void *, handle, struct info *);
} api;

static const struct {
	const char *name;
	void **fn;
	int optional;
} symbols[] = {
	{ "gdr_open", (void **)&api.open, 0 },
	{ "gdr_close", (void **)&api.close, 0 },
	{ "gdr_pin_buffer", (void **)&api.pin_buffer, 0 },
	{ "gdr_unpin_buffer", (void **)&api.unpin_buffer, 0 },
	{ "gdr_map", (void **)&api.map, 0 },
	{ "gdr_unmap", (void **)&api.unmap, 0 },
	{ "gdr_copy_to_mapping", (void **)&api.copy_to_mapping, 0 },
	{ "gdr_copy_from_mapping", (void **)&api.copy_from_mapping, 0 },
	{ "gdr_runtime_get_version", (void **)&api.runtime_get_version, 0 },
	{ "gdr_driver_get_version", (void **)&api.driver_get_version, 0 },
	{ "gdr_get_info_v2", (void **)&api.get_info_v2, 1 },
	{ "gdr_get_info", (void **)&api.get_info, 1 },
};

char *gdr_copy_load(const char *path)
{
	void *lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	char *text = NULL;
	size_t i;

	if (!lib) {
		const char *why = dlerror();

		return strdup(why ? why : "dlopen failed");
	}
	for (i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
		*symbols[i].fn = dlsym(lib, symbols[i].name);
		if (!*symbols[i].fn && !symbols[i].optional)
			return asprintf(&text, "%s has no %s", path, symbols[i].name) < 0 ? strdup(symbols[i].name) : text;
	}
	return NULL;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The memory while it is mapped. */
struct mapped {
	struct gdr_copy *c;
	void *gdr;
	handle h;
	void *bar;
	char *window; /* where the allocation begins in it */
	uint8_t *want, *got;
};

static int failed(struct gdr_copy *c, const char *call, int rc)
{
	if (!c->call) {
		c->call = call;
		c->rc = rc ? rc : EIO;
	}
	return -1;
}

enum way { TO, FROM, CUDA_TO, CUDA_FROM };
static const char *const calls[] = { "gdr_copy_to_mapping", "gdr_copy_from_mapping", "copy to the GPU", "copy from the GPU" };

static int copy(struct mapped *m, enum way way, size_t bytes)
{
	struct gdr_mem *mem = &m->c->mem;
	int rc;

	switch (way) {
	case TO:
		rc = api.copy_to_mapping(m->h, m->window, m->want, bytes);
		break;
	case FROM:
		rc = api.copy_from_mapping(m->h, m->got, m->window, bytes);
		break;
	case CUDA_TO:
		rc = mem->ops->copy_in(mem, 0, m->want, bytes);
		break;
	default:
		rc = mem->ops->copy_out(mem, m->got, 0, bytes);
	}
	return rc ? failed(m->c, calls[way], rc) : 0;
}

/* The mean of as many copies as a moment has room for. */
static int timed(struct mapped *m, enum way way, size_t bytes, double *ns)
{
	enum { LEAST = 3, MOMENT_NS = 10000000 };
	double start = now_ns(), end = start;
	int n;

	for (n = 0; n < LEAST || end - start < MOMENT_NS; n++) {
		if (copy(m, way, bytes))
			return -1;
		end = now_ns();
	}
	*ns = (end - start) / n;
	return 0;
}

/* Copies in one way and back in another, over memory that holds the complement:
 * no byte is right by chance. */
static int compared(struct mapped *m, enum way there, enum way back, size_t bytes, uint8_t seed, int *wrong)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		m->want[i] = (uint8_t)~(seed + i * 131 + (i >> 8));
	if (copy(m, CUDA_TO, bytes))
		return -1;
	for (i = 0; i < bytes; i++)
		m->want[i] = (uint8_t)~m->want[i];
	memset(m->got, 0, bytes);
	if (copy(m, there, bytes) || copy(m, back, bytes))
		return -1;
	*wrong = memcmp(m->want, m->got, bytes) != 0;
	return 0;
}

static int copies(struct mapped *m)
{
	enum { FOUR = 2 };
	size_t i;

	for (i = 0; i < GDR_COPY_SIZES; i++) {
		struct gdr_copied *s = &m->c->sizes[i];
		size_t n = (size_t)4 << FOUR * i;

		if (compared(m, TO, CUDA_FROM, n, (uint8_t)i, &s->wrong_to) || compared(m, CUDA_TO, FROM, n, (uint8_t)(i + 1), &s->wrong_from))
			return -1;
		if (timed(m, TO, n, &s->to) || timed(m, FROM, n, &s->from) || timed(m, CUDA_TO, n, &s->cuda_to) || timed(m, CUDA_FROM, n, &s->cuda_from))
			return -1;
		s->bytes = n;
	}
	return 0;
}

static int map(struct mapped *m)
{
	struct gdr_copy *c = m->c;
	struct info info = { .mapping_type = -1 };
	double start = now_ns();
	int rc;

	rc = api.pin_buffer(m->gdr, (unsigned long)(uintptr_t)c->mem.addr, c->mem.bytes, 0, 0, &m->h);
	if (rc)
		return failed(c, "gdr_pin_buffer", rc);
	c->pin_ns = now_ns() - start;
	start = now_ns();
	rc = api.map(m->gdr, m->h, &m->bar, c->mem.bytes);
	if (!rc) {
		c->map_ns = now_ns() - start;
			rc = api.get_info_v2 ? api.get_info_v2(m->gdr, m->h, &info) : api.get_info ? api.get_info(m->gdr, m->h, &info) : ENOSYS;
		if (rc) {
			(void)api.unmap(m->gdr, m->h, m->bar, c->mem.bytes);
			(void)failed(c, "gdr_get_info", rc);
		}
	} else {
		(void)failed(c, "gdr_map", rc);
	}
	if (rc) {
		(void)api.unpin_buffer(m->gdr, m->h);
		return -1;
	}
	c->mapping = info.mapping_type;
	m->window = (char *)m->bar + ((uint64_t)(uintptr_t)c->mem.addr - info.va);
	return 0;
}

static int probe(struct mapped *m)
{
	struct gdr_copy *c = m->c;
	int rc;

	errno = 0;
	m->gdr = api.open();
	if (!m->gdr)
		return failed(c, "gdr_open", errno);
	rc = api.driver_get_version(m->gdr, &c->driver[0], &c->driver[1]);
	if (rc)
		(void)failed(c, "gdr_driver_get_version", rc);
	else if (!map(m)) {
		(void)copies(m);
			(void)api.unmap(m->gdr, m->h, m->bar, c->mem.bytes);
		(void)api.unpin_buffer(m->gdr, m->h);
	}
	(void)api.close(m->gdr);
	return c->call ? -1 : 0;
}

int gdr_copy_probe(struct gdr_copy *c, const struct gdr_mem_ops *ops, int device)
{
	enum { LARGEST = 16 << 20 };
	struct mapped m = { .c = c, .want = malloc(LARGEST), .got = malloc(LARGEST) };
	const char *call = "malloc";
	int rc = m.want && m.got ? 0 : ENOMEM;

	c->mapping = -1;
	api.runtime_get_version(&c->library[0], &c->library[1]);
	c->mem.ops = ops;
	if (!rc)
		rc = ops->alloc(&c->mem, LARGEST, device, &call);
	if (rc) {
		(void)failed(c, call, rc);
	} else {
		(void)probe(&m);
		ops->release(&c->mem);
	}
	free(m.want);
	free(m.got);
	return c->call ? -1 : 0;
}
