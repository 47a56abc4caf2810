/* The GPU's side of the double, where there is one. */
#include "provider.h"

#include <dlfcn.h>
#include <stdio.h>

enum { MEMORY_TYPE = 2, DEVICE_ORDINAL = 9, TYPE_DEVICE = 2, MOST_GPUS = 16, HOST = -1 };

static struct {
	int (*copy)(unsigned long long, unsigned long long, size_t);
	int (*pointer)(void *, int, unsigned long long);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	void *contexts[MOST_GPUS];
} cu;

void load_cuda(void)
{
	static char loaded[4096];
	const char *path = getenv("GDR_STUB_CUDA_LIBRARY");
	void *lib;

	if (!path || !strcmp(path, loaded))
		return;
	snprintf(loaded, sizeof(loaded), "%s", path);
	memset(cu.contexts, 0, sizeof(cu.contexts));
	lib = dlopen(path, RTLD_LAZY);
	if (!lib)
		abort();
	*(void **)&cu.pointer = dlsym(lib, "cuPointerGetAttribute");
	*(void **)&cu.retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
	*(void **)&cu.set_current = dlsym(lib, "cuCtxSetCurrent");
	*(void **)&cu.copy = dlsym(lib, "cuMemcpy");
}

int on_gpu(const void *p)
{
	unsigned int type = 0;

	return cu.pointer && !cu.pointer(&type, MEMORY_TYPE, (unsigned long long)(uintptr_t)p) && type == TYPE_DEVICE;
}

/* The GPU that memory is of, or HOST. */
static int gpu_of(const void *p)
{
	int gpu = 0;

	if (!on_gpu(p))
		return HOST;
	if (cu.pointer(&gpu, DEVICE_ORDINAL, (unsigned long long)(uintptr_t)p) || gpu < 0 || gpu >= MOST_GPUS)
		return 0;
	return gpu;
}

/* In the GPU's own context: what cuMemCreate gave no other GPU may touch. */
static void move_on(int gpu, void *to, const void *from, size_t n)
{
	if (!cu.contexts[gpu] && cu.retain(&cu.contexts[gpu], gpu))
		abort();
	if (cu.set_current(cu.contexts[gpu]) || cu.copy((unsigned long long)(uintptr_t)to, (unsigned long long)(uintptr_t)from, n))
		abort();
}

void move(void *to, const void *from, size_t n)
{
	int there = gpu_of(to), here = gpu_of(from);
	void *between;

	if (there == HOST && here == HOST) {
		memcpy(to, from, n);
	} else if (there == here || there == HOST || here == HOST) {
		move_on(there == HOST ? here : there, to, from, n);
	} else {
		between = malloc(n);
		move_on(here, between, from, n);
		move_on(there, to, between, n);
		free(between);
	}
}

void change(uint8_t *at, uint8_t by)
{
	uint8_t b;

	move(&b, at, 1);
	b ^= by;
	move(at, &b, 1);
}
