/*
 * A test double of libgdrapi.so.2. A mapping is a range that the CPU may not
 * touch; copies to and from it go to the GPU's memory by a libcuda, of which
 * GDR_STUB_CUDA_LIBRARY is the path. The signatures are those of NVIDIA's gdrapi.h.
 *
 *   GDR_STUB_GDRAPI  what fails: "gdr_open:13" is a call's errno; "flip-to:N" and
 *                    "flip-from:N" spoil a byte of the N-th copy; "slow"
 *
 * Built with -DOLD it has gdr_get_info alone, as before version 2.2.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
	unsigned long h;
} handle;
struct info {
	uint64_t va, mapped_size;
	uint32_t page_size;
	uint64_t tm_cycles;
	uint32_t cycles_per_ms;
	unsigned int mapped : 1, wc_mapping : 1;
	int mapping_type;
};

enum { PAGE = 65536 };
static struct {
	unsigned long at;
	size_t bytes;
	char *bar;
} pinned;
static int open_handles;
static int (*in)(unsigned long long, const void *, size_t), (*out)(void *, unsigned long long, size_t);

static int fault(const char *name)
{
	const char *f = getenv("GDR_STUB_GDRAPI");
	size_t n = strlen(name);

	return f && !strncmp(f, name, n) && (f[n] == ':' || !f[n]) ? f[n] ? atoi(f + n + 1) : 1 : 0;
}

void *gdr_open(void)
{
	const char *cuda = getenv("GDR_STUB_CUDA_LIBRARY");
	void *lib = cuda ? dlopen(cuda, RTLD_NOW) : NULL;

	errno = fault("gdr_open");
	if (errno || !lib)
		return NULL;
	*(void **)&in = dlsym(lib, "cuMemcpyHtoD_v2");
	*(void **)&out = dlsym(lib, "cuMemcpyDtoH_v2");
	open_handles++;
	return &pinned;
}
int gdr_close(void *g)
{
	(void)g;
	if (--open_handles < 0 || pinned.at)
		abort(); /* something is still pinned */
	return 0;
}
int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t token, uint32_t space, handle *h)
{
	(void)g, (void)token, (void)space;
	if (fault("gdr_pin_buffer"))
		return fault("gdr_pin_buffer");
	if (addr % PAGE || size % PAGE || pinned.at)
		return EINVAL;
	pinned.at = addr;
	pinned.bytes = size;
	h->h = 42;
	return 0;
}
int gdr_unpin_buffer(void *g, handle h)
{
	(void)g;
	if (h.h != 42 || pinned.bar)
		abort();
	pinned.at = 0;
	return 0;
}
int gdr_map(void *g, handle h, void **va, size_t size)
{
	(void)g;
	if (fault("gdr_map"))
		return fault("gdr_map");
	if (h.h != 42 || size != pinned.bytes)
		return EINVAL;
	/* The kernel's part begins a page earlier, as it may. */
	pinned.bar = mmap(NULL, size + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*va = pinned.bar;
	return 0;
}
int gdr_unmap(void *g, handle h, void *va, size_t size)
{
	(void)g, (void)h;
	if (va != pinned.bar || size != pinned.bytes)
		abort();
	munmap(pinned.bar, size + PAGE);
	pinned.bar = NULL;
	return 0;
}
static int info(struct info *i)
{
	i->va = pinned.at - PAGE;
	i->mapped_size = pinned.bytes + PAGE;
	i->mapped = i->wc_mapping = 1;
	return fault("gdr_get_info");
}
int gdr_get_info(void *g, handle h, struct info *i) { (void)g, (void)h; return info(i); }
#ifndef OLD
int gdr_get_info_v2(void *g, handle h, struct info *i) { (void)g, (void)h; i->mapping_type = 1; return info(i); }
#endif

static int copy(const char *flip, void *map, void *host, size_t size, int to)
{
	static int copies;
	unsigned long long at = pinned.at - PAGE + (unsigned long long)((char *)map - pinned.bar);
	char *bytes = host;
	int rc;

	if (!pinned.bar || (char *)map < pinned.bar + PAGE || (char *)map + size > pinned.bar + PAGE + pinned.bytes)
		abort();
	if (fault("slow"))
		usleep(200);
	rc = to ? in(at, host, size) : out(host, at, size);
	if (fault(flip) && ++copies == fault(flip)) {
		char wrong = (char)~bytes[size / 2];

		if (to)
			rc = in(at + size / 2, &wrong, 1);
		else
			bytes[size / 2] = wrong;
	}
	return rc;
}
int gdr_copy_to_mapping(handle h, void *map, const void *host, size_t size) { (void)h; return copy("flip-to", map, (void *)(uintptr_t)host, size, 1); }
int gdr_copy_from_mapping(handle h, void *host, const void *map, size_t size) { (void)h; return copy("flip-from", (void *)(uintptr_t)map, host, size, 0); }
void gdr_runtime_get_version(int *major, int *minor) { *major = 2; *minor = 5; }
int gdr_driver_get_version(void *g, int *major, int *minor) { (void)g; *major = 2; *minor = 4; return fault("gdr_driver_get_version"); }
