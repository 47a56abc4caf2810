/* The GPU's side of the double, where there is one. */
#include "provider.h"

#include <dlfcn.h>
#include <stdio.h>

static struct {
	int (*copy)(unsigned long long, unsigned long long, size_t);
	int (*pointer)(void *, int, unsigned long long);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	void *context;
} cu;

void load_cuda(void)
{
	static char loaded[4096];
	const char *path = getenv("GDR_STUB_CUDA_LIBRARY");
	void *lib;

	if (!path || !strcmp(path, loaded))
		return;
	snprintf(loaded, sizeof(loaded), "%s", path);
	cu.context = NULL;
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
	enum { MEMORY_TYPE = 2, DEVICE = 2 };
	unsigned int type = 0;

	return cu.pointer && !cu.pointer(&type, MEMORY_TYPE, (unsigned long long)(uintptr_t)p) && type == DEVICE;
}

void move(void *to, const void *from, size_t n)
{
	if (!on_gpu(to) && !on_gpu(from)) {
		memcpy(to, from, n);
		return;
	}
	if (!cu.context && cu.retain(&cu.context, 0))
		abort();
	if (cu.set_current(cu.context) || cu.copy((unsigned long long)(uintptr_t)to, (unsigned long long)(uintptr_t)from, n))
		abort();
}

void change(uint8_t *at, uint8_t by)
{
	uint8_t b;

	move(&b, at, 1);
	b ^= by;
	move(at, &b, 1);
}
